"""Which sequences run in the next step, and over how many tokens (paper section 4.5; Orca's iteration-level scheduling)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from engine.events import Preempted, RequestAdmitted
from engine.memory_manager import Emit, MemoryManager
from engine.sequence import Request, Sequence, Status


@dataclass(frozen=True, slots=True)
class Chunk:
    """``count`` tokens of ``sequence`` from position ``start`` on; ``sample`` when they reach its last known token."""

    sequence: Sequence
    start: int
    count: int

    @property
    def sample(self) -> bool:
        return self.start + self.count == len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class Plan:
    """``starved`` is a sequence that no step can help: alone, with no room for its next token."""

    chunks: list[Chunk]
    starved: Sequence | None = None


class Scheduler:
    """First come, first served. Running sequences go before waiting ones; the latest arrival is preempted first.

    A preempted sequence is recomputed: its blocks are freed and it returns to the head of the queue with all its tokens
    as its prompt. No request is admitted in a step that preempted one, and none overtakes another.
    """

    def __init__(self, manager: MemoryManager, max_sequences: int, emit: Emit) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._manager = manager
        self._max_sequences = max_sequences
        self._emit = emit

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence that has ended, or is aborted, out and free its memory."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._manager.free(sequence)

    def schedule(self, budget: int) -> Plan:
        """Plan a step of at most ``budget`` query rows. Allocates the blocks it will write; may preempt and admit."""
        chunks: list[Chunk] = []
        preempted = False
        for sequence in list(self.running):
            if budget == 0:
                break
            count = min(sequence.pending, budget)
            while sequence in self.running and not self._manager.grow(sequence, sequence.computed + count):
                if len(self.running) == 1:
                    return Plan([], starved=sequence)
                self._preempt(self.running[-1])
                preempted = True
            if sequence in self.running:
                chunks.append(Chunk(sequence, sequence.computed, count))
                budget -= count
        if not preempted:
            self._admit(chunks, budget)
        if not chunks and self.waiting and not self.running:
            # Nothing runs, so memory is empty: what does not fit now never will (it outgrew the memory before).
            return Plan([], starved=self.waiting[0])
        return Plan(chunks)

    @property
    def head_starved(self) -> bool:
        """Whether the head of the queue waits for memory, and not merely for its turn."""
        return bool(self.waiting) and not self._manager.can_admit(self.waiting[0])

    def _admit(self, chunks: list[Chunk], budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self._max_sequences:
            sequence = self.waiting[0]
            if not self._manager.can_admit(sequence):
                return
            self.waiting.popleft()
            self.running.append(sequence)
            request: Request = sequence.request
            request.status = Status.RUNNING
            request.admitted = True
            self._emit(RequestAdmitted(request.number, [sequence.number]))
            count = min(sequence.pending, budget)
            self._manager.grow(sequence, count)
            chunks.append(Chunk(sequence, 0, count))
            budget -= count

    def _preempt(self, sequence: Sequence) -> None:
        self._emit(Preempted(sequence.number, "recompute"))
        self.running.remove(sequence)
        self._manager.free(sequence)
        sequence.request.status = Status.WAITING
        self.waiting.appendleft(sequence)
