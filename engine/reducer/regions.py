"""The events of contiguous memory: regions that are reserved, given to a sequence, and freed (paper section 6.1)."""

from __future__ import annotations

from engine import events as ev
from engine.reducer.blocks import let_go
from engine.reducer.books import Books, Impossible


def reserved(books: Books, e: ev.RegionReserved) -> None:
    books.request(e.request, "waiting", "running")
    if not 1 <= e.needed <= e.size:
        raise Impossible(f"a region of {e.size} slots where {e.needed} are needed")
    if e.start < 0 or e.start + e.size > books.capacity:
        raise Impossible(f"slots {e.start} to {e.start + e.size - 1}, and memory has {books.capacity}")
    for other in books.regions():
        if e.start < other.block + other.size and other.block < e.start + e.size:
            raise Impossible(
                f"slots {e.start} to {e.start + e.size - 1} overlap the region of request {other.request}, "
                f"{other.block} to {other.block + other.size - 1}"
            )
    books.blocks[e.start] = ev.BlockState(e.start, 0, [], [], size=e.size, needed=e.needed, request=e.request)
    books.holders[e.start] = []


def given(books: Books, e: ev.BlockAllocated) -> None:
    region = books.block(e.block)
    sequence = books.taker(e.sequence)
    if region.request != sequence.request:
        raise Impossible(
            f"region {e.block} is of request {region.request}, sequence {e.sequence} of {sequence.request}"
        )
    if region.refs:
        raise Impossible(f"region {e.block} is in use by sequence {books.holders[e.block]}")
    if e.logical != 0 or sequence.table:
        raise Impossible(
            f"sequence {e.sequence} has {sequence.table} and takes logical block {e.logical}: one region each"
        )
    sequence.table.append(e.block)
    books.holders[e.block] = [e.sequence]
    region.refs, region.tokens, region.texts = 1, [], []


def returned(books: Books, e: ev.BlockReleased) -> None:
    """It is the request's again and holds what it held, until it is given to another sequence: a fork of the one that
    had it may still be filled from it."""
    books.used(e.block)
    let_go(books, e)


def freed(books: Books, e: ev.RegionFreed) -> None:
    region = books.block(e.start)
    if (region.request, region.size) != (e.request, e.size):
        raise Impossible(f"region {e.start} has {region.size} slots, of request {region.request}")
    if region.refs:
        raise Impossible(f"region {e.start} is in use by sequence {books.holders[e.start]}")
    del books.blocks[e.start]
    del books.holders[e.start]


def reservation_failed(books: Books, e: ev.ReservationFailed) -> None:
    books.request(e.request, "waiting")
    gap = _longest_gap(books)
    if e.unallocated != books.unallocated:
        raise Impossible(f"{e.unallocated} unallocated slots, counted {books.unallocated}")
    if e.largest_gap > gap:
        raise Impossible(f"the largest gap is said to have {e.largest_gap} slots, the longest free run has {gap}")
    if e.regions == 1 and e.needed <= e.largest_gap:
        raise Impossible(f"{e.needed} slots are needed, and {e.largest_gap} can be had")


def _longest_gap(books: Books) -> int:
    longest = end = 0
    for region in books.regions():
        longest = max(longest, region.block - end)
        end = region.block + region.size
    return max(longest, books.capacity - end)
