"""An arena's event log: events gather, and leave in numbered envelopes."""

from __future__ import annotations

from collections.abc import Callable

from engine.events import AnyEvent, ArenaState, Partition, Snapshot, Step


class EventLog:
    """``seq`` numbers the envelopes of (``arena``, ``epoch``) from 1. Times are seconds of a monotonic clock."""

    def __init__(self, arena: str, epoch: int, opened: float) -> None:
        self.arena = arena
        self.epoch = epoch
        self.seq = 0
        self._opened = opened
        self._events: list[AnyEvent] = []
        self._paused = False

    def emit(self, event: AnyEvent) -> None:
        self._events.append(event)

    def envelope(self, now: float, paused: bool, divide: Callable[[], Partition]) -> Step | None:
        """What has happened since the last envelope; None if nothing has. ``divide`` tells how memory now stands."""
        if not self._events and paused == self._paused:
            return None
        events, self._events = self._events, []
        self._paused = paused
        self.seq += 1
        return Step(self.arena, self.epoch, self.seq, self._milliseconds(now), paused, divide(), events)

    def snapshot(self, now: float, state: ArenaState) -> Snapshot:
        return Snapshot(self.arena, self.epoch, self.seq, self._milliseconds(now), state)

    def _milliseconds(self, now: float) -> float:
        return round((now - self._opened) * 1000, 3)
