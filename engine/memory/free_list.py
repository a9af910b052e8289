"""A doubly linked list of blocks threaded through two arrays: each change of a block is O(1) and takes no memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

NOT_LISTED = -1


class OutOfBlocks(Exception):
    """No free block is left, or fewer than were asked for. Nothing has changed."""


class FreeList:
    """Free blocks that may still be wanted, the first to be handed out first. Empty when made.

    Numbers run from 0 to ``size - 1``, each in the list at most once. The links lie in the lists themselves, so that taking
    a block out of the middle (a prefix-cache hit) needs no search. Index ``size`` is the sentinel that closes the ring.
    """

    __slots__ = ("_count", "_next", "_previous", "_sentinel")

    def __init__(self, size: int) -> None:
        self._sentinel = size
        self._count = 0
        self._next = [NOT_LISTED] * size + [size]
        self._previous = [NOT_LISTED] * size + [size]

    def __len__(self) -> int:
        return self._count

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
        """Take ``block`` out, wherever it stands. Raises ValueError if it is not listed."""
        following, previous = self._next, self._previous
        if not 0 <= block < self._sentinel or following[block] == NOT_LISTED:
            raise ValueError(f"block {block} is not on the free list")
        before, after = previous[block], following[block]
        following[before] = after
        previous[after] = before
        following[block] = previous[block] = NOT_LISTED
        self._count -= 1

    def extend(self, blocks: Iterable[int]) -> None:
        """Put ``blocks`` at the end, in their order: they are handed out last. Raises ValueError at one that is listed."""
        following, previous, sentinel = self._next, self._previous, self._sentinel
        last = previous[sentinel]
        for block in blocks:
            if not 0 <= block < sentinel:
                raise ValueError(f"block {block} does not exist: numbers run from 0 to {sentinel - 1}")
            if following[block] != NOT_LISTED:
                raise ValueError(f"block {block} is on the free list already")
            following[last] = previous[sentinel] = block
            previous[block], following[block] = last, sentinel
            last = block
            self._count += 1
