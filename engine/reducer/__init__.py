"""An independent reading of the events: from a snapshot and envelopes to the state of the arena.

It shares nothing with the engine but the vocabulary, so that agreeing with it proves something. What memory cannot have
done is rejected: an event that contradicts the state so far, and an envelope that leaves memory in disorder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import events as ev
from engine.reducer import blocks, regions, requests, slots
from engine.reducer.books import ENDED, Books, Envelope, Impossible
from engine.reducer.invariants import check, check_debts, forget_dropped
from engine.reducer.partition import check_partition

__all__ = ["ENDED_KEPT", "Impossible", "Reducer"]

ENDED_KEPT = 64
"""Ended requests that a state keeps."""

Handlers = dict[type, Callable[[Books, Any], None]]

ANYWHERE: Handlers = {
    ev.RequestArrived: requests.arrived,
    ev.RequestAdmitted: requests.admitted,
    ev.RequestRefused: requests.refused,
    ev.SequenceForked: requests.forked,
    ev.SequenceFinished: requests.sequence_finished,
    ev.RequestFinished: requests.finished,
    ev.RequestAborted: requests.aborted,
    ev.TokenGenerated: requests.token_generated,
    ev.StepCompleted: requests.step_completed,
    ev.SlotsWritten: slots.written,
    ev.BlockCopied: slots.copied,
}
PAGED: Handlers = {
    ev.BlockAllocated: blocks.allocated,
    ev.BlockShared: blocks.shared,
    ev.PrefixHit: blocks.prefix_hit,
    ev.BlockReleased: blocks.released,
    ev.BlockFreed: blocks.freed,
    ev.BlockCached: blocks.cached,
    ev.BlockEvicted: blocks.evicted,
    ev.Preempted: requests.preempted,
    ev.SwappedOut: slots.swapped_out,
    ev.SwappedIn: slots.swapped_in,
}
CONTIGUOUS: Handlers = {
    ev.RegionReserved: regions.reserved,
    ev.BlockAllocated: regions.given,
    ev.BlockReleased: regions.returned,
    ev.RegionFreed: regions.freed,
    ev.ReservationFailed: regions.reservation_failed,
}

OF_A_STEP = (
    ev.RequestAdmitted,
    ev.BlockCopied,
    ev.SlotsWritten,
    ev.BlockCached,
    ev.Preempted,
    ev.SwappedOut,
    ev.SwappedIn,
    ev.TokenGenerated,
    ev.StepCompleted,
)
"""What happens in a step alone. A request may arrive, or be aborted, after it and in the same envelope."""


class Reducer:
    """Follows one arena. After an Impossible it knows nothing any more. Raises Impossible for a snapshot in disorder."""

    def __init__(self, snapshot: ev.Snapshot) -> None:
        self.arena = snapshot.arena
        self.epoch = snapshot.epoch
        self.seq = snapshot.seq
        self.paused = snapshot.state.paused
        self.partition = snapshot.state.partition
        self._books = Books(snapshot.state)
        self._handlers = ANYWHERE | (CONTIGUOUS if self._books.contiguous else PAGED)
        try:
            check(self._books)
            check_partition(self._books, self.partition)
        except Impossible as why:
            raise Impossible(f"impossible snapshot {self.seq}: {why}") from None

    def apply(self, step: ev.Step) -> None:
        """One envelope, which must be the next."""
        here, there = (self.arena, self.epoch, self.seq + 1), (step.arena, step.epoch, step.seq)
        if here != there:
            raise Impossible(f"impossible envelope: (arena, epoch, number) is {there}, and must be {here}")
        self.seq = step.seq
        books = self._books
        books.envelope = Envelope()
        for event in step.events:
            try:
                self._apply(event)
            except Impossible as why:
                raise Impossible(f"impossible event in envelope {step.seq}: {why}; it is {event}") from None
        try:
            self._settle(step.partition)
        except Impossible as why:
            raise Impossible(f"impossible end of envelope {step.seq}: {why}") from None
        self.paused, self.partition = step.paused, step.partition

    def state(self) -> ev.ArenaState:
        """The state after the last envelope. What it is made of belongs to the reducer: copy it to keep it."""
        books = self._books
        return ev.ArenaState(
            manager=books.manager,
            block_size=books.block_size,
            num_blocks=books.num_blocks,
            step=books.steps,
            paused=self.paused,
            requests=[books.requests[n] for n in sorted(books.requests)],
            sequences=[books.sequences[n] for n in sorted(books.sequences)],
            blocks=[books.blocks[n] for n in sorted(books.blocks)],
            partition=self.partition,
            num_cpu_blocks=books.num_cpu_blocks,
            cpu_blocks=[books.cpu_blocks[n] for n in sorted(books.cpu_blocks)],
        )

    def _apply(self, event: ev.AnyEvent) -> None:
        if self._books.envelope.stepped and isinstance(event, OF_A_STEP):
            raise Impossible("the step has completed: this belongs to the next one, with an envelope of its own")
        handler = self._handlers.get(type(event))
        if handler is None:
            raise Impossible(f"memory of the manager {self._books.manager} does no such thing")
        handler(self._books, event)

    def _settle(self, partition: ev.Partition) -> None:
        books = self._books
        check_debts(books)
        forget_dropped(books)
        check(books)
        check_partition(books, partition)
        ended = sorted(number for number, request in books.requests.items() if request.status in ENDED)
        for number in ended[:-ENDED_KEPT]:
            if not books.holds_memory(books.requests[number]):
                for sequence in books.requests.pop(number).sequences:
                    del books.sequences[sequence]
                books.prompts.pop(number, None)
