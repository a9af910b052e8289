"""The API over the real engine with a tiny random model: what it says of tokens must agree with itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from prometheus_client import parser

from app.main import engine_command
from engine.events import RequestAborted, RequestArrived
from tests.app.conftest import Site, serve

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
GONE = "the client disconnected"
PROMPT = "The operating system keeps a table of pages for every process, "


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    async with serve(command=engine_command, model="tiny", device="cpu", dtype="float32", api_slots=2048) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(site: Site) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture(scope="module")
def name(site: Site) -> str:
    model = site.arenas.engine.status.model
    assert model is not None
    return model.name


def extra(**fields: Any) -> dict[str, Any]:
    return {"extra_body": {"ignore_eos": True, **fields}}


async def test_samples_differ_and_a_seed_brings_them_again(client: openai.AsyncOpenAI, name: str) -> None:
    wish: dict[str, Any] = {"model": name, "prompt": PROMPT, "max_tokens": 12, "n": 4, "seed": 7, **extra()}
    one, two = [await client.completions.create(**wish) for _ in range(2)]
    texts = [choice.text for choice in one.choices]
    assert len(set(texts)) == 4
    assert texts == [choice.text for choice in two.choices]
    assert one.usage is not None
    assert one.usage.completion_tokens == 48
    assert [choice.finish_reason for choice in one.choices] == ["length"] * 4


async def test_a_stream_says_what_the_whole_answer_says(client: openai.AsyncOpenAI, name: str) -> None:
    wish: dict[str, Any] = {"model": name, "prompt": [PROMPT, "Hello"], "max_tokens": 9, "n": 2, "seed": 3, **extra()}
    whole = await client.completions.create(**wish, logprobs=2, echo=True)
    texts = dict.fromkeys(range(4), "")
    tokens: dict[int, list[float]] = {index: [] for index in range(4)}
    stream = await client.completions.create(
        **wish, logprobs=2, echo=True, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        if not chunk.choices:
            assert chunk.usage is not None
            assert whole.usage is not None
            assert chunk.usage.completion_tokens == whole.usage.completion_tokens == 36
            continue
        choice = chunk.choices[0]
        texts[choice.index] += choice.text
        if choice.logprobs is not None:
            tokens[choice.index] += choice.logprobs.token_logprobs or []
    for choice in whole.choices:
        assert texts[choice.index] == choice.text
        assert choice.logprobs is not None
        assert tokens[choice.index] == pytest.approx(choice.logprobs.token_logprobs, abs=1e-4)


async def test_the_best_are_the_likeliest(client: openai.AsyncOpenAI, name: str) -> None:
    wish: dict[str, Any] = {"model": name, "prompt": PROMPT, "max_tokens": 8, "seed": 5, "logprobs": 0, **extra()}
    every = await client.completions.create(**wish, n=5)
    best = await client.completions.create(**wish, n=2, best_of=5)

    def score(choice: Any) -> float:
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    ranked = sorted(every.choices, key=score, reverse=True)
    assert [choice.text for choice in best.choices] == [choice.text for choice in ranked[:2]]


async def test_beams_beat_the_greedy_text_and_come_best_first(client: openai.AsyncOpenAI, name: str) -> None:
    wish: dict[str, Any] = {"model": name, "prompt": PROMPT, "max_tokens": 8, "logprobs": 0}
    greedy = await client.completions.create(**wish, temperature=0, **extra())
    beams = await client.completions.create(**wish, n=3, **extra(use_beam_search=True, best_of=4))

    def total(choice: Any) -> float:
        return sum(choice.logprobs.token_logprobs)

    totals = [total(choice) for choice in beams.choices]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] >= total(greedy.choices[0]) - 1e-4
    one = await client.completions.create(**wish, **extra(use_beam_search=True))
    assert one.choices[0].text == greedy.choices[0].text, "one beam is the greedy text"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 0.5}, "temperature"),
        ({"top_p": 0.5}, "top_p"),
        ({"top_k": 5}, "top_k"),
        ({"min_p": 0.1}, "min_p"),
        ({"stop": ["a"]}, "stop"),
    ],
)
async def test_what_does_not_go_with_beam_search_is_refused(
    client: openai.AsyncOpenAI, name: str, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.completions.create(model=name, prompt=PROMPT, n=2, **extra(use_beam_search=True, **fields))
    assert refused.value.param == param
    assert "beam search" in refused.value.message


async def test_scoring_a_text_gives_what_writing_it_gave(client: openai.AsyncOpenAI, name: str) -> None:
    written = await client.completions.create(
        model=name, prompt=PROMPT, max_tokens=10, temperature=0, logprobs=3, echo=True, **extra()
    )
    assert written.usage is not None
    first = written.choices[0].logprobs
    assert first is not None
    assert first.token_logprobs is not None
    assert first.tokens is not None
    assert first.top_logprobs is not None
    assert first.token_logprobs[0] is None
    assert len(first.tokens) == written.usage.prompt_tokens + 10
    assert written.choices[0].text.startswith(PROMPT)
    for logprob, top in zip(first.token_logprobs[1:], first.top_logprobs[1:], strict=True):
        assert 1 <= len(top) <= 4
        assert max(top.values()) >= logprob - 1e-5
    greedy = first.token_logprobs[-10:]
    assert greedy == pytest.approx([max(top.values()) for top in first.top_logprobs[-10:]], abs=1e-5)
    scored = await client.completions.create(
        model=name, prompt=written.choices[0].text, max_tokens=0, logprobs=0, echo=True
    )
    assert scored.usage is not None
    assert scored.usage.completion_tokens == 0
    again = scored.choices[0].logprobs
    assert again is not None
    if scored.usage.prompt_tokens == len(first.tokens):  # the text may be cut into other tokens than wrote it
        assert again.token_logprobs is not None
        assert again.token_logprobs[1:] == pytest.approx(first.token_logprobs[1:], abs=1e-3)


async def test_tokens_can_be_forced_forbidden_and_made_to_stop(client: openai.AsyncOpenAI, name: str) -> None:
    wish: dict[str, Any] = {"model": name, "prompt": PROMPT, "temperature": 0, "max_tokens": 6}
    forced = await client.completions.create(**wish, logit_bias={"40": 100}, logprobs=0, **extra())
    found = forced.choices[0].logprobs
    assert found is not None
    assert len(set(found.tokens or [])) == 1
    assert all(logprob < -1 for logprob in found.token_logprobs or []), "told before the bias"
    stopped: Any = await client.completions.create(**wish, logit_bias={"40": 100}, **extra(stop_token_ids=[40]))
    choice = stopped.choices[0]
    assert (choice.finish_reason, choice.stop_reason, stopped.usage.completion_tokens) == ("stop", 40, 1)
    later: Any = await client.completions.create(
        **wish, logit_bias={"40": 100}, **extra(stop_token_ids=[40], min_tokens=4)
    )
    assert later.usage.completion_tokens == 5
    text = (found.tokens or [""])[0]
    by_text: Any = await client.completions.create(**wish, logit_bias={"40": 100}, stop=[text * 2], **extra())
    choice = by_text.choices[0]
    assert (choice.text, choice.finish_reason, choice.stop_reason) == ("", "stop", text * 2)
    with pytest.raises(openai.BadRequestError) as unknown:
        await client.completions.create(**wish, logit_bias={str(10**9): 1})
    assert unknown.value.param == "logit_bias"


async def test_a_prompt_that_was_computed_is_found_again_under_its_salt(client: openai.AsyncOpenAI, name: str) -> None:
    async def cached(salt: str | None) -> int:
        answer = await client.completions.create(
            model=name, prompt="Cache me. " * 20, max_tokens=2, **extra(cache_salt=salt)
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        return answer.usage.prompt_tokens_details.cached_tokens or 0

    assert await cached("a") == 0
    found = await cached("a")
    assert found > 0
    assert found % 16 == 0
    assert await cached("b") == 0


async def test_a_registered_prefix_is_shared_and_given_back(site: Site, client: openai.AsyncOpenAI, name: str) -> None:
    system = "You answer in one word. " * 7
    async with site.http() as http:
        made = await http.post("/v1/prefixes", json={"model": name, "prompt": system})
        assert made.status_code == 201
        tokens = made.json()["tokens"]
        answer = await client.completions.create(model=name, prompt=system + "What?", max_tokens=2, **extra())
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert tokens // 16 * 16 <= (answer.usage.prompt_tokens_details.cached_tokens or 0) <= tokens
        assert (await http.get("/v1/prefixes")).json()["data"] == [made.json()]
        assert (await http.delete(f"/v1/prefixes/{made.json()['id']}")).status_code == 200
        too_long = await http.post("/v1/prefixes", json={"model": name, "prompt": "word " * 4000})
        assert too_long.status_code in (400, 409)
        assert (await http.get("/v1/prefixes")).json()["data"] == []


async def test_what_conversations_begin_with_can_be_registered(
    site: Site, client: openai.AsyncOpenAI, name: str
) -> None:
    system: Any = {"role": "system", "content": "You are the page table of a very old machine. " * 5}
    async with site.http() as http:
        made = await http.post("/v1/prefixes", json={"model": name, "messages": [system]})
        assert made.status_code == 201
        talk: Any = [system, {"role": "user", "content": "Where is page 7?"}]
        answer = await client.chat.completions.create(model=name, messages=talk, max_tokens=2)
        await http.delete(f"/v1/prefixes/{made.json()['id']}")
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert (answer.usage.prompt_tokens_details.cached_tokens or 0) >= made.json()["tokens"] // 16 * 16


async def test_a_client_that_leaves_in_mid_beam_leaves_nothing(site: Site, name: str) -> None:
    async with site.http() as http:
        body = {"model": name, "prompt": [PROMPT, "Hello"], "max_tokens": 300, "n": 4, "use_beam_search": True}
        waiting = asyncio.create_task(http.post("/v1/completions", json={**body, "ignore_eos": True}))
        await site.ear.wait_for(
            lambda said: any(
                isinstance(event, RequestArrived) and event.beam and event.max_tokens == 300
                for event in getattr(getattr(said, "step", None), "events", ())
            )
        )
        waiting.cancel()
        left = 0

        def both_left(said: object) -> bool:
            nonlocal left
            events = getattr(getattr(said, "step", None), "events", ())
            left += sum(isinstance(event, RequestAborted) and event.reason == GONE for event in events)
            return left == 2

        await site.ear.wait_for(both_left)
        assert len(site.arenas.generations) == 0
        seen = await numbers(site)
        assert (seen["vllm:num_requests_running"], seen["vllm:num_requests_waiting"]) == (0, 0)
        assert seen["vllm:kv_cache_usage_perc"] == 0


async def test_metrics_agree_with_what_clients_are_told(site: Site, client: openai.AsyncOpenAI, name: str) -> None:
    before = await numbers(site)
    prompt = "Count with me: one, two, three. " * 6
    asked, usages = 3, []
    for _ in range(asked):
        answer = await client.completions.create(model=name, prompt=prompt, max_tokens=5, n=2, **extra())
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        usages.append(answer.usage)
    after = await numbers(site)
    grown = {metric: after[metric] - before[metric] for metric in after}
    assert grown["vllm:prompt_tokens_total"] == sum(usage.prompt_tokens for usage in usages)
    assert grown["vllm:generation_tokens_total"] == sum(usage.completion_tokens for usage in usages) == 30
    assert grown["vllm:request_success_total"] == asked
    assert grown["vllm:time_to_first_token_seconds_count"] == asked
    assert grown["vllm:inter_token_latency_seconds_count"] == asked * 2 * 4
    assert grown["vllm:e2e_request_latency_seconds_sum"] >= grown["vllm:time_to_first_token_seconds_sum"] > 0
    hits = sum(usage.prompt_tokens_details.cached_tokens or 0 for usage in usages if usage.prompt_tokens_details)
    assert grown["vllm:prefix_cache_hits_total"] == hits > 0
    assert grown["paged:sequences_forked_total"] == asked


@pytest.mark.parametrize("manager", ["paged", "orca_max", "orca_pow2", "orca_oracle", "static_batch"])
async def test_every_memory_manager_gives_the_same_text(
    site: Site, client: openai.AsyncOpenAI, name: str, manager: str
) -> None:
    wish: dict[str, Any] = {"model": name, "prompt": "Hello", "max_tokens": 8, "n": 2, "seed": 1, **extra()}
    plain = await client.completions.create(**wish)
    async with site.browser() as page:
        params = {"block_size": 4, "num_blocks": 48, "pace_ms": 0, "manager": manager, "max_len": 32}
        opened = await page.open(params=params)
        assert opened["snapshot"]["state"]["manager"] == manager
        there = await client.completions.create(**wish, extra_headers={"X-Arena": opened["drive_secret"]})
        assert [choice.text for choice in there.choices] == [choice.text for choice in plain.choices]
        await page.say("close", arena=opened["arena"])
        await page.hear("closed")


async def test_sequences_are_forked_swapped_and_shared_in_a_visitors_arena(site: Site, name: str) -> None:
    async with site.browser() as page:
        params = {"block_size": 4, "num_blocks": 12, "pace_ms": 0, "cpu_blocks": 8, "preemption": "swap"}
        opened = await page.open(params=params)
        arena = opened["arena"]
        await page.say("pause", arena=arena)
        # Two of 5 + 24 tokens: 16 blocks are wanted where there are 12.
        for _ in range(2):
            await page.say("submit", arena=arena, prompt="Hello", max_tokens=24, ignore_eos=True, n=1)
        await page.say("resume", arena=arena)
        seen: list[str] = []
        while seen.count("request_finished") < 2:
            seen += [event["type"] for event in (await page.hear("step"))["events"]]
        assert seen.count("swapped_out") == seen.count("swapped_in") >= 1
        await page.say("pause", arena=arena)
        await page.say("submit", arena=arena, prompt="Hello", max_tokens=8, ignore_eos=True)
        await page.say("step", arena=arena)
        admitted: list[int] = []
        while not admitted:
            events = (await page.hear("step"))["events"]
            admitted = [event["sequences"][0] for event in events if event["type"] == "request_admitted"]
        await page.say("fork", arena=arena, sequence=admitted[0])
        types: list[str] = []
        while "sequence_forked" not in types:
            types = [event["type"] for event in (await page.hear("step", "error"))["events"]]
        assert types.count("block_shared") >= 1
        await page.say("close", arena=arena)
        await page.hear("closed")


async def numbers(site: Site) -> dict[str, float]:
    """Samples of the API's arena, over all further labels."""
    async with site.http() as http:
        text = (await http.get("/metrics")).text
    found: dict[str, float] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("arena") == "api":
                found[sample.name] = found.get(sample.name, 0) + sample.value
    return found
