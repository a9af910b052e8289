"""The Orca baselines: what they reserve, and what it wastes."""

from __future__ import annotations

import re

import pytest

from engine.events import (
    BlockAllocated,
    BlockCopied,
    BlockReleased,
    RegionFreed,
    RegionReserved,
    ReservationFailed,
    SlotsWritten,
)
from engine.memory.buddy_allocator import NoRegion
from engine.memory.region_manager import RegionManager
from tests.engine.memory.region_rig import RegionRig


@pytest.mark.parametrize(
    ("max_len", "prompt", "outputs", "parts"), [(2048, 7, 4, (8, 0, 2, 2038, 0, 0)), (512, 3, 3, (4, 0, 1, 507, 0, 0))]
)
def test_figure_3_after_the_first_decode_step(max_len, prompt, outputs, parts):
    rig = RegionRig("orca_max", max_len, max_len)
    [sequence] = rig.admit(prompt, outputs).sequences
    rig.forward(sequence)
    rig.forward(sequence)
    assert rig.parts() == parts


def test_the_papers_memory_runs_seven_requests_and_what_is_left_over_is_external():
    rig = RegionRig("orca_max", 15_728, 2048)
    for _ in range(7):
        rig.admit(100, 100)
    assert rig.parts(starved=False) == (0, 0, 7 * 199, 7 * (2048 - 199), 0, 1392)
    assert not rig.try_admit(rig.request(100, 100))
    assert rig.events(ReservationFailed) == [ReservationFailed(7, 2048, 1, 1024, 1392)]
    external = rig.parts(starved=True)[4]
    assert external == 1392
    assert round(100 * external / 15_728, 2) == 8.85


@pytest.mark.parametrize(
    ("name", "outputs", "needed", "size"),
    [
        ("orca_max", 25, 1000, 1024),
        ("orca_pow2", 25, 7 + 32, 64),
        ("orca_pow2", 32, 7 + 32, 64),
        ("orca_pow2", 33, 7 + 64, 128),
        ("orca_pow2", 1, 7 + 1, 8),
        ("orca_pow2", 600, 1000, 1024),
        ("orca_oracle", 25, 31, 32),
        ("orca_oracle", 26, 32, 32),
        ("orca_oracle", 27, 33, 64),
        ("orca_oracle", 1, 7, 8),
        ("orca_oracle", 5000, 1000, 1024),
    ],
)
def test_what_each_reserves(name, outputs, needed, size):
    rig = RegionRig(name, 1024, 1000)
    request = rig.admit(7, outputs)
    assert rig.events(RegionReserved) == [RegionReserved(0, 0, size, needed)]
    assert rig.events(BlockAllocated) == [BlockAllocated(0, 0, 0)]
    final = 7 + min(outputs, 994) - 1
    assert request.most_slots == final
    assert rig.parts() == (0, 0, final, needed - final, size - needed, 1024 - size)


def test_power_of_two_wastes_the_rounding_of_the_output_and_oracle_nothing_within():
    for name, internal, external in (("orca_pow2", 8, 25), ("orca_oracle", 0, 1)):
        rig = RegionRig(name, 64, 64)
        request = rig.admit(7, 25)
        for step in range(25):
            rig.forward(*request.sequences)
            written = 7 + step
            assert rig.parts()[:5] == (written, 0, 31 - written, internal, external)
        rig.end(request)
        assert rig.parts() == (0, 0, 0, 0, 0, 64)


def test_where_the_length_is_not_known_all_unwritten_slots_are_held():
    rig = RegionRig("orca_oracle", 64, 64)
    request = rig.admit(7, 25, n=2, known=False)
    rig.forward(request.sequences[0], count=3)
    assert rig.parts() == (3, 28 + 31, 0, 0, 2, 0)


def test_a_sequence_is_one_contiguous_block_at_the_regions_start():
    rig = RegionRig("orca_max", 64, 20)
    rig.admit(5, 4)
    [sequence] = rig.admit(5, 4).sequences
    rig.forward(sequence, count=2)
    table = sequence.table
    assert (table.block_size, table.blocks, table.offset, table.slots) == (32, [0], 32, 2)
    assert rig.manager.table(sequence) == [32]
    assert rig.events(SlotsWritten) == [SlotsWritten(32, 0, 2, [1000, 1001], ["1000", "1001"])]
    rig.forward(sequence)
    assert rig.events(SlotsWritten)[-1] == SlotsWritten(32, 2, 3, [1002, 1003, 1004], ["1002", "1003", "1004"])
    state = rig.manager.blocks()[1]
    assert (state.block, state.refs, state.size, state.needed, state.request) == (32, 1, 32, 20, 1)
    assert state.tokens == [1000, 1001, 1002, 1003, 1004]


def test_a_request_gives_its_region_back_when_it_ends():
    rig = RegionRig("orca_max", 64, 32)
    rig.admit(5, 4)
    request = rig.admit(5, 4)
    rig.forward(*request.sequences)
    rig.end(request)
    assert rig.log[-2:] == [BlockReleased(32, 1, 0), RegionFreed(1, 32, 32)]
    [sequence] = request.sequences
    assert (sequence.table.blocks, sequence.table.slots, sequence.table.offset, sequence.computed) == ([], 0, 0, 0)
    assert [state.block for state in rig.manager.blocks()] == [0]


def test_a_group_gets_all_its_regions_or_none():
    rig = RegionRig("orca_max", 1024, 256)
    first = rig.admit(5, 4, n=3)
    assert [(e.start, e.size) for e in rig.events(RegionReserved)] == [(0, 256), (256, 256), (512, 256)]
    assert rig.events(BlockAllocated) == [BlockAllocated(0, 0, 0)]
    second = rig.request(5, 4, n=3)
    told = len(rig.log)
    assert not rig.try_admit(second)
    assert rig.log[told:] == [ReservationFailed(1, 256, 3, 256, 256)]
    with pytest.raises(NoRegion, match="request 1 needs 3 regions for 256 slots and 1 can be had"):
        rig.manager.admit(second)
    rig.check()
    assert rig.manager.buddies.unallocated == 256
    rig.end(first)
    assert [(e.start, e.size) for e in rig.events(RegionFreed)] == [(0, 256), (256, 256), (512, 256)]
    assert rig.try_admit(second)


def test_a_failed_reservation_is_said_once_until_its_numbers_change():
    rig = RegionRig("orca_max", 64, 16)
    running = [rig.admit(5, 4) for _ in range(3)]
    waiting = rig.request(5, 4, n=3)
    for _ in range(3):
        assert not rig.try_admit(waiting)
    rig.end(running[0])
    for _ in range(2):
        assert not rig.try_admit(waiting)
    assert rig.events(ReservationFailed) == [ReservationFailed(3, 16, 3, 16, 16), ReservationFailed(3, 16, 3, 16, 32)]
    rig.end(running[1])
    assert rig.try_admit(waiting)


def test_free_slots_can_be_too_scattered_for_a_region():
    rig = RegionRig("orca_oracle", 64, 64)
    running = [rig.admit(10, 7) for _ in range(4)]
    rig.end(running[0])
    rig.end(running[2])
    assert not rig.try_admit(rig.request(17, 1))
    assert rig.events(ReservationFailed) == [ReservationFailed(4, 17, 1, 16, 32)]


def test_forks_are_filled_by_one_copy_of_what_the_parent_has():
    rig = RegionRig("orca_max", 64, 16)
    request = rig.admit(5, 4, n=3)
    assert rig.parts() == (0, 0, 24, 24, 0, 16)
    leader = request.sequences[0]
    rig.forward(leader)
    assert rig.parts() == (5, 0, 19, 24, 0, 16)
    children = [rig.fork(leader) for _ in range(2)]
    assert [rig.manager.table(child) for child in children] == [[16], [32]]
    assert [(child.computed, child.table.slots) for child in children] == [(5, 5), (5, 5)]
    assert rig.parts() == (5, 0, 19, 24, 0, 16)
    rig.forward(*request.sequences)
    assert rig.events(BlockCopied) == [BlockCopied(0, [16, 32], 5)]
    assert rig.parts() == (18, 0, 6, 24, 0, 16)
    moves = rig.manager.take_moves()
    assert (moves.out, moves.back, moves.copies) == ([], [], [])


def test_a_fork_of_a_fork_is_copied_from_the_first_of_them():
    rig = RegionRig("orca_max", 64, 16)
    request = rig.admit(5, 4, n=3)
    rig.forward(request.sequences[0])
    rig.fork(rig.fork(request.sequences[0]))
    rig.forward(*request.sequences)
    assert rig.events(BlockCopied) == [BlockCopied(0, [16, 32], 5)]


def test_a_fork_before_anything_is_computed_copies_nothing():
    rig = RegionRig("orca_max", 32, 16)
    request = rig.admit(5, 4, n=2)
    child = rig.fork(request.sequences[0])
    assert (child.computed, rig.manager.table(child)) == (0, [16])
    rig.forward(*request.sequences)
    assert rig.events(BlockCopied) == []


def test_no_fork_without_a_spare_region():
    rig = RegionRig("orca_max", 64, 16)
    request = rig.admit(5, 4)
    rig.forward(*request.sequences)
    told = len(rig.log)
    with pytest.raises(NoRegion, match="request 0 reserved 1 regions and none is to spare for a fork"):
        rig.fork(request.sequences[0])
    assert len(rig.log) == told
    rig.check()


def test_a_region_is_not_given_away_before_others_are_filled_from_it():
    rig = RegionRig("orca_max", 32, 16)
    request = rig.admit(5, 4, n=2)
    parent = request.sequences[0]
    rig.forward(parent)
    child = rig.fork(parent)
    rig.finish(parent)
    with pytest.raises(NoRegion, match="none is to spare"):
        rig.fork(child)
    rig.check()
    rig.forward(child)
    assert rig.events(BlockCopied) == [BlockCopied(0, [16], 5)]
    assert rig.manager.table(rig.fork(child)) == [0]
    rig.forward(child, request.sequences[-1])
    assert rig.events(BlockCopied)[1:] == [BlockCopied(16, [0], 6)]
    assert rig.parts() == (14, 0, 2, 16, 0, 0)


def test_copies_that_are_due_go_with_the_request():
    rig = RegionRig("orca_max", 32, 16)
    request = rig.admit(5, 4, n=2)
    rig.forward(request.sequences[0])
    rig.fork(request.sequences[0])
    rig.end(request)
    assert rig.manager.take_moves().copies == []
    assert rig.events(BlockCopied) == []


@pytest.mark.parametrize("known", [True, False])
def test_the_region_of_a_finished_sample_is_internal_until_its_request_ends(known):
    rig = RegionRig("orca_max", 64, 16)
    request = rig.admit(5, 4, n=2, known=known)
    rig.forward(request.sequences[0])
    rig.fork(request.sequences[0])
    rig.forward(*request.sequences)
    rig.finish(request.sequences[0])
    assert rig.parts() == ((6, 0, 2, 8 + 16, 0, 32) if known else (6, 10, 0, 16, 0, 32))
    assert [(state.refs, len(state.tokens)) for state in rig.manager.blocks()] == [(0, 6), (1, 6)]
    assert not rig.events(RegionFreed)
    rig.end(request)
    assert rig.parts() == (0, 0, 0, 0, 0, 64)


def test_beams_that_are_dropped_hand_their_regions_to_those_that_branch():
    rig = RegionRig("orca_max", 64, 16)
    request = rig.admit(5, 9, n=4, beam=True)
    rig.forward(request.sequences[0])
    rig.branch([request.sequences[0]] * 3, [])
    rig.forward(*request.live)
    told = len(rig.log)
    # As in the paper's Fig 9: two of four beams go on, each as two.
    children = rig.branch([request.sequences[0], request.sequences[2]], [request.sequences[1], request.sequences[3]])
    assert rig.log[told:] == [
        BlockReleased(16, 1, 0),
        BlockReleased(48, 3, 0),
        BlockAllocated(16, 4, 0),
        BlockAllocated(48, 5, 0),
    ]
    assert rig.parts() == (12, 52, 0, 0, 0, 0)
    told = len(rig.log)
    rig.forward(*request.live)
    assert rig.log[told : told + 2] == [BlockCopied(0, [16], 6), BlockCopied(32, [48], 6)]
    assert rig.parts() == (28, 36, 0, 0, 0, 0)
    rig.branch([], children)
    assert rig.parts() == (14, 50, 0, 0, 0, 0)
    assert not rig.events(RegionFreed)
    rig.end(request)
    assert rig.parts() == (0, 0, 0, 0, 0, 64)


def test_one_that_waits_has_nothing_to_give_back():
    rig = RegionRig("orca_max", 16, 16)
    rig.admit(5, 4)
    waiting = rig.request(5, 4)
    told = len(rig.log)
    rig.end(waiting)
    assert len(rig.log) == told


@pytest.mark.parametrize(
    ("name", "capacity", "max_len", "prompt", "outputs", "n", "words"),
    [
        ("orca_max", 2048, 512, 513, 1, 1, "a prompt of 513 tokens exceeds the 512 slots that orca_max reserves"),
        ("orca_max", 1500, 1500, 5, 5, 1, r"1 x 1500 slots.*1 regions of 2048, and this memory of 1500 slots holds 0"),
        (
            "orca_max",
            1500,
            600,
            5,
            5,
            2,
            r"holds 1 of them \(its longest region is 1024 slots\): use a smaller max_len, fewer",
        ),
        (
            "orca_pow2",
            64,
            64,
            1,
            32,
            2,
            r"2 x 33 slots.*regions of 64,.*holds 1 .*smaller max_tokens, fewer sequences or",
        ),
        (
            "orca_oracle",
            100,
            64,
            33,
            1,
            2,
            r"2 x 33 slots.*regions of 64,.*holds 1 .*a shorter prompt or smaller max_tokens",
        ),
    ],
)
def test_what_can_never_be_placed(name, capacity, max_len, prompt, outputs, n, words):
    rig = RegionRig(name, capacity, max_len)
    request = rig.request(prompt, outputs, n=n)
    request.max_tokens = outputs
    assert re.search(words, rig.manager.why_never(request))


def test_what_can_be_placed_in_an_empty_memory_may_wait():
    rig = RegionRig("orca_max", 1024, 512)
    running = rig.admit(512, 1, n=2)
    waiting = rig.request(5, 5, n=2)
    assert rig.manager.why_never(waiting) is None
    assert not rig.manager.fits(waiting, 0)
    rig.end(running)
    assert rig.manager.fits(waiting, 0)


def test_no_sequence_outgrows_its_region():
    rig = RegionRig("orca_max", 16, 10)
    request = rig.request(7, 100)
    assert (rig.manager.longest(request), request.max_tokens) == (11, 4)
    assert rig.try_admit(request)
    for _ in range(4):
        rig.forward(*request.sequences)
    assert rig.parts()[:5] == (10, 0, 0, 0, 6)
    with pytest.raises(ValueError, match="sequence 0 asks for 11 slots and 10 are reserved for it"):
        rig.manager.grow([(request.sequences[0], 11)])


def test_regions_are_neither_counted_as_blocks_nor_swapped():
    rig = RegionRig("orca_max", 32, 16)
    request = rig.admit(5, 4)
    manager = rig.manager
    assert (manager.num_free, manager.capacity, manager.gathers) == (0, 32, False)
    assert (manager.can_swap_out(request), manager.swap_in_need(request)) == (False, 0)
    assert (manager.cpu_blocks(), manager.cpu_table(request.sequences[0])) == ([], [])
    with pytest.raises(ValueError, match="orca_max never swaps"):
        manager.swap_out(request)
    with pytest.raises(ValueError, match="orca_max never swaps"):
        manager.swap_in(request)


def test_unknown_names_and_empty_reservations_are_refused():
    with pytest.raises(ValueError, match="'paged' reserves no regions: choose one of orca_max, orca_pow2, orca_oracle"):
        RegionManager("paged", 64, 16, [].append)
    with pytest.raises(ValueError, match="max_len is 0 slots, the least is 1"):
        RegionManager("orca_max", 64, 0, [].append)
