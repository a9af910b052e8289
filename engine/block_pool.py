"""Physical blocks and their reference counts (paper sections 4.2 and 4.4)."""

from __future__ import annotations

from collections.abc import Iterable

from engine.free_list import FreeList, OutOfBlocks


class BlockPool:
    """``num_blocks`` physical blocks, numbered from 0. A block is on the free list exactly when its count is 0.

    Blocks that are freed go to the front of the free list: their memory is the likeliest to be in a cache still, and
    those that have rested longest stay untouched.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool of {num_blocks} blocks holds nothing: ask for at least 1")
        self.num_blocks = num_blocks
        self.refs = [0] * num_blocks
        self._free = FreeList(num_blocks)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that somebody refers to, from 0 to 1."""
        return 1.0 - self.num_free / self.num_blocks

    def free_order(self) -> list[int]:
        """The free blocks, the next to be handed out first."""
        return list(self._free)

    def is_free(self, block: int) -> bool:
        return block in self._free

    def allocate(self, count: int = 1) -> list[int]:
        """Take ``count`` free blocks, each with reference count 1. All or none: raises OutOfBlocks and changes nothing."""
        if count > self.num_free:
            raise OutOfBlocks(f"{count} blocks asked for, {self.num_free} of {self.num_blocks} free: wait or preempt")
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self.refs[block] = 1
        return blocks

    def share(self, block: int) -> int:
        """One more reference to a block in use; returns the count after. Raises ValueError on a free block."""
        if self.refs[block] == 0:
            raise ValueError(f"block {block} is free and cannot be shared: allocate it first")
        self.refs[block] += 1
        return self.refs[block]

    def release(self, blocks: Iterable[int]) -> list[tuple[int, int]]:
        """Drop one reference to each of ``blocks``, in their order; returns (block, count after).

        Those that reach 0 are put at the front of the free list, the first released first. Raises ValueError on a
        block that is free already ("double free"); the blocks before it are released all the same.
        """
        after: list[tuple[int, int]] = []
        freed: list[int] = []
        try:
            for block in blocks:
                if self.refs[block] == 0:
                    raise ValueError(f"double free: block {block} has no reference left")
                self.refs[block] -= 1
                after.append((block, self.refs[block]))
                if self.refs[block] == 0:
                    freed.append(block)
        finally:
            self._free.prepend(freed)
        return after
