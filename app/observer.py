"""Counts and times for ``/metrics``, from the events of all arenas.

Each event costs a constant; what is kept is bounded by what runs. Times are those of the envelopes, so a log that is read
again gives the same numbers. Labels tell the API's own arena from those of visitors, whose paces their readers choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.metrics import ABORTED, API, REGISTERED, VISITORS, Metrics, Tally
from engine.events import (
    BlockCopied,
    BlockEvicted,
    Event,
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
    SwappedIn,
    SwappedOut,
    TokenGenerated,
)
from engine.messages import Memory

WAITING, RUNNING, SWAPPED = "waiting", "running", "swapped"


@dataclass(slots=True)
class Request:
    """A request that has not ended. Times are milliseconds of its arena's clock."""

    arrived: RequestArrived
    since: float
    state: str = WAITING
    admissions: int = 0
    admitted: float = 0.0
    first: float | None = None
    last: float = 0.0
    cpu_blocks: int = 0
    sequences: set[int] = field(default_factory=set)


class ArenaObserver:
    """One life of one arena.

    Attributes:
        requests: those that have not ended.
        partition: as of the last envelope; None before the first.
    """

    def __init__(self, epoch: int, memory: Memory, tally: Tally) -> None:
        self.epoch = epoch
        self.requests: dict[int, Request] = {}
        self.partition: Partition | None = None
        self._memory = memory
        self._tally = tally
        self._owner: dict[int, Request] = {}
        self._last_token: dict[int, float] = {}
        self._now = self._began = 0.0

    @property
    def cpu_blocks(self) -> int:
        """Blocks of the pool for swapping that are in use."""
        return sum(request.cpu_blocks for request in self.requests.values())

    def observe(self, step: Step) -> None:
        self._now = self._began = step.t
        if step.events and isinstance(last := step.events[-1], StepCompleted):
            self._began -= last.ms.forward + last.ms.sample
        self.partition = step.partition
        for event in step.events:
            take = TAKES.get(type(event))
            if take is not None:  # most events change nothing here
                take(self, event)

    def arrived(self, event: RequestArrived) -> None:
        self.requests[event.request] = Request(event, self._now)

    def refused(self, event: RequestRefused) -> None:
        self._tally.count("paged:requests_refused")

    def admitted(self, event: RequestAdmitted) -> None:
        request = self.requests.get(event.request)
        if request is None:
            return
        request.state = RUNNING
        request.admissions += 1
        for sequence in event.sequences:
            self._join(sequence, request)
        if request.admissions == 1:
            # An envelope has the time of its step's end; requests are admitted before the forward pass.
            request.admitted = max(self._began, request.since)
            self._tally.measure("vllm:request_queue_time_seconds", (request.admitted - request.since) / 1000)
            if self._memory.prefix_cache:
                self._tally.count("vllm:prefix_cache_queries", request.arrived.prompt_tokens)

    def prefix_hit(self, event: PrefixHit) -> None:
        request = self._owner.get(event.sequence)
        if request is not None and request.admissions == 1:  # what a preempted one finds again is its own
            self._tally.count("vllm:prefix_cache_hits", self._memory.block_size)

    def preempted(self, event: Preempted) -> None:
        request = self.requests.get(event.request)
        if request is not None:
            request.state = SWAPPED if event.mode == "swap" else WAITING
            self._tally.count("vllm:num_preemptions")

    def swapped_out(self, event: SwappedOut) -> None:
        self._swapped(event.request, len(event.pairs), event.bytes, "out")

    def swapped_in(self, event: SwappedIn) -> None:
        self._swapped(event.request, -len(event.pairs), event.bytes, "in")

    def forked(self, event: SequenceForked) -> None:
        self._tally.count("paged:sequences_forked")
        request = self._owner.get(event.parent)
        if request is not None:
            self._join(event.sequence, request)
            if event.parent in self._last_token:
                self._last_token[event.sequence] = self._last_token[event.parent]

    def token_generated(self, event: TokenGenerated) -> None:
        self._tally.count("vllm:generation_tokens")
        request = self._owner.get(event.sequence)
        if request is None:
            return
        if request.first is None:
            request.first = self._now
            self._tally.count("vllm:prompt_tokens", request.arrived.prompt_tokens)
            self._measure("vllm:time_to_first_token_seconds", request.since)
            self._measure("vllm:request_prefill_time_seconds", request.admitted)
        elif event.sequence in self._last_token:
            self._measure("vllm:inter_token_latency_seconds", self._last_token[event.sequence])
        self._last_token[event.sequence] = request.last = self._now

    def sequence_finished(self, event: SequenceFinished) -> None:
        request = self._owner.pop(event.sequence, None)
        self._last_token.pop(event.sequence, None)
        if request is not None:
            request.sequences.discard(event.sequence)

    def finished(self, event: RequestFinished) -> None:
        request = self._end(event.request, event.reason)
        if request is None:
            return
        if event.reason == REGISTERED:  # its prompt was computed, and nothing is written
            self._tally.count("vllm:prompt_tokens", request.arrived.prompt_tokens)
            return
        self._measure("vllm:e2e_request_latency_seconds", request.since)
        self._measure("vllm:request_inference_time_seconds", request.admitted)
        if request.first is not None:
            self._tally.measure("vllm:request_decode_time_seconds", (request.last - request.first) / 1000)
        self._tally.measure("vllm:request_prompt_tokens", request.arrived.prompt_tokens)
        self._tally.measure("vllm:request_generation_tokens", event.output_tokens)
        self._tally.measure("paged:request_width", request.arrived.width)

    def aborted(self, event: RequestAborted) -> None:
        self._end(event.request, ABORTED)

    def blocks_copied(self, event: BlockCopied) -> None:
        self._tally.count("paged:blocks_copied", len(event.destinations))

    def block_evicted(self, event: BlockEvicted) -> None:
        self._tally.count("paged:blocks_evicted")

    def step_completed(self, event: StepCompleted) -> None:
        self._tally.measure("vllm:iteration_tokens_total", event.tokens)

    def _measure(self, name: str, since: float) -> None:
        self._tally.measure(name, (self._now - since) / 1000)

    def _join(self, sequence: int, request: Request) -> None:
        self._owner[sequence] = request
        request.sequences.add(sequence)

    def _swapped(self, number: int, blocks: int, size: int, direction: str) -> None:
        self._tally.count("paged:swapped_bytes", size, direction)
        request = self.requests.get(number)
        if request is not None:
            request.cpu_blocks += blocks

    def _end(self, number: int, reason: str) -> Request | None:
        request = self.requests.pop(number, None)
        if request is None:  # a prefix that was registered long ago, and is now given up
            return None
        self._tally.count("vllm:request_success", 1, reason)
        for sequence in request.sequences:
            self._owner.pop(sequence, None)
            self._last_token.pop(sequence, None)
        return request


TAKES: dict[type[Event], Callable[[ArenaObserver, Any], None]] = {
    RequestArrived: ArenaObserver.arrived,
    RequestRefused: ArenaObserver.refused,
    RequestAdmitted: ArenaObserver.admitted,
    PrefixHit: ArenaObserver.prefix_hit,
    Preempted: ArenaObserver.preempted,
    SwappedOut: ArenaObserver.swapped_out,
    SwappedIn: ArenaObserver.swapped_in,
    SequenceForked: ArenaObserver.forked,
    TokenGenerated: ArenaObserver.token_generated,
    SequenceFinished: ArenaObserver.sequence_finished,
    RequestFinished: ArenaObserver.finished,
    RequestAborted: ArenaObserver.aborted,
    BlockCopied: ArenaObserver.blocks_copied,
    BlockEvicted: ArenaObserver.block_evicted,
    StepCompleted: ArenaObserver.step_completed,
}


class Observer:
    """All arenas. ``api_arena``: the name of the API's own."""

    def __init__(self, metrics: Metrics, api_arena: str) -> None:
        self._metrics = metrics
        self._api_arena = api_arena
        self._arenas: dict[str, ArenaObserver] = {}

    def observe(self, step: Step, memory: Memory) -> None:
        """One envelope of an arena that has ``memory``; one of a new epoch begins a new life."""
        arena = self._arenas.get(step.arena)
        if arena is None or arena.epoch != step.epoch:
            tally = self._metrics.tallies[API if step.arena == self._api_arena else VISITORS]
            arena = self._arenas[step.arena] = ArenaObserver(step.epoch, memory, tally)
        arena.observe(step)

    def of(self, name: str) -> ArenaObserver | None:
        """What is known of an open arena; None before it has said anything."""
        return self._arenas.get(name)

    def forget(self, name: str) -> None:
        """The arena is gone, or what ran in it is lost."""
        self._arenas.pop(name, None)
