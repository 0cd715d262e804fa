"""Whose people may use the admin API beside the holders of its own tokens."""

from __future__ import annotations

import logging

from router.admin.auth import TokenSetupError
from router.admin.holder import Holders
from router.config.admin import AdminConfig


def people_of(config: AdminConfig, log: logging.Logger) -> Holders | None:
    """Return who else may use the admin API. Raises TokenSetupError where the extra is missing."""
    if config.oidc is None:
        return None
    try:
        from router.admin.oidc import Oidc, fetch_json
    except ImportError as error:
        raise TokenSetupError(f"admin.oidc needs the extra `oidc` ({error.name} is missing)") from None
    return Oidc(config.oidc, fetch_json, log).holder
