import pytest

from engine.memory.block_table import BlockTable, blocks_for


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
