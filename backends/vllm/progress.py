"""vLLM's log to one short phrase: what a server that isn't ready yet is doing."""

from __future__ import annotations

import re

_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Application startup complete"), "serving"),
    (re.compile(r"Starting vLLM (?:API )?server|Available routes are"), "opening its address"),
    (re.compile(r"init engine \(profile|Supported tasks"), "warmed up"),
    (re.compile(r"[Ww]arming up|[Cc]apturing CUDA graph|Graph capturing"), "warming up"),
    (re.compile(r"KV cache size|KV cache layout|GiB for KV cache"), "making the KV cache"),
    (re.compile(r"Compiling a graph|Dynamo bytecode|[Ss]tart compiling"), "compiling"),
    (re.compile(r"[Mm]emory profiling|Model loading took|Loading weights took"), "profiling memory"),
    (re.compile(r"Loading \w+ checkpoint shards:\s+(?P<done>\d+)%"), "loading weights"),
    (re.compile(r"Starting to load model|Attempted to load weight"), "loading weights"),
    (re.compile(r"Initializing a V1 LLM engine"), "starting the engine"),
    (re.compile(r"Resolved architecture|Using max model len"), "starting the engine's process"),
    (re.compile(r"non-default args"), "reading the configuration"),
)
"""What a line says, the latest step of a start first."""
_FAILURE = re.compile(r"^(?:\([^)]*\) )?(?:ERROR [^\]]*\] )?(?P<what>\w*(?:Error|Exception)\b.*)$")
_LIMIT = 160


def progress_of(log_tail: str) -> str:
    """The last step that the log speaks of: `loading weights 40 %`, `warming up`, `serving`.

    Anything before the first known line is `importing`; an error after the last step comes back as `failed: ...`.
    """
    for line in reversed(log_tail.splitlines()):
        for pattern, phrase in _STEPS:
            if found := pattern.search(line):
                done = found.groupdict().get("done")
                return f"{phrase} {done} %" if done else phrase
        if failure := _FAILURE.match(line.strip()):
            return f"failed: {failure['what'][:_LIMIT]}"
    return "importing"
