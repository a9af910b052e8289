"""What ``/metrics`` says: exact values from events written by hand, and the text as Prometheus reads it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, parser

from app.metrics import COUNTERS, HISTOGRAMS, KINDS, Metrics
from app.observer import Observer
from engine.events import (
    AnyEvent,
    BlockCopied,
    BlockEvicted,
    Partition,
    Preempted,
    PrefixHit,
    RequestAborted,
    RequestAdmitted,
    RequestArrived,
    RequestFinished,
    RequestRefused,
    SequenceFinished,
    SequenceForked,
    Step,
    StepCompleted,
    StepTimes,
    SwappedIn,
    SwappedOut,
    TokenGenerated,
)
from engine.messages import Memory
from tests.app.conftest import Site, serve

MEMORY = Memory(4, 16, cpu_blocks=8, prefix_cache=True)
FULL = Partition(20, 4, 8, 0, 16, 16, cached=8)
NONE = StepTimes(0, 0, 0)


def arrived(request: int, prompt: int, width: int = 1, source: str = "api") -> RequestArrived:
    return RequestArrived(request, prompt, 8, source, width)


def token(sequence: int) -> TokenGenerated:
    return TokenGenerated(sequence, 7, "t", -0.5)


# Milliseconds, and what happens. Request 0 has two samples, is swapped and comes back; 1 has its prompt in the cache and
# is recomputed; 2 is aborted; 3 waits for ever; 4 is a prefix; 5 can never run.
STORY: list[tuple[float, list[AnyEvent]]] = [
    (0, [arrived(0, 6, width=2)]),
    (20, [arrived(1, 9), RequestRefused("too long", "api")]),
    (
        100,
        [
            RequestAdmitted(0, [0]),
            RequestAdmitted(1, [2]),
            PrefixHit(1, 2, 0, 1, "h0"),
            PrefixHit(2, 2, 1, 1, "h1"),
            SequenceForked(1, 0),
            token(0),
            token(1),
            token(2),
            StepCompleted(1, 2, 7, 0, 0, NONE, FULL),
        ],
    ),
    (
        400,
        [
            BlockCopied(3, [4, 5], 2),
            token(0),
            token(1),
            token(2),
            SequenceFinished(1, "stop", 2),
            StepCompleted(2, 3, 3, 0, 0, NONE, FULL),
        ],
    ),
    (
        500,
        [
            Preempted(0, [0], "swap"),
            SwappedOut(0, [(1, 0), (2, 1), (3, 2)], 3000),
            Preempted(1, [2], "recompute"),
            StepCompleted(3, 0, 0, 1, 1, NONE, FULL),
        ],
    ),
    (
        900,
        [
            SwappedIn(0, [(0, 5), (1, 6), (2, 7)], 3000),
            RequestAdmitted(0, [0]),
            RequestAdmitted(1, [2]),
            PrefixHit(1, 2, 0, 1, "h0"),
            BlockEvicted(9, "h9"),
            token(0),
            SequenceFinished(0, "length", 3),
            RequestFinished(0, "length", 5),
            StepCompleted(4, 2, 1, 0, 0, NONE, FULL),
        ],
    ),
    (1000, [arrived(2, 3), arrived(3, 5), arrived(4, 12, source="prefix"), RequestAborted(2, "gone")]),
    (
        1200,
        [
            RequestAdmitted(4, [3]),
            RequestFinished(4, "registered", 0),
            token(2),
            SequenceFinished(2, "stop", 3),
            RequestFinished(1, "stop", 3),
            StepCompleted(5, 2, 13, 1, 0, NONE, FULL),
        ],
    ),
    (1300, [RequestAborted(4, "its prefix was deleted")]),
]


def tell(observer: Observer, arena: str = "api", until: float = math.inf, memory: Memory = MEMORY) -> None:
    for seq, (t, events) in enumerate(STORY):
        if t <= until:
            observer.observe(Step(arena, 0, seq, t, False, FULL, events), memory)


def value(metrics: Metrics, name: str, kind: str = "api", **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry.get_sample_value(name, {"model_name": "m", "arena": kind, **labels})


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics()
    made.model_name = "m"
    return made


@pytest.fixture
def observer(metrics: Metrics) -> Observer:
    return Observer(metrics, "api")


def test_counters_of_a_story(metrics: Metrics, observer: Observer) -> None:
    tell(observer)
    counted = {
        "vllm:num_preemptions_total": 2,
        "vllm:prompt_tokens_total": 6 + 9 + 12,
        "vllm:generation_tokens_total": 8,
        "vllm:prefix_cache_queries_total": 6 + 9 + 12,
        "vllm:prefix_cache_hits_total": 8,  # not those of the second admission
        "paged:requests_refused_total": 1,
        "paged:sequences_forked_total": 1,
        "paged:blocks_copied_total": 2,
        "paged:blocks_evicted_total": 1,
    }
    assert {name: value(metrics, name) for name in counted} == counted
    reasons = {"stop": 1, "length": 1, "capacity": 0, "abort": 1, "registered": 1}
    ended = {reason: value(metrics, "vllm:request_success_total", finished_reason=reason) for reason in reasons}
    assert ended == reasons
    for direction in ("out", "in"):
        assert value(metrics, "paged:swapped_bytes_total", direction=direction) == 3000
    assert {value(metrics, name, "visitors") for name in counted} == {0}


def test_times_of_a_story(metrics: Metrics, observer: Observer) -> None:
    tell(observer)
    measured = {
        "vllm:iteration_tokens_total": (5, 7 + 3 + 0 + 1 + 13),
        "vllm:time_to_first_token_seconds": (2, 0.1 + 0.08),
        # 0 and 2 twice, 1 once: 300 ms each, then 500 and 800 over the time that they were preempted.
        "vllm:inter_token_latency_seconds": (5, 3 * 0.3 + 0.5 + 0.8),
        "vllm:e2e_request_latency_seconds": (2, 0.9 + 1.18),
        "vllm:request_queue_time_seconds": (3, 0.1 + 0.08 + 0.2),
        "vllm:request_prefill_time_seconds": (2, 0.0),
        "vllm:request_decode_time_seconds": (2, 0.8 + 1.1),
        "vllm:request_inference_time_seconds": (2, 0.8 + 1.1),
        "vllm:request_prompt_tokens": (2, 6 + 9),
        "vllm:request_generation_tokens": (2, 5 + 3),
        "paged:request_width": (2, 3),
    }
    assert set(measured) == {name for name, _, _ in HISTOGRAMS}
    for name, (count, total) in measured.items():
        assert value(metrics, f"{name}_count") == count, name
        assert value(metrics, f"{name}_sum") == pytest.approx(total), name
    assert value(metrics, "vllm:time_to_first_token_seconds_bucket", le="0.05") == 0
    assert value(metrics, "vllm:time_to_first_token_seconds_bucket", le="0.1") == 2
    assert value(metrics, "vllm:inter_token_latency_seconds_bucket", le="0.5") == 4


def test_a_request_is_admitted_before_the_forward_pass_of_its_step(metrics: Metrics, observer: Observer) -> None:
    times = StepTimes(schedule=5, forward=60, sample=10)
    done: list[AnyEvent] = [RequestAdmitted(0, [0]), token(0), StepCompleted(1, 1, 6, 0, 0, times, FULL)]
    observer.observe(Step("api", 0, 0, 1000, False, FULL, [arrived(0, 6)]), MEMORY)
    observer.observe(Step("api", 0, 1, 1100, False, FULL, done), MEMORY)
    assert value(metrics, "vllm:request_queue_time_seconds_sum") == pytest.approx(0.03)
    assert value(metrics, "vllm:request_prefill_time_seconds_sum") == pytest.approx(0.07)
    assert value(metrics, "vllm:time_to_first_token_seconds_sum") == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("until", "running", "waiting", "swapped", "cpu_blocks"),
    [(0, 0, 1, 0, 0), (100, 2, 0, 0, 0), (500, 0, 1, 1, 3), (900, 1, 0, 0, 0), (1000, 1, 2, 0, 0), (1300, 0, 1, 0, 0)],
)
def test_states_in_the_middle_of_a_story(
    observer: Observer, until: float, running: int, waiting: int, swapped: int, cpu_blocks: int
) -> None:
    tell(observer, until=until)
    arena = observer.of("api")
    assert arena is not None
    states = [request.state for request in arena.requests.values()]
    assert (states.count("running"), states.count("waiting"), states.count("swapped")) == (running, waiting, swapped)
    assert arena.cpu_blocks == cpu_blocks


def test_without_a_prefix_cache_nothing_is_looked_up(metrics: Metrics, observer: Observer) -> None:
    tell(observer, memory=Memory(4, 16))
    assert value(metrics, "vllm:prefix_cache_queries_total") == 0


def test_nothing_is_kept_of_what_has_ended(observer: Observer) -> None:
    tell(observer)
    arena = observer.of("api")
    assert arena is not None
    assert set(arena.requests) == {3}
    assert (arena._owner, arena._last_token) == ({}, {})
    observer.observe(Step("api", 1, 0, 0.0, False, FULL, []), MEMORY)
    again = observer.of("api")
    assert again is not None
    assert again.requests == {}, "a new epoch is a new life"
    observer.forget("api")
    assert observer.of("api") is None


def test_visitors_are_counted_together_whatever_their_arenas_are_called(metrics: Metrics, observer: Observer) -> None:
    for arena in ("a1", "a2", "a3"):
        tell(observer, arena)
    assert value(metrics, "vllm:generation_tokens_total", "visitors") == 24
    assert value(metrics, "vllm:generation_tokens_total", "api") == 0
    labels = {tuple(sorted(s.labels)) for family in metrics.collect() for s in family.samples}
    allowed = {"model_name", "arena", "finished_reason", "direction", "le"}
    assert {label for names in labels for label in names} == allowed


def test_an_unknown_request_or_sequence_breaks_nothing(metrics: Metrics, observer: Observer) -> None:
    strange: list[AnyEvent] = [
        RequestAdmitted(9, [9]),
        PrefixHit(1, 9, 0, 1, "h"),
        Preempted(9, [9], "swap"),
        SwappedOut(9, [(1, 1)], 10),
        SequenceForked(10, 9),
        token(9),
        SequenceFinished(9, "stop", 1),
        RequestFinished(9, "stop", 1),
        RequestAborted(9, "gone"),
    ]
    observer.observe(Step("api", 0, 0, 0.0, False, FULL, strange), MEMORY)
    assert value(metrics, "vllm:generation_tokens_total") == 1
    assert value(metrics, "vllm:request_success_total", finished_reason="stop") == 0


async def read(site: Site) -> dict[tuple[str, str | None, str | None], float]:
    """Samples by name, arena and the one further label."""
    async with site.http() as http:
        answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, sample.labels.get("arena"), _other(sample.labels)): sample.value
        for family in parser.text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def _other(labels: dict[str, str]) -> str | None:
    others = [value for name, value in labels.items() if name not in ("model_name", "arena")]
    assert len(others) <= 1
    return others[0] if others else None


async def test_the_page_for_prometheus(site: Site) -> None:
    async with site.browser() as page, site.http() as http:
        await page.open(params={"block_size": 8, "num_blocks": 5, "cpu_blocks": 10})
        done = await http.post("/v1/prefixes", json={"model": "fake-model", "prompt": "a prefix"})
        assert done.status_code == 201
        await page.say("submit", arena="a1", prompt="forever")
        await page.hear("step")
        seen = await read(site)
        assert seen["paged:engine_ready", None, None] == 1
        assert seen["paged:engine_restarts_total", None, None] == 0
        assert seen["paged:sockets", None, None] == 1
        assert (seen["paged:arenas", "api", None], seen["paged:arenas", "visitors", None]) == (1, 1)
        assert (seen["paged:prefixes", "api", None], seen["paged:prefixes", "visitors", None]) == (1, 0)
        assert seen["vllm:num_requests_waiting", "visitors", None] == 1
        assert seen["vllm:request_success_total", "api", "registered"] == 1
        assert (seen["paged:kv_slots", "api", "free"], seen["paged:kv_slots", "visitors", "free"]) == (64, 40)
        assert seen["vllm:kv_cache_usage_perc", "api", None] == 0
        assert {arena for _, arena, _ in seen} == {None, *KINDS}


async def test_memory_is_told_as_shares_and_slots(site: Site) -> None:
    tell(site.arenas.observer, until=500)
    seen = await read(site)
    assert seen["vllm:kv_cache_usage_perc", "api", None] == 32 / 64
    parts = {part: value for (name, arena, part), value in seen.items() if (name, arena) == ("paged:kv_slots", "api")}
    assert parts == {"token_states": 20, "held": 4, "reserved": 8, "internal": 0, "external": 16, "free": 16}
    assert seen["paged:cached_slots", "api", None] == 8
    assert seen["vllm:num_requests_swapped", "api", None] == 1
    # The API's arena here has room for 16 blocks of 16 in main memory.
    assert seen["vllm:cpu_cache_usage_perc", "api", None] == 3 / 16


async def test_names_keep_their_colons_whatever_format_is_asked_for(site: Site) -> None:
    async with site.http() as http:
        answer = await http.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        families = {family.name for family in parser.text_string_to_metric_families(answer.text)}
        assert families >= {name for name, _, _, _ in COUNTERS} | {name for name, _, _ in HISTOGRAMS}
        head = await http.head("/metrics")
        assert (head.status_code, head.content) == (200, b"")


async def test_before_the_model_is_there_only_the_site_is_told_of() -> None:
    async with serve(wait=False, model="slow-load") as site:
        seen = await read(site)
        assert seen["paged:engine_ready", None, None] == 0
        assert [name for (name, arena, _) in seen if arena is not None] == []


async def test_a_lost_engine_leaves_counters_and_takes_what_ran(site: Site) -> None:
    async with site.browser() as page:
        await page.open()
        await page.say("submit", arena="a1", prompt="2 words")
        await page.hear("step")
        assert (await read(site))["vllm:num_requests_waiting", "visitors", None] == 1
        await page.say("submit", arena="a1", prompt="too long")
        await page.hear("error")
        await page.say("submit", arena="a1", prompt="crash")
        await page.hear("snapshot")
        seen: dict[Any, float] = await read(site)
        assert seen["vllm:num_requests_waiting", "visitors", None] == 0
        assert seen["paged:requests_refused_total", "visitors", None] == 1
        assert seen["paged:engine_restarts_total", None, None] == 1
