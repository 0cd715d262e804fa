"""The operator's address as one application: one file per subject, behind one guard."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from router.admin import problems
from router.admin.auth import Guard, Tokens
from router.admin.context import Admin
from router.admin.holder import Holders
from router.admin.limit import Limit
from router.admin.routes import (
    audit,
    cache,
    classifiers,
    config,
    groups,
    keys,
    live,
    replicas,
    thresholds,
    tuning,
    versions,
)

_SUBJECTS = (live, config, versions, groups, replicas, thresholds, classifiers, tuning, cache, keys, audit)


def build_admin_app(admin: Admin, tokens: Tokens, people: Holders | None = None) -> Any:
    """Return the admin application, for holders of `tokens` and `people`; its OpenAPI page is `/docs`. Whatever isn't open needs a token."""
    open_metrics = admin.base.config.admin.open_metrics
    return Guard(Limit(build_routes(admin)), tokens, open_metrics=open_metrics, people=people)


def build_routes(admin: Admin) -> FastAPI:
    """Return what is behind the guard: every subject's routes, and errors in one shape."""
    app = FastAPI(title="Bitgear admin", version="1", docs_url="/docs", redoc_url=None)
    problems.install(app)
    for subject in _SUBJECTS:
        app.include_router(subject.routes(admin))
    return app
