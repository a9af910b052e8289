"""What a block costs: ``python -m tests.bench.block_pool [--peer PYTHON]``.

Nanoseconds a block with a thousand blocks and with a million, the ratio of the two, and the bytes of an empty pool.
``--peer`` (or PAGED_VLLM_PYTHON) names a Python that has vLLM and numpy: everything runs under it then, our pool and vLLM's
in turn on the same blocks; the ratio is the median of the ratios of the pairs, above 1 where ours is the faster.

    reuse       one block is allocated and freed, again and again
    many        64 blocks are allocated and freed
    shuffled    one is allocated and freed after all have been freed in random order, another each time
    find        the blocks of 64 hashes are looked up
    hit         they are looked up, shared and freed
    evict       all have a hash: one is allocated, so evicted, gets a new hash and is freed
    hash_block  a block of 16 tokens is hashed

Times are the thread's own, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from engine.memory.block_pool import BlockPool
from engine.memory.prefix_cache import block_hashes, match

SMALL, LARGE = 1_000, 1_000_000
BATCH, BLOCK_SIZE, ROUNDS = 64, 16, 9


class Ours:
    def __init__(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.allocate, self.free = self.pool.allocate, self.pool.release
        self.register = self.pool.register

    def owner(self, digest: bytes) -> bytes:
        return digest

    def find(self, hashes: list[bytes]) -> list[int]:
        return match(self.pool, hashes)

    def share(self, blocks: list[int]) -> None:
        for block in blocks:
            self.pool.share(block)

    def hash(self, tokens: list[int]) -> None:
        block_hashes(tokens, BLOCK_SIZE)


class VLLM:
    def __init__(self, num_blocks: int) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1.core import block_pool, kv_cache_utils

        kv_cache_utils.init_none_hash(sha256)
        self.hash_block, self.hash_function = kv_cache_utils.hash_block_tokens, sha256
        # One block more, since it keeps a null block.
        self.pool = block_pool.BlockPool(num_blocks + 1, enable_caching=True, hash_block_size=BLOCK_SIZE)
        self.allocate, self.free, self.share = self.pool.get_new_blocks, self.pool.free_blocks, self.pool.touch

    def owner(self, digest: bytes) -> SimpleNamespace:
        """All that vLLM reads of a request when it registers a block."""
        return SimpleNamespace(block_hashes=[digest])

    def register(self, block: Any, owner: SimpleNamespace) -> None:
        self.pool.cache_full_blocks(owner, [block], 0, 1, BLOCK_SIZE, 0)

    def find(self, hashes: list[bytes]) -> list[Any]:
        blocks = []
        for digest in hashes:
            found = self.pool.get_cached_block(digest, [0])
            if found is None:
                break
            blocks.append(found[0])
        return blocks

    def hash(self, tokens: list[int]) -> None:
        parent = None
        for start in range(0, len(tokens), BLOCK_SIZE):
            parent = self.hash_block(self.hash_function, parent, tokens[start : start + BLOCK_SIZE])


Pool = Ours | VLLM


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def fill(pool: Pool, size: int, hashed: bool) -> None:
    """Take all blocks and free them in random order."""
    blocks = pool.allocate(size)
    if hashed:
        for number, block in enumerate(blocks):
            pool.register(block, pool.owner(digest(number)))
    random.shuffle(blocks)
    pool.free(blocks)


Work = tuple[int, Callable[[], object]]  # a number of blocks, and what is to be done with them


def reuse(pool: Pool, size: int) -> Work:
    def call() -> None:
        for _ in range(1000):
            pool.free(pool.allocate(1))

    return 1000, call


def many(pool: Pool, size: int) -> Work:
    def call() -> None:
        for _ in range(50):
            pool.free(pool.allocate(BATCH)[::-1])

    return 50 * BATCH, call


def shuffled(pool: Pool, size: int) -> Work:
    """Takes blocks that no round before has touched: those of the round before stay allocated."""

    def call() -> None:
        for block in [pool.allocate(1) for _ in range(100)]:
            pool.free(block)

    pool.allocate(100)
    return 100, call


def find(pool: Pool, size: int) -> Work:
    hashes = [digest(number) for number in random.sample(range(size), BATCH)]
    return BATCH, lambda: pool.find(hashes)


def hit(pool: Pool, size: int) -> Work:
    hashes = [digest(number) for number in random.sample(range(size), BATCH)]

    def call() -> None:
        blocks: list[Any] = pool.find(hashes)
        pool.share(blocks)
        pool.free(blocks[::-1])

    return BATCH, call


def evict(pool: Pool, size: int) -> Work:
    owners = [pool.owner(random.randbytes(32)) for _ in range(500)]

    def call() -> None:
        for owner in owners:
            blocks = pool.allocate(1)
            pool.register(blocks[0], owner)
            pool.free(blocks)

    return 500, call


def hash_block(pool: Pool, size: int) -> Work:
    tokens = random.choices(range(50_000), k=BATCH * BLOCK_SIZE)
    return BATCH, lambda: pool.hash(tokens)


def alternate(
    measure: Callable[[Pool, int], Work], pools: Sequence[Pool], size: int, times: dict[str, list[list[float]]]
) -> None:
    """Nanoseconds a block, a list for each pool: every round does the same with each in turn."""
    name = measure.__name__
    times[name] = [[] for _ in pools]
    for seed in range(ROUNDS):
        for pool, column in zip(pools, times[name], strict=True):
            random.seed(seed)
            blocks, call = measure(pool, size)
            started = time.thread_time()
            call()
            column.append((time.thread_time() - started) * 1e9 / blocks)


def run(kinds: Sequence[type[Pool]], size: int) -> dict[str, list[list[float]]]:
    times: dict[str, list[list[float]]] = {}
    for hashed, stages in ((False, ((reuse, many), (shuffled,))), (True, ((), (find, hit, evict, hash_block)))):
        pools = [kind(size) for kind in kinds]
        gc.freeze()  # as servers do, so that the collector does not walk through the pool
        for measure in stages[0]:
            alternate(measure, pools, size, times)
        for pool in pools:
            random.seed(size)
            fill(pool, size, hashed)
        for measure in stages[1]:
            alternate(measure, pools, size, times)
    return times


def construction() -> tuple[float, int]:
    """Milliseconds and bytes of an empty pool of a million blocks."""
    times = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        BlockPool(LARGE)
        times.append((time.thread_time() - started) * 1e3)
    tracemalloc.start()
    pool = BlockPool(LARGE)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del pool
    return statistics.median(times), size


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.block_pool")
    parser.add_argument("--peer", default=os.environ.get("PAGED_VLLM_PYTHON"), help="a Python that has vLLM and numpy")
    parser.add_argument("--compare", action="store_true", help="this Python has vLLM")
    options = parser.parse_args()
    if options.peer and not options.compare:
        sys.exit(subprocess.run([options.peer, "-m", "tests.bench.block_pool", "--compare"], check=False).returncode)
    milliseconds, size = construction()
    print(f"An empty pool of {LARGE:,} blocks: {size / 1e6:.1f} MB, made in {milliseconds:.1f} ms")
    kinds: list[type[Pool]] = [Ours, VLLM] if options.compare else [Ours]
    results = [run(kinds, size) for size in (SMALL, LARGE)]
    peer = f"{'vLLM':>9}{'ratio':>7}" if options.compare else ""
    print(f"{'ns a block':10}{SMALL:>11,}{peer}{LARGE:>12,}{peer}{'  grows by':>10}")
    for name in results[0]:
        line = f"{name:10}"
        for times in results:
            line += f"{statistics.median(times[name][0]):11.0f}"
            if options.compare:
                ours, theirs = times[name]
                ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
                line += f"{statistics.median(theirs):9.0f}{ratio:7.2f}"
        small, large = (statistics.median(times[name][0]) for times in results)
        print(f"{line}{large / small:10.2f}")


if __name__ == "__main__":
    main()
