"""The page's reducer, Python's and the engine are of one mind after every envelope of the same logs."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine import trace
from engine.arena import Refused
from engine.events import Snapshot
from engine.messages import ModelInfo
from engine.reducer import Reducer
from tests.engine.harness import Rig

ROOT = Path(__file__).parents[2]
NODE = shutil.which("node")
MODEL = ModelInfo("none", "a test's own tokens", "", "cpu", "float32", "none", 100, 100, 0)

pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine: the page's reducer runs in it alone")


def javascript(path: Path) -> dict[int, Any]:
    """Envelope number to state, as the page's reducer has it."""
    command = [str(NODE), str(ROOT / "tests/js/reduce_log.mjs"), str(path), "--each"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return {line["seq"]: line["state"] for line in map(json.loads, done.stdout.splitlines())}


def test_on_the_recording_of_the_page() -> None:
    path = ROOT / "static/recordings/growing.jsonl"
    page = javascript(path)
    _, snapshot, steps = trace.read(path)
    reducer = Reducer(snapshot)
    assert page[0] == msgspec.to_builtins(reducer.state())
    for step in steps:
        reducer.apply(step)
        assert page[step.seq] == msgspec.to_builtins(reducer.state()), f"after envelope {step.seq}"
    assert len(page) > 40


@pytest.mark.parametrize("seed", range(8))
def test_on_random_histories_with_aborts_and_preemption(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    rig = Rig(draw.randint(2, 14), draw.choice([1, 3, 4, 16]), max_model_len=60, budget=20, max_sequences=4)
    first = msgspec.convert(msgspec.to_builtins(rig.arena.snapshot(0.0)), Snapshot)
    truth = [msgspec.to_builtins(rig.arena.state())]

    def note() -> None:
        if len(rig.steps) == len(truth):
            truth.append(msgspec.to_builtins(rig.arena.state()))

    for _ in range(120):
        match draw.randrange(4):
            case 0:
                try:
                    rig.submit(draw.randint(0, 30), max_tokens=draw.randint(1, 12), ignore_eos=draw.random() < 0.5)
                except Refused:
                    rig.settle()
            case 1 if draw.random() < 0.3:
                rig.abort(draw.randrange(10))
            case _:
                rig.step(draw.randint(0, 50))
        note()
    while rig.arena.scheduler.has_work:
        rig.step()
        note()
    path = tmp_path / "log.jsonl"
    trace.write(path, "a random history", MODEL, first, rig.steps)
    page = javascript(path)
    assert sorted(page) == list(range(len(truth)))
    for seq, state in enumerate(truth):
        assert page[seq] == state, f"after envelope {seq}"
