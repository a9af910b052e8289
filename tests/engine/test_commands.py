"""Commands on a whole engine with a tiny model: what is answered, what is left allocated, who may step."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.events import RequestAborted
from engine.messages import (
    Abort,
    ArenaClosed,
    CloseArena,
    Done,
    Failed,
    OpenArena,
    Output,
    Pause,
    Reset,
    Resume,
    RunStep,
    SetPace,
    SnapshotTaken,
    Submitted,
    TakeSnapshot,
)
from engine.text import Vocabulary
from engine.tiny_model import build as build_tiny
from tests.engine.runs import Run
from tests.engine.tiny_configs import build


@pytest.fixture
def run():
    model, tokenizer = build_tiny(0)
    return Run(model.eval(), Vocabulary(tokenizer), slots=1024)


def test_every_command_is_answered_once(run):
    run.open("a", num_blocks=8, block_size=4)
    assert isinstance(run.submit("a", "hello", max_tokens=3), Submitted)
    for command, more in [
        (Pause, {}),
        (RunStep, {}),
        (Resume, {}),
        (SetPace, {"pace_ms": 5.0}),
        (Abort, {"request": 0}),
    ]:
        assert isinstance(run.do(command, arena="a", **more), Done)
    assert isinstance(run.do(CloseArena, arena="a"), Done)
    refs = [reply.ref for reply in run.replies if hasattr(reply, "ref")]
    assert refs == sorted(set(refs))


@pytest.mark.parametrize(
    ("command", "fields", "message"),
    [
        (OpenArena, {"arena": "b", "num_blocks": 4, "block_size": 0}, "4 blocks of 0 slots cannot be"),
        (OpenArena, {"arena": "b", "num_blocks": 4, "block_size": 257}, "from 1 to 256"),
        (OpenArena, {"arena": "b", "num_blocks": 0, "block_size": 4}, "choose at least 1 block"),
        (OpenArena, {"arena": "b", "num_blocks": 300, "block_size": 4}, "1200 slots asked for and no gap is that wide"),
        (
            OpenArena,
            {"arena": "b", "num_blocks": 4, "block_size": 4, "scene": "x"},
            "scene 'x' does not exist",
        ),
        (OpenArena, {"arena": "b", "num_blocks": 4, "block_size": 4, "pace_ms": -1.0}, "pace_ms is -1.0: choose 0"),
        (OpenArena, {"arena": "a", "num_blocks": 4, "block_size": 4}, "arena 'a' is open already"),
        (Pause, {"arena": "nowhere"}, "arena 'nowhere' does not exist or is closed"),
        (RunStep, {"arena": "a"}, "arena 'a' runs by itself: pause it"),
        (Reset, {"arena": "a", "block_size": 300}, "choose at least 1 block, and a block size from 1 to 256"),
    ],
)
def test_bad_commands_fail_in_words_and_change_nothing(run, command, fields, message):
    run.open("a", num_blocks=8, block_size=4)
    reply = run.do(command, **fields)
    assert isinstance(reply, Failed)
    assert message in reply.message
    assert list(run.engine.places) == ["a"]
    run.open("c", num_blocks=248, block_size=4)


def test_an_empty_and_an_endless_prompt_are_refused(run):
    run.open("a", num_blocks=8, block_size=4)
    empty = run.submit("a", "")
    assert isinstance(empty, Failed)
    assert (empty.code, empty.field) == ("empty_prompt", "prompt")
    for prompt in ("x" * 33, "x" * 5000):
        long = run.submit("a", prompt)
        assert isinstance(long, Failed)
        assert (long.code, str(len(prompt)) in long.message) == ("prompt_too_long", True)
    assert run.engine.places["a"].arena.manager.pool.num_free == 8


def test_a_paused_arena_takes_prompts_and_runs_only_the_steps_asked_for(run):
    run.open("a", num_blocks=8, block_size=4)
    run.do(Pause, arena="a")
    run.submit("a", "hello", max_tokens=5)
    run.drain()
    assert run.outputs("a") == []
    for count in (1, 2):
        run.do(RunStep, arena="a")
        run.drain()
        assert len(run.outputs("a")[0]) == count
    run.do(Resume, arena="a")
    run.drain()
    assert len(run.outputs("a")[0]) == 5


def test_pace_holds_one_arena_back_and_not_the_others(run):
    run.open("slow", num_blocks=8, block_size=4, pace_ms=40.0)
    run.open("fast", num_blocks=8, block_size=4)
    for arena in ("slow", "fast"):
        run.submit(arena, "hello", max_tokens=6, ignore_eos=True)
    done = []
    for now in (0.0, 0.01, 0.039, 0.04, 0.05, 0.085, 0.2):
        run.now = now
        run.drain()
        done.append((len(run.outputs("slow")[0]), len(run.outputs("fast")[0])))
    assert done == [(1, 6), (1, 6), (1, 6), (2, 6), (2, 6), (3, 6), (4, 6)]
    assert run.engine.next_due() == pytest.approx(0.04)


def test_closing_frees_the_range_and_ends_the_streams(run):
    run.open("a", num_blocks=256, block_size=4)
    run.submit("a", "hello", stop=["zzz"])
    run.do(CloseArena, arena="a", reason="the reader left")
    assert [r.finish for r in run.replies if isinstance(r, Output)] == ["abort"]
    assert ArenaClosed("a", "the reader left") in run.replies
    assert [e.reason for step in run.steps for e in step.events if isinstance(e, RequestAborted)] == ["the reader left"]
    run.open("a", num_blocks=256, block_size=4)


def test_reset_begins_a_new_epoch_with_another_block_size(run):
    run.open("a", num_blocks=16, block_size=4)
    run.submit("a", "hello")
    run.do(Reset, arena="a", block_size=16, num_blocks=4)
    taken = run.do(TakeSnapshot, arena="a")
    assert isinstance(taken, SnapshotTaken)
    assert (taken.snapshot.epoch, taken.snapshot.seq) == (1, 0)
    assert (taken.snapshot.state.block_size, taken.snapshot.state.num_blocks) == (16, 4)
    assert taken.snapshot.state.requests == []


def test_the_growing_scene_leaves_memory_out_of_order_and_pauses():
    run = Run(build("llama", 3), slots=1024)
    run.expect("a", num_blocks=48, block_size=4)
    run.do(OpenArena, arena="a", num_blocks=48, block_size=4, scene="growing")
    run.drain()
    state = run.engine.places["a"].arena.state()
    assert state.paused
    assert [request.source for request in state.requests] == ["earlier"] * 4 + ["scene"]
    assert [request.status for request in state.requests] == ["finished"] * 4 + ["running"]
    table = state.sequences[-1].table
    assert len(state.sequences[-1].outputs) == 1
    assert table != sorted(table)


def test_arenas_never_share_a_slot(run):
    run.open("a", num_blocks=8, block_size=4)
    run.open("b", num_blocks=4, block_size=16)
    run.do(CloseArena, arena="a")
    run.open("c", num_blocks=2, block_size=4)
    run.open("d", num_blocks=16, block_size=8)
    ranges = sorted(
        (place.arena.base, place.arena.base + place.arena.manager.capacity) for place in run.engine.places.values()
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_an_unexpected_failure_of_one_command_leaves_the_engine_running(run, monkeypatch):
    run.open("a", num_blocks=8, block_size=4)

    def fail(text):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(run.engine.vocabulary, "encode", fail)
    reply = run.submit("a", "hello")
    assert isinstance(reply, Failed)
    assert (reply.code, "out of luck" in reply.message) == ("engine_error", True)
    monkeypatch.undo()
    assert isinstance(run.submit("a", "hello", max_tokens=2), Submitted)
    run.drain()
    assert len(run.outputs("a")[0]) == 2


def test_a_token_outside_the_vocabulary_is_refused(run):
    run.open("a", num_blocks=8, block_size=4)
    reply = run.submit("a", [1, 70_000])
    assert isinstance(reply, Failed)
    assert (reply.code, reply.field) == ("invalid_prompt", "prompt")
    assert "token id 70000 is not in the vocabulary" in reply.message
