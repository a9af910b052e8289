"""Free blocks in the order they will be handed out: a doubly linked list threaded through two arrays, O(1) throughout."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

NOT_LISTED = -1


class OutOfBlocks(Exception):
    """No free block is left, or fewer than were asked for. Nothing has changed."""


class FreeList:
    """Numbers from 0 to ``size - 1``, each in the list at most once.

    The links lie in the arrays themselves, so removing a block from the middle (a prefix-cache hit) costs no search. Index
    ``size`` is the sentinel that closes the ring. Raises ValueError when a block is added twice or removed when absent.
    """

    __slots__ = ("_count", "_next", "_previous", "_sentinel")

    def __init__(self, size: int, listed: Iterable[int] | None = None) -> None:
        self._sentinel = size
        if listed is None:
            ring = np.arange(-1, size + 2, dtype=np.int32)  # each number between its neighbours
            ring[0], ring[-1] = size, 0
            self._previous, self._next = (array("i", links.tobytes()) for links in (ring[:-2], ring[2:]))
            self._count = size
        else:
            self._next = array("i", [NOT_LISTED]) * size
            self._next.append(size)
            self._previous = self._next[:]
            self._count = 0
            self.append(listed)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, block: int) -> bool:
        return 0 <= block < self._sentinel and self._next[block] != NOT_LISTED

    def __iter__(self) -> Iterator[int]:
        block = self._next[self._sentinel]
        while block != self._sentinel:
            yield block
            block = self._next[block]

    def take(self, count: int) -> list[int]:
        """Take the first ``count`` blocks off. Raises OutOfBlocks where there are fewer."""
        if count > self._count:
            raise OutOfBlocks(f"{count} blocks asked for, {self._count} of {self._sentinel} free: wait or preempt")
        after, before, sentinel = self._next, self._previous, self._sentinel
        taken = []
        block = after[sentinel]
        for _ in range(count):
            taken.append(block)
            following = after[block]
            after[block] = before[block] = NOT_LISTED
            block = following
        after[sentinel], before[block] = block, sentinel
        self._count -= count
        return taken

    def remove(self, block: int) -> None:
        """Take ``block`` out, wherever it stands."""
        if block not in self:
            raise ValueError(f"block {block} is not on the free list")
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self._next[block] = self._previous[block] = NOT_LISTED
        self._count -= 1

    def append(self, blocks: Iterable[int]) -> None:
        """Put ``blocks`` at the end, in their order: they are handed out last."""
        self._insert_after(self._previous[self._sentinel], blocks)

    def prepend(self, blocks: Iterable[int]) -> None:
        """Put ``blocks`` at the front, in their order: the first of them is handed out next."""
        self._insert_after(self._sentinel, blocks)

    def _insert_after(self, place: int, blocks: Iterable[int]) -> None:
        after, before = self._next, self._previous
        end = after[place]
        for block in blocks:
            if not 0 <= block < self._sentinel:
                raise ValueError(f"block {block} does not exist: numbers run from 0 to {self._sentinel - 1}")
            if after[block] != NOT_LISTED:
                raise ValueError(f"block {block} is on the free list already")
            before[block], after[block] = place, end
            after[place] = before[end] = block
            place = block
            self._count += 1
