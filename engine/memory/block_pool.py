"""Physical blocks: their reference counts and the hashes of what they hold (paper sections 4.2 and 4.4)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

import numpy as np

from engine.memory.free_list import FreeList, OutOfBlocks


class BlockPool:
    """``num_blocks`` physical blocks, numbered from 0. A block is free exactly when its reference count is 0.

    A block may carry the hash of its content (``register``). It keeps it when it is freed, so that a later request can take
    it back (``share``), until it is handed out for other content. ``on_evict`` is called with each block and hash that part.

    Free blocks without a hash are handed out first, the last freed before all: they hold nothing of use, and their memory
    is the likeliest to be in the processor's cache still. None of them ever leaves from the middle, so they make up a stack.
    Those with a hash come after them, the least recently used first.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool of {num_blocks} blocks holds nothing: ask for at least 1")
        self.num_blocks = num_blocks
        self.refs = [0] * num_blocks
        self.on_evict: Callable[[int, bytes], None] | None = None
        # The next block to be handed out is the last of the stack. Filled without a loop: a pool may have a million.
        self._empty = array("i", [0]) * num_blocks
        np.frombuffer(self._empty, np.int32)[:] = np.arange(num_blocks - 1, -1, -1, dtype=np.int32)
        self._cached = FreeList(num_blocks)
        self._hashes: dict[int, bytes] = {}
        self._blocks: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._empty) + len(self._cached)

    @property
    def usage(self) -> float:
        """Share of the blocks that somebody refers to, from 0 to 1."""
        return 1.0 - self.num_free / self.num_blocks

    def free_order(self) -> list[int]:
        """The free blocks, the next to be handed out first."""
        return [*reversed(self._empty), *self._cached]

    def is_free(self, block: int) -> bool:
        if not 0 <= block < self.num_blocks:
            raise self._unknown(block)
        return self.refs[block] == 0

    def allocate(self, count: int = 1) -> list[int]:
        """Take ``count`` free blocks, each with reference count 1 and no hash.

        All or none: raises OutOfBlocks and changes nothing.
        """
        empty, refs = self._empty, self.refs
        if count == 1 and empty:  # one block for one sequence: most calls
            block = empty.pop()
            refs[block] = 1
            return [block]
        if count < 0:
            raise ValueError(f"{count} blocks asked for: ask for 0 or more")
        if count > self.num_free:
            raise OutOfBlocks(f"{count} blocks asked for, {self.num_free} of {self.num_blocks} free: wait or preempt")
        first = max(0, len(empty) - count)
        blocks = empty[first:].tolist()
        del empty[first:]
        blocks.reverse()
        while len(blocks) < count:
            blocks.append(self._evict())
        for block in blocks:
            refs[block] = 1
        return blocks

    def share(self, block: int) -> int:
        """One more reference to a block in use, or to a free one that has a hash; returns the count after.

        Raises ValueError on a free block without a hash: what it holds is of no use to anybody.
        """
        if not 0 <= block < self.num_blocks:
            raise self._unknown(block)
        refs = self.refs[block] + 1
        if refs == 1:
            try:
                self._cached.remove(block)
            except ValueError:
                raise ValueError(
                    f"block {block} is free and without a hash, so it cannot be shared: allocate it first"
                ) from None
        self.refs[block] = refs
        return refs

    def release(self, blocks: Iterable[int]) -> list[tuple[int, int]]:
        """Drop one reference to each of ``blocks``, in their order; returns (block, count after).

        Of those that reach 0, the first released is the next to be handed out (or, among those with a hash, to be evicted).
        Raises ValueError on a block that is free already ("double free"); the blocks before it are released all the same.
        """
        refs, hashes = self.refs, self._hashes
        after: list[tuple[int, int]] = []
        empty: list[int] = []
        cached: list[int] = []
        try:
            for block in blocks:
                left = refs[block] - 1
                if block < 0:
                    raise self._unknown(block)
                if left < 0:
                    raise ValueError(f"double free: block {block} has no reference left")
                refs[block] = left
                after.append((block, left))
                if left == 0:
                    if block in hashes:
                        cached.append(block)
                    else:
                        empty.append(block)
        finally:
            if cached:
                self._cached.extend(cached)
            if empty:
                empty.reverse()
                self._empty.fromlist(empty)
        return after

    def register(self, block: int, digest: bytes) -> bool:
        """Give a block in use, full and computed, the hash of its content.

        False if another block has that hash: then this one stays without, so that hashes and blocks map one to one. Raises
        ValueError on a free block, and on one that has another hash.
        """
        if not 0 <= block < self.num_blocks:
            raise self._unknown(block)
        if self.refs[block] == 0:
            raise ValueError(f"block {block} is free and holds nothing to be found again: allocate it first")
        known = self._hashes.get(block, digest)
        if known != digest:
            raise ValueError(f"block {block} has the hash {known.hex()} and cannot take {digest.hex()}")
        if self._blocks.setdefault(digest, block) != block:
            return False
        self._hashes[block] = digest
        return True

    def lookup(self, digest: bytes) -> int | None:
        """The block, in use or free, whose content has this hash."""
        return self._blocks.get(digest)

    def hash_of(self, block: int) -> bytes | None:
        """The hash that ``block`` carries, in use or free."""
        if not 0 <= block < self.num_blocks:
            raise self._unknown(block)
        return self._hashes.get(block)

    def reset_cache(self) -> bool:
        """Forget all hashes; False, with nothing changed, while any block is in use."""
        if self.num_free < self.num_blocks:
            return False
        evicted = [self._evict() for _ in range(len(self._cached))]
        self._empty[:0] = array("i", reversed(evicted))
        return True

    def _evict(self) -> int:
        """Take the least recently used block with a hash off the free list, and the hash off it."""
        block = self._cached.pop()
        digest = self._hashes.pop(block)
        del self._blocks[digest]
        if self.on_evict is not None:
            self.on_evict(block, digest)
        return block

    def _unknown(self, block: int) -> IndexError:
        return IndexError(f"block {block} does not exist: numbers run from 0 to {self.num_blocks - 1}")
