"""Commands on a whole engine with a tiny model: what is answered, what is left allocated, who may step."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.decoding.text import Vocabulary
from engine.events import RequestAborted
from engine.messages import (
    Abort,
    ArenaClosed,
    CloseArena,
    Done,
    Echo,
    Failed,
    Fork,
    Memory,
    OpenArena,
    Output,
    Pause,
    RegisterPrefix,
    Reset,
    ResetCache,
    Resume,
    RunStep,
    SetPace,
    SnapshotTaken,
    Submitted,
    TakeSnapshot,
)
from engine.model.tiny_model import build as build_tiny
from tests.engine.runs import Run
from tests.engine.tiny_configs import build


@pytest.fixture
def run():
    model, tokenizer = build_tiny(0)
    return Run(model.eval(), Vocabulary(tokenizer), slots=1024, cpu_slots=64)


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


def opening(memory: Memory, **more):
    return (OpenArena, {"arena": "b", "memory": memory} | more)


@pytest.mark.parametrize(
    ("command", "fields", "message"),
    [
        (*opening(Memory(0, 4)), "4 blocks of 0 slots cannot be"),
        (*opening(Memory(257, 4)), "a block size from 1 to 256"),
        (*opening(Memory(4, 0)), "choose at least 1 block"),
        (*opening(Memory(4, 300)), "1200 slots asked for and no gap is that wide"),
        (*opening(Memory(4, 4, cpu_blocks=17)), "68 slots asked for and no gap is that wide (64 of 64 slots are free)"),
        (
            *opening(Memory(4, 4, manager="segmented")),
            "manager 'segmented' does not exist: choose one of paged, orca_max",
        ),
        (
            *opening(Memory(4, 4, preemption="never")),
            "preemption 'never' does not exist: choose one of auto, recompute",
        ),
        (*opening(Memory(4, 4, prefill_chunk=-2)), "prefill_chunk is -2: choose tokens, 0 for the budget, or -1"),
        (*opening(Memory(4, 4, cpu_blocks=-1)), "cpu_blocks is -1 and max_len 0: neither can be below 0"),
        (*opening(Memory(4, 4, "orca_max", prefix_cache=True)), "orca_max neither swaps nor shares prefixes"),
        (*opening(Memory(4, 4), scene="x"), "scene 'x' does not exist"),
        (*opening(Memory(4, 4), pace_ms=-1.0), "pace_ms is -1.0: choose 0"),
        (OpenArena, {"arena": "a", "memory": Memory(4, 4)}, "arena 'a' is open already"),
        (Pause, {"arena": "nowhere"}, "arena 'nowhere' does not exist or is closed"),
        (RunStep, {"arena": "a"}, "arena 'a' runs by itself: pause it"),
        (Reset, {"arena": "a", "memory": Memory(300, 8)}, "choose at least 1 block, and a block size from 1 to 256"),
        (Fork, {"arena": "a", "sequence": 3}, "sequence 3 does not decode now"),
        (RegisterPrefix, {"arena": "a", "prompt": ""}, "the prompt has 0 tokens"),
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
    assert run.engine.places["a"].arena.manager.num_free == 8


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
    run.do(Reset, arena="a", memory=Memory(16, 4))
    taken = run.do(TakeSnapshot, arena="a")
    assert isinstance(taken, SnapshotTaken)
    assert (taken.snapshot.epoch, taken.snapshot.seq) == (1, 0)
    assert (taken.snapshot.state.block_size, taken.snapshot.state.num_blocks) == (16, 4)
    assert taken.snapshot.state.requests == []


def test_the_growing_scene_leaves_memory_out_of_order_and_pauses():
    run = Run(build("llama", 3), slots=1024)
    run.expect("a", num_blocks=48, block_size=4)
    run.do(OpenArena, arena="a", memory=Memory(4, 48), scene="growing")
    run.drain()
    state = run.engine.places["a"].arena.state()
    assert state.paused
    assert [request.source for request in state.requests] == ["earlier"] * 4 + ["scene"]
    assert [request.status for request in state.requests] == ["finished"] * 4 + ["running"]
    table = state.sequences[-1].table
    assert len(state.sequences[-1].outputs) == 1
    assert table != sorted(table)


def test_arenas_never_share_a_slot(run):
    run.open("a", num_blocks=8, block_size=4, cpu_blocks=4)
    run.open("b", num_blocks=4, block_size=16, cpu_blocks=1)
    run.do(CloseArena, arena="a")
    run.open("c", num_blocks=2, block_size=4, cpu_blocks=2)
    run.open("d", num_blocks=16, block_size=8, cpu_blocks=2)
    places = run.engine.places.values()
    for ranges in (
        sorted((place.base, place.base + place.arena.memory.slots) for place in places),
        sorted((place.cpu_base, place.cpu_base + place.arena.memory.cpu_slots) for place in places),
    ):
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


def test_a_fork_is_answered_and_streamed_as_a_further_sample(run):
    run.open("a", num_blocks=16, block_size=4)
    run.submit("a", "hello", max_tokens=6, ignore_eos=True, temperature=1.0, stream=True)
    run.step()
    run.step()
    assert isinstance(run.do(Fork, arena="a", sequence=0), Done)
    run.drain()
    ends = [
        (reply.index, reply.finish, reply.last) for reply in run.replies if isinstance(reply, Output) and reply.finish
    ]
    assert ends == [(0, "length", False), (1, "length", True)]
    first, second = run.outputs("a")
    assert (first[:2], len(first), len(second)) == (second[:2], 6, 6)
    # It said what its parent had said before the fork already.
    told = [reply.tokens for reply in run.replies if isinstance(reply, Output) and reply.index == 1]
    assert [token for tokens in told for token in tokens] == second[2:]


def test_a_prefix_is_registered_shared_and_given_back(run):
    run.open("a", num_blocks=16, block_size=4)
    registered = run.do(RegisterPrefix, arena="a", prompt="you are kind. ")
    assert (registered.request, registered.prompt_tokens) == (0, 14)
    run.drain()
    assert [reply.finish for reply in run.replies if isinstance(reply, Output)] == ["registered"]
    run.submit("a", "you are kind. hello", max_tokens=2, stream=True)
    run.drain()
    assert run.replies[-1].cached_tokens == 14
    assert run.engine.places["a"].arena.manager.num_free == 12
    assert isinstance(run.do(Abort, arena="a", request=0), Done)
    assert run.engine.places["a"].arena.manager.num_free == 16


def test_the_log_probabilities_of_a_prompt_are_all_told_whoever_has_its_blocks(run):
    run.open("a", num_blocks=32, block_size=4, prefix_cache=True)
    run.do(RegisterPrefix, arena="a", prompt="you are kind. ")
    run.submit("a", "you are kind. hello", max_tokens=1)
    run.drain()
    run.submit("a", "you are kind. hello", max_tokens=1, logprobs=1, stream=True, echo=True)
    run.drain()
    [echo] = [reply for reply in run.replies if isinstance(reply, Echo)]
    assert echo.text == "".join(score.text for score in echo.logprobs) == "you are kind. hello"
    assert echo.logprobs[0].logprob is None
    assert all(score.logprob < 0 for score in echo.logprobs[1:])


def test_the_cache_is_reset_when_nothing_is_in_use(run):
    run.open("a", num_blocks=16, block_size=4, prefix_cache=True)
    run.open("b", num_blocks=16, block_size=4, manager="orca_max", max_len=16)
    run.submit("a", "hello there", max_tokens=9, ignore_eos=True)
    run.step()
    busy = run.do(ResetCache, arena="a")
    assert (busy.code, busy.message) == ("cache_in_use", "3 blocks are in use: wait until all requests have ended")
    run.drain()
    assert isinstance(run.do(ResetCache, arena="a"), Done)
    assert run.engine.places["a"].arena.manager.blocks() == []
    assert run.do(ResetCache, arena="b").code == "unsupported"
