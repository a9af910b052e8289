"""C: who runs in a step, who is preempted, and how requests end."""

from __future__ import annotations

import pytest

from engine.arena import Refused
from engine.events import (
    BlockAllocated,
    BlockFreed,
    Preempted,
    RequestAborted,
    RequestAdmitted,
    RequestFinished,
    SequenceFinished,
    SlotsWritten,
    TokenGenerated,
)
from tests.engine.conformance.rigs import busy
from tests.engine.harness import Rig


def finished(rig: Rig) -> list[tuple[int, str, int]]:
    return [(e.request, e.reason, e.output_tokens) for e in rig.events(RequestFinished)]


def ran(chunks) -> list[tuple[int, int, int]]:
    return [(chunk.sequence.number, chunk.start, chunk.count) for chunk in chunks]


def test_C1_ten_prompts_that_fit_run_in_one_step_in_order_of_arrival():
    rig = Rig(100, 16)
    lengths = [5, 17, 3, 30, 1, 8, 16, 9, 2, 40]
    for length in lengths:
        rig.submit(length)
    assert [chunk.count for chunk in rig.step()] == lengths
    assert rig.running() == list(range(10))
    assert rig.waiting() == []


def test_C4_chunked_prefill_fills_the_token_budget():
    rig = Rig(200, 16, budget=1024, max_sequences=3)
    for length in (800, 800, 10, 10):
        rig.submit(length)
    assert ran(rig.step()) == [(0, 0, 800), (1, 0, 224)]
    assert (rig.outputs(0), rig.outputs(1)) == ([1], [])
    assert ran(rig.step()) == [(0, 800, 1), (1, 224, 576), (2, 0, 10)]


def test_C4_without_chunks_the_short_ones_do_not_overtake():
    rig = Rig(200, 16, budget=1024, max_sequences=3, prefill_chunk=-1)
    for length in (800, 800, 10, 10):
        rig.submit(length)
    assert ran(rig.step()) == [(0, 0, 800)]
    assert rig.waiting() == [1, 2, 3]
    assert ran(rig.step()) == [(0, 800, 1), (1, 0, 800), (2, 0, 10)]
    assert rig.waiting() == [3]


def test_C4_a_prompt_longer_than_the_budget_runs_whole_as_the_first_of_its_step():
    rig = Rig(200, 16, budget=100, prefill_chunk=-1)
    rig.submit(10, max_tokens=2)
    rig.submit(300)
    assert ran(rig.step()) == [(0, 0, 10)]
    assert ran(rig.step()) == [(0, 10, 1)]
    assert ran(rig.step()) == [(1, 0, 300)]


def test_C4_a_chunk_of_its_own_size_cuts_below_the_budget():
    rig = Rig(200, 16, budget=100, prefill_chunk=7)
    rig.submit(16)
    rig.submit(5)
    assert ran(rig.step()) == [(0, 0, 7), (1, 0, 5)]
    assert ran(rig.step()) == [(0, 7, 7), (1, 5, 1)]
    assert ran(rig.step()) == [(0, 14, 2), (1, 6, 1)]


def test_C5_decodes_come_before_waiting_prefills():
    rig = Rig(100, 16, budget=20)
    rig.submit(4)
    rig.step()
    rig.submit(30)
    assert ran(rig.step()) == [(0, 4, 1), (1, 0, 19)]


def two_of_eighty() -> Rig:
    """Two prompts fill memory and a third waits; the step after their prefill preempts."""
    rig = Rig(10, 16)
    for length in (80, 80, 16):
        rig.submit(length, max_tokens=40)
    rig.step()
    assert (rig.free, rig.waiting()) == (0, [2])
    rig.step()
    return rig


def test_C6_the_last_admitted_is_preempted_and_waits_at_the_front():
    rig = two_of_eighty()
    assert (rig.running(), rig.waiting()) == ([0], [1, 2])
    assert [(e.request, e.sequences, e.mode) for e in rig.events(Preempted)] == [(1, [1], "recompute")]
    victim = rig.arena.requests[1].sequences[0]
    assert (victim.computed, victim.table.blocks, victim.request.status) == (0, [], "waiting")
    # It held 5 to 9 and gives them back in reverse; the first in line takes block 9 at once.
    assert rig.last(BlockAllocated)[-1].block == 9
    assert rig.pool.free_order() == [8, 7, 6, 5]
    assert rig.outputs(1) == [1]
    rig.run()
    assert sorted(finished(rig)) == [(0, "length", 40), (1, "length", 40), (2, "length", 40)]
    # Each of its tokens was told once, though the first ones were computed twice.
    assert len([event for event in rig.events(TokenGenerated) if event.sequence == 1]) == 40


def test_C7_nobody_is_admitted_in_a_step_that_preempted():
    rig = Rig(10, 16)
    for _ in range(2):
        rig.submit(80, priority=1)
    rig.step()
    urgent = rig.submit(16, priority=0)
    rig.step()
    # It is the head of the queue and would fit into what the victim left.
    assert [event.request for event in rig.last(Preempted)] == [1]
    assert (rig.waiting(), rig.free, rig.last(RequestAdmitted)) == ([urgent, 1], 4, [])
    rig.step()
    assert [event.request for event in rig.last(RequestAdmitted)] == [urgent]


def test_C8_the_victim_is_the_last_in_the_order_of_service():
    rig = Rig(6, 4)
    numbers = [rig.submit(7, priority=priority) for priority in (1, 0, 2)]
    assert numbers == [0, 1, 2]
    rig.step()
    assert rig.running() == [1, 0, 2]
    rig.step()
    rig.step()
    assert [event.request for event in rig.events(Preempted)] == [2]
    assert rig.running() == [1, 0]


def test_C8_of_equal_priority_the_latest_arrival_goes():
    rig = Rig(6, 4)
    for _ in range(3):
        rig.submit(7, priority=3)
    for _ in range(3):
        rig.step()
    assert [event.request for event in rig.events(Preempted)] == [2]


def test_C8_a_victim_that_is_its_own_does_not_run_in_that_step():
    rig = Rig(3, 4)
    rig.submit(5)
    rig.submit(4)
    rig.step()
    assert rig.free == 0
    assert ran(rig.step()) == [(0, 5, 1)]
    assert (rig.running(), rig.waiting()) == ([0], [1])


def test_C9_the_less_urgent_one_is_preempted_by_the_urgent_one_that_came_later():
    rig = Rig(5, 16)
    low = rig.submit(32, priority=5)
    rig.step()
    high = rig.submit(32, priority=0)
    rig.step()
    assert [len(table) for table in rig.tables(low) + rig.tables(high)] == [3, 2]
    assert rig.free == 0
    rig.step()
    assert [event.request for event in rig.last(Preempted)] == [low]
    assert (rig.running(), rig.waiting()) == ([high], [low])


def test_C13_the_end_token_is_kept_and_ends_with_stop():
    rig = Rig(10, 16, eos=frozenset([9]))
    rig.submit(3)
    rig.step(9)
    assert (finished(rig), rig.outputs(0)) == ([(0, "stop", 1)], [9])
    assert rig.arena.requests[0].sequences[0].stop_reason is None


def test_C13_a_stop_id_is_the_stop_reason():
    rig = Rig(10, 16, eos=frozenset([9]))
    rig.submit(3, stop_token_ids=[42])
    rig.step(42)
    assert (finished(rig), rig.outputs(0)) == ([(0, "stop", 1)], [42])
    assert rig.arena.requests[0].sequences[0].stop_reason == 42


def test_C13_nothing_follows_the_last_token():
    rig = Rig(10, 16)
    rig.submit(3, max_tokens=2)
    tokens = iter([10, 11, 12])
    rig.run(token=lambda chunk: next(tokens))
    assert (finished(rig), rig.outputs(0)) == ([(0, "length", 2)], [10, 11])
    assert list(tokens) == [12]


def test_C13_ignore_eos_goes_on():
    rig = Rig(10, 16, eos=frozenset([9]))
    rig.submit(3, max_tokens=3, ignore_eos=True)
    rig.run(token=9)
    assert finished(rig) == [(0, "length", 3)]


def test_C14_the_models_length_ends_a_text_whatever_min_tokens_says():
    rig = Rig(10, 16, max_model_len=10, eos=frozenset([9]))
    rig.submit(3, max_tokens=500, min_tokens=500)
    rig.run(token=9)
    assert finished(rig) == [(0, "length", 7)]


def test_C16_one_abort_a_step():
    rig = Rig(100, 16)
    for _ in range(10):
        rig.submit(20, max_tokens=100)
    for count, number in enumerate([0, 8, 3, 1, 6, 4, 2, 5, 7, 9], start=1):
        rig.step()
        assert len(rig.outputs(number)) == count
        rig.abort(number)
        assert rig.arena.requests[number].status == "aborted"
    assert len(rig.events(RequestAborted)) == 10
    assert rig.free == 100


def test_C17_aborting_one_that_waits_or_is_unknown_or_ended_touches_no_memory():
    rig = Rig(2, 16)
    rig.submit(30)
    rig.step()
    waiting = rig.submit(30)
    rig.step()
    pool = (rig.pool.free_order(), list(rig.pool.refs))
    for number in (waiting, waiting, 99):
        rig.abort(number)
    assert (rig.pool.free_order(), rig.pool.refs) == pool
    assert [e.request for e in rig.events(RequestAborted)] == [waiting]
    rig.run()
    rig.abort(0)
    assert [e.request for e in rig.events(RequestAborted)] == [waiting]


def test_C18_everything_is_free_when_all_have_ended():
    rig = Rig(30, 4)
    for _ in range(5):
        rig.submit(10, max_tokens=10)
    rig.run()
    assert (rig.running(), rig.waiting(), rig.swapped()) == ([], [], [])
    assert [table for number in range(5) for table in rig.tables(number)] == [[]] * 5
    assert (rig.free, rig.pool.refs) == (30, [0] * 30)


def test_C20_what_can_never_fit_is_refused_with_the_numbers_and_those_behind_it_run():
    rig = Rig(49, 16)
    with pytest.raises(Refused, match="1002 tokens needs 63 blocks of 16 slots, and this memory has 49") as caught:
        rig.submit(1002)
    rig.settle()
    assert (caught.value.code, caught.value.field) == ("prompt_too_long", "prompt")
    behind = [rig.submit(length, max_tokens=2) for length in (20, 784 - 16)]
    rig.run()
    assert sorted(finished(rig)) == [(number, "length", 2) for number in behind]


def test_C21_one_alone_with_no_room_left_ends_at_capacity():
    rig = Rig(4, 16)
    rig.submit(60, max_tokens=100)
    rig.run(limit=10)
    assert finished(rig) == [(0, "capacity", 5)]
    assert [(e.reason, e.output_tokens) for e in rig.events(SequenceFinished)] == [("capacity", 5)]
    assert rig.events(Preempted) == []
    assert rig.free == 4


def test_C23_a_freed_block_is_never_written_in_the_step_that_frees_it_unless_it_is_given_away_again():
    """Steps are not pipelined: what is freed in planning may be given away at once, what is freed after the forward pass
    waits for the next plan."""
    rig = Rig(14, 4, cpu_blocks=6, prefix_cache=True)
    busy(rig, seed=1)
    freed_while_planning = 0
    for step in rig.steps:
        owned_by_nobody: set[int] = set()
        written = False
        for event in step.events:
            match event:
                case BlockFreed():
                    owned_by_nobody.add(event.block)
                    freed_while_planning += not written
                case BlockAllocated():
                    assert not written
                    owned_by_nobody.discard(event.block)
                case SlotsWritten():
                    written = True
                    assert event.block not in owned_by_nobody
    assert freed_while_planning > 0
