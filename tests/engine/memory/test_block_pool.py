import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.memory.block_pool import BlockPool
from engine.memory.free_list import OutOfBlocks


def digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def pool_with_evictions(num_blocks: int) -> tuple[BlockPool, list[tuple[int, bytes]]]:
    pool = BlockPool(num_blocks)
    evicted: list[tuple[int, bytes]] = []
    pool.on_evict = lambda block, gone: evicted.append((block, gone))
    return pool, evicted


def test_blocks_are_numbered_from_0_and_handed_out_in_order():
    pool = BlockPool(4)
    assert pool.allocate(3) == [0, 1, 2]
    assert (pool.num_free, list(pool.refs)) == (1, [1, 1, 1, 0])
    assert pool.allocate(0) == []


def test_asking_for_too_many_changes_nothing():
    pool, evicted = pool_with_evictions(4)
    table = pool.allocate(3)
    pool.register(0, digest(7))
    pool.release(table[:2])
    with pytest.raises(OutOfBlocks, match="4 blocks asked for, 3 of 4 free"):
        pool.allocate(4)
    assert (pool.free_order(), list(pool.refs)) == ([1, 3, 0], [0, 0, 1, 0])
    assert (pool.hash_of(0), pool.lookup(digest(7)), evicted) == (digest(7), 0, [])


def test_a_negative_number_of_blocks_is_refused():
    pool = BlockPool(4)
    with pytest.raises(ValueError, match="-1 blocks asked for"):
        pool.allocate(-1)
    assert (pool.num_free, pool.free_order()) == (4, [0, 1, 2, 3])


def test_usage():
    pool = BlockPool(10)
    assert pool.usage == 0.0
    pool.allocate(4)
    assert pool.usage == pytest.approx(0.4)


def test_freed_blocks_are_reused_first_and_in_the_order_released():
    pool = BlockPool(10)
    table = pool.allocate(4)
    assert pool.release(reversed(table)) == [(3, 0), (2, 0), (1, 0), (0, 0)]
    assert pool.free_order() == [3, 2, 1, 0, 4, 5, 6, 7, 8, 9]


def test_freed_blocks_with_a_hash_are_reused_last_the_tail_of_a_table_before_its_head():
    pool, evicted = pool_with_evictions(6)
    table = pool.allocate(4)
    assert [pool.register(block, digest(block)) for block in (0, 1, 2)] == [True] * 3
    pool.release(reversed(table))
    assert pool.free_order() == [3, 4, 5, 2, 1, 0]
    assert pool.allocate(5) == [3, 4, 5, 2, 1]
    assert evicted == [(2, digest(2)), (1, digest(1))]
    assert [pool.hash_of(block) for block in range(4)] == [digest(0), None, None, None]
    assert [pool.lookup(digest(block)) for block in range(3)] == [0, None, None]


def test_blocks_come_in_the_order_of_the_free_list():
    pool = BlockPool(6)
    pool.allocate(6)
    pool.release([1, 3, 5, 4, 0, 2])
    assert pool.free_order() == [1, 3, 5, 4, 0, 2]
    assert [pool.allocate(count) for count in range(4)] == [[], [1], [3, 5], [4, 0, 2]]


def test_blocks_with_a_hash_are_appended_and_others_prepended():
    pool = BlockPool(6)
    for block in pool.allocate(6):
        pool.register(block, digest(block))
    for freed in ([0], [4, 5], [1, 2, 3], []):
        pool.release(freed)
    assert pool.free_order() == [0, 4, 5, 1, 2, 3]
    assert pool.allocate(6) == [0, 4, 5, 1, 2, 3]
    pool.register(0, digest(0))
    for freed in ([0], [4, 5], [1, 2], []):
        pool.release(freed)
    assert pool.free_order() == [1, 2, 4, 5, 0]


def test_one_allocation_takes_empty_blocks_and_then_evicts():
    pool, evicted = pool_with_evictions(4)
    pool.allocate(4)
    pool.register(1, digest(1))
    pool.register(2, digest(2))
    pool.release([1, 0, 2])
    assert pool.allocate(2) == [0, 1]
    assert evicted == [(1, digest(1))]
    assert pool.free_order() == [2]


def test_a_shared_block_is_freed_with_its_last_reference():
    pool = BlockPool(2)
    [block] = pool.allocate()
    assert pool.share(block) == 2
    assert pool.release([block]) == [(block, 1)]
    assert not pool.is_free(block)
    assert pool.release([block]) == [(block, 0)]
    assert pool.is_free(block)


def test_a_free_block_with_a_hash_is_shared_out_of_the_middle_of_the_free_list():
    pool, evicted = pool_with_evictions(4)
    pool.release(block for block in pool.allocate(3) if pool.register(block, digest(block)))
    assert pool.free_order() == [3, 0, 1, 2]
    assert pool.share(1) == 1
    assert (pool.free_order(), pool.hash_of(1), evicted) == ([3, 0, 2], digest(1), [])


def test_double_free_and_sharing_a_free_block_are_refused():
    pool = BlockPool(3)
    with pytest.raises(ValueError, match="double free: block 0 has no reference left"):
        pool.release([0])
    with pytest.raises(ValueError, match="block 1 is free and without a hash, so it cannot be shared"):
        pool.share(1)
    assert (pool.free_order(), list(pool.refs)) == ([0, 1, 2], [0, 0, 0])
    [block] = pool.allocate()
    with pytest.raises(ValueError, match="double free: block 0"):
        pool.release([block, block])
    assert (pool.free_order(), list(pool.refs)) == ([0, 1, 2], [0, 0, 0])


@pytest.mark.parametrize("block", [-1, 2])
def test_blocks_that_do_not_exist_are_refused(block):
    pool = BlockPool(2)
    pool.allocate(2)
    for call in (pool.share, pool.is_free, pool.hash_of, lambda b: pool.register(b, digest(1))):
        with pytest.raises(IndexError, match=f"block {block} does not exist: numbers run from 0 to 1"):
            call(block)
    with pytest.raises(IndexError):
        pool.release([block])
    assert (list(pool.refs), pool.num_free, pool.lookup(digest(1))) == ([1, 1], 0, None)


def test_one_block_for_a_hash_and_one_hash_for_a_block():
    pool = BlockPool(3)
    pool.allocate(2)
    assert pool.register(0, digest(1))
    assert pool.register(0, digest(1))
    assert not pool.register(1, digest(1))
    assert (pool.hash_of(0), pool.hash_of(1), pool.lookup(digest(1))) == (digest(1), None, 0)
    with pytest.raises(ValueError, match=r"block 0 has the hash 0+1 and cannot take 0+2"):
        pool.register(0, digest(2))
    with pytest.raises(ValueError, match="block 2 is free and holds nothing to be found again"):
        pool.register(2, digest(3))
    assert (pool.lookup(digest(2)), pool.lookup(digest(3))) == (None, None)


def test_the_cache_is_reset_only_when_no_block_is_in_use():
    pool, evicted = pool_with_evictions(3)
    table = pool.allocate(2)
    for block in table:
        pool.register(block, digest(block))
    pool.release(table[:1])
    assert not pool.reset_cache()
    assert (pool.hash_of(0), pool.lookup(digest(1)), evicted) == (digest(0), 1, [])
    pool.release(table[1:])
    assert pool.reset_cache()
    assert evicted == [(0, digest(0)), (1, digest(1))]
    assert [pool.hash_of(block) for block in range(3)] == [pool.lookup(digest(n)) for n in range(3)] == [None] * 3
    assert pool.free_order() == [2, 0, 1]


def test_an_empty_pool_is_refused():
    with pytest.raises(ValueError, match="a pool of 0 blocks"):
        BlockPool(0)


def test_a_million_empty_blocks_take_28_bytes_each():
    """8 for the count, 4 for the stack and 16 for the links of the free list; a hash takes memory when a block has one."""
    tracemalloc.start()
    try:
        pool = BlockPool(1_000_000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert pool.num_free == 1_000_000
    assert 28_000_000 <= size < 28_010_000


class PoolAgainstModel(RuleBasedStateMachine):
    """The pool beside tables of blocks, a plain list of the free ones and a dictionary of the hashes."""

    SIZE = 6

    def __init__(self):
        super().__init__()
        self.pool, self.evicted = pool_with_evictions(self.SIZE)
        self.tables: list[list[int]] = [[]]
        self.free = list(range(self.SIZE))
        self.hashes: dict[int, bytes] = {}

    def count(self, block: int) -> int:
        return sum(table.count(block) for table in self.tables)

    @rule(data=st.data(), count=st.integers(0, 4))
    def allocate(self, data, count):
        table = data.draw(st.sampled_from(self.tables))
        self.evicted.clear()
        if count > len(self.free):
            with pytest.raises(OutOfBlocks):
                self.pool.allocate(count)
            return
        expected, self.free = self.free[:count], self.free[count:]
        assert self.pool.allocate(count) == expected
        assert self.evicted == [(block, self.hashes.pop(block)) for block in expected if block in self.hashes]
        table += expected

    @rule(data=st.data())
    def fork(self, data):
        table = data.draw(st.sampled_from(self.tables))
        self.tables.append([])
        for block in table:
            self.tables[-1].append(block)
            assert self.pool.share(block) == self.count(block)

    @rule(data=st.data())
    def free_a_table(self, data):
        table = data.draw(st.sampled_from(self.tables))
        released, expected = list(reversed(table)), []
        while table:
            block = table.pop()
            expected.append((block, self.count(block)))
        self.put_back([block for block, refs in expected if refs == 0])
        assert self.pool.release(released) == expected

    def put_back(self, blocks: list[int]) -> None:
        empty = [block for block in blocks if block not in self.hashes]
        self.free = empty + self.free + [block for block in blocks if block in self.hashes]

    @rule(block=st.integers(0, SIZE - 1), number=st.integers(0, 4))
    def register(self, block, number):
        hashed = self.hashes.get(block)
        if not self.count(block) or (hashed and hashed != digest(number)):
            with pytest.raises(ValueError, match=f"block {block} "):
                self.pool.register(block, digest(number))
        else:
            taken = digest(number) in self.hashes.values() and not hashed
            assert self.pool.register(block, digest(number)) is not taken
            if not taken:
                self.hashes[block] = digest(number)

    @rule(data=st.data(), number=st.integers(0, 4))
    def hit(self, data, number):
        block = self.pool.lookup(digest(number))
        assert block == next((block for block, hashed in self.hashes.items() if hashed == digest(number)), None)
        if block is not None:
            data.draw(st.sampled_from(self.tables)).append(block)
            assert self.pool.share(block) == self.count(block)
            if block in self.free:
                self.free.remove(block)

    @precondition(lambda self: any(block not in self.hashes for block in self.free))
    @rule()
    def misuse(self):
        block = next(block for block in self.free if block not in self.hashes)
        with pytest.raises(ValueError, match="cannot be shared"):
            self.pool.share(block)
        with pytest.raises(ValueError, match="double free"):
            self.pool.release([block])

    @rule()
    def reset(self):
        idle = len(self.free) == self.SIZE
        assert self.pool.reset_cache() is idle
        if idle:
            self.hashes.clear()

    @invariant()
    def counts_are_occurrences(self):
        assert list(self.pool.refs) == [self.count(block) for block in range(self.SIZE)]

    @invariant()
    def free_and_used_make_up_the_pool(self):
        used = {block for table in self.tables for block in table}
        assert self.pool.free_order() == self.free
        assert len(self.free) == self.pool.num_free == self.SIZE - len(used)
        assert [self.pool.is_free(block) for block in range(self.SIZE)] == [
            block not in used for block in range(self.SIZE)
        ]

    @invariant()
    def hashes_and_blocks_are_inverse(self):
        assert {b: self.pool.hash_of(b) for b in range(self.SIZE) if self.pool.hash_of(b)} == self.hashes
        found = [(self.pool.lookup(digest(number)), digest(number)) for number in range(5)]
        assert {block: hashed for block, hashed in found if block is not None} == self.hashes


PoolAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_the_pool_behaves_like_the_model = PoolAgainstModel.TestCase
