import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory.free_list import FreeList, OutOfBlocks


def listing(size: int, blocks: list[int]) -> FreeList:
    free = FreeList(size)
    free.extend(blocks)
    return free


def test_pop_remove_extend_and_the_end():
    blocks = listing(5, [0, 1, 2, 3, 4])
    assert blocks.pop() == 0
    blocks.remove(2)
    assert (list(blocks), len(blocks)) == ([1, 3, 4], 3)
    blocks.extend([2])
    assert list(blocks) == [1, 3, 4, 2]
    assert [blocks.pop() for _ in range(4)] == [1, 3, 4, 2]
    with pytest.raises(OutOfBlocks, match="no free blocks"):
        blocks.pop()
    assert (list(blocks), len(blocks)) == ([], 0)


def test_blocks_are_put_at_the_end_in_their_order():
    blocks = listing(6, [0])
    for group in ([4, 5], [], [1, 2, 3]):
        blocks.extend(group)
    assert (list(blocks), len(blocks)) == ([0, 4, 5, 1, 2, 3], 6)


def test_popped_blocks_keep_no_links():
    blocks = listing(6, [1, 3, 5, 4, 0, 2])
    assert [blocks.pop() for _ in range(6)] == [1, 3, 5, 4, 0, 2]
    assert blocks._next[:6] == blocks._previous[:6] == [-1] * 6


def test_a_block_is_listed_once():
    blocks = listing(3, [0, 1, 2])
    with pytest.raises(ValueError, match="block 1 is on the free list already"):
        blocks.extend([1])
    blocks.remove(1)
    with pytest.raises(ValueError, match="block 1 is not on the free list"):
        blocks.remove(1)
    for absent in (-1, 3):
        with pytest.raises(ValueError, match=f"block {absent} does not exist: numbers run from 0 to 2"):
            blocks.extend([absent])
        with pytest.raises(ValueError, match=f"block {absent} is not on the free list"):
            blocks.remove(absent)
    assert (list(blocks), len(blocks)) == ([0, 2], 2)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["pop", "remove", "extend"]), st.integers(0, 5)), max_size=40))
def test_it_behaves_like_a_plain_list(actions):
    blocks, model = FreeList(6), []
    for action, block in actions:
        if action == "pop" and model:
            assert blocks.pop() == model.pop(0)
        elif action == "remove" and block in model:
            blocks.remove(block)
            model.remove(block)
        elif action == "extend" and block not in model:
            blocks.extend([block])
            model.append(block)
        assert (list(blocks), len(blocks)) == (model, len(model))
