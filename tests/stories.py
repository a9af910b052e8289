"""Logs written by hand, each a small piece of the paper, for the reducers in Python and in JavaScript.

Blocks have two slots. ``t(n)`` is the text of token n. Every envelope says how memory is divided at its end, counted by
hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine import events as ev

SIZE = 2
Events = list[ev.AnyEvent]


@dataclass
class Story:
    """A snapshot of an empty memory and what happens in it."""

    snapshot: ev.Snapshot
    steps: list[ev.Step] = field(default_factory=list)

    def tell(self, events: Events, partition: ev.Partition, paused: bool = False) -> None:
        """The next envelope."""
        seq = len(self.steps) + 1
        self.steps.append(ev.Step("story", 0, seq, seq * 10.0, paused, partition, events))


def begin(manager: str = "paged", num_blocks: int = 6, num_cpu_blocks: int = 0) -> Story:
    free = parts(free=num_blocks * SIZE)
    state = ev.ArenaState(manager, SIZE, num_blocks, 0, False, [], [], [], free, num_cpu_blocks)
    return Story(ev.Snapshot("story", 0, 0, 0.0, state))


def parts(written: int = 0, held: int = 0, free: int = 0, **more: int) -> ev.Partition:
    return ev.Partition(
        token_states=written,
        held=held,
        reserved=more.get("reserved", 0),
        internal=more.get("internal", 0),
        external=more.get("external", 0),
        free=free,
        cached=more.get("cached", 0),
    )


def t(token: int) -> str:
    return f" t{token}"


def arrive(request: int, prompt: int, most: int = 8, **more: object) -> ev.RequestArrived:
    return ev.RequestArrived(request, prompt, most, "page", **more)  # type: ignore[arg-type]


def write(block: int, first: int, *tokens: int) -> ev.SlotsWritten:
    return ev.SlotsWritten(block, first, len(tokens), list(tokens), [t(token) for token in tokens])


def say(sequence: int, token: int) -> ev.TokenGenerated:
    return ev.TokenGenerated(sequence, token, t(token), -0.5)


def let_go(block: int, sequence: int) -> Events:
    """The last reference to a block of paged memory."""
    return [ev.BlockReleased(block, sequence, 0), ev.BlockFreed(block)]


def done(
    step: int, batch: int, rows: int, partition: ev.Partition, waiting: int = 0, swapped: int = 0
) -> ev.StepCompleted:
    return ev.StepCompleted(step, batch, rows, waiting, swapped, ev.StepTimes(0.1, 2.0, 0.3), partition)


def growing() -> Story:
    """Section 4.3: blocks on demand, wherever there is room; at the end all are free."""
    story = begin()
    story.tell([arrive(0, 3, most=2)], parts(free=12))
    now = parts(3, 1, 8)
    story.tell(
        [
            ev.RequestAdmitted(0, [0]),
            ev.BlockAllocated(3, 0, 0),
            ev.BlockAllocated(1, 0, 1),
            write(3, 0, 10, 11),
            write(1, 0, 12),
            say(0, 13),
            done(1, 1, 3, now),
        ],
        now,
    )
    story.tell([], now, paused=True)
    story.tell([ev.RequestRefused("a prompt of 99 tokens and 12 slots", "page")], now, paused=True)
    story.tell(
        [
            write(1, 1, 13),
            say(0, 14),
            ev.SequenceFinished(0, "length", 2),
            ev.RequestFinished(0, "length", 2),
            *let_go(1, 0),
            *let_go(3, 0),
            done(2, 1, 1, parts(free=12)),
        ],
        parts(free=12),
        paused=True,
    )
    return story


def sampling() -> Story:
    """Figure 8: two samples share their prompt's blocks; the first to write copies, the last writes in place."""
    story = begin()
    story.tell([arrive(0, 3, width=2)], parts(free=12))
    now = parts(3, 1, 8)
    story.tell(
        [
            ev.RequestAdmitted(0, [0]),
            ev.BlockAllocated(4, 0, 0),
            ev.BlockAllocated(1, 0, 1),
            write(4, 0, 10, 11),
            write(1, 0, 12),
            ev.SequenceForked(1, 0),
            ev.BlockShared(4, 1, 0, 2),
            ev.BlockShared(1, 1, 1, 2),
            say(0, 20),
            say(1, 30),
            done(1, 1, 3, now),
        ],
        now,
    )
    now = parts(6, 0, 6)
    story.tell(
        [
            ev.BlockAllocated(3, 0, 1),
            ev.BlockReleased(1, 0, 1),
            ev.BlockCopied(1, [3], 1),
            write(3, 1, 20),
            write(1, 1, 30),
            say(0, 21),
            say(1, 31),
            done(2, 2, 2, now),
        ],
        now,
    )
    now = parts(5, 1, 6)
    story.tell(
        [
            ev.BlockAllocated(0, 0, 2),
            ev.BlockAllocated(2, 1, 2),
            write(0, 0, 21),
            write(2, 0, 31),
            say(0, 22),
            say(1, 32),
            ev.SequenceFinished(0, "stop", 3),
            *let_go(0, 0),
            *let_go(3, 0),
            ev.BlockReleased(4, 0, 1),
            done(3, 2, 2, now),
        ],
        now,
    )
    story.tell([ev.RequestAborted(0, "the client left"), *let_go(2, 1), *let_go(1, 1), *let_go(4, 1)], parts(free=12))
    return story


def prefix() -> Story:
    """The prefix cache: full blocks keep their content when they are free, are found again, and are evicted when needed."""
    story = begin(num_blocks=4)
    story.tell([arrive(0, 5, most=1)], parts(free=8))
    now = parts(free=8, cached=4)
    story.tell(
        [
            ev.RequestAdmitted(0, [0]),
            *(ev.BlockAllocated(block, 0, block) for block in (0, 1, 2)),
            write(0, 0, 10, 11),
            write(1, 0, 12, 13),
            write(2, 0, 14),
            ev.BlockCached(0, [0, 1], ["aa", "bb"], "", [10, 11, 12, 13]),
            say(0, 15),
            ev.SequenceFinished(0, "length", 1),
            ev.RequestFinished(0, "length", 1),
            *let_go(2, 0),
            *let_go(1, 0),
            *let_go(0, 0),
            done(1, 1, 5, now),
        ],
        now,
    )
    story.tell([arrive(1, 4)], now)
    now = parts(4, 0, 4, cached=2)
    story.tell(
        [
            ev.RequestAdmitted(1, [1]),
            ev.PrefixHit(0, 1, 0, 1, "aa"),
            ev.BlockAllocated(2, 1, 1),
            write(2, 0, 12, 99),
            ev.BlockCached(1, [2], ["cc"], "aa", [12, 99]),
            say(1, 16),
            done(2, 1, 2, now),
        ],
        now,
    )
    story.tell([arrive(2, 3)], now)
    # Block 3 is free and holds nothing, block 1 is cached; the second request needs one more block and evicts.
    now = parts(6, 2, 0)
    story.tell(
        [
            ev.RequestAdmitted(2, [2]),
            ev.PrefixHit(0, 2, 0, 2, "aa"),
            ev.BlockAllocated(3, 1, 2),
            ev.BlockEvicted(1, "bb"),
            ev.BlockAllocated(1, 2, 1),
            write(3, 0, 16),
            write(1, 0, 77),
            say(1, 17),
            say(2, 78),
            done(3, 2, 2, now),
        ],
        now,
    )
    return story


def recompute() -> Story:
    """Section 4.5: the latest arrival gives up its blocks, waits, and comes back with all its tokens as its prompt."""
    story = begin(num_blocks=3)
    story.tell([arrive(0, 2), arrive(1, 1, priority=2)], parts(free=6))
    now = parts(3, 1, 2)
    story.tell(
        [
            ev.RequestAdmitted(0, [0]),
            ev.RequestAdmitted(1, [1]),
            ev.BlockAllocated(0, 0, 0),
            ev.BlockAllocated(1, 1, 0),
            write(0, 0, 10, 11),
            write(1, 0, 20),
            say(0, 12),
            say(1, 21),
            done(1, 2, 3, now),
        ],
        now,
    )
    now = parts(5, 1, 0)
    story.tell(
        [
            ev.BlockAllocated(2, 0, 1),
            write(2, 0, 12),
            write(1, 1, 21),
            say(0, 13),
            say(1, 22),
            done(2, 2, 2, now),
        ],
        now,
    )
    now = parts(4, 0, 0, external=2)
    story.tell(
        [
            ev.Preempted(1, [1], "recompute"),
            *let_go(1, 1),
            write(2, 1, 13),
            say(0, 14),
            done(3, 1, 1, now, waiting=1),
        ],
        now,
    )
    story.tell([ev.RequestAborted(0, "enough"), *let_go(2, 0), *let_go(0, 0)], parts(free=6))
    now = parts(3, 1, 2)
    story.tell(
        [
            ev.RequestAdmitted(1, [1]),
            ev.BlockAllocated(0, 1, 0),
            ev.BlockAllocated(2, 1, 1),
            write(0, 0, 20, 21),
            write(2, 0, 22),
            say(1, 23),
            done(4, 1, 3, now),
        ],
        now,
    )
    return story


def swapping() -> Story:
    """Section 4.5: a group moves to the CPU pool and back, shared blocks once, and shares them again."""
    story = begin(num_blocks=6, num_cpu_blocks=4)
    story.tell([arrive(0, 2, width=2)], parts(free=12))
    now = parts(2, 0, 10)
    story.tell(
        [
            ev.RequestAdmitted(0, [0]),
            ev.BlockAllocated(5, 0, 0),
            write(5, 0, 10, 11),
            ev.SequenceForked(1, 0),
            ev.BlockShared(5, 1, 0, 2),
            say(0, 20),
            say(1, 30),
            done(1, 1, 2, now),
        ],
        now,
    )
    now = parts(4, 2, 6)
    story.tell(
        [
            ev.BlockAllocated(0, 0, 1),
            ev.BlockAllocated(1, 1, 1),
            write(0, 0, 20),
            write(1, 0, 30),
            say(0, 21),
            say(1, 31),
            done(2, 2, 2, now),
            arrive(1, 1, priority=-1),
        ],
        now,
    )
    story.tell([], now, paused=True)
    now = parts(1, 1, 10)
    story.tell(
        [
            ev.Preempted(0, [0, 1], "swap"),
            ev.SwappedOut(0, [(5, 2), (0, 0), (1, 3)], 4096),
            *let_go(0, 0),
            ev.BlockReleased(5, 0, 1),
            *let_go(1, 1),
            *let_go(5, 1),
            ev.RequestAdmitted(1, [2]),
            ev.BlockAllocated(5, 2, 0),
            write(5, 0, 40),
            say(2, 41),
            done(3, 1, 1, now, swapped=1),
        ],
        now,
    )
    now = parts(7, 1, 4)
    story.tell(
        [
            ev.BlockAllocated(3, 0, 0),
            ev.BlockAllocated(4, 0, 1),
            ev.BlockShared(3, 1, 0, 2),
            ev.BlockAllocated(0, 1, 1),
            ev.SwappedIn(0, [(2, 3), (0, 4), (3, 0)], 4096),
            write(5, 1, 41),
            write(4, 1, 21),
            say(2, 42),
            say(0, 22),
            done(4, 2, 2, now),
        ],
        now,
    )
    return story


def away() -> Story:
    """A request ends while it is swapped out: its CPU blocks are free at once."""
    story = swapping()
    del story.steps[5:]
    story.tell([ev.RequestAborted(0, "the client left")], parts(1, 1, 10))
    return story


def stranded() -> Story:
    """A request ends at capacity while it is swapped out: its answers stay, its CPU blocks go."""
    story = swapping()
    del story.steps[5:]
    story.tell(
        [
            ev.SequenceFinished(0, "capacity", 2),
            ev.SequenceFinished(1, "capacity", 2),
            ev.RequestFinished(0, "capacity", 4),
        ],
        parts(1, 1, 10),
    )
    return story


def beams() -> Story:
    """Section 4.4, Figure 9: fork before free; a hypothesis keeps its text alone, and may be beaten later."""
    story = begin()
    story.tell([arrive(0, 2, width=2, beam=True)], parts(free=12))
    now = parts(2, 0, 10)
    story.tell(
        [
            ev.RequestAdmitted(0, [0]),
            ev.BlockAllocated(0, 0, 0),
            write(0, 0, 10, 11),
            ev.SequenceForked(1, 0),
            ev.BlockShared(0, 1, 0, 2),
            say(0, 20),
            say(1, 30),
            done(1, 1, 2, now),
        ],
        now,
    )
    now = parts(3, 1, 8)
    story.tell(
        [
            ev.BlockAllocated(1, 0, 1),
            ev.BlockAllocated(2, 1, 1),
            write(1, 0, 20),
            write(2, 0, 30),
            ev.SequenceForked(2, 0),
            ev.SequenceForked(3, 1),
            ev.SequenceFinished(1, "dropped", 1),
            ev.BlockShared(0, 2, 0, 3),
            ev.BlockShared(1, 2, 1, 2),
            *let_go(2, 1),
            ev.BlockReleased(0, 1, 2),
            say(3, 99),
            ev.SequenceFinished(3, "stop", 2),
            say(0, 21),
            say(2, 22),
            done(2, 2, 2, now),
        ],
        now,
    )
    story.tell(
        [
            ev.BlockAllocated(3, 0, 1),
            ev.BlockReleased(1, 0, 1),
            ev.BlockCopied(1, [3], 1),
            write(3, 1, 21),
            write(1, 1, 22),
            ev.SequenceForked(4, 0),
            ev.SequenceFinished(3, "dropped", 2),
            say(4, 99),
            ev.SequenceFinished(4, "stop", 3),
            ev.SequenceFinished(0, "dropped", 2),
            ev.SequenceFinished(2, "length", 2),
            ev.RequestFinished(0, "length", 5),
            *let_go(3, 0),
            ev.BlockReleased(0, 0, 1),
            *let_go(1, 2),
            *let_go(0, 2),
            done(3, 2, 2, parts(free=12)),
        ],
        parts(free=12),
    )
    return story


def registered() -> Story:
    """A registered prefix keeps its blocks; whoever begins with it shares them, the last one until it is written."""
    story = begin()
    story.tell([ev.RequestArrived(0, 3, 1, "prefix")], parts(free=12))
    now = parts(3, 1, 8)
    story.tell(
        [
            ev.RequestAdmitted(0, [0]),
            ev.BlockAllocated(0, 0, 0),
            ev.BlockAllocated(1, 0, 1),
            write(0, 0, 10, 11),
            write(1, 0, 12),
            ev.SequenceFinished(0, "registered", 0),
            ev.RequestFinished(0, "registered", 0),
            done(1, 1, 3, now),
        ],
        now,
    )
    story.tell([arrive(1, 4)], now)
    now = parts(5, 1, 6)
    story.tell(
        [
            ev.RequestAdmitted(1, [1]),
            ev.BlockShared(0, 1, 0, 2),
            ev.BlockShared(1, 1, 1, 2),
            ev.BlockAllocated(2, 1, 1),
            ev.BlockReleased(1, 1, 1),
            ev.BlockCopied(1, [2], 1),
            write(2, 1, 13),
            say(1, 14),
            done(2, 1, 1, now),
        ],
        now,
    )
    story.tell([ev.RequestAborted(0, "given back"), *let_go(1, 0), ev.BlockReleased(0, 0, 1)], parts(4, 0, 8))
    return story


def regions() -> Story:
    """Section 6.1: two samples of a request reserve a region each and fill the second by a copy; the next must wait."""
    story = begin("orca_max", num_blocks=8)
    story.tell([arrive(0, 2, most=4, width=2), arrive(1, 2)], parts(free=16))
    # Two regions of 8, 6 of them needed, in 16 slots.
    now = parts(2, external=4, reserved=8, internal=2)
    story.tell(
        [
            ev.RequestAdmitted(0, [0]),
            ev.RegionReserved(0, 0, 8, 6),
            ev.RegionReserved(0, 8, 8, 6),
            ev.BlockAllocated(0, 0, 0),
            ev.ReservationFailed(1, 6, 1, 0, 0),
            write(0, 0, 10, 11),
            ev.SequenceForked(1, 0),
            ev.BlockAllocated(8, 1, 0),
            say(0, 20),
            say(1, 30),
            done(1, 1, 2, now, waiting=1),
        ],
        now,
    )
    now = parts(3, external=4, internal=9)
    story.tell(
        [
            ev.BlockCopied(0, [8], 2),
            write(0, 2, 20),
            write(8, 2, 30),
            say(0, 21),
            say(1, 31),
            ev.SequenceFinished(0, "stop", 2),
            ev.BlockReleased(0, 0, 0),
            done(2, 2, 2, now, waiting=1),
        ],
        now,
    )
    now = parts(4, external=4, internal=8)
    story.tell(
        [write(8, 3, 31), say(1, 32), done(3, 1, 1, now, waiting=1)],
        now,
    )
    story.tell(
        [ev.RequestAborted(0, "enough"), ev.BlockReleased(8, 1, 0), ev.RegionFreed(0, 0, 8), ev.RegionFreed(0, 8, 8)],
        parts(free=16),
    )
    return story


def batch() -> Story:
    """FasterTransformer's batch: a member that has ended keeps its region until the longest one has ended too."""
    story = begin("static_batch", num_blocks=4)
    story.tell([arrive(0, 1, most=1), arrive(1, 1, most=2), arrive(2, 1)], parts(free=8))
    now = parts(1, internal=7)
    story.tell(
        [
            ev.RequestAdmitted(0, [0]),
            ev.RegionReserved(0, 0, 4, 4),
            ev.BlockAllocated(0, 0, 0),
            ev.RequestAdmitted(1, [1]),
            ev.RegionReserved(1, 4, 4, 4),
            ev.BlockAllocated(4, 1, 0),
            write(0, 0, 10),
            write(4, 0, 20),
            say(0, 11),
            say(1, 21),
            ev.SequenceFinished(0, "length", 1),
            ev.RequestFinished(0, "length", 1),
            done(1, 2, 2, now, waiting=1),
        ],
        now,
    )
    story.tell(
        [
            write(4, 1, 21),
            say(1, 22),
            ev.SequenceFinished(1, "length", 2),
            ev.RequestFinished(1, "length", 2),
            ev.BlockReleased(0, 0, 0),
            ev.RegionFreed(0, 0, 4),
            ev.BlockReleased(4, 1, 0),
            ev.RegionFreed(1, 4, 4),
            done(2, 1, 1, parts(free=8), waiting=1),
        ],
        parts(free=8),
    )
    return story


def crowd() -> Story:
    """Many requests end: the last 64 are remembered, and a registered prefix as long as it holds its blocks."""
    story = registered()
    del story.steps[2:]
    for number in range(1, 70):
        story.tell([arrive(number, 1), ev.RequestAborted(number, "enough")], parts(3, 1, 8))
    story.tell([ev.RequestAborted(0, "given back"), *let_go(1, 0), *let_go(0, 0)], parts(free=12))
    return story


STORIES: dict[str, Callable[[], Story]] = {
    tale.__name__: tale
    for tale in (
        growing, sampling, prefix, recompute, swapping, away, stranded, beams, registered, regions, batch, crowd,
    )
}  # fmt: skip
