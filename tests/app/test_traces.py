"""``paged record`` and ``paged replay`` as a person uses them."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from app import cli
from app.follow import Tape, Unfollowable
from app.main import engine_command
from app.replay_frame import Slot, frame, letter, slots
from engine import trace
from engine.messages import ModelInfo
from engine.reducer import Reducer
from engine.replay import replay
from engine.trace import Header, Reader
from tests.app.conftest import Site, serve
from tests.impossible import IMPOSSIBLE
from tests.stories import STORIES, Story

ROOT = Path(__file__).parents[2]
HEADER = Header("A story", ModelInfo("none", "", "", "cpu", "float32", "none", 100, 100, 0), "2026-01-31")


def state_of(story: Story) -> Any:
    reducer = Reducer(story.snapshot)
    for step in story.steps:
        reducer.apply(step)
    return reducer.state()


def write(path: Path, name: str = "sampling") -> Path:
    story = STORIES[name]()
    closing = msgspec.structs.replace(story.snapshot, seq=len(story.steps), state=state_of(story))
    trace.write(path, HEADER, story.snapshot, story.steps, closing)
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(one) for one in arguments], env={"COLUMNS": "100", "TERM": "dumb"})


def shown(name: str, told: int, width: int = 100) -> list[str]:
    """What the terminal shows after so many envelopes of a story, line by line."""
    story = STORIES[name]()
    del story.steps[told:]
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(frame(HEADER, state_of(story), story.steps[-1], width))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("name", STORIES)
def test_a_right_trace_is_verified(name: str, tmp_path: Path) -> None:
    result = run("replay", write(tmp_path / "story.jsonl.gz", name), "--quiet")
    envelopes = len(STORIES[name]().steps)
    assert result.exit_code == 0
    assert f"in {envelopes} envelopes" in result.output
    assert result.output.count("\n") == 1


def test_an_impossible_event_ends_with_status_1_and_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "story.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"source":1,"destinations":[3]', b'"source":4,"destinations":[3]'))
    result = run("replay", path, "--quiet")
    assert result.exit_code == 1
    said = f"{path}, line 5: impossible event in envelope 3: block 3 replaces block 1, not block 4; it is BlockCopied("
    assert said in result.output


def test_what_is_no_trace_is_said(tmp_path: Path) -> None:
    result = run("replay", tmp_path / "none.jsonl")
    assert (result.exit_code, "cannot be read" in result.output) == (1, True)


def test_replay_stops_at_a_step_and_shows_it(tmp_path: Path) -> None:
    path = write(tmp_path / "story.jsonl")
    result = run("replay", path, "--step", "2")
    assert result.exit_code == 0
    assert "step 2, 0.0 s; paged, 6 blocks of 2: 6 token states, 6 free" in result.output
    assert "stopped after step 2; what follows was not verified" in result.output
    missing = run("replay", path, "--step", "9")
    assert (missing.exit_code, "there is no step 9: the last one is 3" in missing.output) == (1, True)


def test_the_picture_of_paged_memory() -> None:
    assert shown("sampling", 4) == [
        "A story  none, 2026-01-31",
        "step 3, 0.0 s; paged, 6 blocks of 2: 5 token states, 1 held, 6 free",
        "",
        "__ AA A· __ AA __",
        "",
        "request  status   sequence  tokens  blocks        says",
        "A        stop            0       6                 t20 t21 t22",
        "         running         1       6  4, 1, 2        t30 t31 t32",
        "",
        "2 block_allocated, 2 slots_written, 2 token_generated, 1 sequence_finished, 3 block_released, 2",
        "block_freed",
    ]
    assert shown("prefix", 2)[3] == "□□ □□ __ __"
    assert shown("swapping", 5)[6:8] == [
        "A        swapped         0       4  CPU 2, 0       t20 t21",
        "         swapped         1       4  CPU 2, 3       t30 t31",
    ]


def test_the_picture_of_regions() -> None:
    lines = shown("regions", 3)
    assert lines[1] == "step 2, 0.0 s; orca_max, 16 slots: 3 token states, 9 internal, 4 external"
    assert lines[3] == "········AAA·····"
    assert lines[6:9] == [
        "A        stop            0       4                 t20 t21",
        "         running         1       4  8              t30 t31",
        "B        waiting                 2",
    ]


def test_slots_know_their_owners() -> None:
    story = STORIES["sampling"]()
    del story.steps[2:]
    assert slots(state_of(story)) == [
        *[Slot("free")] * 2,
        Slot("written", 0, 2),
        Slot("held", 0, 2),
        *[Slot("free")] * 4,
        *[Slot("written", 0, 2)] * 2,
        *[Slot("free")] * 2,
    ]
    assert [letter(number) for number in (0, 25, 26, 53)] == ["A", "Z", "A2", "B3"]


def test_a_long_text_shows_its_end_and_a_narrow_terminal_breaks_nothing() -> None:
    lines = shown("sampling", 4, width=78)
    assert lines[6].endswith("t20 t21 t22")
    assert max(map(len, shown("sampling", 4, width=30))) <= 30


def test_help_says_what_there_is() -> None:
    result = CliRunner().invoke(cli.app, ["record", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    text = re.sub(r"[\s│]+", " ", result.output)
    for option in ("--manager", "--prompt", "--beam", "--story", "--url", "--view", "--cpu-blocks", "--prefix-cache"):
        assert option in text
    assert "orca_oracle" in text
    assert "--speed" in run("replay", "--help").output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "there is nothing to record: give --prompt, --story growing, or --url and --view"),
        (["--url", "http://127.0.0.1:1"], "--url and --view belong together"),
        (["--view", "abc"], "--url and --view belong together"),
        (["--story", "growing", "--prompt", "x"], "the story growing has its own prompts"),
        (["--prompt", "x", "--dtype", "float8"], "DTYPE is 'float8'"),
        (["--prompt", "x", "--manager", "orca"], "orca_max"),
    ],
)
def test_options_that_cannot_be_are_explained(options: list[str], words: str, tmp_path: Path) -> None:
    result = run("record", tmp_path / "a.jsonl", *options)
    assert result.exit_code == 2
    assert words in re.sub(r"[\s│]+", " ", result.output)


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    result = run("record", tmp_path / "a.jsonl", "--url", "http://127.0.0.1:9", "--view", "x")
    assert result.exit_code == 1
    assert "http://127.0.0.1:9 cannot be reached" in result.output


async def start(site: Site, path: Path, view: str, *more: str) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "app.cli", "record", str(path), "--url", site.url, "--view", view, *more]
    return await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def test_an_arena_of_a_running_server_is_recorded_until_it_closes(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "arena.jsonl"
    async with site.browser() as page:
        opened = await page.open()
        arena = opened["arena"]
        recorder = await start(site, path, opened["view_id"], "--label", "seen")
        assert recorder.stdout is not None
        assert f"recording arena {arena} of {site.url}".encode() in await recorder.stdout.readline()
        await page.say("submit", arena=arena, prompt="forever")
        await page.hear("step")
        await page.say("abort", arena=arena, request=0)
        await page.hear("step")
        await page.say("close", arena=arena)
        out, complaints = await asyncio.wait_for(recorder.communicate(), 60)
    assert (recorder.returncode, complaints) == (0, b"")
    assert b"until the arena was closed: its page closed it" in out
    with Reader(path) as reader:
        states = [json.loads(msgspec.json.encode(state)) for _, state in replay(reader)]
        assert (reader.header.label, reader.header.model.name, reader.opening.arena) == ("seen", "fake-model", arena)
    assert [[r["status"] for r in state["requests"]] for state in states] == [["waiting"], ["aborted"]]


async def test_an_unknown_view_is_refused_in_the_servers_words(site: Site, tmp_path: Path) -> None:
    recorder = await start(site, tmp_path / "arena.jsonl", "nobody")
    out, complaints = await asyncio.wait_for(recorder.communicate(), 60)
    assert (recorder.returncode, out) == (1, b"")
    assert b"the server refuses: no arena has this view_id" in complaints


@pytest.fixture
def tape(tmp_path: Path) -> Iterator[Tape]:
    story = STORIES["growing"]()
    with trace.Writer(tmp_path / "a.jsonl", HEADER, story.snapshot) as writer:
        yield Tape(story.snapshot, writer)


def test_a_server_that_tells_what_cannot_be_is_found_out(tape: Tape) -> None:
    wrong = IMPOSSIBLE["block allocates what is in use"].log().steps
    for step in wrong[:-1]:
        assert tape.hear(step) == ""
    with pytest.raises(
        Unfollowable, match="the server tells what cannot be: impossible event in envelope 3: block 3 is"
    ):
        tape.hear(wrong[-1])


def test_lost_steps_are_said_and_a_new_beginning_ends_the_recording(tape: Tape) -> None:
    story = STORIES["growing"]()
    for step in story.steps[:2]:
        tape.hear(step)
    assert (tape.hear(None), tape.hear("the server is gone"), tape.steps) == ("", "the server is gone", 1)
    closing = tape.closing()
    assert (closing.seq, closing.t, closing.state.step) == (2, 20.0, 1)
    assert tape.hear(closing) == ""
    assert tape.hear(msgspec.structs.replace(closing, epoch=1, seq=0)) == "the arena began anew"
    with pytest.raises(Unfollowable, match="steps 3 to 7 were lost"):
        tape.hear(msgspec.structs.replace(closing, seq=7))


@pytest.mark.slow
async def test_ctrl_c_ends_a_recording_with_the_servers_own_snapshot(tmp_path: Path) -> None:
    """Over the real engine, which goes on writing meanwhile."""
    path = tmp_path / "arena.jsonl.gz"
    real = serve(command=engine_command, model="tiny", device="cpu", dtype="float32", attention="reference")
    async with real as site, site.browser() as page:
        opened = await page.open(params={"block_size": 4, "num_blocks": 48, "pace_ms": 20})
        arena = opened["arena"]
        recorder = await start(site, path, opened["view_id"])
        assert recorder.stdout is not None
        await recorder.stdout.readline()
        for prompt in ("Hello there", "Who is there"):
            await page.say("submit", arena=arena, prompt=prompt, max_tokens=60, ignore_eos=True, n=2, temperature=1)
        await page.say("resume", arena=arena)
        while not any(event["type"] == "block_copied" for event in (await page.hear("step"))["events"]):
            pass
        recorder.send_signal(signal.SIGINT)
        out, complaints = await asyncio.wait_for(recorder.communicate(), 60)
    assert (recorder.returncode, complaints) == (0, b"")
    assert b"until you stopped it" in out
    with Reader(path) as reader:
        last = [state for _, state in replay(reader)][-1]
        assert reader.header.model.name == "tiny-random-llama"
    assert [len(request.sequences) for request in last.requests] == [2, 2]
