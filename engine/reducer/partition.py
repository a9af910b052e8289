"""How capacity is divided, counted slot by slot from the blocks alone (paper section 3.1)."""

from __future__ import annotations

from engine.events import Partition
from engine.reducer.books import Books, Impossible


def check_partition(books: Books, p: Partition) -> None:
    """Compare what the engine says of its capacity with the reducer's own count. Raises Impossible with both."""
    parts = (p.token_states, p.held, p.reserved, p.internal, p.external, p.free)
    if min(*parts, p.cached) < 0 or sum(parts) != books.capacity:
        raise Impossible(f"{p} adds up to {sum(parts)} slots of {books.capacity}")
    if books.contiguous:
        _check_regions(books, p)
    else:
        _check_blocks(books, p)


def _check_blocks(books: Books, p: Partition) -> None:
    written = sum(len(block.tokens) for block in books.blocks.values() if block.refs)
    cached = sum(len(block.tokens) for block in books.blocks.values() if not block.refs and block.hash)
    if (p.token_states, p.free + p.external, p.cached) != (written, books.unallocated, cached):
        raise Impossible(f"{p}: {written} slots are written, {books.unallocated} are nobody's, {cached} of them cached")


def _check_regions(books: Books, p: Partition) -> None:
    written = ended = rounding = 0
    for region in books.regions():
        rounding += region.size - region.needed
        for number in books.holders[region.block]:
            if books.lives(books.sequences[number]):
                written += len(region.tokens)
            else:
                ended += region.needed
    unallocated = books.unallocated
    if p.free not in (0, unallocated) or p.external != rounding + unallocated - p.free:
        raise Impossible(f"{p}: {rounding} slots are due to rounding, {unallocated} are nobody's")
    if p.token_states != written or p.internal < ended or p.cached:
        raise Impossible(f"{p}: {written} slots are written, {ended} belong to sequences that have ended")
