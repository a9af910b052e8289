"""Paged memory: blocks on demand, wherever there is room (paper sections 4.1 to 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from engine.block_pool import BlockPool
from engine.block_table import blocks_for
from engine.events import BlockAllocated, BlockFreed, BlockReleased, BlockState, Partition, SlotsWritten
from engine.memory_manager import Emit, IntegrityError
from engine.sequence import Sequence

MAX_BLOCK_SIZE = 256


class PagedManager:
    """A pool of ``num_blocks`` blocks of ``block_size`` slots. All waste lies within one block of each sequence."""

    name = "paged"

    def __init__(self, num_blocks: int, block_size: int, emit: Emit) -> None:
        if not 1 <= block_size <= MAX_BLOCK_SIZE:
            raise ValueError(f"block size {block_size} is outside 1 to {MAX_BLOCK_SIZE}: choose one within")
        self.pool = BlockPool(num_blocks)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._emit = emit
        self._tokens: list[list[int]] = [[] for _ in range(num_blocks)]
        self._texts: list[list[str]] = [[] for _ in range(num_blocks)]

    @property
    def capacity(self) -> int:
        return self.num_blocks * self.block_size

    def why_never(self, prompt_tokens: int) -> str | None:
        needed = blocks_for(prompt_tokens, self.block_size)
        if needed <= self.num_blocks:
            return None
        return (
            f"a prompt of {prompt_tokens} tokens needs {needed} blocks of {self.block_size} slots, and this memory has "
            f"{self.num_blocks}: shorten the prompt to {self.capacity} tokens or use a larger memory"
        )

    def can_admit(self, sequence: Sequence) -> bool:
        return sequence.table.missing(len(sequence.tokens)) <= self.pool.num_free

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        missing = sequence.table.missing(tokens)
        if missing > self.pool.num_free:
            return False
        for block in self.pool.allocate(missing):
            self._tokens[block], self._texts[block] = [], []
            sequence.table.blocks.append(block)
            self._emit(BlockAllocated(block, sequence.number, len(sequence.table.blocks) - 1))
        return True

    def written(self, sequence: Sequence, count: int, texts: list[str]) -> None:
        done = 0
        for block, first, length in sequence.table.runs(sequence.computed, count):
            start = sequence.computed + done
            tokens = sequence.tokens[start : start + length]
            shown = texts[done : done + length]
            self._tokens[block].extend(tokens)
            self._texts[block].extend(shown)
            self._emit(SlotsWritten(block, first, length, tokens, shown))
            done += length
        sequence.computed += count
        sequence.table.slots = sequence.computed

    def free(self, sequence: Sequence) -> None:
        table = sequence.table
        released = self.pool.release(reversed(table.blocks))
        table.blocks, table.slots, sequence.computed = [], 0, 0
        for block, refs in released:
            self._emit(BlockReleased(block, sequence.number, refs))
            if refs == 0:
                self._tokens[block], self._texts[block] = [], []
                self._emit(BlockFreed(block))

    def blocks(self) -> list[BlockState]:
        return [
            BlockState(block, refs, list(self._tokens[block]), list(self._texts[block]))
            for block, refs in enumerate(self.pool.refs)
            if refs
        ]

    def partition(self, living: Iterable[Sequence], starved: bool) -> Partition:
        token_states = sum(len(tokens) for tokens, refs in zip(self._tokens, self.pool.refs, strict=True) if refs)
        held = reserved = internal = 0
        for sequence in living:
            unwritten = sequence.table.capacity - sequence.table.slots
            if sequence.final_slots is None:
                held += unwritten
            else:
                to_come = min(unwritten, max(0, sequence.final_slots - sequence.table.slots))
                reserved += to_come
                internal += unwritten - to_come
        unallocated = self.pool.num_free * self.block_size
        return Partition(
            token_states=token_states,
            held=held,
            reserved=reserved,
            internal=internal,
            external=unallocated if starved else 0,
            free=0 if starved else unallocated,
        )

    def verify(self, living: Iterable[Sequence]) -> None:
        sequences = list(living)
        parts = self.partition(sequences, starved=False)
        if sum(msgspec.structs.astuple(parts)) != self.capacity:
            raise IntegrityError(f"the parts of memory {parts} do not add up to its capacity of {self.capacity} slots")
        occurrences = Counter(block for sequence in sequences for block in sequence.table.blocks)
        for block, refs in enumerate(self.pool.refs):
            if refs != occurrences[block]:
                raise IntegrityError(f"block {block}: reference count {refs}, in tables {occurrences[block]} times")
            if self.pool.is_free(block) != (refs == 0):
                raise IntegrityError(
                    f"block {block}: reference count {refs}, on the free list {self.pool.is_free(block)}"
                )
        free = self.pool.free_order()
        if len(set(free)) != len(free) or len(free) != self.pool.num_free:
            raise IntegrityError(f"free list {free} holds a block twice or miscounts ({self.pool.num_free})")
        if len(free) + len(occurrences) != self.num_blocks:
            raise IntegrityError(f"{len(free)} free + {len(occurrences)} used blocks, capacity {self.num_blocks}")
        for sequence in sequences:
            table = sequence.table
            if table.slots != sequence.computed or table.slots > table.capacity:
                raise IntegrityError(
                    f"sequence {sequence.number}: {sequence.computed} computed, {table.slots} slots of {table.capacity}"
                )
            stored = [token for block in table.blocks for token in self._tokens[block]]
            if stored != sequence.tokens[: sequence.computed]:
                raise IntegrityError(f"sequence {sequence.number}: its blocks hold {stored}, not its computed tokens")
