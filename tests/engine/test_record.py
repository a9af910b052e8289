"""Recordings of a real engine with a tiny random model: whatever the manager, they replay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import app.record
from app import cli
from engine import record
from engine.config import EngineConfig
from engine.events import BlockCached, BlockCopied, RegionReserved, SequenceFinished, Step, SwappedIn
from engine.messages import Memory, Sampling
from engine.model.model_loader import Loaded, load
from engine.record import Recording, Untellable
from engine.replay import replay
from engine.trace import Reader

CONFIG = EngineConfig(model="tiny", dtype="float32", device="cpu", attention="reference", kv_slots=256, cpu_kv_slots=64)
PROMPTS = ["Once upon a time there was a king", "Once upon a time there was a queen"]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(CONFIG, lambda stage, progress: None)


def steps(path: Path) -> list[Step]:
    """Those of a trace that has been verified."""
    with Reader(path) as reader:
        found = [msgspec.convert(msgspec.to_builtins(step), Step) for step, _ in replay(reader)]
        assert reader.closing is not None
        assert {request.status for request in reader.closing.state.requests} == {"finished"}
    return found


def told(loaded: Loaded, path: Path, memory: Memory, **more: Any) -> list[Step]:
    sampling = more.pop("sampling", Sampling(max_tokens=6, ignore_eos=True))
    recording = Recording(str(path), CONFIG, memory=memory, prompts=PROMPTS, sampling=sampling, **more)
    record.record(loaded, recording)
    return steps(path)


def kinds(log: list[Step]) -> set[type]:
    return {type(event) for step in log for event in step.events}


def test_samples_in_paged_memory_with_everything_on(loaded: Loaded, tmp_path: Path) -> None:
    memory = Memory(4, 20, cpu_blocks=16, prefix_cache=True, preemption="swap")
    sampling = Sampling(max_tokens=12, ignore_eos=True, n=3, temperature=1.0, seed=7)
    log = told(loaded, tmp_path / "paged.jsonl.gz", memory, sampling=sampling)
    assert {BlockCached, BlockCopied, SwappedIn} <= kinds(log)


@pytest.mark.parametrize("manager", ["orca_max", "orca_oracle", "static_batch"])
def test_the_baselines(loaded: Loaded, tmp_path: Path, manager: str) -> None:
    memory = Memory(4, 32, manager=manager, max_len=48 if manager in ("orca_max", "static_batch") else 0)
    log = told(loaded, tmp_path / "regions.jsonl", memory)
    assert RegionReserved in kinds(log)


def test_beams(loaded: Loaded, tmp_path: Path) -> None:
    log = told(loaded, tmp_path / "beams.jsonl", Memory(4, 64), sampling=Sampling(max_tokens=5, n=2, beam_search=True))
    reasons = {event.reason for step in log for event in step.events if isinstance(event, SequenceFinished)}
    assert "dropped" in reasons


@pytest.mark.slow
def test_the_story_of_the_page(loaded: Loaded, tmp_path: Path) -> None:
    path = tmp_path / "growing.jsonl"
    record.record(loaded, Recording(str(path), CONFIG, story="growing"))
    log = steps(path)
    sources = [event.source for step in log for event in step.events if type(event).__name__ == "RequestArrived"]
    assert sources == ["earlier"] * 4 + ["scene", "page"]
    with Reader(path) as reader:
        assert reader.header.label == "Growing a sequence"


@pytest.mark.slow
def test_a_recording_is_the_same_again_but_for_its_times(loaded: Loaded, tmp_path: Path) -> None:
    def timeless(name: str) -> list[Any]:
        log = told(loaded, tmp_path / name, Memory(4, 24), sampling=Sampling(max_tokens=8, temperature=1.0))
        lines: Any = msgspec.to_builtins(log)
        for line in lines:
            del line["t"]
            for event in line["events"]:
                event.pop("ms", None)
        return list(lines)

    assert timeless("a.jsonl") == timeless("b.jsonl")


def test_a_recording_can_stop_early(loaded: Loaded, tmp_path: Path) -> None:
    path = tmp_path / "short.jsonl"
    recording = Recording(str(path), CONFIG, memory=Memory(4, 24), prompts=PROMPTS, steps=3)
    assert record.record(loaded, recording) == 3
    with Reader(path) as reader:
        assert [state.step for _, state in replay(reader)][-1] == 3


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (Memory(4, 2), "needs 9 blocks of 4 slots, and this memory has 2"),
        (Memory(300, 2), "2 blocks of 300 slots cannot be"),
        (Memory(4, 24, manager="orca"), "manager 'orca' does not exist"),
    ],
)
def test_what_the_engine_refuses_is_said_and_leaves_no_file(
    loaded: Loaded, tmp_path: Path, memory: Memory, words: str
) -> None:
    with pytest.raises(Untellable) as refusal:
        told(loaded, tmp_path / "none.jsonl", memory)
    assert words in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_hands_its_options_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[list[str]] = []

    def start(command: list[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(app.record.subprocess, "run", start)
    monkeypatch.setenv("DTYPE", "bfloat16")
    options = (
        "--manager paged --block-size 8 --num-blocks 5 --cpu-blocks 6 --prefix-cache --preemption swap --n 3 --beam"
    )
    more = (
        "--max-tokens 9 --temperature 0.5 --seed 4 --model tiny --steps 7 --label told --ignore-eos --prefill-chunk 2"
    )
    file = tmp_path / "a.jsonl"
    prompts = ["--prompt", "one", "--prompt", "two"]
    result = CliRunner().invoke(cli.app, ["record", str(file), *prompts, *options.split(), *more.split()])
    assert result.exit_code == 3
    assert commands[0][:3] == [sys.executable, "-m", "engine.record"]
    told = msgspec.json.decode(commands[0][3], type=Recording)
    assert (told.path, told.prompts, told.steps, told.label, told.story) == (
        str(file),
        ["one", "two"],
        7,
        "told",
        "prompts",
    )
    assert (told.config.model, told.config.dtype) == ("tiny", "bfloat16")
    memory = {"block_size": 8, "num_blocks": 5, "cpu_blocks": 6, "prefix_cache": True, "preemption": "swap"}
    assert msgspec.to_builtins(told.memory) == {"manager": "paged", "max_len": 0, "prefill_chunk": 2, **memory}
    sampling = {"n": 3, "beam_search": True, "max_tokens": 9, "temperature": 0.5, "seed": 4, "ignore_eos": True}
    assert {name: getattr(told.sampling, name) for name in sampling} == sampling
