"""Static batching: who may join, and what a member that has finished costs until the batch ends."""

from __future__ import annotations

from engine.events import BlockAllocated, BlockCopied, BlockReleased, RegionFreed, RegionReserved, ReservationFailed
from tests.engine.memory.region_rig import RegionRig


def batch(capacity: int = 64, max_len: int = 10) -> RegionRig:
    return RegionRig("static_batch", capacity, max_len)


def test_every_member_reserves_the_maximum_and_a_whole_batch_is_gathered():
    rig = batch()
    for number in range(4):
        rig.admit(3, 2)
        assert rig.events(RegionReserved)[-1] == RegionReserved(number, 16 * number, 16, 10)
    assert rig.manager.gathers
    assert rig.parts() == (0, 0, 4 * 4, 4 * 6, 4 * 6, 0)
    assert not rig.try_admit(rig.request(3, 2))
    assert rig.events(ReservationFailed) == [ReservationFailed(4, 10, 1, 0, 0)]


def test_nobody_joins_once_the_batch_has_run_until_all_have_ended():
    rig = batch()
    first, second = rig.admit(3, 2), rig.admit(3, 5)
    late = rig.request(3, 2)
    rig.forward(*first.sequences, *second.sequences)
    assert rig.manager.fits(late, 0)
    assert not rig.try_admit(late)
    rig.end(first)
    assert not rig.try_admit(late)
    rig.forward(*second.sequences)
    assert not rig.try_admit(late)
    # There is room: the door is closed, and no reservation has failed.
    assert rig.events(ReservationFailed) == []
    rig.end(second)
    assert rig.try_admit(late)
    assert rig.events(BlockAllocated)[-1] == BlockAllocated(0, 2, 0)
    rig.admit(3, 2)


def test_a_finished_members_slots_are_internal_until_the_batch_ends():
    rig = batch()
    first, second = rig.admit(3, 2), rig.admit(4, 5, known=False)
    rig.forward(*first.sequences, *second.sequences)
    rig.forward(*first.sequences)
    # 4 written of the first one's 4, 4 of the second one's unknown.
    assert rig.parts() == (8, 6, 0, 6, 12, 32)
    told = len(rig.log)
    rig.end(first)
    assert rig.log[told:] == []
    assert rig.parts() == (4, 6, 0, 10, 12, 32)
    assert rig.manager.table(first.sequences[0]) == [0]
    assert [(state.refs, len(state.tokens)) for state in rig.manager.blocks()] == [(1, 4), (1, 4)]
    rig.end(second)
    assert rig.log[told:] == [
        BlockReleased(0, 0, 0),
        RegionFreed(0, 0, 16),
        BlockReleased(16, 1, 0),
        RegionFreed(1, 16, 16),
    ]
    assert rig.parts() == (0, 0, 0, 0, 0, 64)
    assert [(s.table.blocks, s.computed) for s in rig.sequences] == [([], 0), ([], 0)]


def test_a_member_aborted_before_anything_ran_stays_with_its_batch():
    rig = batch()
    first, second = rig.admit(3, 2), rig.admit(3, 2)
    rig.end(first)
    assert rig.parts() == (0, 0, 4, 10 + 6, 12, 32)
    third = rig.admit(3, 2)
    assert rig.manager.table(third.sequences[0]) == [32]
    rig.forward(*second.sequences, *third.sequences)
    assert not rig.try_admit(rig.request(3, 2))
    rig.end(second)
    assert not rig.events(RegionFreed)
    rig.end(third)
    assert [event.start for event in rig.events(RegionFreed)] == [0, 16, 32]


def test_a_batch_that_is_aborted_before_it_ran_leaves_nothing():
    rig = batch(capacity=16)
    rig.end(rig.admit(3, 2))
    assert rig.parts() == (0, 0, 0, 0, 0, 16)
    rig.admit(3, 2)


def test_one_that_waits_and_is_aborted_ends_no_batch():
    rig = batch()
    member, waiting = rig.admit(3, 2), rig.request(3, 2)
    rig.forward(*member.sequences)
    rig.end(waiting)
    assert not rig.events(RegionFreed)
    assert not rig.try_admit(rig.request(3, 2))
    rig.end(member)
    assert [event.request for event in rig.events(RegionFreed)] == [0]


def test_a_group_in_a_batch():
    rig = batch()
    group, other = rig.admit(3, 4, n=3), rig.admit(3, 7)
    leader = group.sequences[0]
    rig.forward(leader, *other.sequences)
    rig.fork(leader)
    rig.forward(*group.sequences)
    assert rig.events(BlockCopied) == [BlockCopied(0, [16], 3)]
    rig.finish(leader)
    # Two samples, one finished, and a region that no sample ever took: 10 spent, 4 of 6 written, 6 promised.
    assert rig.parts() == (4 + 3, 0, 2 + 6 + 6, 10 + 4 + 4 + 1, 24, 0)
    rig.end(group)
    assert rig.parts() == (3, 0, 6, 30 + 1, 24, 0)
    rig.end(other)
    assert rig.parts() == (0, 0, 0, 0, 0, 64)


def test_dropped_beams_hand_their_regions_on_within_a_batch():
    rig = batch()
    request = rig.admit(3, 4, n=2, beam=True)
    rig.forward(request.sequences[0])
    [child] = rig.branch([request.sequences[0]], [])
    rig.forward(*request.live)
    told = len(rig.log)
    rig.branch([request.sequences[0]], [child])
    assert rig.log[told:] == [BlockReleased(16, 1, 0), BlockAllocated(16, 2, 0)]
    rig.forward(*request.live)
    assert rig.parts() == (10, 10, 0, 0, 12, 32)
    rig.end(request)
    assert rig.parts() == (0, 0, 0, 0, 0, 64)
