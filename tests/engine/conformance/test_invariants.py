"""H7 and I: what holds of memory after every step, looked at from outside."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from engine.events import Preempted, PrefixHit, RequestAborted, RequestFinished, SlotsWritten, SwappedOut
from engine.memory.prefix_cache import block_hashes
from tests.engine.conformance.rigs import busy
from tests.engine.harness import Rig

SIZE = 4


def tables(rig: Rig) -> list[tuple[int, list[int]]]:
    """(slots written, blocks) of every sequence that holds memory."""
    return [(sequence.computed, sequence.table.blocks) for sequence in rig.arena.sequences() if sequence.table.blocks]


def check(rig: Rig) -> None:
    pool = rig.pool
    used = Counter(block for _, blocks in tables(rig) for block in blocks)
    free = pool.free_order()
    # I1 to I3: free and used blocks are all there are, and counts are occurrences.
    assert len(free) + len(used) == pool.num_blocks
    assert [used[block] for block in range(pool.num_blocks)] == pool.refs
    assert sorted(free) == [block for block in range(pool.num_blocks) if not pool.refs[block]]
    # I5: tables are as long as their slots need.
    assert all(len(blocks) == -(-slots // SIZE) for slots, blocks in tables(rig))


def check_hashes(rig: Rig) -> None:
    """I4: hash and block lead to each other, and a hash is that of all tokens up to the block's end."""
    pool = rig.pool
    hashed = [block for block in range(pool.num_blocks) if pool.hash_of(block)]
    assert [pool.lookup(pool.hash_of(block)) for block in hashed] == hashed
    for sequence in rig.arena.sequences():
        chain = block_hashes(sequence.tokens[: sequence.computed], SIZE)
        for block, digest in zip(sequence.table.blocks, chain, strict=False):
            assert pool.hash_of(block) in (digest, None)
            rig.seen.add(block)


class Watched(Rig):
    """A rig whose invariants are checked at the end of each envelope. ``seen``: blocks that were full at some time."""

    def __init__(self, *args, **options) -> None:
        self.seen: set[int] = set()
        super().__init__(*args, **options)

    def settle(self) -> None:
        super().settle()
        check(self)
        check_hashes(self)


SEEDS = range(4)


def run(seed: int) -> Watched:
    rig = Watched(14, SIZE, cpu_blocks=(0, 12)[seed % 2], prefix_cache=True)
    busy(rig, seed)
    return rig


watched = cache(run)


@pytest.mark.parametrize("seed", SEEDS)
def test_I1_to_I6_hold_after_every_step(seed):
    rig = watched(seed)
    assert len(rig.seen) == 14
    # I6: an idle arena is empty.
    assert (rig.free, rig.pool.refs, rig.arena.manager.cpu_blocks()) == (14, [0] * 14, [])


def test_the_busy_arenas_do_what_they_should():
    kinds = Counter(type(event) for seed in SEEDS for step in watched(seed).steps for event in step.events)
    for kind in (Preempted, SwappedOut, PrefixHit, RequestAborted):
        assert kinds[kind] >= 5, kind


def test_H7_no_slot_is_written_twice_in_a_step():
    rig = watched(seed=2)
    for step in rig.steps:
        slots = [
            (event.block, event.first + i)
            for event in step.events
            if isinstance(event, SlotsWritten)
            for i in range(event.count)
        ]
        assert len(set(slots)) == len(slots)


def test_I7_the_same_story_gives_the_same_log():
    assert run(seed=3).steps == watched(seed=3).steps
    assert watched(seed=3).steps != watched(seed=2).steps


@pytest.mark.parametrize("seed", SEEDS)
def test_I8_every_request_ends_exactly_once(seed):
    rig = watched(seed)
    ends = Counter(e.request for kind in (RequestFinished, RequestAborted) for e in rig.events(kind))
    assert ends == Counter(range(18))
