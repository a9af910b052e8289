"""Every field of a request reaches the engine as it was meant; ``show`` has the scripted engine tell what it was sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.app.conftest import Site, serve

MODEL = "fake-model"


@pytest.fixture
async def client(site: Site) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="none", max_retries=0) as one:
        yield one


OPENAI_FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"max_tokens": 9}, {"max_tokens": 9}),
    ({"temperature": 0.5}, {"temperature": 0.5}),
    ({"temperature": 0}, {"temperature": 0}),
    ({"top_p": 0.25}, {"top_p": 0.25}),
    ({"presence_penalty": -2}, {"presence_penalty": -2}),
    ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
    ({"logit_bias": {"5": -100, "7": 1.5}}, {"logit_bias": {"5": -100, "7": 1.5}}),
    ({"seed": 0}, {"seed": 0}),
    ({"stop": "a"}, {"stop": ["a"]}),
    ({"stop": ["a", "b"]}, {"stop": ["a", "b"]}),
    ({"n": 3}, {"n": 3}),
]

BEAM = {"beam_search": True, "temperature": 0}

EXTRA_FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"best_of": 4}, {"best_of": 4}),
    ({"top_k": 5}, {"top_k": 5}),
    ({"top_k": -1}, {"top_k": 0}),
    ({"min_p": 0.125}, {"min_p": 0.125}),
    ({"repetition_penalty": 1.25}, {"repetition_penalty": 1.25}),
    ({"min_tokens": 2}, {"min_tokens": 2}),
    ({"stop_token_ids": [8, 9]}, {"stop_token_ids": [8, 9]}),
    ({"ignore_eos": True}, {"ignore_eos": True}),
    ({"use_beam_search": True}, BEAM),
    (
        {"use_beam_search": True, "temperature": 1, "length_penalty": 0.5},
        {"beam_search": True, "temperature": 1, "length_penalty": 0.5},
    ),
    ({"use_beam_search": True, "early_stopping": True}, {**BEAM, "early_stopping": "true"}),
    ({"use_beam_search": True, "early_stopping": "never"}, {**BEAM, "early_stopping": "never"}),
    ({"use_beam_search": True, "early_stopping": False}, {**BEAM, "early_stopping": "false"}),
]

DEFAULTS = {
    "max_tokens": 16,
    "min_tokens": 0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": {},
    "seed": None,
    "stop": [],
    "stop_token_ids": [],
    "ignore_eos": False,
    "n": 1,
    "best_of": 0,
    "logprobs": None,
    "beam_search": False,
    "length_penalty": 1.0,
    "early_stopping": "false",
}


async def test_every_field_reaches_the_engine_and_nothing_else_changes(client: openai.AsyncOpenAI) -> None:
    for fields, extra, changed in (
        [({}, {}, {})]
        + [(fields, {}, changed) for fields, changed in OPENAI_FIELDS]
        + [({}, extra, changed) for extra, changed in EXTRA_FIELDS]
    ):
        answer = await client.completions.create(model=MODEL, prompt="show", **fields, extra_body=extra)
        sent = json.loads(answer.choices[0].text)
        assert sent["sampling"] == {**DEFAULTS, **changed}, (fields, extra)
        assert (sent["stream"], sent["source"], sent["echo"]) == (True, "api", False)
        talk = [{"role": "user", "content": "show"}]
        chat = await client.chat.completions.create(model=MODEL, messages=talk, **fields, extra_body=extra)  # type: ignore[arg-type]
        assert chat.choices[0].message.content is not None
        sent = json.loads(chat.choices[0].message.content)
        assert sent["sampling"] == {**DEFAULTS, "max_tokens": 100, **changed}, (fields, extra)


async def test_null_is_the_default_of_every_field(site: Site) -> None:
    names = {name for fields, _ in OPENAI_FIELDS + EXTRA_FIELDS for name in fields}
    async with site.http() as http:
        body = {"model": MODEL, "prompt": "show", **dict.fromkeys(names), "echo": None, "logprobs": None}
        answer = await http.post("/v1/completions", json={**body, "priority": None, "cache_salt": None})
        assert answer.status_code == 200
        assert json.loads(answer.json()["choices"][0]["text"])["sampling"] == DEFAULTS


async def test_priority_and_salt_belong_to_the_request(client: openai.AsyncOpenAI) -> None:
    extra = {"priority": -3, "cache_salt": "mine"}
    answer = await client.completions.create(model=MODEL, prompt="show", extra_body=extra)
    sent = json.loads(answer.choices[0].text)
    assert (sent["priority"], sent["cache_salt"], sent["prompt"]) == (-3, "mine", "show")


async def test_the_largest_values_that_are_allowed(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model=MODEL,
        prompt="show",
        logit_bias={str(token): 100 for token in range(300)},
        seed=2**63 - 1,
        n=20,
        stop=["a"] * 4,
        logprobs=20,
        extra_body={"stop_token_ids": list(range(64)), "cache_salt": "s" * 256, "priority": 2**31 - 1},
    )
    sent = json.loads(answer.choices[0].text)
    assert len(sent["sampling"]["logit_bias"]) == 300
    assert (sent["sampling"]["seed"], sent["sampling"]["logprobs"]) == (2**63 - 1, 20)


async def test_the_operator_says_how_many_samples_there_may_be() -> None:
    async with serve(max_samples=2) as site, site.http() as http:
        answer = await http.post("/v1/completions", json={"model": MODEL, "prompt": "show", "best_of": 3})
        assert answer.json()["error"]["message"][:43] == "best_of is 3; it must lie between 1 and 2. "
        answer = await http.post("/v1/completions", json={"model": MODEL, "prompt": "show", "n": 2})
        assert answer.status_code == 200


async def test_the_operators_choices_make_the_apis_arena() -> None:
    chosen = {
        "api_block_size": 8,
        "api_slots": 64,
        "api_cpu_slots": 32,
        "api_prefix_cache": "off",
        "api_preemption": "swap",
        "api_prefill_chunk": 7,
    }
    async with serve(**chosen) as site, site.http() as http:
        answer = await http.post("/v1/completions", json={"model": MODEL, "prompt": "show memory"})
        assert json.loads(answer.json()["choices"][0]["text"]) == {
            "block_size": 8,
            "num_blocks": 8,
            "manager": "paged",
            "max_len": 0,
            "cpu_blocks": 4,
            "prefix_cache": False,
            "preemption": "swap",
            "prefill_chunk": 7,
        }
