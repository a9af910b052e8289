"""The pool of CPU blocks that preempted requests are swapped to (paper section 4.5)."""

from __future__ import annotations

from engine.events import BlockState
from engine.memory.block_contents import BlockContents
from engine.memory.block_pool import BlockPool
from engine.sequence import Sequence


class SwapSpace:
    """``num_blocks`` CPU blocks (none: nothing is ever swapped), with the table of each sequence that lies there."""

    def __init__(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks) if num_blocks else None
        self.contents = BlockContents()
        self.tables: dict[Sequence, list[int]] = {}

    @property
    def num_free(self) -> int:
        return self.pool.num_free if self.pool else 0

    def store(self, tables: dict[Sequence, list[int]], blocks: BlockContents) -> list[tuple[int, int]]:
        """Take in the content of ``tables``, each shared block once: (block, CPU block) in table order.

        Raises OutOfBlocks, with nothing changed, when there is too little room.
        """
        order = list(dict.fromkeys(block for table in tables.values() for block in table))
        if not order:
            return []
        if self.pool is None:
            raise ValueError("this memory has no CPU blocks to swap to: preempt by recomputation")
        pairs = list(zip(order, self.pool.allocate(len(order)), strict=True))
        place = dict(pairs)
        for block, target in pairs:
            self.contents.copy(target, blocks, block, blocks.count(block))
        taken: set[int] = set()
        for sequence, table in tables.items():
            self.tables[sequence] = [place[block] for block in table]
            for target in self.tables[sequence]:
                if target in taken:
                    self.pool.share(target)
                taken.add(target)
        return pairs

    def free(self, sequence: Sequence) -> None:
        """Forget what a sequence had here, if it had anything."""
        table = self.tables.pop(sequence, [])
        if self.pool is None:
            return
        for block, refs in self.pool.release(reversed(table)):
            if refs == 0:
                self.contents.clear(block)

    def blocks(self) -> list[BlockState]:
        """The blocks in use, by number."""
        used = sorted({block for table in self.tables.values() for block in table})
        return [self.contents.state(block, self.pool.refs[block]) for block in used] if self.pool else []
