"""What the scheduler asks of memory. ``paged`` is the paper's answer; the systems it was measured against fit here too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from engine.events import AnyEvent, BlockState, Partition
from engine.sequence import Request, Sequence

Emit = Callable[[AnyEvent], None]
Move = tuple[int, int, int]
"""First source slot, first destination slot, slots; each from the start of the arena's own range."""
Write = tuple[Sequence, int]
"""A sequence, and the slots that its table must hold after growing."""


@dataclass(slots=True)
class Moves:
    """What must be copied before a step's forward pass, in this order. ``out`` goes to the CPU pool, ``back`` comes from
    it, ``copies`` stay within the cache."""

    out: list[Move] = field(default_factory=list)
    back: list[Move] = field(default_factory=list)
    copies: list[Move] = field(default_factory=list)


class MemoryManager(Protocol):
    """Slots of one arena. Every change is emitted as an event before the method returns.

    ``gathers``: admission fills a whole batch at once, whatever the token budget of the step (static batching).
    """

    name: str
    gathers: bool

    @property
    def capacity(self) -> int:
        """Slots in all."""

    @property
    def num_free(self) -> int:
        """What ``need`` may add up to: free blocks. 0 where nothing is allocated after admission."""

    def why_never(self, request: Request) -> str | None:
        """None if the request's prompt (and the first token of each of its sequences) can be placed in an empty arena,
        else the reason with its numbers. Mutates nothing."""

    def longest(self, request: Request) -> int | None:
        """Tokens, prompt and outputs, that a sequence of the request can have here at most; None if only the capacity
        limits it. Mutates nothing."""

    def fits(self, request: Request, promised: int) -> bool:
        """Whether all tokens known of a waiting request could be placed now, if ``promised`` free blocks are spoken for.
        Mutates nothing."""

    def can_admit(self, request: Request, promised: int) -> bool:
        """``fits``, and admission is open. Mutates nothing but what it has said about failed reservations."""

    def admit(self, request: Request) -> None:
        """Give the request what it has from the start: shared prefixes (its first sequence's ``computed`` advances), or
        its regions. Call it after ``can_admit``."""

    def need(self, writes: list[Write]) -> int:
        """Free blocks that growing these sequences of one request takes, copies included. Mutates nothing."""

    def grow(self, writes: list[Write]) -> None:
        """Make room in the tables of these sequences of one request, copying shared blocks that will be written. Raises
        OutOfBlocks if ``need`` exceeds ``num_free``, with nothing changed."""

    def take_moves(self) -> Moves:
        """What must be copied before the forward pass; emits ``block_copied``. Empty after the call."""

    def written(self, sequence: Sequence, count: int, texts: list[str]) -> None:
        """The forward pass has stored keys and values of the next ``count`` tokens: advances ``computed``."""

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let ``child``, which has nothing, have what ``parent`` has: shared blocks, or a copy of the region."""

    def branch(self, forks: list[tuple[Sequence, Sequence]], dropped: list[Sequence]) -> None:
        """A step of beam search: (parent, child) forks, and sequences that end. No parent is dropped."""

    def free(self, sequence: Sequence) -> None:
        """Let go of all the sequence holds; its table is empty after, ``computed`` is 0."""

    def end(self, request: Request) -> None:
        """The request is over and its sequences are freed: let go of what is the request's own."""

    def holds(self, request: Request) -> bool:
        """Whether a request, perhaps one that has ended, still has memory of its own."""

    def can_swap_out(self, request: Request) -> bool:
        """Whether the CPU pool has room for what the request's live sequences hold. Mutates nothing."""

    def swap_out(self, request: Request) -> None:
        """Move it there. Call it after ``can_swap_out``."""

    def swap_in_need(self, request: Request) -> int:
        """Free blocks that swapping in, and all known tokens of each sequence, take. Mutates nothing."""

    def swap_in(self, request: Request) -> None:
        """Move it back. Call it only with room for ``swap_in_need``."""

    def table(self, sequence: Sequence) -> list[int]:
        """The sequence's blocks as events number them."""

    def cpu_table(self, sequence: Sequence) -> list[int]:
        """Its CPU blocks while it is swapped out."""

    def blocks(self) -> list[BlockState]:
        """The blocks in use or cached, by number, with what their slots hold."""

    def cpu_blocks(self) -> list[BlockState]:
        """The CPU blocks in use, by number."""

    def partition(self, living: Iterable[Sequence], starved: bool) -> Partition:
        """Capacity by use. ``starved``: the head of the queue finds no room, so what is unallocated is external."""

    def verify(self, living: Iterable[Sequence]) -> None:
        """Compare pool, tables and slots with each other. Raises IntegrityError with both sides."""


class IntegrityError(Exception):
    """The books of a memory manager contradict each other: a bug, never the user's doing."""
