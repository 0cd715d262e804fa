"""Carrying a replica's answer to the client: a stream event by event, a whole answer in one piece."""

from __future__ import annotations

import contextlib
import time

import orjson

from backends.wire import Connection, UpstreamError
from router.cache.capture import Capture
from router.proxy.client import Client, ClientLeft
from router.proxy.errors import ApiError
from router.proxy.failures import is_client_error
from router.proxy.outcome import Outcome
from router.proxy.sse import StreamRelay, rename_model
from router.proxy.surface import OTHER
from router.proxy.usage import usage_of_answer
from router.state import Replica

_WHOLE_BUFFER = 4 * 1024 * 1024
"""A whole answer up to this is buffered, so that a replica that dies in it can be replaced."""
_STREAM_HEADERS = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
Headers = list[tuple[bytes, bytes]]


def _rename(outcome: Outcome, asked: str) -> tuple[bytes, bytes] | None:
    served = outcome.variant.spec.served_model if outcome.variant is not None else asked
    return None if served == asked else (orjson.dumps(served), orjson.dumps(asked))


async def relay_stream(
    connection: Connection,
    client: Client,
    outcome: Outcome,
    status: int,
    headers: Headers,
    asked: str,
    hide_usage: bool,
    capture: Capture | None = None,
) -> None:
    """Pass a stream on. Raises UpstreamError when it died before its first token: then nothing of it was sent.

    When it dies later, the client gets an error event and the stream's end, and the outcome says so.
    """
    replica = outcome.replica
    assert replica is not None
    relay = StreamRelay(outcome.endpoint.dialect, hide_usage=hide_usage, rename=_rename(outcome, asked))
    outcome.first_token_at = outcome.last_token_at = None
    began = False
    if capture is not None:
        capture.begin(streamed=True)
    while True:
        piece = connection.take()
        if piece is None:
            if connection.done:
                break
            try:
                await connection.wait()
            except UpstreamError:
                # The loop's next turn looks at the connection's own error.
                continue
            continue
        now = time.monotonic()
        replica.last_byte_at = now
        if capture is not None:
            capture.add(piece)
        out = relay.feed(piece)
        if relay.failed_first and not is_client_error(relay.error or ""):
            # Nothing of an answer has come: another replica may still give one.
            raise UpstreamError("closed", "the replica sent an error before the first token")
        if relay.first_token:
            outcome.last_token_at = now
            if not began:
                began = True
                outcome.first_token_at = now
                connection.between_tokens()
        if out:
            outcome.pieces += out.count(b"\n\n") or out.count(b"\n\r\n")
            if not client.started:
                await client.start(status, [*headers, *_STREAM_HEADERS])
            await client.write(out)
    outcome.usage = relay.usage
    if client.left:
        raise ClientLeft
    error = connection.error
    mark = relay.last() if error is None else b""
    if (
        error is None
        and not relay.ended
        and relay.error is None
        and (outcome.endpoint.generates or not relay.first_token)
    ):
        # A connection's end may be the end of the framing and still not the end of the answer.
        error = UpstreamError("closed", "the replica ended its stream without the end mark")
    if error is not None and not relay.first_token:
        raise error
    outcome.status = status
    if error is not None:
        await _broken(client, outcome, relay, error)
        return
    rest = mark + relay.finish()
    if not client.started:
        await client.start(status, [*headers, *_STREAM_HEADERS])
    await client.finish(rest)
    if relay.error is not None:
        outcome.error = f"error event in the stream: {'client' if is_client_error(relay.error) else 'replica'}"
    elif capture is not None:
        capture.end()
    if relay.error is not None and not is_client_error(relay.error):
        replica.failure(time.monotonic(), "the replica sent an error inside a stream")
    else:
        replica.success()


async def _broken(client: Client, outcome: Outcome, relay: StreamRelay, error: UpstreamError) -> None:
    assert outcome.replica is not None
    outcome.error = error.failure
    _blame(outcome.replica, error)
    told = ApiError(502, f"The variant broke off in the middle of its answer ({error.failure}).", None, "stream_broken")
    # Of an unfinished event nothing was sent, unless it was oversized: then it has to be ended first.
    event = told.event(outcome.endpoint.dialect)
    await client.finish(b"\n\n" + event if relay.inside_event else event)


def _blame(replica: Replica, error: UpstreamError) -> None:
    # An answer that only took longer than the client's request may take (a slow reader is enough) is no fault of it.
    if error.failure != "total_timeout":
        replica.failure(time.monotonic(), str(error))


async def relay_whole(
    connection: Connection,
    client: Client,
    outcome: Outcome,
    status: int,
    headers: Headers,
    asked: str,
    capture: Capture | None = None,
) -> None:
    """Pass a whole answer on. Raises UpstreamError when it died before anything was sent."""
    assert outcome.replica is not None
    rename = _rename(outcome, asked)
    pieces: list[bytes] = []
    size = 0
    while size <= _WHOLE_BUFFER:
        piece = connection.take()
        if piece is not None:
            pieces.append(piece)
            size += len(piece)
        elif connection.error is not None:
            raise connection.error
        elif connection.done:
            break
        else:
            await connection.wait()
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if not body.strip() and outcome.endpoint is not OTHER:
        raise UpstreamError("protocol", "the replica answered with nothing")
    whole = connection.done and connection.error is None and size <= _WHOLE_BUFFER
    if capture is not None and whole:
        capture.begin(streamed=False)
        capture.add(body)
        capture.end()
    if rename is not None:
        body = rename_model(body, *rename)
    outcome.status = status
    outcome.usage = usage_of_answer(body)
    if whole:
        outcome.replica.last_byte_at = time.monotonic()
        outcome.replica.success()
        await client.answer(status, headers, body)
        return
    await _relay_large(connection, client, outcome, status, headers, body)


async def _relay_large(
    connection: Connection, client: Client, outcome: Outcome, status: int, headers: Headers, begun: bytes
) -> None:
    assert outcome.replica is not None
    await client.start(status, headers)
    await client.write(begun)
    tail = begun[-65536:]
    while True:
        piece = connection.take()
        if piece is not None:
            await client.write(piece)
            tail = (tail + piece)[-65536:]
        elif client.left:
            raise ClientLeft
        elif connection.error is not None:
            # Half an answer cannot be taken back; without its end no client takes it for whole.
            outcome.error = connection.error.failure
            _blame(outcome.replica, connection.error)
            return
        elif connection.done:
            break
        else:
            # Raised from here, an error would be taken for one that another replica may still mend.
            with contextlib.suppress(UpstreamError):
                await connection.wait()
    outcome.usage = usage_of_answer(tail) or outcome.usage
    outcome.replica.success()
    await client.finish()
