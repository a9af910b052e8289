"""Forking a running sequence by command (paper section 5.2)."""

from __future__ import annotations

import pytest

from engine.arena import Refused
from engine.events import BlockCopied, BlockShared, Preempted, RequestFinished, SequenceForked, SwappedOut
from tests.engine.harness import Rig


def decoding(rig: Rig, prompt: int = 6, **sampling) -> int:
    """Submit a prompt and run it until it has one output."""
    number = rig.submit(prompt, **sampling)
    while not rig.outputs(number):
        rig.step()
    return number


def fork(rig: Rig, sequence: int) -> None:
    rig.arena.fork(sequence)
    rig.settle()


def test_a_fork_shares_all_blocks_and_the_first_to_write_copies():
    rig = Rig(10, 4)
    number = decoding(rig, max_tokens=4)
    fork(rig, 0)
    assert rig.last(SequenceForked) == [SequenceForked(1, 0)]
    assert rig.last(BlockShared) == [BlockShared(0, 1, 0, 2), BlockShared(1, 1, 1, 2)]
    assert rig.free == 8
    rig.step(lambda chunk: 10 + chunk.sequence.number)
    assert rig.last(BlockCopied) == [BlockCopied(1, [2], 2)]
    assert rig.tables(number) == [[0, 2], [0, 1]]
    assert [one.outputs for one in rig.arena.requests[number].sequences] == [[1, 10], [1, 11]]
    rig.run()
    assert [(e.reason, e.output_tokens) for e in rig.events(RequestFinished)] == [("length", 8)]
    assert rig.free == 10


def test_every_fork_draws_as_a_further_sample():
    rig = Rig(10, 4)
    number = decoding(rig, n=2, temperature=1.0)
    fork(rig, 1)
    fork(rig, 2)
    sequences = rig.arena.requests[number].sequences
    assert [one.sample for one in sequences] == [0, 1, 2, 3]
    assert [rig.arena.decoding.row(one).samples for one in sequences] == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("sampling", "options", "steps", "message"),
    [
        ({}, {}, 0, "sequence 0 does not decode now"),
        # One token of the prompt is left to compute.
        ({"n": 3, "temperature": 1.0}, {"prefill_chunk": 5}, 1, "sequence 0 does not decode now"),
        ({"max_tokens": 1}, {}, 1, "sequence 0 does not decode now"),
        ({"n": 2, "beam_search": True}, {}, 2, "only samples in paged memory"),
        ({"n": 1, "best_of": 2}, {}, 2, "only samples in paged memory"),
        ({}, {"manager": "orca_oracle"}, 2, "only samples in paged memory"),
        ({}, {"max_sequences": 1}, 2, "1 sequences run, which is the limit"),
    ],
)
def test_what_cannot_be_forked_is_refused_and_nothing_changes(sampling, options, steps, message):
    rig = Rig(10, 4, **options)
    rig.submit(6, **sampling)
    for _ in range(steps):
        rig.step()
    known = rig.arena.state()
    with pytest.raises(Refused, match=message):
        rig.arena.fork(0)
    assert rig.arena.state() == known
    rig.run()
    assert rig.events(RequestFinished)[0].output_tokens == sum(
        len(one.outputs) for one in rig.arena.requests[0].sequences
    )


def test_a_client_that_waits_for_its_answers_gets_as_many_as_it_asked_for():
    rig = Rig(10, 4)
    number = rig.submit(6)
    rig.step()
    rig.arena.requests[number].source = "api"
    with pytest.raises(Refused, match="no client of the API waits for a certain number of answers"):
        rig.arena.fork(0)


def test_an_unknown_sequence_and_a_prefix_are_no_sequences_to_fork():
    rig = Rig(10, 4, prefill_chunk=5)
    rig.arena.register_prefix(list(range(6)))
    rig.settle()
    rig.step()
    for number in (0, 99):
        with pytest.raises(Refused, match=f"sequence {number} does not decode now"):
            rig.arena.fork(number)
    rig.run()


@pytest.mark.parametrize(("preemption", "event"), [("swap", SwappedOut), ("recompute", Preempted)])
def test_a_forked_request_is_preempted_as_a_group_and_goes_on(preemption, event):
    rig = Rig(8, 4, cpu_blocks=8, preemption=preemption)
    first = decoding(rig, 7, max_tokens=16)
    second = decoding(rig, 7, max_tokens=8)
    [forked] = [one.number for one in rig.arena.requests[second].sequences]
    fork(rig, forked)
    rig.run(token=lambda chunk: 10 + chunk.sequence.number)
    assert {e.request for e in rig.events(event)} == {second}
    assert rig.events(Preempted)[0].sequences == [1, 2]
    answers = [one.outputs for one in rig.arena.requests[second].sequences]
    assert [len(answer) for answer in answers] == [8, 8]
    assert answers[0][:2] != answers[1][:2]
    assert len(rig.outputs(first)) == 16
    assert rig.free == 8


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
def test_a_forked_request_counts_with_all_its_sequences_when_it_comes_back(preemption):
    rig = Rig(9, 4, cpu_blocks=9, preemption=preemption, max_sequences=3)
    decoding(rig, 7, max_tokens=8)
    second = decoding(rig, 17, max_tokens=20)
    fork(rig, 1)
    while second in rig.running():
        rig.step()
    fork(rig, 0)
    most = 0
    while rig.arena.scheduler.has_work:
        rig.step()
        most = max(most, sum(len(request.live) for request in rig.arena.scheduler.running))
    assert most == 2
    assert rig.free == 9
