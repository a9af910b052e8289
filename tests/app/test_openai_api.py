"""The OpenAI-compatible API, with the official client over a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import openai
import pytest

from engine.events import RequestAborted, RequestArrived
from engine.messages import Output
from tests.app.conftest import Site, serve

MODEL = "fake-model"


@pytest.fixture
async def client(site: Site) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="none", max_retries=0) as one:
        yield one


async def test_completion(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="3 words", max_tokens=8, user="someone")
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.choices[0].text == "word0 word1 word2 "
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (2, 3, 5)


async def test_completion_defaults_are_openais(client: openai.AsyncOpenAI, site: Site) -> None:
    answer = await client.completions.create(model=MODEL, prompt="40 words")
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16
    arrived = await site.ear.wait_for_event(RequestArrived, "api")
    assert (arrived.source, arrived.max_tokens) == ("api", 16)


async def test_completion_of_token_ids(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt=[5, 6, 7])
    assert answer.choices[0].text == "word0 word1 "


async def test_chat_completion_runs_to_the_models_length(client: openai.AsyncOpenAI, site: Site) -> None:
    answer = await client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "2 wo"}, {"type": "text", "text": "rds"}]},
        ],
    )
    assert answer.object == "chat.completion"
    message = answer.choices[0].message
    assert (message.role, message.content, answer.choices[0].finish_reason) == ("assistant", "word0 word1 ", "stop")
    assert (await site.ear.wait_for_event(RequestArrived, "api")).max_tokens == 100


async def test_streamed_completion(client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model=MODEL, prompt="3 words", stream=True)
    chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].text for chunk in chunks] == ["word0 ", "word1 ", "word2 ", ""]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]


async def test_streamed_chat_with_usage(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "5 words"}],
        max_completion_tokens=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].delta.content for chunk in chunks[1:3]] == ["word0 ", "word1 "]
    assert chunks[3].choices[0].finish_reason == "length"
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * 4
    assert chunks[4].choices == []
    assert chunks[4].usage is not None
    assert (chunks[4].usage.prompt_tokens, chunks[4].usage.completion_tokens) == (2, 2)


async def test_the_stream_is_made_of_server_sent_events(site: Site) -> None:
    async with site.http() as http:
        body = {"model": MODEL, "prompt": "1 word", "stream": True}
        answer = await http.post("/v1/completions", json=body, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "content-encoding" not in answer.headers
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: ") for event in events[:-1])
    assert "usage" not in json.loads(events[0].removeprefix("data: "))


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    assert (await client.models.retrieve(MODEL)).owned_by == "paged"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("some/other")


async def test_a_request_goes_into_the_arena_that_a_page_watches(client: openai.AsyncOpenAI, site: Site) -> None:
    async with site.browser() as page:
        opened = await page.open()
        headers = {"X-Arena": opened["drive_secret"]}
        answer = await client.completions.create(model=MODEL, prompt="1 word", extra_headers=headers)
        assert answer.choices[0].text == "word0 "
        arrived = (await page.hear("step"))["events"][0]
        assert (arrived["type"], arrived["source"]) == ("request_arrived", "api")
        with pytest.raises(openai.NotFoundError, match="X-Arena"):
            await client.completions.create(model=MODEL, prompt="1", extra_headers={"X-Arena": opened["view_id"]})


async def test_closing_the_arena_ends_its_requests(client: openai.AsyncOpenAI, site: Site) -> None:
    async with site.browser() as page:
        opened = await page.open()
        headers = {"X-Arena": opened["drive_secret"]}
        stream = await client.completions.create(model=MODEL, prompt="forever", stream=True, extra_headers=headers)
        assert (await anext(stream)).choices[0].text == "word "
        await page.say("close", arena="a1")
        with pytest.raises(openai.APIError, match="its page closed it") as gone:
            async for _ in stream:
                pass
        assert gone.value.code == "arena_closed"


async def test_closing_the_arena_answers_a_request_that_waits_for_its_whole_text(site: Site) -> None:
    async with site.browser() as page, site.http() as http:
        opened = await page.open()
        body = {"model": MODEL, "prompt": "forever"}
        headers = {"X-Arena": opened["drive_secret"]}
        waiting = asyncio.create_task(http.post("/v1/completions", json=body, headers=headers))
        await site.ear.wait_for_event(RequestArrived, "a1")
        await page.say("close", arena="a1")
        answer = await waiting
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "arena_closed")
        assert "its page closed it" in answer.json()["error"]["message"]
    assert len(site.arenas.generations) == 0


async def test_a_request_that_its_arenas_driver_aborts_is_told_so(site: Site) -> None:
    async with site.browser() as page, site.http() as http:
        opened = await page.open()
        body = {"model": MODEL, "prompt": "forever"}
        headers = {"X-Arena": opened["drive_secret"]}
        waiting = asyncio.create_task(http.post("/v1/completions", json=body, headers=headers))
        arrived = await site.ear.wait_for_event(RequestArrived, "a1")
        await page.say("abort", arena="a1", request=arrived.request)
        answer = await waiting
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "request_aborted")


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
async def test_a_client_that_leaves_a_stream_has_its_request_aborted(site: Site, path: str) -> None:
    text = {"prompt": "forever"} if path == "completions" else {"messages": [{"role": "user", "content": "forever"}]}
    async with (
        site.http() as http,
        http.stream("POST", f"/v1/{path}", json={"model": MODEL, "stream": True, **text}) as answer,
    ):
        await anext(answer.aiter_text())
    aborted = await site.ear.wait_for_event(RequestAborted, "api")
    assert (aborted.request, aborted.reason) == (0, "the client disconnected")
    assert len(site.arenas.generations) == 0


async def test_a_client_that_leaves_while_it_waits_has_its_request_aborted(site: Site) -> None:
    async with site.http() as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.post(
                "/v1/completions", json={"model": MODEL, "prompt": "forever"}, timeout=httpx.Timeout(5, read=0.2)
            )
    assert (await site.ear.wait_for_event(RequestAborted, "api")).request == 0
    assert len(site.arenas.generations) == 0


async def test_losing_the_engine_ends_waiting_and_streaming_requests(client: openai.AsyncOpenAI, site: Site) -> None:
    stream = await client.completions.create(model=MODEL, prompt="forever", stream=True)
    await anext(stream)
    with pytest.raises(openai.InternalServerError) as lost:
        await client.completions.create(model=MODEL, prompt="crash")
    assert lost.value.status_code == 503
    assert lost.value.response.headers["retry-after"] == "2"
    with pytest.raises(openai.APIError, match="lost"):
        async for _ in stream:
            pass
    await site.ear.wait_for(lambda said: isinstance(said, Output) and said.request == 0)


async def test_while_the_model_loads() -> None:
    async with serve(wait=False, model="slow-load") as site, site.http() as http:
        await site.ear.wait_for(lambda said: getattr(said, "progress", 0) == 0.5)
        for answer in (
            await http.get("/v1/models"),
            await http.post("/v1/completions", json={"model": MODEL, "prompt": "x"}),
        ):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            error = answer.json()["error"]
            assert (error["type"], error["code"]) == ("server_error", "engine_unavailable")
            assert error["message"] == "the model is loading (pretending, 50%); try again in a moment."
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["progress"]) == (503, 0.5)


async def test_too_many_requests_are_told_to_come_back() -> None:
    async with serve(max_api_requests=1) as site, site.http() as http:
        async with http.stream(
            "POST", "/v1/completions", json={"model": MODEL, "prompt": "forever", "stream": True}
        ) as answer:
            pieces = answer.aiter_text()
            await anext(pieces)
            refused = await http.post("/v1/completions", json={"model": MODEL, "prompt": "1 word"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert "the limit is 1" in refused.json()["error"]["message"]
        await site.ear.wait_for_event(RequestAborted, "api")


async def test_a_full_arena_holds_up_neither_the_api_nor_another_arena() -> None:
    async with serve(max_arena_requests=2, max_api_requests=1) as site, site.browser() as page, site.http() as http:
        small = {"block_size": 4, "num_blocks": 4}
        first, second = await page.open(params=small), await page.open(params=small)
        body = {"model": MODEL, "prompt": "forever"}
        full = {"X-Arena": first["drive_secret"]}
        waiting = [asyncio.create_task(http.post("/v1/completions", json=body, headers=full)) for _ in range(2)]
        await site.ear.wait_for(lambda said: getattr(getattr(said, "step", None), "seq", 0) == 2)
        refused = await http.post("/v1/completions", json=body, headers=full)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        message = refused.json()["error"]["message"]
        assert "in this arena; the limit is 2" in message
        assert "not paused" in message
        short = {"model": MODEL, "prompt": "1 word"}
        assert (await http.post("/v1/completions", json=short)).status_code == 200
        other = {"X-Arena": second["drive_secret"]}
        assert (await http.post("/v1/completions", json=short, headers=other)).status_code == 200
        await page.say("close", arena=first["arena"])
        assert [(await answer).status_code for answer in waiting] == [410, 410]


async def test_values_that_ask_for_nothing_are_taken(site: Site) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "1 word"}],
        "n": 1,
        "tools": [],
        "tool_choice": None,
        "logprobs": False,
        "frequency_penalty": 0.0,
        "presence_penalty": 0,
        "response_format": {"type": "text"},
        "metadata": {"a": "b"},
        "store": False,
        "top_k": 5,
        "seed": 1,
        "stop": "never",
    }
    async with site.http() as http:
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


async def test_bodies_are_bounded_and_foreign_pages_refused() -> None:
    async with serve(max_body_bytes=2000) as site, site.http() as http:
        long = {"model": MODEL, "prompt": "x" * 3000}
        answer = await http.post("/v1/completions", json=long)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")

        async def in_chunks() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"x" * 1000

        answer = await http.post("/v1/completions", content=in_chunks())
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        body = {"model": MODEL, "prompt": "1 word"}
        answer = await http.post("/v1/completions", json=body, headers={"Origin": "http://evil.example"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")
        answer = await http.post("/v1/completions", json=body, headers={"Origin": site.url})
        assert answer.status_code == 200
