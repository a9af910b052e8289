import pytest

from engine.block_pool import BlockPool
from engine.block_table import BlockTable, blocks_for
from engine.free_list import OutOfBlocks


def test_blocks_are_numbered_from_0_and_handed_out_in_order():
    pool = BlockPool(4)
    assert pool.allocate(3) == [0, 1, 2]
    assert (pool.num_free, pool.refs) == (1, [1, 1, 1, 0])


def test_asking_for_too_many_changes_nothing():
    pool = BlockPool(4)
    pool.allocate(2)
    with pytest.raises(OutOfBlocks, match="3 blocks asked for, 2 of 4 free"):
        pool.allocate(3)
    assert (pool.free_order(), pool.refs) == ([2, 3], [1, 1, 0, 0])


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


def test_a_shared_block_is_freed_with_its_last_reference():
    pool = BlockPool(2)
    [block] = pool.allocate()
    assert pool.share(block) == 2
    assert pool.release([block]) == [(block, 1)]
    assert not pool.is_free(block)
    assert pool.release([block]) == [(block, 0)]
    assert pool.is_free(block)


def test_double_free_and_sharing_a_free_block_are_refused():
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="double free: block 0"):
        pool.release([0])
    with pytest.raises(ValueError, match="block 1 is free and cannot be shared"):
        pool.share(1)
    assert pool.free_order() == [0, 1]


def test_an_empty_pool_is_refused():
    with pytest.raises(ValueError, match="a pool of 0 blocks"):
        BlockPool(0)


@pytest.mark.parametrize(
    ("tokens", "size", "blocks"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (7, 1, 7), (129, 8, 17)]
)
def test_blocks_for(tokens, size, blocks):
    assert blocks_for(tokens, size) == blocks


def test_block_table_of_figure_6():
    """The paper's seven-token prompt: logical 0, 1 -> physical 7, 1; one free slot, then a third block."""
    table = BlockTable(4)
    assert table.missing(7) == 2
    table.blocks, table.slots = [7, 1], 7
    assert [table.filled(0), table.filled(1)] == [4, 3]
    assert table.missing(8) == 0
    assert table.missing(9) == 1
    assert table.locate(6) == (1, 2)
    assert table.runs(0, 7) == [(7, 0, 4), (1, 0, 3)]
    assert table.runs(2, 3) == [(7, 2, 2), (1, 0, 1)]
    with pytest.raises(IndexError):
        table.locate(8)
