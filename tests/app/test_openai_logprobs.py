"""Log probabilities and echoed prompts, in the shapes of both kinds of completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from app import openai_logprobs
from app.openai_logprobs import CompletionLogprobs
from engine.messages import TokenLogprob
from tests.app.conftest import Site

MODEL = "fake-model"


@pytest.fixture
async def client(site: Site) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="none", max_retries=0) as one:
        yield one


async def test_completion_logprobs(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="2 words", n=2, logprobs=2)
    found = answer.choices[1].logprobs
    assert found is not None
    assert found.tokens == ["word0.1 ", "word1.1 "]
    assert found.token_logprobs == [-0.125, -1.125]
    assert found.text_offset == [0, 8]
    assert found.top_logprobs == [
        {"other1 ": -0.25, "other2 ": -0.5, "word0.1 ": -0.125},
        {"other1 ": -0.25, "other2 ": -0.5, "word1.1 ": -1.125},
    ]
    none = await client.completions.create(model=MODEL, prompt="2 words")
    assert none.choices[0].logprobs is None


async def test_logprobs_of_the_sampled_tokens_alone(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="1 word", logprobs=0)
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.top_logprobs == [{"word0 ": 0.0}]
    empty = await client.completions.create(model=MODEL, prompt="0 words", logprobs=0)
    assert empty.choices[0].logprobs is not None
    assert empty.choices[0].logprobs.tokens == []


async def test_offsets_run_on_through_a_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model=MODEL, prompt="3 words", n=2, logprobs=1, stream=True)
    offsets: dict[int, list[int]] = {0: [], 1: []}
    async for chunk in stream:
        choice = chunk.choices[0]
        if choice.finish_reason is None:
            assert choice.logprobs is not None
            assert choice.logprobs.tokens == [choice.text]
            offsets[choice.index] += choice.logprobs.text_offset or []
        else:
            assert choice.logprobs is None
    assert offsets == {0: [0, 6, 12], 1: [0, 8, 16]}


async def test_chat_logprobs_have_bytes(client: openai.AsyncOpenAI) -> None:
    talk: Any = [{"role": "user", "content": "1 word"}]
    answer = await client.chat.completions.create(model=MODEL, messages=talk, logprobs=True, top_logprobs=1)
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.content is not None
    assert [token.to_dict() for token in found.content] == [
        {
            "token": "word0 ",
            "logprob": 0.0,
            "bytes": list(b"word0 "),
            "top_logprobs": [{"token": "other1 ", "logprob": -0.25, "bytes": list(b"other1 ")}],
        }
    ]
    bare = await client.chat.completions.create(model=MODEL, messages=talk, logprobs=True)
    assert bare.choices[0].logprobs is not None
    assert bare.choices[0].logprobs.content is not None
    assert bare.choices[0].logprobs.content[0].top_logprobs == []
    none = await client.chat.completions.create(model=MODEL, messages=talk, logprobs=False, top_logprobs=0)
    assert none.choices[0].logprobs is None
    stream = await client.chat.completions.create(model=MODEL, messages=talk, logprobs=True, stream=True)
    told = [chunk.choices[0].logprobs async for chunk in stream]
    assert [logprobs and [token.token for token in logprobs.content or []] for logprobs in told] == [
        None,
        ["word0 "],
        None,
    ]


async def test_echo_begins_every_choice_with_its_prompt(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt=["1 word", "2 words"], n=2, echo=True)
    assert [choice.text for choice in answer.choices] == [
        "1 word word0 ",
        "1 word word0.1 ",
        "2 words word0 word1 ",
        "2 words word0.1 word1.1 ",
    ]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6
    assert answer.choices[0].logprobs is None
    stream = await client.completions.create(model=MODEL, prompt="1 word", n=2, echo=True, stream=True)
    chunks = [chunk.choices[0] async for chunk in stream]
    assert [(chunk.index, chunk.text) for chunk in chunks[:2]] == [(0, "1 word "), (1, "1 word ")]
    assert [(chunk.index, chunk.text) for chunk in chunks[2:4]] == [(0, "word0 "), (1, "word0.1 ")]


async def test_echo_with_logprobs_has_those_of_the_prompt_first(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="1 fine word", echo=True, logprobs=1)
    found = answer.choices[0].logprobs
    assert found is not None
    assert found.tokens == ["1 ", "fine ", "word ", "word0 "]
    assert found.token_logprobs == [None, -1.0, -2.0, 0.0]
    assert found.text_offset == [0, 2, 7, 12]
    assert found.top_logprobs == [
        None,
        {"other1 ": -0.25, "fine ": -1.0},
        {"other1 ": -0.25, "word ": -2.0},
        {"other1 ": -0.25, "word0 ": 0.0},
    ]


async def test_max_tokens_0_with_echo_scores_a_prompt_and_writes_nothing(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model=MODEL, prompt=["1 word", "2 more words"], echo=True, logprobs=0, max_tokens=0
    )
    assert [choice.text for choice in answer.choices] == ["1 word ", "2 more words "]
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    assert answer.choices[1].logprobs is not None
    assert answer.choices[1].logprobs.token_logprobs == [None, -1.0, -2.0]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 0)
    stream = await client.completions.create(model=MODEL, prompt="1 word", echo=True, max_tokens=0, stream=True)
    chunks = [chunk.choices[0] async for chunk in stream]
    assert [(chunk.text, chunk.finish_reason) for chunk in chunks] == [("1 word ", None), ("", "length")]


def test_what_json_cannot_hold_is_written_as_clients_know_it() -> None:
    never = TokenLogprob(1, "a", float("-inf"), [(2, "b", -1.0), (3, "c", float("-inf"))])
    assert CompletionLogprobs().take([never]) == {
        "text_offset": [0],
        "token_logprobs": [-9999.0],
        "tokens": ["a"],
        "top_logprobs": [{"b": -1.0, "c": -9999.0, "a": -9999.0}],
    }
    assert openai_logprobs.chat([never])["content"][0]["logprob"] == -9999.0


def test_of_two_tokens_with_one_text_the_likeliest_is_told() -> None:
    twins = TokenLogprob(3, "�", -2.0, [(1, "�", -0.5), (2, "�", -1.0)])
    assert CompletionLogprobs().take([twins])["top_logprobs"] == [{"�": -0.5}]


def test_a_part_of_a_character_has_no_bytes_that_are_known() -> None:
    part = TokenLogprob(3, "�", -2.0, [(4, "é", -0.5)])
    told = openai_logprobs.chat([part])["content"][0]
    assert (told["bytes"], told["top_logprobs"][0]["bytes"]) == (None, [0xC3, 0xA9])
