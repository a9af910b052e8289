"""The books of paged memory, counted from the blocks up: the partition of its capacity, and their integrity."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Protocol

import msgspec

from engine.events import Partition
from engine.memory.block_contents import BlockContents
from engine.memory.block_pool import BlockPool
from engine.memory.block_table import blocks_for
from engine.memory.memory_manager import IntegrityError
from engine.memory.prefix_cache import block_hashes
from engine.memory.swap_space import SwapSpace
from engine.sequence import Sequence


class PagedBooks(Protocol):
    """What the manager of paged memory keeps; see ``PagedManager``."""

    pool: BlockPool
    contents: BlockContents
    swap_space: SwapSpace
    block_size: int

    @property
    def capacity(self) -> int: ...


def partition(manager: PagedBooks, living: list[Sequence], starved: bool) -> Partition:
    """Capacity by use, block by block: a shared block counts once."""
    owners: dict[int, list[tuple[Sequence, int]]] = defaultdict(list)
    for sequence in living:
        for logical, block in enumerate(sequence.table.blocks):
            owners[block].append((sequence, logical))
    token_states = held = reserved = internal = 0
    for block, holders in owners.items():
        filled = manager.contents.count(block)
        token_states += filled
        future = [_future(sequence, logical) for sequence, logical in holders]
        if any(slots is None for slots in future):
            held += manager.block_size - filled
        else:
            final = max(slots for slots in future if slots is not None)
            reserved += max(0, final - filled)
            internal += manager.block_size - max(final, filled)
    unallocated = manager.pool.num_free * manager.block_size
    cached = sum(manager.contents.count(block) for block in manager.contents.tokens if not manager.pool.refs[block])
    return Partition(
        token_states=token_states,
        held=held,
        reserved=reserved,
        internal=internal,
        external=unallocated if starved else 0,
        free=0 if starved else unallocated,
        cached=cached,
    )


def _future(sequence: Sequence, logical: int) -> int | None:
    """Slots of the block that will have been written when the sequence ends; None if that is not known."""
    size = sequence.table.block_size
    slots = sequence.table.slots if sequence.finish else sequence.final_slots
    return None if slots is None else max(0, min(size, slots - logical * size))


def verify(manager: PagedBooks, living: list[Sequence]) -> None:
    """Raises IntegrityError where pool, tables, contents and hashes contradict each other."""
    parts = partition(manager, living, starved=False)
    if sum(msgspec.structs.astuple(parts)[:-1]) != manager.capacity:
        raise IntegrityError(f"the parts of memory {parts} do not add up to its capacity of {manager.capacity} slots")
    occurrences = Counter(block for sequence in living for block in sequence.table.blocks)
    _verify_pool(manager, occurrences)
    for sequence in living:
        _verify_sequence(manager, sequence)
    _verify_swap_space(manager, living)


def _verify_pool(manager: PagedBooks, occurrences: Counter[int]) -> None:
    pool = manager.pool
    free = pool.free_order()
    listed = set(free)
    if len(listed) != len(free) or len(free) != pool.num_free:
        raise IntegrityError(f"free list {free} holds a block twice or miscounts ({pool.num_free})")
    if len(free) + len(occurrences) != manager.pool.num_blocks:
        raise IntegrityError(f"{len(free)} free + {len(occurrences)} used blocks, capacity {manager.pool.num_blocks}")
    for block in range(manager.pool.num_blocks):
        refs, digest = pool.refs[block], pool.hash_of(block)
        if refs != occurrences[block]:
            raise IntegrityError(f"block {block}: reference count {refs}, in tables {occurrences[block]} times")
        if (block in listed) != (refs == 0):
            raise IntegrityError(f"block {block}: reference count {refs}, on the free list {block in listed}")
        if (block in manager.contents.tokens) != (refs > 0 or digest is not None):
            raise IntegrityError(
                f"block {block}: reference count {refs}, hash {digest!r}, but what it holds says other"
            )
        if digest is not None:
            if manager.contents.count(block) != manager.block_size:
                raise IntegrityError(f"block {block} has a hash and {manager.contents.count(block)} written slots")
            if pool.lookup(digest) != block:
                raise IntegrityError(f"block {block}: its hash leads to block {pool.lookup(digest)}")


def _verify_sequence(manager: PagedBooks, sequence: Sequence) -> None:
    table = sequence.table
    where = f"sequence {sequence.number}"
    if sequence in manager.swap_space.tables:
        if table.blocks or table.slots:
            raise IntegrityError(f"{where} is swapped out and has blocks {table.blocks}")
        return
    if table.slots != sequence.computed or len(table.blocks) != blocks_for(table.slots, table.block_size):
        raise IntegrityError(
            f"{where}: {sequence.computed} computed, {table.slots} slots in {len(table.blocks)} blocks"
        )
    stored = [token for block in table.blocks for token in manager.contents.tokens[block]]
    if stored != sequence.tokens[: sequence.computed]:
        raise IntegrityError(f"{where}: its blocks hold {stored}, not its computed tokens")
    chain = block_hashes(stored, table.block_size, sequence.request.cache_salt)
    for block, digest in zip(table.blocks, chain, strict=False):
        known = manager.pool.hash_of(block)
        if known not in (None, digest):
            raise IntegrityError(f"{where}: block {block} is known by another hash than that of what it holds")


def _verify_swap_space(manager: PagedBooks, living: list[Sequence]) -> None:
    space = manager.swap_space
    strangers = set(space.tables) - set(living)
    if strangers:
        raise IntegrityError(f"the CPU pool keeps blocks of {[sequence.number for sequence in strangers]}, which ended")
    occurrences = Counter(block for table in space.tables.values() for block in table)
    if space.pool is not None:
        for block in range(space.pool.num_blocks):
            if space.pool.refs[block] != occurrences[block]:
                raise IntegrityError(
                    f"CPU block {block}: count {space.pool.refs[block]}, in tables {occurrences[block]} times"
                )
    for sequence, table in space.tables.items():
        stored = [token for block in table for token in space.contents.tokens[block]]
        if stored != sequence.tokens[: sequence.computed]:
            raise IntegrityError(f"sequence {sequence.number}: its CPU blocks hold {stored}, not its computed tokens")
