"""Free blocks in the order they will be handed out: a doubly linked list threaded through two arrays, O(1) throughout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

NOT_LISTED = -1


class OutOfBlocks(Exception):
    """No free block is left, or fewer than were asked for. Nothing has changed."""


class FreeList:
    """Numbers from 0 to ``size - 1``, each in the list at most once.

    The links lie in the arrays themselves, so removing a block from the middle (a prefix-cache hit) costs no search. Index
    ``size`` is the sentinel that closes the ring. Raises ValueError when a block is added twice or removed when absent.
    """

    def __init__(self, size: int, listed: Iterable[int] | None = None) -> None:
        self._sentinel = size
        self._next = [NOT_LISTED] * size + [size]
        self._previous = [NOT_LISTED] * size + [size]
        self._count = 0
        self.append(range(size) if listed is None else listed)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, block: int) -> bool:
        return 0 <= block < self._sentinel and self._next[block] != NOT_LISTED

    def __iter__(self) -> Iterator[int]:
        block = self._next[self._sentinel]
        while block != self._sentinel:
            yield block
            block = self._next[block]

    def pop(self) -> int:
        """Take the first block off. Raises OutOfBlocks on an empty list."""
        block = self._next[self._sentinel]
        if block == self._sentinel:
            raise OutOfBlocks("no free blocks")
        self.remove(block)
        return block

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
        for block in blocks:
            self._insert_after(self._previous[self._sentinel], block)

    def prepend(self, blocks: Iterable[int]) -> None:
        """Put ``blocks`` at the front, in their order: the first of them is handed out next."""
        before = self._sentinel
        for block in blocks:
            self._insert_after(before, block)
            before = block

    def _insert_after(self, before: int, block: int) -> None:
        if not 0 <= block < self._sentinel:
            raise ValueError(f"block {block} does not exist: numbers run from 0 to {self._sentinel - 1}")
        if block in self:
            raise ValueError(f"block {block} is on the free list already")
        after = self._next[before]
        self._next[before] = self._previous[after] = block
        self._previous[block], self._next[block] = before, after
        self._count += 1
