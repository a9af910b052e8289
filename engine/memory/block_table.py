"""The page table of a sequence: logical block to physical block (paper section 4.2)."""

from __future__ import annotations


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that ``tokens`` slots fill, the last perhaps in part."""
    return -(-tokens // block_size)


class BlockTable:
    """``blocks[i]`` is the physical block of logical block ``i``; ``slots`` counts the slots written so far.

    ``offset``: slots of the arena before block 0. Contiguous memory is a table of one block, as large as the region.
    """

    __slots__ = ("block_size", "blocks", "offset", "slots")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.blocks: list[int] = []
        self.offset = 0
        self.slots = 0

    @property
    def capacity(self) -> int:
        return len(self.blocks) * self.block_size

    def missing(self, tokens: int) -> int:
        """Blocks still to be added before ``tokens`` slots fit."""
        return max(0, blocks_for(tokens, self.block_size) - len(self.blocks))

    def locate(self, position: int) -> tuple[int, int]:
        """Physical block and slot within it of the token at ``position``. Raises IndexError past the table."""
        logical, slot = divmod(position, self.block_size)
        return self.blocks[logical], slot

    def filled(self, logical: int) -> int:
        """Written slots of logical block ``logical``, the second half of the paper's table entry."""
        return max(0, min(self.block_size, self.slots - logical * self.block_size))

    def runs(self, start: int, count: int) -> list[tuple[int, int, int]]:
        """The positions ``start`` to ``start + count - 1`` as (block, first slot, count), one for each block touched."""
        found: list[tuple[int, int, int]] = []
        while count > 0:
            block, slot = self.locate(start)
            length = min(count, self.block_size - slot)
            found.append((block, slot, length))
            start, count = start + length, count - length
        return found
