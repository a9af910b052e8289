"""Physical blocks: their reference counts and the hashes of what they hold (paper sections 4.2 and 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.free_list import FreeList


class BlockPool:
    """``num_blocks`` physical blocks, numbered from 0. A block is on the free list exactly when its count is 0.

    A block may carry the hash of its content (``register``). It keeps it when it is freed, so that a later request can take
    it back (``share``), until it is handed out for other content. ``on_evict`` is called with each block and hash that part.

    Freed blocks without a hash go to the front of the free list: they hold nothing of use, and their memory is the likeliest
    to be in the processor's cache still. Those with a hash go to its end: the least recently used content is evicted first.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool of {num_blocks} blocks holds nothing: ask for at least 1")
        self.num_blocks = num_blocks
        self.refs = [0] * num_blocks
        self.on_evict: Callable[[int, bytes], None] | None = None
        self._free = FreeList(num_blocks)
        self._hashes: dict[int, bytes] = {}
        self._blocks: dict[bytes, int] = {}

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
        """Take ``count`` free blocks, each with reference count 1 and no hash.

        All or none: raises OutOfBlocks and changes nothing.
        """
        blocks = self._free.take(count)
        for block in blocks:
            self.refs[block] = 1
            if block in self._hashes:
                self._evict(block)
        return blocks

    def share(self, block: int) -> int:
        """One more reference to a block in use, or to a free one that has a hash; returns the count after.

        Raises ValueError on a free block without a hash: what it holds is of no use to anybody.
        """
        if self.refs[block] == 0:
            if block not in self._hashes:
                raise ValueError(f"block {block} is free and without a hash, so it cannot be shared: allocate it first")
            self._free.remove(block)
        self.refs[block] += 1
        return self.refs[block]

    def release(self, blocks: Iterable[int]) -> list[tuple[int, int]]:
        """Drop one reference to each of ``blocks``, in their order; returns (block, count after).

        Of those that reach 0, the first released is the next to be handed out (or, among blocks with a hash, to be evicted).
        Raises ValueError on a block that is free already ("double free"); the blocks before it are released all the same.
        """
        after: list[tuple[int, int]] = []
        empty: list[int] = []
        cached: list[int] = []
        try:
            for block in blocks:
                refs = self.refs[block] - 1
                if refs < 0:
                    raise ValueError(f"double free: block {block} has no reference left")
                self.refs[block] = refs
                after.append((block, refs))
                if refs == 0:
                    (cached if block in self._hashes else empty).append(block)
        finally:
            self._free.prepend(empty)
            self._free.append(cached)
        return after

    def register(self, block: int, digest: bytes) -> bool:
        """Give a block in use, full and computed, the hash of its content.

        False if another block has that hash: then this one stays without, so that hashes and blocks map one to one. Raises
        ValueError on a free block, and on one that has another hash.
        """
        if self.refs[block] == 0:
            raise ValueError(f"block {block} is free and holds nothing to be found again: allocate it first")
        if self._hashes.get(block, digest) != digest:
            raise ValueError(f"block {block} has the hash {self._hashes[block].hex()} and cannot take {digest.hex()}")
        if self._blocks.setdefault(digest, block) != block:
            return False
        self._hashes[block] = digest
        return True

    def lookup(self, digest: bytes) -> int | None:
        """The block, in use or free, whose content has this hash."""
        return self._blocks.get(digest)

    def hash_of(self, block: int) -> bytes | None:
        return self._hashes.get(block)

    def reset_cache(self) -> bool:
        """Forget all hashes; False, with nothing changed, while any block is in use."""
        if self.num_free < self.num_blocks:
            return False
        for block in list(self._hashes):
            self._evict(block)
        return True

    def _evict(self, block: int) -> None:
        digest = self._hashes.pop(block)
        del self._blocks[digest]
        if self.on_evict is not None:
            self.on_evict(block, digest)
