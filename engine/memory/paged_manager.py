"""Paged memory: blocks on demand, wherever there is room, shared until they are written (paper sections 4.1 to 4.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.events import (
    BlockAllocated,
    BlockCached,
    BlockCopied,
    BlockEvicted,
    BlockFreed,
    BlockReleased,
    BlockShared,
    BlockState,
    Partition,
    PrefixHit,
    SlotsWritten,
    SwappedIn,
    SwappedOut,
)
from engine.memory import paged_audit
from engine.memory.block_contents import BlockContents
from engine.memory.block_pool import BlockPool
from engine.memory.block_table import blocks_for
from engine.memory.copy_on_write import copiers
from engine.memory.free_list import OutOfBlocks
from engine.memory.memory_manager import Emit, Moves, Write
from engine.memory.prefix_cache import extend_hashes, match
from engine.memory.registered_prefixes import RegisteredPrefixes
from engine.memory.swap_space import SwapSpace
from engine.messages import Memory
from engine.sequence import Request, Sequence

MAX_BLOCK_SIZE = 256


class PagedManager:
    """A pool of ``memory.num_blocks`` blocks. All waste lies within one block of each sequence.

    ``bytes_per_slot``: keys and values of a token, for the bytes that swapping tells of.
    """

    name = "paged"
    gathers = False

    def __init__(self, memory: Memory, emit: Emit, bytes_per_slot: int = 0) -> None:
        if not 1 <= memory.block_size <= MAX_BLOCK_SIZE:
            raise ValueError(f"block size {memory.block_size} is outside 1 to {MAX_BLOCK_SIZE}: choose one within")
        self.pool = BlockPool(memory.num_blocks)
        self.pool.on_evict = self._evicted
        self.num_blocks = memory.num_blocks
        self.block_size = memory.block_size
        self.contents = BlockContents()
        self.swap_space = SwapSpace(memory.cpu_blocks)
        self.prefixes = RegisteredPrefixes()
        self._caching = memory.prefix_cache
        self._bytes_per_slot = bytes_per_slot
        self._emit = emit
        self._hashes: dict[Sequence, list[bytes]] = {}
        self._copies: dict[tuple[int, int], list[int]] = {}
        self._moves = Moves()

    @property
    def capacity(self) -> int:
        return self.num_blocks * self.block_size

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    def longest(self, request: Request) -> int | None:
        return None

    def why_never(self, request: Request) -> str | None:
        needed = self._total(request)
        if needed <= self.num_blocks:
            return None
        prompt = f"a prompt of {request.prompt_tokens} tokens"
        if request.width > 1:
            prompt += f" with the first token of each of {request.width} sequences"
        return (
            f"{prompt} needs {needed} blocks of {self.block_size} slots, and this memory has {self.num_blocks}: shorten the "
            f"prompt{', ask for fewer sequences' if request.width > 1 else f' to {self.capacity} tokens'} or use a larger "
            f"memory"
        )

    def fits(self, request: Request, promised: int) -> bool:
        leader = request.live[0]
        prefix = self.prefixes.match(leader, _reusable(request))
        hits = self._hits(request)
        if prefix and prefix[1] >= len(hits) * self.block_size:
            needed = self._total(request) - prefix[1] // self.block_size
        else:
            needed = self._total(request) - sum(1 for block in hits if self.pool.refs[block])
        return needed <= self.num_free - promised

    def can_admit(self, request: Request, promised: int) -> bool:
        return self.fits(request, promised)

    def admit(self, request: Request) -> None:
        leader = request.live[0]
        prefix = self.prefixes.match(leader, _reusable(request))
        hits = self._hits(request)
        if prefix and prefix[1] >= len(hits) * self.block_size:
            self._share(leader, prefix[0].table.blocks[: blocks_for(prefix[1], self.block_size)])
            leader.computed = prefix[1]
        else:
            for logical, block in enumerate(hits):
                refs = self.pool.share(block)
                leader.table.blocks.append(block)
                digest = self.pool.hash_of(block)
                self._emit(PrefixHit(block, leader.number, logical, refs, digest.hex() if digest else ""))
            leader.computed = len(hits) * self.block_size
        leader.table.slots = leader.computed

    def need(self, writes: list[Write]) -> int:
        copies = copiers([sequence for sequence, _ in writes], self.pool.refs)
        return len(copies) + sum(sequence.table.missing(tokens) for sequence, tokens in writes)

    def grow(self, writes: list[Write]) -> None:
        needed = self.need(writes)
        if needed > self.num_free:
            raise OutOfBlocks(f"{needed} blocks asked for, {self.num_free} of {self.num_blocks} free: wait or preempt")
        copying = copiers([sequence for sequence, _ in writes], self.pool.refs)
        for sequence, tokens in writes:
            if sequence in copying:
                self._replace(sequence)
            for block in self.pool.allocate(sequence.table.missing(tokens)):
                self.contents.start(block)
                sequence.table.blocks.append(block)
                self._emit(BlockAllocated(block, sequence.number, len(sequence.table.blocks) - 1))

    def take_moves(self) -> Moves:
        for (source, count), destinations in self._copies.items():
            self._emit(BlockCopied(source, destinations, count))
            for block in destinations:
                self.contents.copy(block, self.contents, source, count)
                self._moves.copies.append((source * self.block_size, block * self.block_size, count))
        self._copies = {}
        moves, self._moves = self._moves, Moves()
        return moves

    def written(self, sequence: Sequence, count: int, texts: list[str]) -> None:
        done = 0
        for block, first, length in sequence.table.runs(sequence.computed, count):
            start = sequence.computed + done
            tokens = sequence.tokens[start : start + length]
            self.contents.write(block, tokens, texts[done : done + length])
            self._emit(SlotsWritten(block, first, length, tokens, texts[done : done + length]))
            done += length
        before = sequence.computed // self.block_size
        sequence.computed += count
        sequence.table.slots = sequence.computed
        if self._caching and sequence.computed // self.block_size > before:
            self._register(sequence, before)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        self._share(child, parent.table.blocks)
        child.computed = child.table.slots = parent.computed

    def branch(self, forks: list[tuple[Sequence, Sequence]], dropped: list[Sequence]) -> None:
        for parent, child in forks:
            self.fork(parent, child)
        for sequence in dropped:
            self.free(sequence)

    def free(self, sequence: Sequence) -> None:
        self._let_go(sequence)
        self.swap_space.free(sequence)
        self.prefixes.remove(sequence)
        self._hashes.pop(sequence, None)
        sequence.computed = 0

    def end(self, request: Request) -> None:
        """Nothing is the request's own: blocks belong to sequences."""

    def holds(self, request: Request) -> bool:
        return any(sequence.table.blocks for sequence in request.sequences)

    def register_prefix(self, sequence: Sequence) -> None:
        """Keep the blocks of ``sequence`` for requests that begin with its tokens, until it is freed."""
        self.prefixes.add(sequence)

    def reset_cache(self) -> bool:
        """Empty the prefix cache; False, with nothing changed, while any block is in use."""
        return self.pool.reset_cache()

    def can_swap_out(self, request: Request) -> bool:
        held = {block for sequence in request.live for block in sequence.table.blocks}
        return 0 < len(held) <= self.swap_space.num_free

    def swap_out(self, request: Request) -> None:
        tables = {sequence: list(sequence.table.blocks) for sequence in request.live}
        pairs = self.swap_space.store(tables, self.contents)
        moves = [(block * self.block_size, cpu * self.block_size, self.contents.count(block)) for block, cpu in pairs]
        self._moves.out += moves
        self._emit(SwappedOut(request.number, pairs, self._bytes(moves)))
        for sequence in request.live:
            self._let_go(sequence)

    def swap_in_need(self, request: Request) -> int:
        blocks = {block for sequence in request.live for block in self.swap_space.tables.get(sequence, ())}
        writers: Counter[int] = Counter()
        fresh = 0
        for sequence in request.live:
            table = self.swap_space.tables.get(sequence, [])
            total = blocks_for(len(sequence.tokens), self.block_size)
            if not table:
                # Still to fork from the first one.
                fresh += total - request.trunk // self.block_size
                continue
            fresh += total - len(table)
            logical = sequence.computed // self.block_size
            if logical < len(table):
                writers[table[logical]] += 1
        # All that share a swapped block are of this request, and the last to write it keeps it.
        return len(blocks) + fresh + sum(count - 1 for count in writers.values())

    def swap_in(self, request: Request) -> None:
        place: dict[int, int] = {}
        for sequence in request.live:
            for logical, cpu in enumerate(self.swap_space.tables.get(sequence, ())):
                if cpu in place:
                    refs = self.pool.share(place[cpu])
                    self._emit(BlockShared(place[cpu], sequence.number, logical, refs))
                else:
                    [place[cpu]] = self.pool.allocate()
                    self._emit(BlockAllocated(place[cpu], sequence.number, logical))
                    self.contents.copy(place[cpu], self.swap_space.contents, cpu, self.swap_space.contents.count(cpu))
                sequence.table.blocks.append(place[cpu])
            sequence.table.slots = sequence.computed
        pairs = list(place.items())
        moves = [(cpu * self.block_size, block * self.block_size, self.contents.count(block)) for cpu, block in pairs]
        self._moves.back += moves
        self._emit(SwappedIn(request.number, pairs, self._bytes(moves)))
        for sequence in request.live:
            self.swap_space.free(sequence)

    def table(self, sequence: Sequence) -> list[int]:
        return list(sequence.table.blocks)

    def cpu_table(self, sequence: Sequence) -> list[int]:
        return list(self.swap_space.tables.get(sequence, ()))

    def blocks(self) -> list[BlockState]:
        return [
            self.contents.state(block, self.pool.refs[block], (self.pool.hash_of(block) or b"").hex())
            for block in sorted(self.contents.tokens)
        ]

    def cpu_blocks(self) -> list[BlockState]:
        return self.swap_space.blocks()

    def partition(self, living: Iterable[Sequence], starved: bool) -> Partition:
        return paged_audit.partition(self, list(living), starved)

    def verify(self, living: Iterable[Sequence]) -> None:
        paged_audit.verify(self, list(living))

    def _total(self, request: Request) -> int:
        """Blocks that all known tokens of a request take, and the first one of each sequence that is still to fork."""
        trunk = request.trunk // self.block_size
        live = request.live
        if len(live) == 1:
            if request.width == 1 or request.branched:
                return blocks_for(len(live[0].tokens), self.block_size)
            lengths = [request.trunk + 1] * request.width
        else:
            lengths = [len(sequence.tokens) for sequence in live]
        return trunk + sum(blocks_for(length, self.block_size) - trunk for length in lengths)

    def _hits(self, request: Request) -> list[int]:
        """Cached blocks of what the request's first sequence may reuse."""
        if not self._caching:
            return []
        return match(self.pool, self._digests(request.live[0], _reusable(request)))

    def _share(self, sequence: Sequence, blocks: list[int]) -> None:
        for logical, block in enumerate(blocks):
            refs = self.pool.share(block)
            sequence.table.blocks.append(block)
            self._emit(BlockShared(block, sequence.number, logical, refs))

    def _replace(self, sequence: Sequence) -> None:
        """Give the sequence a block of its own for the one it is about to write into; it is filled by ``take_moves``."""
        logical = sequence.computed // self.block_size
        source = sequence.table.blocks[logical]
        [block] = self.pool.allocate()
        self.contents.start(block)
        self._emit(BlockAllocated(block, sequence.number, logical))
        sequence.table.blocks[logical] = block
        [(_, refs)] = self.pool.release([source])
        self._emit(BlockReleased(source, sequence.number, refs))
        self._copies.setdefault((source, sequence.table.filled(logical)), []).append(block)

    def _let_go(self, sequence: Sequence) -> None:
        released = self.pool.release(reversed(sequence.table.blocks))
        sequence.table.blocks, sequence.table.slots = [], 0
        for block, refs in released:
            self._emit(BlockReleased(block, sequence.number, refs))
            if refs == 0:
                self._emit(BlockFreed(block))
                if self.pool.hash_of(block) is None:
                    self.contents.clear(block)

    def _digests(self, sequence: Sequence, tokens: int) -> list[bytes]:
        """Hashes of the full blocks among the first ``tokens``. Tokens only ever follow, so each is worked out once."""
        known = self._hashes.setdefault(sequence, [])
        extend_hashes(known, sequence.tokens[:tokens], self.block_size, sequence.request.cache_salt)
        return known[: tokens // self.block_size]

    def _register(self, sequence: Sequence, first: int) -> None:
        """Enter the blocks from logical block ``first`` on that are full by now into the prefix cache."""
        hashes = self._digests(sequence, sequence.computed)
        run: list[int] = []
        for logical in range(first, len(hashes) + 1):
            new = logical < len(hashes) and self.pool.register(sequence.table.blocks[logical], hashes[logical])
            if new:
                run.append(logical)
            elif run:
                self._tell_cached(sequence, hashes, run)
                run = []

    def _tell_cached(self, sequence: Sequence, hashes: list[bytes], run: list[int]) -> None:
        start, end = run[0], run[-1] + 1
        self._emit(
            BlockCached(
                request=sequence.request.number,
                blocks=sequence.table.blocks[start:end],
                hashes=[digest.hex() for digest in hashes[start:end]],
                parent=hashes[start - 1].hex() if start else "",
                tokens=sequence.tokens[start * self.block_size : end * self.block_size],
            )
        )

    def _evicted(self, block: int, digest: bytes) -> None:
        self.contents.clear(block)
        self._emit(BlockEvicted(block, digest.hex()))

    def _bytes(self, moves: list[tuple[int, int, int]]) -> int:
        return sum(count for _, _, count in moves) * self._bytes_per_slot


def _reusable(request: Request) -> int:
    """Tokens that the first sequence need not compute if their keys and values are there: all before the fork, but never
    the last known one, whose logits the next token is drawn from, and none where all logits are to be read."""
    return 0 if request.reads_prompt_logits else min(request.trunk, len(request.live[0].tokens) - 1)
