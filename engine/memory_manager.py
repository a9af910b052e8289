"""What the scheduler asks of memory. ``paged`` is the paper's answer; the systems it was measured against fit here too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from engine.events import AnyEvent, BlockState, Partition
from engine.sequence import Sequence

Emit = Callable[[AnyEvent], None]


class MemoryManager(Protocol):
    """Slots of one arena. Every change is emitted as an event before the method returns."""

    name: str
    block_size: int
    num_blocks: int

    @property
    def capacity(self) -> int:
        """Slots in all."""

    def why_never(self, prompt_tokens: int) -> str | None:
        """None if the prompt can be placed in an empty arena, else the reason with its numbers. Mutates nothing."""

    def can_admit(self, sequence: Sequence) -> bool:
        """Whether all tokens known of a waiting sequence could be placed now. Mutates nothing."""

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for ``tokens`` slots in the sequence's table. All or nothing: False leaves everything as it was."""

    def written(self, sequence: Sequence, count: int, texts: list[str]) -> None:
        """The forward pass has stored keys and values of the next ``count`` tokens: advances ``computed``."""

    def free(self, sequence: Sequence) -> None:
        """Let go of all the sequence holds; its table is empty after, ``computed`` is 0."""

    def blocks(self) -> list[BlockState]:
        """The blocks in use, by number, with what their slots hold."""

    def partition(self, living: Iterable[Sequence], starved: bool) -> Partition:
        """Capacity by use. ``starved``: the head of the queue finds no room, so what is unallocated is external."""

    def verify(self, living: Iterable[Sequence]) -> None:
        """Compare pool, tables and slots with each other. Raises IntegrityError with both sides."""


class IntegrityError(Exception):
    """The books of a memory manager contradict each other: a bug, never the user's doing."""
