"""D: fork, copy-on-write and parallel sampling (paper sections 4.4 and 5.2)."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.events import BlockAllocated, BlockCopied, BlockFreed, BlockReleased, BlockShared, SlotsWritten
from engine.memory.block_table import blocks_for
from tests.engine.conformance.by_hand import Hand
from tests.engine.harness import Rig


def copies(events) -> list[tuple[int, list[int]]]:
    return [(event.source, event.destinations) for event in events if isinstance(event, BlockCopied)]


@pytest.mark.parametrize("block_size", [1, 8])
@pytest.mark.parametrize("length", [1, 9, 129])
def test_D1_a_fork_shares_every_block_and_allocates_none(length, block_size):
    hand = Hand(200, block_size)
    parent = hand.sequence(length)
    blocks = blocks_for(length, block_size)
    child = hand.fork(parent)
    assert hand.free_blocks == 200 - blocks
    assert child.table.blocks == parent.table.blocks == list(range(blocks))
    assert hand.refs[:blocks] == [2] * blocks
    hand.free(parent)
    assert hand.free_blocks == 200 - blocks
    assert child.table.blocks == list(range(blocks))
    hand.free(child)
    assert hand.free_blocks == 200


@pytest.mark.parametrize("writer", ["child", "parent"])
@pytest.mark.parametrize(
    ("length", "more", "copied", "consumed"),
    [
        (1, 1, 1, 1),
        (1, 16, 1, 3),
        (1, 129, 1, 17),
        (16, 1, 0, 1),
        (16, 16, 0, 2),
        (16, 129, 0, 17),
        (129, 1, 1, 1),
        (129, 16, 1, 3),
        (129, 129, 1, 17),
    ],
)
def test_D2_the_writer_copies_its_last_block_and_the_other_keeps_its_table(length, more, copied, consumed, writer):
    hand = Hand(100, 8)
    parent = hand.sequence(length)
    child = hand.fork(parent)
    writing, other = (child, parent) if writer == "child" else (parent, child)
    before = list(other.table.blocks)
    free = hand.free_blocks
    events = hand.append(more, writing)
    assert copies(events) == [(before[-1], [writing.table.blocks[len(before) - 1]])] * copied
    assert free - hand.free_blocks == consumed
    assert other.table.blocks == before
    assert writing.table.blocks[: length // 8] == before[: length // 8]
    hand.free(parent)
    hand.free(child)
    assert hand.free_blocks == 100


def test_D3_the_last_one_to_write_a_shared_block_writes_it_in_place():
    hand = Hand(10, 4)
    parent = hand.sequence(6)
    child = hand.fork(parent)
    assert copies(hand.append(1, child)) == [(1, [2])]
    assert copies(hand.append(1, parent)) == []
    assert (parent.table.blocks, child.table.blocks) == ([0, 1], [0, 2])
    assert hand.refs[:3] == [2, 1, 1]


def test_D4_four_samples_copy_a_partial_last_block_three_times():
    rig = Rig(20, 4)
    number = rig.submit(10, n=4, temperature=1.0)
    rig.step()
    assert rig.tables(number) == [[0, 1, 2]] * 4
    assert rig.pool.refs[:3] == [4, 4, 4]
    rig.step()
    assert copies(rig.last(BlockCopied)) == [(2, [3, 4, 5])]
    assert rig.tables(number) == [[0, 1, 3], [0, 1, 4], [0, 1, 5], [0, 1, 2]]
    assert 20 - rig.free == 6


def test_D4_four_samples_of_a_full_last_block_copy_nothing():
    rig = Rig(20, 4)
    number = rig.submit(12, n=4, temperature=1.0)
    rig.step()
    rig.step()
    assert rig.events(BlockCopied) == []
    assert rig.tables(number) == [[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 5], [0, 1, 2, 6]]
    assert 20 - rig.free == 7


def test_D5_copies_of_a_step_come_before_its_writes_and_never_chain():
    rig = Rig(60, 4)
    first = rig.submit(10, n=4, temperature=1.0)
    second = rig.submit(7, n=3, temperature=1.0)
    rig.step()
    rig.step()
    # One event for each source, with all its destinations.
    assert sorted(copies(rig.last(BlockCopied))) == [(2, [5, 6, 7]), (4, [8, 9])]
    events = rig.steps[-1].events
    assert max(i for i, event in enumerate(events) if isinstance(event, BlockCopied)) < min(
        i for i, event in enumerate(events) if isinstance(event, SlotsWritten)
    )
    [(moves, _)] = [(moves, i) for i, moves in enumerate(rig.moves) if moves.copies]
    sources = {source for source, _, _ in moves.copies}
    targets = [target for _, target, _ in moves.copies]
    assert len(set(targets)) == len(targets) == 5
    assert not sources & set(targets)
    assert {count for source, _, count in moves.copies if source == 2 * 4} == {2}
    rig.abort(first)
    rig.abort(second)
    assert rig.free == 60


def test_D7_a_step_of_beam_search_forks_before_it_frees():
    hand = Hand(20, 4)
    best = hand.sequence(12)
    beams = [best, *(hand.fork(best) for _ in range(3))]
    hand.append(1, *beams)
    assert [beam.table.blocks for beam in beams] == [[0, 1, 2, own] for own in (3, 4, 5, 6)]
    refs = Counter(dict.fromkeys((0, 1, 2), 4)) + Counter(dict.fromkeys((3, 4, 5, 6), 1))
    events = hand.branch(forks=[best, best], dropped=[beams[2], beams[3]])
    lowest = Counter(refs)
    for event in events:
        match event:
            case BlockShared():
                refs[event.block] += 1
            case BlockReleased():
                refs[event.block] -= 1
        lowest = lowest & refs
    assert [lowest[block] for block in (0, 1, 2)] == [4, 4, 4]
    assert [event.block for event in events if isinstance(event, BlockFreed)] == [5, 6]
    assert hand.refs[:7] == [4, 4, 4, 3, 1, 0, 0]
    assert hand.free_blocks == 15


@pytest.mark.parametrize("kind", [{"temperature": 1.0}, {"beam_search": True}])
def test_D8_an_abort_frees_all_siblings(kind):
    rig = Rig(20, 4)
    number = rig.submit(10, n=4, **kind)
    for _ in range(3):
        rig.step()
    assert rig.free < 17
    rig.abort(number)
    assert rig.free == 20
    assert rig.pool.refs == [0] * 20


def test_a_write_into_a_fresh_block_of_a_group_needs_no_copy_even_where_all_else_is_shared():
    hand = Hand(10, 4)
    parent = hand.sequence(4)
    child = hand.fork(parent)
    hand.append(1, parent, child)
    assert hand.events(BlockCopied) == []
    assert [(event.block, event.sequence, event.logical) for event in hand.events(BlockAllocated)] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 1),
    ]
