"""Several answers to a prompt, several prompts in a request: as the official client sees them, whole and streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from engine.events import RequestAborted, RequestArrived
from engine.messages import Stepped
from tests.app.conftest import Site, serve

MODEL = "fake-model"
TALK: Any = [{"role": "user", "content": "2 words"}]


@pytest.fixture
async def client(site: Site) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="none", max_retries=0) as one:
        yield one


async def test_n_samples_are_n_choices_and_their_tokens_add_up(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="2 words", n=3)
    assert [(choice.index, choice.text, choice.finish_reason) for choice in answer.choices] == [
        (0, "word0 word1 ", "stop"),
        (1, "word0.1 word1.1 ", "stop"),
        (2, "word0.2 word1.2 ", "stop"),
    ]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (2, 6, 8)


@pytest.mark.parametrize("extra", [{"best_of": 4}, {"use_beam_search": True, "best_of": 4}, {"use_beam_search": True}])
async def test_the_best_of_many_and_beams_come_as_n_choices(
    client: openai.AsyncOpenAI, site: Site, extra: dict[str, Any]
) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=TALK, n=2, extra_body=extra)
    assert [choice.message.content for choice in answer.choices] == ["word0 word1 ", "word0.1 word1.1 "]
    arrived = await site.ear.wait_for_event(RequestArrived, "api")
    assert (arrived.width, arrived.beam) == (extra.get("best_of", 2), "use_beam_search" in extra)


async def test_each_of_several_prompts_has_its_n_choices_in_order(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt=["1 word", "3 good words", "2 words"], n=2)
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, "word0 "),
        (1, "word0.1 "),
        (2, "word0 word1 word2 "),
        (3, "word0.1 word1.1 word2.1 "),
        (4, "word0 word1 "),
        (5, "word0.1 word1.1 "),
    ]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2 + 3 + 2, 2 * (1 + 3 + 2))


async def test_prompts_of_token_ids(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt=[[5, 6], [7]])
    assert [choice.text for choice in answer.choices] == ["word0 word1 "] * 2


async def test_streams_of_choices_are_interleaved_and_each_ends_by_itself(client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(
        model=MODEL,
        prompt=["1 word", "2 words"],
        n=2,
        max_tokens=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert all(len(chunk.choices) == 1 for chunk in chunks[:-1])
    seen: dict[int, list[Any]] = {index: [] for index in range(4)}
    for chunk in chunks[:-1]:
        choice = chunk.choices[0]
        seen[choice.index].append(choice.text if choice.finish_reason is None else choice.finish_reason)
    assert seen == {
        0: ["word0 ", "stop"],
        1: ["word0.1 ", "stop"],
        2: ["word0 ", "word1 ", "length"],
        3: ["word0.1 ", "word1.1 ", "length"],
    }
    first_prompt = [chunk.choices[0].index for chunk in chunks[:-1] if chunk.choices[0].index < 2]
    assert first_prompt == [0, 1, 0, 1], "not one sample after the other"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (4, 6)


async def test_a_streamed_chat_opens_each_choice(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model=MODEL, messages=TALK, n=2, stream=True)
    chunks = [chunk.choices[0] async for chunk in stream]
    assert [(chunk.index, chunk.delta.role) for chunk in chunks[:2]] == [(0, "assistant"), (1, "assistant")]
    for index in range(2):
        texts = [chunk.delta.content or "" for chunk in chunks if chunk.index == index]
        assert "".join(texts) == ("word0 word1 " if index == 0 else "word0.1 word1.1 ")
        assert [chunk.finish_reason for chunk in chunks if chunk.index == index][-1] == "stop"


async def test_what_stopped_a_text_is_told(client: openai.AsyncOpenAI) -> None:
    for fields, extra, stop_reason in (
        ({}, {}, None),
        ({"stop": ["word1"]}, {}, "word1"),
        ({}, {"stop_token_ids": [1]}, 1),
    ):
        answer: Any = await client.completions.create(model=MODEL, prompt="3 words", **fields, extra_body=extra)  # type: ignore[call-overload]
        choice = answer.choices[0]
        assert (choice.finish_reason, choice.stop_reason) == ("stop", stop_reason)
        assert choice.text == ("word0 " if stop_reason else "word0 word1 word2 ")
        stream: Any = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "3 words"}],
            stream=True,
            **fields,  # type: ignore[call-overload]
            extra_body=extra,
        )
        chunks = [chunk.choices[0] async for chunk in stream]
        assert (chunks[-1].finish_reason, chunks[-1].stop_reason) == ("stop", stop_reason)


async def test_an_arena_without_room_ends_a_text_as_a_limit_of_length(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="no room")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("", "length")
    beams = await client.completions.create(model=MODEL, prompt="no room", n=3, extra_body={"use_beam_search": True})
    assert [(choice.index, choice.text, choice.finish_reason) for choice in beams.choices] == [
        (index, "", "length") for index in range(3)
    ], "fewer answers than were asked for, and all are told of"


async def test_cached_tokens_of_all_prompts_are_told(client: openai.AsyncOpenAI) -> None:
    first = await client.completions.create(model=MODEL, prompt="1 long prompt")
    assert first.usage is not None
    assert first.usage.prompt_tokens_details is not None
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    again = await client.completions.create(model=MODEL, prompt=["1 long prompt", "1 word", "1 long prompt"], n=2)
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert (again.usage.prompt_tokens, again.usage.prompt_tokens_details.cached_tokens) == (8, 4)
    salted = await client.completions.create(model=MODEL, prompt="1 long prompt", extra_body={"cache_salt": "s"})
    assert salted.usage is not None
    assert salted.usage.prompt_tokens_details is not None
    assert salted.usage.prompt_tokens_details.cached_tokens == 0
    talk: Any = [{"role": "user", "content": "1 long prompt"}]
    stream = await client.chat.completions.create(
        model=MODEL, messages=talk, stream=True, stream_options={"include_usage": True}
    )
    usage = [chunk async for chunk in stream][-1].usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 2


async def test_a_client_that_leaves_ends_all_its_prompts_at_once(site: Site) -> None:
    async with site.http() as http:
        body = {"model": MODEL, "prompt": ["forever"] * 3, "n": 2, "stream": True}
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            await anext(answer.aiter_text())
            assert len(site.arenas.generations) == 3
    await site.ear.wait_for(lambda said: _aborts(said, 2))
    aborted = {
        (event.request, event.reason)
        for said in site.ear.heard
        if isinstance(said, Stepped)
        for event in said.step.events
        if isinstance(event, RequestAborted)
    }
    assert aborted == {(request, "the client disconnected") for request in range(3)}
    assert len(site.arenas.generations) == 0


async def test_one_prompt_that_is_refused_takes_the_others_with_it(site: Site) -> None:
    async with site.http() as http:
        body = {"model": MODEL, "prompt": ["forever", "too long", "forever"]}
        answer = await http.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt[1]")
    last = await site.ear.wait_for(lambda said: _aborts(said, 1))
    assert last.step.events[0].reason == "another prompt of the same request was refused"
    assert len(site.arenas.generations) == 0


async def test_one_prompt_that_is_aborted_ends_the_request(site: Site) -> None:
    async with site.browser() as page, site.http() as http:
        opened = await page.open()
        body = {"model": MODEL, "prompt": ["forever", "forever"], "stream": True}
        headers = {"X-Arena": opened["drive_secret"]}
        async with http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
            texts = answer.aiter_lines()
            await anext(texts)
            await page.say("abort", arena="a1", request=1)
            events = [json.loads(line.removeprefix("data: ")) async for line in texts if line]
        assert events[-1]["error"]["code"] == "request_aborted"
    await site.ear.wait_for(lambda said: _aborts(said, 0))
    assert len(site.arenas.generations) == 0


async def test_prompts_count_as_requests() -> None:
    async with serve(max_api_requests=3) as site, site.http() as http:
        many = {"model": MODEL, "prompt": ["forever", "forever"]}
        waiting = asyncio.create_task(http.post("/v1/completions", json=many))
        await site.ear.wait_for(lambda said: isinstance(said, Stepped) and said.step.seq == 2)
        refused = await http.post("/v1/completions", json=many)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
        assert (await http.post("/v1/completions", json={"model": MODEL, "prompt": "1 word"})).status_code == 200
        waiting.cancel()
        await site.ear.wait_for(lambda said: _aborts(said, 1))


def _aborts(said: Any, request: int) -> bool:
    return isinstance(said, Stepped) and any(
        isinstance(event, RequestAborted) and event.request == request for event in said.step.events
    )
