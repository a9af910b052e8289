"""Who must copy before writing (paper section 4.4): a block that several sequences share is written by none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Indexable

from engine.sequence import Sequence


def shared_block(sequence: Sequence) -> int | None:
    """The physical block that the next token goes into, if it lies within the table already."""
    logical = sequence.computed // sequence.table.block_size
    return sequence.table.blocks[logical] if logical < len(sequence.table.blocks) else None


def copiers(sequences: list[Sequence], refs: Indexable[int]) -> list[Sequence]:
    """Those of ``sequences``, which all write in this step, that need a copy of the block they write into.

    Each copy lowers the count of its source, so where nobody else holds the block the last writer keeps it for itself.
    """
    left: Counter[int] = Counter()
    found: list[Sequence] = []
    for sequence in sequences:
        block = shared_block(sequence)
        if block is None:
            continue
        if refs[block] - left[block] > 1:
            left[block] += 1
            found.append(sequence)
    return found
