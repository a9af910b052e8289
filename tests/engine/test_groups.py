"""Sequence groups are scheduled, preempted and freed together, and end together where memory ends (paper section 4.5)."""

from __future__ import annotations

import pytest

from engine.events import (
    BlockShared,
    Preempted,
    RequestAdmitted,
    RequestFinished,
    SequenceFinished,
    SequenceForked,
    SwappedOut,
)
from tests.engine.conformance.rigs import BeamRig
from tests.engine.harness import Rig


def ends(rig: Rig) -> list[tuple[int, str, int]]:
    return [(e.request, e.reason, e.output_tokens) for e in rig.events(RequestFinished)]


def test_samples_fork_when_the_prompt_has_been_computed():
    rig = Rig(10, 4, budget=4)
    number = rig.submit(10, n=3, temperature=1.0)
    rig.step()
    rig.step()
    assert rig.tables(number) == [[0, 1]]
    rig.step()
    assert rig.last(SequenceForked) == [SequenceForked(1, 0), SequenceForked(2, 0)]
    assert [(e.block, e.sequence, e.refs) for e in rig.last(BlockShared)] == [
        (0, 1, 2),
        (1, 1, 2),
        (2, 1, 2),
        (0, 2, 3),
        (1, 2, 3),
        (2, 2, 3),
    ]
    assert [one.outputs for one in rig.arena.requests[number].sequences] == [[1], [2], [3]]


def test_samples_that_end_early_give_their_own_blocks_back():
    rig = Rig(10, 4, eos=frozenset([9]))
    number = rig.submit(8, n=3, temperature=1.0)
    rig.step()
    rig.step(lambda chunk: 9 if chunk.sequence.sample == 1 else 1)
    # Each wrote a block of its own; that of the second sample is free again.
    assert [(e.sequence, e.reason, e.output_tokens) for e in rig.last(SequenceFinished)] == [(1, "stop", 2)]
    assert rig.tables(number) == [[0, 1, 2], [], [0, 1, 4]]
    assert (rig.pool.refs[:5], rig.free) == ([2, 2, 1, 0, 1], 6)
    assert ends(rig) == []


def test_the_sequences_of_a_group_run_all_or_none():
    rig = Rig(40, 4, budget=5)
    rig.submit(1, max_tokens=9)
    rig.submit(1, n=4, temperature=1.0, max_tokens=9)
    rig.step()
    assert [chunk.sequence.request.number for chunk in rig.step()] == [0, 1, 1, 1, 1]
    rig.budget = 4
    assert [chunk.sequence.request.number for chunk in rig.step()] == [0]
    rig.budget = 1
    rig.abort(0)
    # As the first of its step a group runs even where the budget is too small for it.
    assert [chunk.sequence.request.number for chunk in rig.step()] == [1, 1, 1, 1]


def test_a_group_is_preempted_as_a_whole():
    rig = Rig(10, 4, cpu_blocks=10)
    rig.submit(16, max_tokens=20)
    rig.submit(8, n=3, temperature=1.0)
    while not rig.events(Preempted):
        rig.step()
    assert [(e.request, e.sequences, e.mode) for e in rig.last(Preempted)] == [(1, [1, 2, 3], "swap")]
    assert rig.tables(1) == [[], [], []]
    assert [len(rig.arena.manager.cpu_table(one)) for one in rig.arena.requests[1].sequences] == [3, 3, 3]
    assert len(rig.last(SwappedOut)[0].pairs) == 5


def test_a_recomputed_group_computes_what_its_sequences_share_once():
    rig = Rig(10, 4, preemption="recompute")
    rig.submit(16, max_tokens=20)
    number = rig.submit(7, n=3, temperature=1.0, max_tokens=6)
    rig.step()
    while not rig.events(Preempted):
        rig.step(lambda chunk: 20 + 10 * chunk.sequence.sample)
    group = rig.arena.requests[number]
    answers = [list(one.outputs) for one in group.sequences]
    chunks: list[tuple[int, int, int]] = []
    while not chunks:
        chunks = [(c.sequence.number, c.start, c.count) for c in rig.step() if c.sequence.request is group]
    # The seven tokens of the prompt, once for all three; then each its own, up to the token before the last.
    assert chunks == [(1, 0, 7)]
    assert rig.tables(number)[0] == rig.tables(number)[1] == rig.tables(number)[2]
    own = len(answers[0]) - 1
    chunks = [(c.sequence.number, c.start, c.count) for c in rig.step() if c.sequence.request is group]
    assert chunks == [(sequence, 7, own) for sequence in (1, 2, 3)]
    rig.run()
    assert [one.outputs[: len(answer)] for one, answer in zip(group.sequences, answers, strict=True)] == answers
    assert [len(one.outputs) for one in group.sequences] == [6, 6, 6]
    assert rig.free == 10


def test_a_group_is_admitted_only_where_each_of_its_sequences_can_begin():
    rig = Rig(7, 4)
    rig.submit(9, max_tokens=3)
    rig.submit(8, n=3, temperature=1.0, max_tokens=2)
    rig.step()
    # Two blocks for the prompt would fit into the four that are free, but not with the first block of each sample.
    assert (rig.waiting(), rig.free) == ([1], 4)
    rig.run()
    assert [event.request for event in rig.events(RequestAdmitted)] == [0, 1]
    assert ends(rig) == [(0, "length", 3), (1, "length", 6)]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("cpu_blocks", [0, 8])
def test_samples_alone_that_outgrow_memory_end_at_capacity(preemption, cpu_blocks):
    rig = Rig(8, 4, preemption=preemption, cpu_blocks=cpu_blocks)
    number = rig.submit(7, n=3, temperature=1.0, max_tokens=50)
    rig.run(limit=100)
    # One block shared, and seven for the rest of three: two each, so that each has written twelve slots.
    assert ends(rig) == [(number, "capacity", 3 * 6)]
    assert [(e.reason, e.output_tokens) for e in rig.events(SequenceFinished)] == [("capacity", 6)] * 3
    assert (rig.events(Preempted), rig.free) == ([], 8)


def test_beams_alone_that_outgrow_memory_end_at_capacity_with_what_they_have():
    rig = Rig(6, 4)
    number = rig.submit(4, n=2, beam_search=True, max_tokens=50)
    rig.run(limit=100)
    [(_, reason, outputs)] = ends(rig)
    assert reason == "capacity"
    answers = rig.arena.requests[number].sequences
    assert [len(one.outputs) for one in answers] == [outputs // 2] * 2
    assert outputs // 2 >= 9
    assert rig.free == 6


@pytest.mark.parametrize("kind", [{"temperature": 1.0}, {"beam_search": True}])
def test_a_group_swapped_out_that_outgrew_memory_ends_at_capacity(kind):
    rig = Rig(10, 4, cpu_blocks=12, preemption="swap")
    rig.submit(20, max_tokens=16)
    number = rig.submit(7, n=3, max_tokens=60, **kind)
    rig.run(limit=300)
    assert {(request, reason) for request, reason, _ in ends(rig)} == {(0, "length"), (number, "capacity")}
    assert rig.events(SwappedOut)
    assert (rig.free, rig.arena.manager.swap_space.num_free) == (10, 12)


def test_a_beam_that_ends_keeps_its_text_and_no_block():
    rig = BeamRig(20, 4, eos=frozenset([9]))
    number = rig.submit(4, n=2, beam_search=True, max_tokens=4)
    rig.step(lambda chunk: [(5, -0.1), (6, -0.2), (7, -5.0)])
    follow = {5: [(9, -0.1), (5, -0.2), (6, -0.9)], 6: [(5, -0.2), (9, -0.5), (6, -0.9)]}
    rig.step(lambda chunk: follow[chunk.sequence.outputs[-1]])
    # Of the two best continuations one ends, and two others run on.
    assert [(e.reason, e.output_tokens) for e in rig.last(SequenceFinished)] == [("stop", 2)]
    [hypothesis] = [one for one in rig.arena.requests[number].sequences if one.finish]
    assert (hypothesis.outputs, hypothesis.table.blocks) == ([5, 9], [])
    assert [one.outputs for one in rig.arena.requests[number].live] == [[5, 5], [6, 5]]
    rig.run(token=lambda chunk: [(5, -3.0), (6, -3.1), (7, -3.2)])
    assert [one.outputs for one in rig.arena.requests[number].sequences] == [[5, 9], [5, 5, 5, 5]]
    assert rig.free == 20


def test_beams_share_so_much_that_they_take_less_than_apart():
    rig = Rig(40, 4)
    number = rig.submit(10, n=4, beam_search=True, max_tokens=12)
    for step in range(12):
        rig.step()
        lengths = [one.computed for one in rig.arena.requests[number].live]
        if step < 11:
            assert len(lengths) == 4
            assert 40 - rig.free < sum(-(-length // 4) for length in lengths)
    assert ends(rig) == [(number, "length", 48)]
