"""What is asked of a variant, and what is made of its answers (a transport that answers as vLLM 0.32 does)."""

from __future__ import annotations

import json

import httpx
import pytest

from router.calibration.collect import _variant
from router.calibration.prompts import parse
from router.calibration.sending import RefusedError, Sender, SendError, Target

TARGET = Target("int4", "int4", ("http://a", "http://b"), "m", api_key="k")
FULL = {"key": "f", "text": "7", "prompt_ids": [1, 2], "ids": [3, 4], "logprobs": [-0.1, -0.2]}


class Server:
    """Answers with ranks; remembers what it was asked."""

    def __init__(self, ranks: tuple[int, ...] = (1, 1), statuses: tuple[int, ...] = ()) -> None:
        self.ranks = ranks
        self.statuses = list(statuses)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            return httpx.Response(status, json={"error": {"message": "no"}})
        body = json.loads(request.content)
        if request.url.path == "/v1/completions":
            scores = [
                {str(t): {"logprob": -0.5, "rank": r}} for t, r in zip(body["prompt"][2:], self.ranks, strict=True)
            ]
            return httpx.Response(200, json={"choices": [{"prompt_logprobs": [None, {"2": {}}, *scores]}]})
        choice = {
            "message": {"content": "8"},
            "finish_reason": "stop",
            "token_ids": [5],
            "logprobs": {"content": [{"logprob": -0.3}]},
        }
        return httpx.Response(200, json={"choices": [choice], "prompt_token_ids": [1, 2]})

    def sender(self) -> Sender:
        return Sender(httpx.AsyncClient(transport=httpx.MockTransport(self)), TARGET)


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.calibration.sending._WAIT_S", 0.0)


async def test_an_answer_is_asked_greedily_with_its_tokens() -> None:
    server = Server()
    answer = await server.sender().answer(parse('{"prompt": "x", "max_tokens": 3}', "l"), 9)
    assert (answer.text, answer.prompt_ids, answer.ids, answer.logprobs) == ("8", (1, 2), (5,), (-0.3,))
    body = json.loads(server.asked[0].content)
    assert (body["temperature"], body["max_tokens"], body["return_token_ids"]) == (0, 3, True)
    assert server.asked[0].headers["authorization"] == "Bearer k"


async def test_a_score_is_of_the_answers_tokens_alone() -> None:
    server = Server(ranks=(1, 3))
    score = await server.sender().score((1, 2), (3, 4))
    assert (score.logprobs, score.ranks) == ((-0.5, -0.5), (1, 3))
    body = json.loads(server.asked[0].content)
    assert (body["prompt"], body["max_tokens"], body["prompt_logprobs"]) == ([1, 2, 3, 4], 0, 0)


async def test_what_may_pass_is_tried_again_at_the_next_replica() -> None:
    server = Server(statuses=(503, 429, 200))
    await server.sender().answer(parse('{"prompt": "x"}', "l"), 9)
    assert [request.url.host for request in server.asked] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("status", "error", "tries"),
    [(400, RefusedError, 1), (404, RefusedError, 1), (401, SendError, 1), (500, SendError, 5)],
)
async def test_what_will_not_pass_is_not(status: int, error: type[Exception], tries: int) -> None:
    server = Server(statuses=(status,) * 5)
    with pytest.raises(error, match=str(status)):
        await server.sender().answer(parse('{"prompt": "x"}', "l"), 9)
    assert len(server.asked) == tries


async def test_a_variant_that_would_say_the_same_is_not_asked_again() -> None:
    server = Server(ranks=(1, 1))
    record = await _variant(server.sender(), parse('{"prompt": "x"}', "l"), FULL, "k", 9, True)
    assert record["same"] is True
    assert [request.url.path for request in server.asked] == ["/v1/completions"]


@pytest.mark.parametrize(
    ("line", "open_answers", "asked"),
    [
        ('{"prompt": "x"}', True, True),
        ('{"prompt": "x"}', False, False),
        ('{"prompt": "x", "answer": "7"}', False, True),
    ],
)
async def test_one_that_differs_gives_its_own_answer_where_it_is_wanted(
    line: str, open_answers: bool, asked: bool
) -> None:
    server = Server(ranks=(1, 2))
    record = await _variant(server.sender(), parse(line, "l"), FULL, "k", 9, open_answers)
    assert record["same"] is False
    assert record.get("text") == ("8" if asked else None)
    assert len(server.asked) == 1 + asked


async def test_a_server_without_scores_still_agrees_or_not() -> None:
    class Plain(Server):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            if request.url.path == "/v1/completions":
                return httpx.Response(404, json={})
            return super().__call__(request)

    record = await _variant(Plain().sender(), parse('{"prompt": "x"}', "l"), FULL, "k", 9, False)
    assert (record["same"], record["text"]) == (False, "8")
    assert "logprobs" not in record
    assert "404" in record["unscored"]


@pytest.mark.parametrize(
    "body",
    [
        b"<html>busy</html>",
        b'{"choices": [{"message": null}]}',
        b'{"choices": ["x"]}',
        b'{"choices": [{"message": "x"}]}',
        b'{"choices": [{"message": {"tool_calls": [null]}}]}',
        b'{"choices": [{"message": {}, "logprobs": [1]}]}',
    ],
)
async def test_an_answer_that_is_none_ends_the_run_in_words(body: bytes) -> None:
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=body)))
    with pytest.raises(SendError, match="int4"):
        await Sender(client, TARGET).answer(parse('{"prompt": "x"}', "l"), 9)


@pytest.mark.parametrize("body", [b'{"choices": [{"prompt_logprobs": [null, null, "x", 3]}]}', b'{"choices": [null]}'])
async def test_scores_that_are_none_are_none(body: bytes) -> None:
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=body)))
    with pytest.raises(RefusedError):
        await Sender(client, TARGET).score((1, 2), (3, 4))
