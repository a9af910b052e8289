"""The books of contiguous memory: the partition of its capacity, each term counted on its own, and their integrity."""

from __future__ import annotations

from typing import Protocol

import msgspec

from engine.events import Partition
from engine.memory.block_contents import BlockContents
from engine.memory.buddy_allocator import BuddyAllocator
from engine.memory.memory_manager import IntegrityError
from engine.memory.region import Region
from engine.sequence import Request, Sequence


class RegionBooks(Protocol):
    """What a manager of regions keeps; see ``RegionManager``."""

    buddies: BuddyAllocator
    contents: BlockContents
    regions: dict[Request, list[Region]]
    given: dict[Sequence, Region]
    copies: dict[int, tuple[int, int]]

    @property
    def capacity(self) -> int: ...


def partition(manager: RegionBooks, living: list[Sequence], starved: bool) -> Partition:
    """Capacity by use: what is written from the regions' contents, what is not from the sequences' tables, what is
    rounded up and what is free from the allocator's lists.

    A spare region counts as the sequence that will fork into it: ``held`` if its length is not known, else ``reserved``
    (the copied prompt among it) and ``internal``. All of a spent region is ``internal``, written or not.
    """
    token_states = sum(manager.contents.count(region.start) for region in manager.given.values() if not region.spent)
    held = reserved = internal = 0
    # (slots asked for, written, written when the sequence ends or None) of all that is to be written further.
    unfinished: list[tuple[int, int, int | None]] = []
    for sequence in living:
        region = manager.given.get(sequence)
        if region and not region.spent:
            written = 0 if region.start in manager.copies else sequence.table.slots
            unfinished.append((region.needed, written, sequence.final_slots))
    for request, regions in manager.regions.items():
        for region in regions:
            if region.spent:
                internal += region.needed
            elif region.sequence is None:
                unfinished.append((region.needed, 0, request.sequences[0].final_slots))
    for needed, written, final in unfinished:
        if final is None:
            held += needed - written
        else:
            reserved += final - written
            internal += needed - final
    asked = sum(region.needed for regions in manager.regions.values() for region in regions)
    rounding = sum(manager.buddies.used().values()) - asked
    unallocated = sum(manager.buddies.gaps().values())
    return Partition(
        token_states=token_states,
        held=held,
        reserved=reserved,
        internal=internal,
        external=rounding + (unallocated if starved else 0),
        free=0 if starved else unallocated,
    )


def verify(manager: RegionBooks, living: list[Sequence]) -> None:
    """Raises IntegrityError where allocator, regions, tables and contents contradict each other."""
    _verify_allocator(manager)
    holders = {region.start: region.sequence for regions in manager.regions.values() for region in regions}
    having = sorted((start, sequence.number) for start, sequence in holders.items() if sequence)
    tables = sorted((sequence.table.offset, sequence.number) for sequence in living if sequence.table.blocks)
    if tables != having:
        raise IntegrityError(f"regions and the sequences that have them: {having}, and by their tables: {tables}")
    for sequence in living:
        if sequence.table.blocks:
            _verify_sequence(manager, sequence)
    strangers = sorted(start for start in manager.copies if not holders.get(start))
    if strangers:
        raise IntegrityError(f"copies are due to regions {strangers}, and sequences have {having}")
    parts = partition(manager, living, starved=False)
    if sum(msgspec.structs.astuple(parts)[:-1]) != manager.capacity:
        raise IntegrityError(f"the parts of memory {parts} do not add up to its capacity of {manager.capacity} slots")


def _verify_allocator(manager: RegionBooks) -> None:
    used, gaps = manager.buddies.used(), manager.buddies.gaps()
    reserved = {region.start: region.size for regions in manager.regions.values() for region in regions}
    if used != reserved:
        raise IntegrityError(f"the allocator gave out {used}, and requests have {reserved}")
    if sorted(manager.contents.tokens) != sorted(reserved):
        raise IntegrityError(
            f"something is kept for regions {sorted(manager.contents.tokens)}, and requests have {reserved}"
        )
    end = 0
    for start, size in sorted([*used.items(), *gaps.items()]):
        if start != end:
            raise IntegrityError(f"a region begins at slot {start}, and the one before it ends at {end}")
        end = start + size
    if end != manager.capacity:
        raise IntegrityError(f"regions and gaps end at slot {end}, the capacity is {manager.capacity}")
    if sum(gaps.values()) != manager.buddies.unallocated:
        raise IntegrityError(
            f"gaps of {sum(gaps.values())} slots, and {manager.buddies.unallocated} are said to be free"
        )


def _verify_sequence(manager: RegionBooks, sequence: Sequence) -> None:
    region, table = manager.given[sequence], sequence.table
    where = f"sequence {sequence.number}"
    expected = (region.size, [0], region.start)
    if (table.block_size, table.blocks, table.offset) != expected:
        raise IntegrityError(
            f"{where}: table {(table.block_size, table.blocks, table.offset)}, its region is {expected}"
        )
    if table.slots != sequence.computed or table.slots > region.needed:
        raise IntegrityError(
            f"{where}: {sequence.computed} computed, {table.slots} slots, {region.needed} reserved for it"
        )
    stored, computed = manager.contents.tokens[region.start], sequence.tokens[: sequence.computed]
    if region.start in manager.copies:
        if stored or manager.copies[region.start][1] != len(computed):
            raise IntegrityError(
                f"{where}: a copy of {manager.copies[region.start][1]} slots is due, it holds {stored}"
            )
    elif stored != computed:
        raise IntegrityError(f"{where}: its region holds {stored}, and its computed tokens are {computed}")
