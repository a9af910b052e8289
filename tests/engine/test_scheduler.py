import pytest

from engine.arena import Refused
from engine.events import BlockAllocated, Preempted, RequestAborted, RequestAdmitted, RequestFinished, SlotsWritten
from tests.engine.harness import Rig


def finished(rig: Rig) -> list[tuple[int, str, int]]:
    return [(e.request, e.reason, e.output_tokens) for e in rig.events(RequestFinished)]


def test_ten_prompts_that_fit_run_in_one_step_in_order_of_arrival():
    rig = Rig(100, 16)
    lengths = [5, 17, 3, 30, 1, 8, 16, 9, 2, 40]
    for length in lengths:
        rig.submit(length)
    assert [chunk.count for chunk in rig.step()] == lengths
    assert rig.running() == list(range(10))
    assert rig.waiting() == []


def test_chunked_prefill_under_the_token_budget():
    rig = Rig(200, 16, budget=1024, max_sequences=3)
    for length in (800, 800, 10, 10):
        rig.submit(length)
    assert [(c.sequence.number, c.start, c.count) for c in rig.step()] == [(0, 0, 800), (1, 0, 224)]
    assert rig.outputs(0) == [1]
    assert rig.outputs(1) == []
    assert [(c.sequence.number, c.start, c.count) for c in rig.step()] == [(0, 800, 1), (1, 224, 576), (2, 0, 10)]


def test_decodes_come_before_waiting_prefills():
    rig = Rig(100, 16, budget=20)
    rig.submit(4)
    rig.step()
    rig.submit(30)
    assert [(c.sequence.number, c.count) for c in rig.step()] == [(0, 1), (1, 19)]


def test_the_latest_arrival_is_preempted_and_waits_at_the_front():
    rig = Rig(10, 16)
    rig.submit(80, max_tokens=40)
    rig.submit(80, max_tokens=40)
    rig.submit(16)
    rig.step()
    assert rig.free == 0
    rig.step()
    assert rig.running() == [0]
    assert rig.waiting() == [1, 2]
    assert [(e.sequence, e.mode) for e in rig.events(Preempted)] == [(1, "recompute")]
    preempted = rig.arena.requests[1].sequences[0]
    assert (preempted.computed, preempted.table.blocks, preempted.request.status) == (0, [], "waiting")
    assert rig.outputs(1) == [1]
    rig.run()
    assert sorted(finished(rig)) == [(0, "length", 40), (1, "length", 40), (2, "length", 16)]


def test_nobody_is_admitted_in_a_step_that_preempted():
    rig = Rig(10, 16)
    rig.submit(80, max_tokens=40)
    rig.submit(80, max_tokens=40)
    rig.submit(16)
    rig.step()
    before = len(rig.events(RequestAdmitted))
    rig.step()
    assert rig.events(Preempted)
    assert len(rig.events(RequestAdmitted)) == before


def test_the_free_list_after_preemption_starts_with_the_victims_last_block():
    rig = Rig(10, 16)
    rig.submit(80)
    rig.submit(80)
    rig.step()
    rig.step()
    # The victim held 5 to 9 and gives them back in reverse; the first in line takes block 9 at once.
    assert rig.events(BlockAllocated)[-1].block == 9
    assert rig.arena.manager.pool.free_order() == [8, 7, 6, 5]


def test_a_request_alone_with_no_room_left_ends_at_capacity():
    rig = Rig(4, 16)
    rig.submit(60, max_tokens=100)
    rig.run()
    assert finished(rig) == [(0, "capacity", 5)]
    assert rig.free == 4


def test_what_can_never_fit_is_refused_with_the_numbers_and_others_run():
    rig = Rig(49, 16)
    with pytest.raises(Refused, match="1002 tokens needs 63 blocks of 16 slots, and this memory has 49") as caught:
        rig.submit(1002)
    rig.settle()
    assert (caught.value.code, caught.value.field) == ("prompt_too_long", "prompt")
    assert rig.submit(20, max_tokens=2) == 0
    rig.run()
    assert finished(rig) == [(0, "length", 2)]


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
    ],
)
def test_bad_input_is_refused_and_nothing_is_allocated(prompt, sampling, field, message):
    rig = Rig(10, 16, max_model_len=40)
    with pytest.raises(Refused, match=message) as caught:
        rig.submit(list(prompt), **sampling)
    rig.settle()
    assert caught.value.field == field
    assert rig.free == 10
    assert not rig.arena.requests


def test_the_queue_is_bounded():
    rig = Rig(10, 16, max_waiting=2)
    rig.submit(3)
    rig.submit(3)
    with pytest.raises(Refused, match="2 requests wait in this memory and the limit is 2"):
        rig.submit(3)


def test_end_token_stop_ids_and_ignore_eos():
    rig = Rig(10, 16, eos=frozenset([9]))
    rig.submit(3)
    rig.submit(3, stop_token_ids=[42])
    rig.submit(3, ignore_eos=True, max_tokens=3)
    rig.step(lambda chunk: {0: 9, 1: 42, 2: 9}[chunk.sequence.number])
    assert finished(rig) == [(0, "stop", 1), (1, "stop", 1)]
    assert (rig.outputs(0), rig.outputs(1)) == ([9], [42])
    rig.run()
    assert finished(rig)[-1] == (2, "length", 3)


def test_the_models_length_ends_a_text():
    rig = Rig(10, 16, max_model_len=10)
    rig.submit(3, max_tokens=500)
    rig.run()
    assert finished(rig) == [(0, "length", 7)]


def test_one_abort_a_step():
    rig = Rig(100, 16)
    for _ in range(10):
        rig.submit(20, max_tokens=100)
    for count, number in enumerate([0, 8, 3, 1, 6, 4, 2, 5, 7, 9], start=1):
        rig.step()
        assert len(rig.outputs(number)) == count
        rig.abort(number)
    assert len(rig.events(RequestAborted)) == 10
    assert rig.free == 100


def test_aborting_one_that_waits_or_is_unknown_touches_no_memory():
    rig = Rig(2, 16)
    rig.submit(30)
    rig.step()
    waiting = rig.submit(30)
    rig.step()
    free = rig.free
    rig.abort(waiting)
    rig.abort(waiting)
    rig.abort(99)
    assert rig.free == free
    assert [e.request for e in rig.events(RequestAborted)] == [waiting]


def test_everything_is_free_when_all_have_ended():
    rig = Rig(30, 4)
    for _ in range(5):
        rig.submit(10, max_tokens=10)
    rig.run()
    assert rig.free == 30
    assert rig.arena.manager.pool.refs == [0] * 30
    assert not rig.running()
    assert not rig.waiting()


@pytest.mark.parametrize("block_size", [1, 4, 7, 16])
@pytest.mark.parametrize(("prompt", "outputs"), [(1, 1), (7, 2), (8, 9), (16, 17)])
def test_slots_written_are_prompt_and_outputs_less_one(block_size, prompt, outputs):
    rig = Rig(64, block_size)
    rig.submit(prompt, max_tokens=outputs)
    rig.run()
    assert sum(e.count for e in rig.events(SlotsWritten)) == prompt + outputs - 1
    assert len(rig.events(BlockAllocated)) == -(-(prompt + outputs - 1) // block_size)


def test_known_lengths_divide_the_unwritten_slots_into_reserved_and_internal():
    rig = Rig(4, 4)
    rig.submit(5, max_tokens=3, ignore_eos=True)
    rig.step()
    known = rig.arena.state().partition
    assert (known.token_states, known.held, known.reserved, known.internal, known.free) == (5, 0, 2, 1, 8)
    rig = Rig(4, 4)
    rig.submit(5, max_tokens=3)
    rig.step()
    unknown = rig.arena.state().partition
    assert (unknown.token_states, unknown.held, unknown.reserved, unknown.internal, unknown.free) == (5, 3, 0, 0, 8)


def test_free_slots_are_external_while_the_head_of_the_queue_finds_no_room():
    rig = Rig(4, 4)
    rig.submit(9)
    rig.submit(8)
    rig.step()
    partition = rig.arena.state().partition
    assert (partition.token_states, partition.held, partition.external, partition.free) == (9, 3, 4, 0)


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
