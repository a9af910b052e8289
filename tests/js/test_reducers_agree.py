"""The page's reducer, Python's and the engine are of one mind after every envelope of the same logs, and refuse the same."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.events import Snapshot, Step
from engine.reducer import Reducer
from engine.submission import Refused
from tests.engine.harness import Rig
from tests.impossible import IMPOSSIBLE
from tests.stories import STORIES

ROOT = Path(__file__).parents[2]
NODE = shutil.which("node")
MANAGERS = ("paged", "orca_max", "orca_pow2", "orca_oracle", "static_batch")

pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine: the page's reducer runs in it alone")


def javascript(logs: dict[str, tuple[Snapshot, list[Step]]]) -> dict[str, dict[str, Any]]:
    """Of each log: ``refused``, the envelope that the page's reducer does not believe, its words in ``said``, and the
    ``states`` after the snapshot and after every envelope before that."""
    lines = [{"name": name, "snapshot": snapshot, "steps": steps} for name, (snapshot, steps) in logs.items()]
    given = b"\n".join(msgspec.json.encode(line) for line in lines)
    command = [str(NODE), str(ROOT / "tests/js/reduce_logs.mjs")]
    done = subprocess.run(command, input=given, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return {answer["name"]: answer for answer in map(json.loads, done.stdout.splitlines())}


def states(snapshot: Snapshot, steps: list[Step]) -> list[Any]:
    """What Python's reducer makes of it."""
    reducer = Reducer(snapshot)
    found = [msgspec.to_builtins(reducer.state())]
    for step in steps:
        reducer.apply(step)
        found.append(msgspec.to_builtins(reducer.state()))
    return found


def agree(logs: dict[str, tuple[Snapshot, list[Step]]], truth: dict[str, list[Any]]) -> None:
    for name, answer in javascript(logs).items():
        assert answer["refused"] is None, f"{name}: {answer['said']}"
        assert len(answer["states"]) == len(truth[name])
        for at, (page, expected) in enumerate(zip(answer["states"], truth[name], strict=True)):
            assert page == expected, f"{name}, after envelope {at}"


def test_on_stories_told_by_hand() -> None:
    stories = {name: tell() for name, tell in STORIES.items()}
    logs = {name: (story.snapshot, story.steps) for name, story in stories.items()}
    agree(logs, {name: states(*log) for name, log in logs.items()})


def test_the_page_refuses_what_is_impossible() -> None:
    cases = {name: case.log() for name, case in IMPOSSIBLE.items() if not case.remembered}
    answers = javascript({name: (story.snapshot, story.steps) for name, story in cases.items()})
    believed = {name for name, story in cases.items() if answers[name]["refused"] != len(story.steps)}
    assert believed == set()
    assert len(cases) > 160
    for name, story in cases.items():
        said = answers[name]["said"]
        assert said.startswith("impossible "), said
        # It names the event that is to blame, which is one of the envelope, or its end.
        kinds = {msgspec.to_builtins(event)["type"] for event in story.steps[-1].events}
        assert said.split(": ")[0].removeprefix("impossible ") in {*kinds, "end of an envelope"}


def history(manager: str, seed: int) -> tuple[tuple[Snapshot, list[Step]], list[Any]]:
    """A random history of an engine without a model: its log, and its own states."""
    draw = random.Random(f"{manager} {seed}")
    options: dict[str, Any] = {"max_model_len": 60, "budget": draw.choice([6, 20, 60]), "max_sequences": 6}
    if manager == "paged":
        shape = draw.randint(5, 12), draw.choice([2, 3])
        options |= {"cpu_blocks": 12, "prefix_cache": seed % 2 == 0, "preemption": draw.choice(["auto", "swap"])}
    else:
        shape = draw.randint(6, 16), 6
        options |= {"max_len": draw.choice([12, 16])}
    rig = Rig(*shape, manager=manager, **options)
    first = msgspec.convert(msgspec.to_builtins(rig.arena.snapshot(0.0)), Snapshot)
    truth = [msgspec.to_builtins(rig.arena.state())]

    def note() -> None:
        if len(rig.steps) == len(truth):
            truth.append(msgspec.to_builtins(rig.arena.state()))

    for _ in range(90):
        match draw.randrange(4):
            case 0:
                width = draw.choice([1, 1, 2, 3])
                prompt = [*range(draw.randint(1, 9)), *(draw.randrange(3) for _ in range(draw.randrange(4)))]
                beam = width > 1 and draw.random() < 0.5
                try:
                    rig.submit(prompt, draw.randint(1, 10), ignore_eos=draw.random() < 0.5, n=width, beam_search=beam)
                except Refused:
                    rig.settle()
            case 1 if draw.random() < 0.2:
                rig.abort(draw.randrange(12))
            case _:
                rig.step(lambda chunk: draw.randrange(4))
        note()
    while rig.arena.scheduler.has_work:
        rig.step()
        note()
    return (first, rig.steps), truth


@pytest.mark.parametrize("manager", MANAGERS)
def test_on_random_histories_of_every_manager(manager: str) -> None:
    histories = {f"{manager} {seed}": history(manager, seed) for seed in range(4)}
    agree({name: log for name, (log, _) in histories.items()}, {name: truth for name, (_, truth) in histories.items()})
    kinds = {type(event).__name__ for (_, steps), _ in histories.values() for step in steps for event in step.events}
    expected = {"SequenceForked", "BlockCopied", "RequestAborted", "SequenceFinished"}
    if manager == "paged":
        expected |= {"PrefixHit", "BlockCached", "BlockEvicted", "Preempted", "SwappedOut", "SwappedIn"}
    else:
        expected |= {"RegionReserved", "RegionFreed", "ReservationFailed"}
    assert expected <= kinds
