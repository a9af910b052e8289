"""The independent reducer: exact states of stories told by hand, and nothing impossible believed."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from engine import events as ev
from engine.reducer import ANYWHERE, CONTIGUOUS, ENDED_KEPT, PAGED, Impossible, Reducer
from tests.impossible import IMPOSSIBLE
from tests.stories import STORIES, Story, arrive, parts, t


def told(story: Story, count: int | None = None) -> ev.ArenaState:
    """The state after so many envelopes, or all."""
    reducer = Reducer(story.snapshot)
    for step in story.steps[:count]:
        reducer.apply(step)
    return reducer.state()


def tables(state: ev.ArenaState) -> dict[int, list[int]]:
    return {sequence.sequence: sequence.table for sequence in state.sequences}


def block(number: int, refs: int, *tokens: int, **more: object) -> ev.BlockState:
    return ev.BlockState(number, refs, list(tokens), [t(token) for token in tokens], **more)  # type: ignore[arg-type]


def test_every_event_of_the_vocabulary_is_read() -> None:
    assert set(ANYWHERE | PAGED | CONTIGUOUS) == set(get_args(ev.AnyEvent))


def test_a_request_grows_and_ends() -> None:
    story = STORIES["growing"]()
    request = ev.RequestState(0, "running", 3, 2, "page", [0])
    assert told(story, 2) == ev.ArenaState(
        manager="paged",
        block_size=2,
        num_blocks=6,
        step=1,
        paused=False,
        requests=[request],
        sequences=[ev.SequenceState(0, 0, [3, 1], [13], [" t13"])],
        blocks=[block(1, 1, 12), block(3, 1, 10, 11)],
        partition=parts(3, 1, 8),
    )
    assert told(story, 3).paused
    assert told(story) == ev.ArenaState(
        manager="paged",
        block_size=2,
        num_blocks=6,
        step=2,
        paused=True,
        requests=[msgspec.structs.replace(request, status="finished", reason="length")],
        sequences=[ev.SequenceState(0, 0, [], [13, 14], [" t13", " t14"], "length")],
        blocks=[],
        partition=parts(free=12),
    )


def test_samples_share_their_prompt_and_copy_on_write() -> None:
    story = STORIES["sampling"]()
    state = told(story, 2)
    assert (tables(state), state.blocks) == ({0: [4, 1], 1: [4, 1]}, [block(1, 2, 12), block(4, 2, 10, 11)])
    assert (state.requests[0].sequences, state.requests[0].width) == ([0, 1], 2)
    state = told(story, 3)
    assert tables(state) == {0: [4, 3], 1: [4, 1]}
    assert state.blocks == [block(1, 1, 12, 30), block(3, 1, 12, 20), block(4, 2, 10, 11)]
    state = told(story, 4)
    assert [sequence.finish for sequence in state.sequences] == ["stop", ""]
    assert (state.requests[0].status, tables(state)[0]) == ("running", [])
    assert [(r.status, r.reason) for r in told(story).requests] == [("aborted", "the client left")]


def test_cached_blocks_stay_are_found_and_are_evicted() -> None:
    story = STORIES["prefix"]()
    assert told(story, 2).blocks == [block(0, 0, 10, 11, hash="aa"), block(1, 0, 12, 13, hash="bb")]
    assert told(story).blocks == [
        block(0, 2, 10, 11, hash="aa"),
        block(1, 1, 77),
        block(2, 1, 12, 99, hash="cc"),
        block(3, 1, 16),
    ]


def test_a_recomputed_request_keeps_what_it_has_said() -> None:
    story = STORIES["recompute"]()
    state = told(story, 4)
    assert [(r.status, r.priority, r.sequences) for r in state.requests] == [("running", 0, [0]), ("waiting", 2, [1])]
    assert state.sequences[1] == ev.SequenceState(1, 1, [], [21, 22], [" t21", " t22"])
    state = told(story)
    assert state.sequences[1] == ev.SequenceState(1, 1, [0, 2], [21, 22, 23], [" t21", " t22", " t23"])
    assert state.requests[1].sequences == [1]


def test_a_group_swaps_out_and_in() -> None:
    story = STORIES["swapping"]()
    state = told(story, 5)
    assert [request.status for request in state.requests] == ["swapped", "running"]
    assert [(s.table, s.cpu_table) for s in state.sequences] == [([], [2, 0]), ([], [2, 3]), ([5], [])]
    assert state.cpu_blocks == [block(0, 1, 20), block(2, 2, 10, 11), block(3, 1, 30)]
    assert state.blocks == [block(5, 1, 40)]
    state = told(story)
    assert ([request.status for request in state.requests], state.cpu_blocks) == (["running", "running"], [])
    assert [(s.table, s.cpu_table) for s in state.sequences] == [([3, 4], []), ([3, 0], []), ([5], [])]
    assert state.blocks == [block(0, 1, 30), block(3, 2, 10, 11), block(4, 1, 20, 21), block(5, 1, 40, 41)]
    for end in ("away", "stranded"):
        gone = told(STORIES[end]())
        assert (gone.cpu_blocks, [sequence.cpu_table for sequence in gone.sequences]) == ([], [[], [], []])


def test_beams_fork_before_they_free_and_dropped_ones_are_forgotten() -> None:
    story = STORIES["beams"]()
    state = told(story, 3)
    assert state.requests[0].sequences == [0, 2, 3]
    assert [(s.sequence, s.table, s.outputs, s.finish) for s in state.sequences] == [
        (0, [0, 1], [20, 21], ""),
        (2, [0, 1], [20, 22], ""),
        (3, [], [30, 99], "stop"),
    ]
    assert state.blocks == [block(0, 2, 10, 11), block(1, 2, 20)]
    state = told(story)
    assert [(s.sequence, s.outputs, s.finish) for s in state.sequences] == [
        (2, [20, 22], "length"),
        (4, [20, 21, 99], "stop"),
    ]
    assert (state.requests[0].sequences, state.blocks) == ([2, 4], [])


def test_a_registered_prefix_keeps_its_blocks_until_it_is_given_back() -> None:
    story = STORIES["registered"]()
    state = told(story, 2)
    assert (state.requests[0].status, state.requests[0].reason) == ("finished", "registered")
    assert (tables(state), state.sequences[0].finish) == ({0: [0, 1]}, "registered")
    assert told(story, 4).blocks == [block(0, 2, 10, 11), block(1, 1, 12), block(2, 1, 12, 13)]
    state = told(story)
    assert (state.requests[0].status, tables(state)) == ("aborted", {0: [], 1: [0, 2]})


def test_regions_are_reserved_given_copied_returned_and_freed() -> None:
    story = STORIES["regions"]()
    owner = {"size": 8, "needed": 6, "request": 0}
    assert told(story, 2).blocks == [block(0, 1, 10, 11, **owner), block(8, 1, **owner)]
    state = told(story, 3)
    assert state.blocks == [block(0, 0, 10, 11, 20, **owner), block(8, 1, 10, 11, 30, **owner)]
    assert tables(state) == {0: [], 1: [8]}
    assert (told(story).blocks, told(story).partition.free) == ([], 16)


def test_a_static_batch_keeps_its_members_regions() -> None:
    story = STORIES["batch"]()
    state = told(story, 2)
    assert [request.status for request in state.requests] == ["finished", "running", "waiting"]
    assert (tables(state), state.partition) == ({0: [0], 1: [4]}, parts(1, internal=7))
    assert told(story).blocks == []


def test_only_the_last_ended_requests_are_kept_and_those_that_hold_memory() -> None:
    story = STORIES["crowd"]()
    kept = [request.request for request in told(story, len(story.steps) - 1).requests]
    assert kept == [0, *range(6, 70)]
    state = told(story)
    assert [request.request for request in state.requests] == list(range(6, 70))
    assert (len(state.requests), state.sequences) == (ENDED_KEPT, [])


@pytest.mark.parametrize("name", STORIES)
def test_a_story_can_be_followed_from_any_of_its_envelopes(name: str) -> None:
    story = STORIES[name]()
    for start in range(len(story.steps)):
        middle = ev.Snapshot("story", 0, start, 0.0, told(story, start))
        assert told(Story(middle, story.steps[start:])) == told(story)


def test_the_snapshot_is_left_alone() -> None:
    story = STORIES["growing"]()
    middle = ev.Snapshot("story", 0, 2, 0.0, told(story, 2))
    before = msgspec.json.encode(middle)
    told(Story(middle, story.steps[2:]))
    assert msgspec.json.encode(middle) == before


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible(name: str) -> None:
    case = IMPOSSIBLE[name]
    story = case.log()
    reducer = Reducer(story.snapshot)
    *before, wrong = story.steps
    for step in before:
        reducer.apply(step)
    with pytest.raises(Impossible) as refusal:
        reducer.apply(wrong)
    said = str(refusal.value)
    assert f"envelope {wrong.seq}" in said
    assert [word for word in case.words.split(" | ") if word not in said] == [], said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seq": 3}, "('story', 0, 3), and must be ('story', 0, 1)"),
        ({"seq": 0}, "('story', 0, 0), and must be ('story', 0, 1)"),
        ({"epoch": 1}, "('story', 1, 1)"),
        ({"arena": "other"}, "('other', 0, 1)"),
    ],
)
def test_an_envelope_of_another_place_is_refused(change: dict[str, object], words: str) -> None:
    story = STORIES["growing"]()
    with pytest.raises(Impossible) as refusal:
        Reducer(story.snapshot).apply(msgspec.structs.replace(story.steps[0], **change))
    assert words in str(refusal.value)


BROKEN = [
    ("sampling", 3, lambda s: s.blocks.pop(0), "tables name [1, 3, 4], in use are [3, 4]"),
    ("sampling", 3, lambda s: setattr(s.blocks[0], "refs", 2), "block 1: count 2, in tables 1 times"),
    ("sampling", 3, lambda s: s.blocks[0].tokens.append(5), "block 1 of 2 slots: [12, 30, 5]"),
    ("sampling", 3, lambda s: s.requests[0].sequences.append(9), "request 0 names sequence 9"),
    ("sampling", 3, lambda s: s.requests[0].sequences.remove(1), "sequence 1 belongs to request 0"),
    ("sampling", 3, lambda s: s.blocks.append(block(5, 0)), "block 5 has no reference and no hash"),
    ("sampling", 3, lambda s: setattr(s, "partition", parts(6, 0, 5)), "11 slots of 12"),
    ("swapping", 5, lambda s: s.cpu_blocks.pop(), "counted {0: 1, 2: 2}, in CPU tables {2: 2, 0: 1, 3: 1}"),
    (
        "swapping",
        5,
        lambda s: setattr(s.requests[0], "status", "waiting"),
        "sequence 0 (waiting) has the CPU blocks [2, 0]",
    ),
    ("regions", 2, lambda s: setattr(s.blocks[0], "request", 1), "region 0 has count 1"),
]


@pytest.mark.parametrize(("name", "count", "harm", "words"), BROKEN)
def test_a_snapshot_in_disorder_is_refused(name, count, harm, words) -> None:
    state = told(STORIES[name](), count)
    harm(state)
    with pytest.raises(Impossible) as refusal:
        Reducer(ev.Snapshot("story", 0, count, 0.0, state))
    assert f"impossible snapshot {count}: " in str(refusal.value)
    assert words in str(refusal.value)


def test_a_request_keeps_its_number() -> None:
    """After all that is known has been forgotten, an old number is still refused."""
    story = STORIES["crowd"]()
    reducer = Reducer(story.snapshot)
    for step in story.steps:
        reducer.apply(step)
    late = ev.Step("story", 0, len(story.steps) + 1, 0.0, False, parts(free=12), [arrive(3, 1)])
    with pytest.raises(Impossible, match="next number is 70"):
        reducer.apply(late)
