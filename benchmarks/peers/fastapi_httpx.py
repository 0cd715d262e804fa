"""Baseline: the twenty-line proxy most people write, FastAPI and httpx.

UPSTREAM=http://127.0.0.1:9000 uvicorn fastapi_httpx:app
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=1000)
    async with httpx.AsyncClient(base_url=os.environ["UPSTREAM"], limits=limits, timeout=None) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    client: httpx.AsyncClient = request.app.state.client
    payload = await request.json()
    if not payload.get("stream"):
        up = await client.post("/v1/chat/completions", json=payload)
        return Response(up.content, status_code=up.status_code, media_type=up.headers.get("content-type"))
    up = await client.send(client.build_request("POST", "/v1/chat/completions", json=payload), stream=True)

    async def relay() -> AsyncIterator[bytes]:
        try:
            async for part in up.aiter_raw():
                yield part
        finally:
            await up.aclose()

    return StreamingResponse(relay(), status_code=up.status_code, media_type="text/event-stream")
