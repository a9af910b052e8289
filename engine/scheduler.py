"""Which sequences run in the next step, and over how many tokens (paper section 4.5; Orca's iteration-level scheduling)."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from engine.events import RequestAdmitted
from engine.memory.memory_manager import Emit, MemoryManager
from engine.preemption import choose, preempt
from engine.sequence import Request, Sequence, Status


@dataclass(frozen=True, slots=True)
class Chunk:
    """``count`` tokens of ``sequence`` from position ``start`` on; ``sample`` when they reach its last known token."""

    sequence: Sequence
    start: int
    count: int

    @property
    def sample(self) -> bool:
        return self.start + self.count == len(self.sequence.tokens) and not self.sequence.request.registers


@dataclass(frozen=True, slots=True)
class Plan:
    """``starved`` is a request that no step can help: alone, with no room for its next tokens."""

    chunks: list[Chunk]
    starved: Request | None = None


class Scheduler:
    """First come, first served, within equal priority. Running requests go before waiting ones; the latest arrival is
    preempted first, all its sequences together.

    A preempted request is recomputed (it waits again, with all its tokens as its prompts) or swapped to the CPU pool. No
    request is admitted in a step that preempted one, nor while one is swapped out, and none overtakes another.
    ``preemption``: auto, recompute or swap. ``prefill_chunk``: tokens of a prompt in one step at most (0: what the budget
    leaves; -1: prompts are never cut).
    """

    def __init__(
        self,
        manager: MemoryManager,
        max_sequences: int,
        emit: Emit,
        preemption: str = "auto",
        prefill_chunk: int = 0,
    ) -> None:
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.swapped: list[Request] = []
        self._manager = manager
        self._max_sequences = max_sequences
        self._emit = emit
        self._preemption = preemption
        self._prefill_chunk = prefill_chunk

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting or self.swapped)

    @property
    def head_starved(self) -> bool:
        """Whether the head of the queue waits for memory, and not merely for its turn."""
        return bool(self.waiting) and not self._manager.fits(self.waiting[0], 0)

    def demand(self) -> int:
        """Query rows that could run now, were there no budget."""
        requests = (*self.running, *self.waiting, *self.swapped)
        return max(1, sum(sequence.pending for request in requests for sequence in request.live))

    def add(self, request: Request) -> None:
        insort(self.waiting, request, key=_key)

    def remove(self, request: Request) -> None:
        """Take a request that has ended, or is aborted, out of its queue."""
        for queue in (self.running, self.waiting, self.swapped):
            if request in queue:
                queue.remove(request)

    def schedule(self, budget: int) -> Plan:
        """Plan a step of at most ``budget`` query rows. Preempts, swaps in, admits, and allocates what will be written."""
        planned: list[list[Chunk]] = []
        promised = 0
        preempted = False
        for request in list(self.running):
            chunks = self._chunks(request, budget, first=not planned)
            while request in self.running and promised + self._need(chunks) > self._manager.num_free:
                if self.running == [request]:
                    return Plan([], starved=request)
                self._preempt(self.running[-1])
                preempted = True
            if chunks and request in self.running:
                planned.append(chunks)
                promised += self._need(chunks)
                budget -= sum(chunk.count for chunk in chunks)
        if not preempted:
            self._resume(planned, promised, budget)
        if not self.running and (self.swapped or self.waiting):
            # Nothing runs, so memory is as empty as it gets: what does not fit now never will (it has outgrown memory).
            return Plan([], starved=(self.swapped or self.waiting)[0])
        for chunks in planned:
            self._manager.grow([(chunk.sequence, chunk.start + chunk.count) for chunk in chunks])
        return Plan([chunk for chunks in planned for chunk in chunks])

    def fork_due(self, request: Request) -> None:
        """Once the first sequence of a recomputed group has computed what all share, the others fork from it."""
        leader, *others = request.live
        if others and leader.computed == request.trunk and not others[0].computed:
            for sequence in others:
                self._manager.fork(leader, sequence)

    def _chunks(self, request: Request, budget: int, first: bool) -> list[Chunk]:
        """What of ``request`` may run in ``budget`` rows; nothing if it must wait for more."""
        live = request.live
        leader, *others = live
        if not others:
            rows = self._cut(leader.pending, budget, first)
            return [Chunk(leader, leader.computed, rows)] if rows else []
        if not others[0].computed:
            rows = self._cut(request.trunk - leader.computed, budget, first)
            return [Chunk(leader, leader.computed, rows)] if rows else []
        if all(sequence.pending == 1 for sequence in live):
            # The sequences of a group take every step together, or not at all.
            together = len(live) <= budget or first
            return [Chunk(sequence, sequence.computed, 1) for sequence in live] if together else []
        chunks: list[Chunk] = []
        for sequence in live:
            rows = self._cut(sequence.pending - 1, budget, first)
            if rows:
                chunks.append(Chunk(sequence, sequence.computed, rows))
                budget -= rows
        return chunks

    def _cut(self, pending: int, budget: int, first: bool) -> int:
        if self._prefill_chunk < 0:
            # A prompt longer than the whole budget must run some time: as the first of its step.
            return pending if pending <= budget or first else 0
        return max(0, min(pending, budget, self._prefill_chunk or pending))

    def _need(self, chunks: list[Chunk]) -> int:
        return self._manager.need([(chunk.sequence, chunk.start + chunk.count) for chunk in chunks])

    def _resume(self, planned: list[list[Chunk]], promised: int, budget: int) -> None:
        """Let requests in: first those that were swapped out, and only when none is left new ones."""
        while self.swapped and budget > 0:
            request = self.swapped[0]
            if self._sequences(*self.running, request) > self._max_sequences:
                break
            if promised + self._manager.swap_in_need(request) > self._manager.num_free:
                break
            self.swapped.remove(request)
            self._run(request)
            self._manager.swap_in(request)
            budget, promised = self._plan(request, planned, promised, budget)
        while self.waiting and not self.swapped and (budget > 0 or self._manager.gathers):
            request = self.waiting[0]
            if self._sequences(*self.running, request) > self._max_sequences:
                break
            if self._prefill_chunk < 0 and planned and request.live[0].pending > budget:
                break
            if not self._manager.can_admit(request, promised + self._outstanding(planned)):
                break
            self.waiting.remove(request)
            self._run(request)
            self._emit(RequestAdmitted(request.number, [sequence.number for sequence in request.live]))
            self._manager.admit(request)
            if not request.admitted:
                request.admitted = True
                request.cached_tokens = min(request.live[0].computed, request.prompt_tokens)
            self.fork_due(request)
            budget, promised = self._plan(request, planned, promised, budget)

    def _plan(self, request: Request, planned: list[list[Chunk]], promised: int, budget: int) -> tuple[int, int]:
        chunks = self._chunks(request, budget, first=not planned)
        if chunks:
            planned.append(chunks)
        return budget - sum(chunk.count for chunk in chunks), promised + self._need(chunks)

    def _outstanding(self, planned: list[list[Chunk]]) -> int:
        """Free blocks that prompts which run already will still take after this step."""
        reached = {id(chunk.sequence): chunk.start + chunk.count for chunks in planned for chunk in chunks}
        return sum(
            self._manager.need([(sequence, len(sequence.tokens))]) - self._manager.need([(sequence, so_far)])
            for request in self.running
            for sequence in request.live
            if len(sequence.tokens) > (so_far := reached.get(id(sequence), sequence.computed))
        )

    def _sequences(self, *requests: Request) -> int:
        """Those that the requests have, or will have as soon as their prompts are computed."""
        return sum(len(request.live) if request.branched else request.width for request in requests)

    def _run(self, request: Request) -> None:
        request.status = Status.RUNNING
        insort(self.running, request, key=_key)

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        preempt(request, choose(self._preemption, request, self._manager), self._manager, self._emit)
        insort(self.swapped if request.status is Status.SWAPPED else self.waiting, request, key=_key)


def _key(request: Request) -> tuple[int, int]:
    return request.key
