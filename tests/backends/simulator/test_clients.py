"""OpenAI's own client, both kinds, over everything that is served."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from backends.simulator import Running, tokens
from tests.backends.simulator.conftest import Start

_USER = [{"role": "user", "content": "How warm is it in Bern?"}]
_PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 4}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
_TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": _PARAMETERS}}]
_EXPECTED = {"city": "simu", "days": 1}


class Person(BaseModel):
    name: str
    age: int
    friends: list[str]


def client(running: Running) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0)


async def test_chat_says_that_it_is_simulated(simulator: Start) -> None:
    async with client(await simulator("int8")) as ask:
        answer = await ask.chat.completions.create(model="m", messages=_USER)
        content = answer.choices[0].message.content
        assert content is not None
        assert content.startswith("[simulated int8]")
        assert answer.usage is not None
        # the end token has no text
        assert answer.usage.completion_tokens == tokens.count(content) + 1
        pinned = await ask.chat.completions.create(model="m@v", messages=_USER)
        assert (pinned.model, pinned.choices[0].message.content) == ("m@v", content)


async def test_seeds_precisions_and_choices_make_different_answers(simulator: Start) -> None:
    texts = set()
    for precision in ("int4", "int8"):
        async with client(await simulator(precision)) as ask:
            for seed in (1, 2, 1):
                answer = await ask.chat.completions.create(model="m", messages=_USER, seed=seed, n=2)
                texts.update(choice.message.content for choice in answer.choices)
    assert len(texts) == 8


@pytest.mark.parametrize("n", [1, 3])
async def test_a_stream_is_the_plain_answer_one_token_at_a_time(simulator: Start, n: int) -> None:
    async with client(await simulator()) as ask:
        plain = await ask.chat.completions.create(model="m", messages=_USER, n=n, seed=3)
        parts: dict[int, list[str]] = {}
        usage = None
        stream = await ask.chat.completions.create(
            model="m", messages=_USER, n=n, seed=3, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            for choice in chunk.choices:
                if choice.delta.role is None:
                    parts.setdefault(choice.index, []).append(choice.delta.content or "")
            usage = chunk.usage or usage
    assert usage == plain.usage
    assert plain.usage is not None
    assert sum(map(len, parts.values())) == plain.usage.completion_tokens
    assert {index: "".join(texts) for index, texts in parts.items()} == {
        choice.index: choice.message.content for choice in plain.choices
    }


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
async def test_tools(simulator: Start, choice: object) -> None:
    async with client(await simulator()) as ask:
        plain = await ask.chat.completions.create(model="m", messages=_USER, tools=_TOOLS, tool_choice=choice)
        (call,) = plain.choices[0].message.tool_calls or ()
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == _EXPECTED
        assert plain.choices[0].finish_reason == ("tool_calls" if choice == "required" else "stop")
        stream = await ask.chat.completions.create(
            model="m", messages=_USER, tools=_TOOLS, tool_choice=choice, stream=True
        )
        names, arguments = [], ""
        async for chunk in stream:
            for part in chunk.choices[0].delta.tool_calls or ():
                assert part.function is not None
                names += [part.function.name] if part.function.name else []
                arguments += part.function.arguments or ""
        assert names == ["get_weather"]
        assert json.loads(arguments) == _EXPECTED


async def test_tools_are_not_called_when_they_answered_or_are_forbidden(simulator: Start) -> None:
    answered = [
        *_USER,
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "21"},
    ]  # fmt: skip
    async with client(await simulator()) as ask:
        for messages, choice in ((answered, "auto"), (_USER, "none")):
            for seed in range(6):
                answer = await ask.chat.completions.create(
                    model="m", messages=messages, tools=_TOOLS, tool_choice=choice, seed=seed
                )
                assert not answer.choices[0].message.tool_calls
        called = [
            bool(
                (await ask.chat.completions.create(model="m", messages=_USER, tools=_TOOLS, seed=seed))
                .choices[0]
                .message.tool_calls
            )
            for seed in range(20)
        ]
    assert set(called) == {True, False}


async def test_structured_output(simulator: Start) -> None:
    async with client(await simulator()) as ask:
        parsed = await ask.chat.completions.parse(model="m", messages=_USER, response_format=Person)
        assert parsed.choices[0].message.parsed == Person(name="simulated", age=0, friends=[])
        plain = await ask.chat.completions.create(model="m", messages=_USER, response_format={"type": "json_object"})
        assert json.loads(plain.choices[0].message.content or "") == {"simulated": "int4"}
        for form, expected in (({"choice": ["yes", "no"]}, "yes"), ({"regex": "^[0-9]{3}$"}, "000")):
            extra = {"structured_outputs": form}
            answer = await ask.chat.completions.create(model="m", messages=_USER, extra_body=extra)
            assert answer.choices[0].message.content == expected


async def test_logprobs_agree_with_the_text(simulator: Start) -> None:
    async with client(await simulator()) as ask:
        answer = await ask.chat.completions.create(
            model="m", messages=_USER, logprobs=True, top_logprobs=3, max_tokens=8
        )
        choice = answer.choices[0]
        assert choice.logprobs is not None
        entries = choice.logprobs.content or []
        assert "".join(entry.token for entry in entries) == choice.message.content
        assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in entries)
        assert b"".join(bytes(entry.bytes or ()) for entry in entries).decode() == choice.message.content


async def test_media_take_tokens_of_the_prompt(simulator: Start) -> None:
    async with client(await simulator()) as ask:
        counts = []
        for images in (0, 1, 2):
            content = [{"type": "text", "text": "look"}]
            content += [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}] * images
            answer = await ask.chat.completions.create(
                model="m", messages=[{"role": "user", "content": content}], max_tokens=1
            )
            assert answer.usage is not None
            counts.append(answer.usage.prompt_tokens)
    assert counts[1] - counts[0] == counts[2] - counts[1] == 257  # the picture and a line feed


async def test_responses(simulator: Start) -> None:
    async with client(await simulator()) as ask:
        plain = await ask.responses.create(model="m", input="hi", instructions="be short", max_output_tokens=9)
        assert plain.output_text.startswith("[simulated int4]")
        assert plain.status == "incomplete"
        assert plain.usage is not None
        assert plain.usage.output_tokens == 9
        async with ask.responses.stream(model="m", input="hi", instructions="be short", max_output_tokens=9) as stream:
            text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
            final = await stream.get_final_response()
        assert text == final.output_text == plain.output_text
        parsed = await ask.responses.parse(model="m", input=[{"role": "user", "content": "hi"}], text_format=Person)
        assert parsed.output_parsed == Person(name="simulated", age=0, friends=[])


async def test_responses_call_functions(simulator: Start) -> None:
    tool = {"type": "function", "name": "get_weather", "parameters": _PARAMETERS, "strict": True}
    async with client(await simulator()) as ask:
        plain = await ask.responses.create(model="m", input="hi", tools=[tool], tool_choice="required")
        (call,) = plain.output
        assert call.type == "function_call"
        assert json.loads(call.arguments) == _EXPECTED
        async with ask.responses.stream(model="m", input="hi", tools=[tool], tool_choice="required") as stream:
            types = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert types[-1] == "response.completed"
        assert json.loads(final.output[0].arguments) == _EXPECTED
        answered = [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "1", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "21"},
        ]
        prose = await ask.responses.create(model="m", input=answered, tools=[tool])
        assert prose.output_text


async def test_completions(simulator: Start) -> None:
    async with client(await simulator()) as ask:
        answer = await ask.completions.create(model="m", prompt=["one two", "three"], n=2, max_tokens=5, echo=True)
        assert [choice.text[:3] for choice in answer.choices] == ["one", "one", "thr", "thr"]
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 20)
        numbers = await ask.completions.create(model="m", prompt=tokens.encode("one two"), n=2, max_tokens=5, echo=True)
        assert [choice.text for choice in numbers.choices] == [choice.text for choice in answer.choices[:2]]
        stream = await ask.completions.create(model="m", prompt="one two", max_tokens=5, stream=True, echo=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
        assert text == answer.choices[0].text


async def test_embeddings(simulator: Start) -> None:
    async with client(await simulator()) as ask:
        answer = await ask.embeddings.create(model="m", input=["a cat sat", "a cat sits", "zebra"])
        first, second, third = (item.embedding for item in answer.data)
        assert len(first) == 384
        assert sum(x * x for x in first) == pytest.approx(1, abs=1e-5)
        assert sum(x * y for x, y in zip(first, second, strict=True)) > sum(
            x * y for x, y in zip(first, third, strict=True)
        )
        short = await ask.embeddings.create(model="m", input="a cat sat", dimensions=8, encoding_format="float")
        assert len(short.data[0].embedding) == 8
        assert short.usage.prompt_tokens == 3


async def test_models_and_errors(simulator: Start) -> None:
    async with client(await simulator(max_model_len=64)) as ask:
        models = [model async for model in ask.models.list()]
        assert [model.id for model in models] == ["m", "m@v"]
        assert models[0].max_model_len == 64
        with pytest.raises(openai.NotFoundError, match="Valid aliases: m, m@v"):
            await ask.chat.completions.create(model="other", messages=_USER)
        with pytest.raises(openai.BadRequestError, match="contains at least 65 input tokens"):
            await ask.chat.completions.create(model="m", messages=[{"role": "user", "content": "word " * 200}])


async def test_a_prompt_of_the_whole_context_but_one_gets_one_token(simulator: Start) -> None:
    async with client(await simulator(max_model_len=64)) as ask:
        answer = await ask.completions.create(model="m", prompt="你" * 63, max_tokens=10)
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (63, 1)
        with pytest.raises(openai.BadRequestError):
            await ask.completions.create(model="m", prompt="你" * 64, max_tokens=10)


async def test_the_blocking_client(simulator: Start) -> None:
    running = await simulator()

    def talk() -> tuple[str, str]:
        with OpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0) as ask:
            plain = ask.chat.completions.create(model="m", messages=_USER)
            stream = ask.chat.completions.create(model="m", messages=_USER, stream=True)
            return plain.choices[0].message.content or "", "".join(c.choices[0].delta.content or "" for c in stream)

    plain, streamed = await asyncio.to_thread(talk)
    assert plain == streamed
