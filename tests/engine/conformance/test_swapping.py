"""E: swapping to the CPU pool (paper section 4.5). What it is for, equal keys and values, is in test_swapped_content."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.events import BlockFreed, Preempted, RequestFinished, SlotsWritten, SwappedIn, SwappedOut
from tests.engine.conformance.by_hand import Hand
from tests.engine.harness import Rig


def test_E1_a_sequence_moves_out_and_back_block_by_block_in_table_order():
    hand = Hand(4, 8, cpu_blocks=4, bytes_per_slot=100)
    sequence = hand.sequence(7)
    sequence.tokens.append(99)
    manager, request = hand.manager, hand.request
    assert (hand.free_blocks, manager.swap_space.num_free) == (3, 4)
    assert manager.can_swap_out(request)
    manager.swap_out(request)
    manager.verify([sequence])
    assert hand.events(SwappedOut) == [SwappedOut(0, [(0, 0)], 700)]
    assert (hand.free_blocks, manager.swap_space.num_free) == (4, 3)
    assert (manager.table(sequence), manager.cpu_table(sequence)) == ([], [0])
    # The eighth token, sampled already, goes into the slot that is left.
    assert manager.swap_in_need(request) == 1
    manager.swap_in(request)
    manager.verify([sequence])
    assert hand.events(SwappedIn) == [SwappedIn(0, [(0, 0)], 700)]
    assert (hand.free_blocks, manager.swap_space.num_free) == (3, 4)
    assert (manager.table(sequence), manager.cpu_table(sequence)) == ([0], [])
    moves = manager.take_moves()
    assert (moves.out, moves.back, moves.copies) == ([(0, 0, 7)], [(0, 0, 7)], [])


def test_E1_the_pairs_follow_the_table_whatever_its_numbers():
    hand = Hand(6, 4, cpu_blocks=4)
    first, second = hand.sequence(8), hand.sequence(4)
    hand.free(first)
    hand.append(6, second)
    assert hand.manager.table(second) == [2, 1, 0]
    hand.manager.swap_out(hand.request)
    assert hand.events(SwappedOut)[0].pairs == [(2, 0), (1, 1), (0, 2)]


def test_E2_blocks_that_siblings_share_move_once_and_are_shared_again_after():
    hand = Hand(10, 4, cpu_blocks=10)
    parent = hand.sequence(8)
    child = hand.fork(parent)
    hand.append(2, parent, child)
    assert [one.table.blocks for one in (parent, child)] == [[0, 1, 2], [0, 1, 3]]
    hand.manager.swap_out(hand.request)
    hand.manager.verify([parent, child])
    assert hand.events(SwappedOut)[0].pairs == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [hand.manager.cpu_table(one) for one in (parent, child)] == [[0, 1, 2], [0, 1, 3]]
    assert [block.refs for block in hand.manager.cpu_blocks()] == [2, 2, 1, 1]
    assert (hand.free_blocks, hand.manager.swap_space.num_free) == (10, 6)
    hand.manager.swap_in(hand.request)
    hand.manager.verify([parent, child])
    tables = [one.table.blocks for one in (parent, child)]
    assert len(hand.events(SwappedIn)[0].pairs) == 4
    assert tables[0][:2] == tables[1][:2]
    assert tables[0][2] != tables[1][2]
    assert [[hand.refs[block] for block in table] for table in tables] == [[2, 2, 1], [2, 2, 1]]
    assert (hand.free_blocks, hand.manager.swap_space.num_free) == (6, 10)


def groups(preemption: str, cpu_blocks: int, n: int = 2) -> Rig:
    """Two requests in too little memory, run to their end."""
    rig = Rig(10, 4, cpu_blocks=cpu_blocks, preemption=preemption)
    rig.submit(10, max_tokens=15, n=n, temperature=float(n > 1))
    rig.submit(9, max_tokens=15, n=n, temperature=float(n > 1))
    rig.run(limit=100)
    return rig


@pytest.mark.parametrize("cpu_blocks", [0, 1, 3])
def test_E6_a_cpu_pool_without_room_falls_back_to_recomputation(cpu_blocks):
    rig = groups("swap", cpu_blocks)
    assert {event.mode for event in rig.events(Preempted)} == {"recompute"}
    assert [(e.request, e.reason, e.output_tokens) for e in rig.events(RequestFinished)] == [
        (0, "length", 30),
        (1, "length", 30),
    ]
    assert rig.free == 10


def test_E7_swapped_slots_are_not_computed_again():
    rig = groups("swap", 10)
    [out], [back] = rig.events(SwappedOut), rig.events(SwappedIn)
    assert [cpu for _, cpu in out.pairs] == [cpu for cpu, _ in back.pairs]
    # Prompt and outputs but the last, the prompt once for both samples: nothing is written twice.
    written = sum(event.count for event in rig.events(SlotsWritten))
    assert written == (10 + 2 * 14) + (9 + 2 * 14)


@pytest.mark.parametrize(("n", "mode"), [(1, "recompute"), (2, "swap")])
def test_E8_auto_recomputes_single_sequences_and_swaps_groups(n, mode):
    rig = groups("auto", 10, n)
    assert {event.mode for event in rig.events(Preempted)} == {mode}


@pytest.mark.parametrize(("preemption", "mode"), [("recompute", "recompute"), ("swap", "swap")])
@pytest.mark.parametrize("n", [1, 2])
def test_the_mode_asked_for_is_kept(preemption, mode, n):
    assert {event.mode for event in groups(preemption, 10, n).events(Preempted)} == {mode}


def test_nobody_is_admitted_while_somebody_is_swapped_out():
    rig = Rig(10, 4, cpu_blocks=10, preemption="swap")
    rig.submit(18, max_tokens=20)
    victim = rig.submit(15, max_tokens=20)
    while not rig.swapped():
        rig.step()
    newcomer = rig.submit(1, max_tokens=1)
    assert rig.free > 0
    while rig.swapped():
        assert rig.waiting() == [newcomer]
        rig.step()
    assert [event.request for event in rig.last(SwappedIn)] == [victim]
    rig.run()
    order = [event.request for event in rig.events(RequestFinished)]
    assert order == [0, newcomer, victim]


def test_an_abort_gives_back_the_cpu_blocks():
    rig = Rig(10, 4, cpu_blocks=10)
    first = rig.submit(10, max_tokens=15, n=2, temperature=1.0)
    second = rig.submit(9, max_tokens=15, n=2, temperature=1.0)
    while not rig.swapped():
        rig.step()
    assert rig.swapped() == [second]
    space = rig.arena.manager.swap_space
    assert space.num_free < 10
    rig.abort(second)
    assert (space.num_free, rig.swapped()) == (10, [])
    rig.abort(first)
    assert rig.free == 10


def test_what_is_freed_by_swapping_out_is_used_in_the_same_step_and_the_copy_comes_first():
    rig = Rig(10, 4, cpu_blocks=10, preemption="swap")
    rig.submit(20, max_tokens=20)
    rig.submit(20, max_tokens=20)
    rig.step()
    rig.step()
    [out] = rig.last(SwappedOut)
    freed = [event.block for event in rig.last(BlockFreed)]
    assert freed == [block for block, _ in reversed(out.pairs)]
    moves = rig.moves[-1]
    assert [source for source, _, _ in moves.out] == [block * 4 for block, _ in out.pairs]
    assert all(a < b for a, b in pairwise([target for _, target, _ in moves.out]))
    assert rig.tables(0) == [[0, 1, 2, 3, 4, 9]]


def test_a_prompt_swapped_out_half_way_comes_back_only_where_all_of_it_fits():
    rig = Rig(10, 4, cpu_blocks=10, preemption="swap", budget=28)
    rig.submit(4, max_tokens=20)
    rig.submit(8, max_tokens=11)
    half = rig.submit(28, max_tokens=2)
    rig.step()
    rig.budget = 2
    while rig.arena.requests[1].status == "running":
        rig.step()
    # Its four blocks and the next one would fit, but not the three that the rest of its prompt takes.
    assert (rig.swapped(), rig.free) == ([half], 6)
    rig.budget = 100
    rig.run()
    assert [(e.request, e.reason) for e in rig.events(RequestFinished)] == [
        (1, "length"),
        (0, "length"),
        (half, "length"),
    ]


def test_a_recomputed_group_swapped_out_before_it_has_forked_again_needs_room_for_all_its_sequences():
    hand = Hand(10, 4, cpu_blocks=10)
    leader = hand.sequence(4)
    leader.tokens += [1, 2, 3, 4, 5]
    hand.request.trunk = 8
    siblings = [hand.sequence(0), hand.sequence(0)]
    for sibling in siblings:
        sibling.tokens = [*leader.tokens[:8], 6]
    hand.manager.swap_out(hand.request)
    # One block comes back, the leader's other two, and a third block for each of the two that will share the first two.
    assert hand.manager.swap_in_need(hand.request) == 1 + 2 + 2
    hand.manager.swap_in(hand.request)
    hand.manager.verify([leader, *siblings])
    assert (leader.table.blocks, hand.free_blocks) == ([0], 9)
