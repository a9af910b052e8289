import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.free_list import FreeList, OutOfBlocks


def test_pop_remove_append_and_the_end():
    blocks = FreeList(5)
    assert blocks.pop() == 0
    blocks.remove(2)
    assert (list(blocks), len(blocks)) == ([1, 3, 4], 3)
    blocks.append([2])
    assert [blocks.pop() for _ in range(4)] == [1, 3, 4, 2]
    with pytest.raises(OutOfBlocks, match="no free blocks"):
        blocks.pop()
    assert len(blocks) == 0


def test_popped_blocks_keep_no_links():
    blocks = FreeList(6, [1, 3, 5, 4, 0, 2])
    assert [blocks.pop() for _ in range(6)] == [1, 3, 5, 4, 0, 2]
    assert blocks._next[:6] == blocks._previous[:6] == [-1] * 6


def test_append_and_prepend_keep_the_order_given():
    blocks = FreeList(6, [0])
    blocks.append([4, 5])
    blocks.append([1, 2, 3])
    assert list(blocks) == [0, 4, 5, 1, 2, 3]
    blocks = FreeList(6, [0])
    blocks.prepend([4, 5])
    blocks.prepend([1, 2])
    assert list(blocks) == [1, 2, 4, 5, 0]
    blocks.append([])
    blocks.prepend([])
    assert list(blocks) == [1, 2, 4, 5, 0]


def test_a_block_is_listed_once():
    blocks = FreeList(3)
    with pytest.raises(ValueError, match="block 1 is on the free list already"):
        blocks.append([1])
    blocks.remove(1)
    with pytest.raises(ValueError, match="block 1 is not on the free list"):
        blocks.remove(1)
    with pytest.raises(ValueError, match="block 3 does not exist: numbers run from 0 to 2"):
        blocks.prepend([3])
    assert list(blocks) == [0, 2]


@given(st.lists(st.tuples(st.sampled_from(["pop", "remove", "append", "prepend"]), st.integers(0, 7)), max_size=60))
def test_it_behaves_like_a_plain_list(actions):
    blocks, model = FreeList(8), list(range(8))
    for action, block in actions:
        if action == "pop" and model:
            assert blocks.pop() == model.pop(0)
        elif action == "remove" and block in model:
            blocks.remove(block)
            model.remove(block)
        elif action in ("append", "prepend") and block not in model:
            getattr(blocks, action)([block])
            model.insert(len(model) if action == "append" else 0, block)
        assert list(blocks) == model
        assert len(blocks) == len(model)
        assert all((block in blocks) == (block in model) for block in range(8))
