"""The cache as the configuration describes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from router.cache.cluster import Cluster, is_cluster
from router.cache.entry import Format
from router.cache.secret import CacheSetupError, read_secret
from router.cache.store import Store
from router.config.runtime import Runtime
from router.proxy.caching import Caching
from router.proxy.deciding import Decider
from router.proxy.nearest import build_nearest


def build_caching(
    runtime: Runtime,
    decider: Decider,
    env: Mapping[str, str],
    log: logging.Logger,
    previous: Caching | None = None,
) -> Caching:
    """Return the cache as the configuration describes it. Raises CacheSetupError.

    With a `previous` one it shares that one's connection and the calls that identical requests wait for.
    """
    config, redis = runtime.config.cache, runtime.config.redis
    secret = read_secret(config.encryption_key_env, env) if config.enabled else None
    password = env.get(redis.password_env) if redis.password_env else None
    url = (config.url or runtime.redis_url) if config.enabled else None
    try:
        kind: Callable[..., Store] = Cluster if is_cluster(url or "") else Store
        store = (
            previous.store
            if previous is not None
            else kind(url, password=password, timeout_s=config.timeout_ms / 1000, log=log)
        )
    except (ValueError, OSError) as error:
        raise CacheSetupError(f"{'cache.url' if config.url else 'redis.url'}: {error}") from None
    form = Format(
        compress_above=config.compress_above_bytes,
        max_bytes=int(config.max_entry_kib * 1024),
        cipher=secret.cipher if secret is not None else None,
    )
    nearest = build_nearest(runtime, env, log) if config.enabled else {}
    tenants = secret.tenants if secret is not None else b""
    return Caching(runtime, store, form, decider, log, nearest, tenants, previous)
