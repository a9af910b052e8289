"""What is taken in, in which order it runs, and how memory is divided; the rules of preemption are under conformance."""

from __future__ import annotations

import msgspec
import pytest

from engine.arena import Refused
from engine.events import (
    BlockAllocated,
    RequestAdmitted,
    RequestArrived,
    RequestFinished,
    RequestRefused,
    SlotsWritten,
)
from tests.engine.harness import Rig


def finished(rig: Rig) -> list[tuple[int, str, int]]:
    return [(e.request, e.reason, e.output_tokens) for e in rig.events(RequestFinished)]


@pytest.mark.parametrize(
    ("prompt", "sampling", "field", "message"),
    [
        ([], {}, "prompt", "0 tokens and the least is 1"),
        (range(40), {}, "prompt", "40 tokens and the model's limit is 40"),
        ([1], {"max_tokens": 0}, "max_tokens", "max_tokens is 0, the least is 1"),
        ([1], {"temperature": -1.0}, "temperature", "temperature is -1.0: choose 0"),
        ([1], {"temperature": float("nan")}, "temperature", "temperature is nan"),
        ([1], {"top_p": 0.0}, "top_p", "top_p is 0.0"),
        ([1], {"top_k": -1}, "top_k", "top_k is -1"),
        ([1], {"stop": [""]}, "stop", "a stop string is empty"),
        ([1], {"min_tokens": 20}, "min_tokens", "min_tokens is 20: choose 0 to max_tokens, which is 16"),
        ([1], {"n": 0}, "n", "n is 0, the least is 1"),
        ([1], {"n": 3, "best_of": 2}, "best_of", "best_of is 2: choose 0"),
        ([1], {"n": 5}, "n", "n is 5 and at most 4 sequences run at once here: ask for fewer"),
        ([1], {"n": 2, "best_of": 5}, "best_of", "best_of is 5 and at most 4 sequences run at once here"),
        # Two blocks of prompt that all share, and one more for the first token of each.
        (range(32), {"n": 4}, "prompt", "32 tokens with the first token of each of 4 sequences needs 6 blocks of 16"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_allocated(prompt, sampling, field, message):
    rig = Rig(5, 16, max_model_len=40, max_sequences=4)
    with pytest.raises(Refused, match=message) as caught:
        rig.submit(list(prompt), **sampling)
    rig.settle()
    assert caught.value.field == field
    assert rig.last(RequestRefused) == [RequestRefused(str(caught.value), "page")]
    assert rig.free == 5
    assert not rig.arena.requests


def test_the_queue_is_bounded():
    rig = Rig(10, 16, max_waiting=2)
    rig.submit(3)
    rig.submit(3)
    with pytest.raises(Refused, match="2 requests wait in this memory and the limit is 2"):
        rig.submit(3)


def test_the_number_of_sequences_is_bounded_and_samples_still_to_come_count():
    rig = Rig(100, 16, max_sequences=4, budget=8)
    for n in (3, 2, 1):
        rig.submit(10, n=n, temperature=1.0, max_tokens=4 - n)
    rig.step()
    # Nobody overtakes: the third would fit, but the second, which comes before it, does not.
    assert (rig.running(), rig.waiting()) == ([0], [1, 2])
    rig.run()
    assert [event.request for event in rig.events(RequestAdmitted)] == [0, 1, 2]


def test_the_least_priority_goes_first_and_equals_in_order_of_arrival():
    rig = Rig(100, 16, max_sequences=1)
    for priority in (1, 0, 2, 0, 1):
        rig.submit(3, max_tokens=2, priority=priority)
    assert [event.priority for event in rig.events(RequestArrived)] == [1, 0, 2, 0, 1]
    rig.run()
    assert [event.request for event in rig.events(RequestFinished)] == [1, 3, 0, 4, 2]


def test_priority_alone_preempts_nobody():
    rig = Rig(4, 4)
    rig.submit(12, max_tokens=4, priority=5)
    rig.step()
    rig.submit(8, max_tokens=2, priority=0)
    rig.run()
    assert finished(rig) == [(0, "length", 4), (1, "length", 2)]


def test_a_short_request_does_not_overtake_one_that_finds_no_room():
    rig = Rig(4, 4)
    rig.submit(9, max_tokens=3)
    rig.submit(8, max_tokens=1)
    rig.submit(1, max_tokens=1)
    rig.step()
    assert rig.free == 1
    assert rig.waiting() == [1, 2]
    rig.run()
    assert [event.request for event in rig.events(RequestAdmitted)] == [0, 1, 2]


def test_a_prompt_is_admitted_only_where_all_of_it_will_fit_beside_those_half_computed():
    rig = Rig(8, 4, prefill_chunk=4)
    rig.submit(20, max_tokens=1)
    rig.submit(13, max_tokens=1)
    rig.step()
    # One of the first one's five blocks is taken. Four are still to come, so three are left for the second, which takes four.
    assert (rig.running(), rig.waiting(), rig.free) == ([0], [1], 7)
    rig.run()
    assert finished(rig) == [(0, "length", 1), (1, "length", 1)]


@pytest.mark.parametrize("block_size", [1, 4, 7, 16])
@pytest.mark.parametrize(("prompt", "outputs"), [(1, 1), (7, 2), (8, 9), (16, 17)])
def test_slots_written_are_prompt_and_outputs_less_one(block_size, prompt, outputs):
    rig = Rig(64, block_size)
    rig.submit(prompt, max_tokens=outputs)
    rig.run()
    assert sum(e.count for e in rig.events(SlotsWritten)) == prompt + outputs - 1
    assert len(rig.events(BlockAllocated)) == -(-(prompt + outputs - 1) // block_size)


def parts(rig: Rig) -> tuple[int, ...]:
    """Token states, held, reserved, internal, external, free, and what is cached of the free ones."""
    return msgspec.structs.astuple(rig.arena.state().partition)


def test_known_lengths_divide_the_unwritten_slots_into_reserved_and_internal():
    rig = Rig(4, 4)
    rig.submit(5, max_tokens=3, ignore_eos=True)
    rig.step()
    assert parts(rig) == (5, 0, 2, 1, 0, 8, 0)
    rig = Rig(4, 4)
    rig.submit(5, max_tokens=3)
    rig.step()
    assert parts(rig) == (5, 3, 0, 0, 0, 8, 0)


def test_a_shared_block_counts_once():
    rig = Rig(10, 4)
    rig.submit(10, n=3, temperature=1.0, max_tokens=3, ignore_eos=True)
    rig.step()
    # Two more tokens of one sample fill the last block, so none of its slots will stay empty.
    assert parts(rig) == (10, 0, 2, 0, 0, 28, 0)
    rig.step()
    assert parts(rig) == (8 + 3 * 3, 0, 3 * 1, 0, 0, 20, 0)


def test_what_the_cache_keeps_is_free_all_the_same():
    rig = Rig(4, 4, prefix_cache=True)
    rig.submit(9, max_tokens=1)
    rig.run()
    assert parts(rig) == (0, 0, 0, 0, 0, 16, 8)


def test_free_slots_are_external_while_the_head_of_the_queue_finds_no_room():
    rig = Rig(4, 4)
    rig.submit(9)
    rig.submit(8)
    rig.step()
    assert parts(rig) == (9, 3, 0, 0, 4, 0, 0)


def test_only_the_last_64_ended_requests_are_remembered():
    rig = Rig(10, 16)
    for _ in range(70):
        rig.submit(1, max_tokens=1)
        rig.step()
    assert list(rig.arena.requests) == list(range(6, 70))


def test_memory_is_divided_anew_when_requests_end_between_two_steps():
    rig = Rig(8, 4)
    rig.submit(3, max_tokens=100, ignore_eos=True)
    rig.run()
    assert finished(rig) == [(0, "capacity", 30)]
    assert rig.steps[-1].partition.free == rig.arena.state().partition.free == 32
    rig.submit(9)
    rig.step()
    assert rig.steps[-1].partition.free == 20
    rig.abort(1)
    assert (rig.steps[-1].partition.token_states, rig.steps[-1].partition.free) == (0, 32)
