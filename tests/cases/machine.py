"""A machine of a deployment: `bitgear serve` with its own folder, in front of a given upstream and Redis."""

from __future__ import annotations

import asyncio
import signal
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from tests.router.cli.processes import Running
from tests.support.client import fetch

TOKEN = "the-operators-token"


class Machine:
    """One `bitgear serve` with two workers; `more` are sections of its configuration."""

    def __init__(self, folder: Path, upstream: str, redis_url: str, **more: Any) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        tokens = {"tester": {"sha256": sha256(TOKEN.encode()).hexdigest(), "role": "write"}}
        config = {
            "server": {"workers": 2},
            "admin": {"tokens": tokens},
            "redis": {"url": redis_url},
            "health": {"probe_interval_s": 0.1},
            "groups": {"g": {"backends": [{"precision": "fp16", "urls": [upstream], "model": "g"}]}},
            **more,
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))

    async def start(self) -> None:
        file = str(self._folder / "config.yaml")
        self.process = Running(self._folder, "serve", "--config", file, "--port", "0", "--admin-port", "0")
        text = await asyncio.to_thread(self.process.until_says, "Ctrl-C ends it.", 120)
        self.api = text.split("Bitgear serves")[1].split("/v1")[0].strip()
        self.admin = text.split("\nAdmin")[1].split("(")[0].strip().replace("//", f"//tester:{TOKEN}@")
        ready = 0
        async with asyncio.timeout(60):
            # Sockets are shared: only answers in a row show that both workers are ready.
            while ready < 12:
                ready = ready + 1 if (await fetch(self.admin, "/readyz", timeout=30)).status == 200 else 0

    def stop(self) -> int:
        return self.process.ended(signal.SIGTERM, 60)
