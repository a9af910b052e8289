"""Traces: written and read line by line, verified by the reducer; whatever is wrong with one is said with its line."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engine import trace
from engine.events import ArenaState, BlockAllocated, RequestFinished, SequenceFinished, Snapshot
from engine.messages import ModelInfo
from engine.reducer import Reducer
from engine.replay import difference, replay
from engine.trace import Header, Reader, TraceError, Writer
from tests.stories import STORIES, Story

RECORDING = Path(__file__).parents[2] / "static/recordings/growing.jsonl"
MODEL = ModelInfo("none", "a test's own tokens", "", "cpu", "float32", "none", 100, 100, 0)
HEADER = Header("a story", MODEL, "2026-01-31")


def closing(story: Story) -> Snapshot:
    reducer = Reducer(story.snapshot)
    for step in story.steps:
        reducer.apply(step)
    return msgspec.structs.replace(story.snapshot, seq=len(story.steps), state=reducer.state())


def write(path: Path, name: str = "swapping") -> Path:
    story = STORIES[name]()
    trace.write(path, HEADER, story.snapshot, story.steps, closing(story))
    return path


def follow(path: Path) -> int:
    with Reader(path) as reader:
        return sum(1 for _ in replay(reader))


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize("name", STORIES)
def test_a_trace_survives_writing_and_reading(name: str, suffix: str, tmp_path: Path) -> None:
    story = STORIES[name]()
    path = write(tmp_path / f"story{suffix}", name)
    with Reader(path) as reader:
        assert (reader.header, reader.opening, reader.closing) == (HEADER, story.snapshot, None)
        assert list(reader) == story.steps
        assert reader.closing == closing(story)
    assert follow(path) == len(story.steps)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_compressed_trace_is_the_same_bytes_whenever_it_is_written(tmp_path: Path) -> None:
    plain, first, second = (write(tmp_path / name) for name in ("a.jsonl", "a.jsonl.gz", "b.jsonl.gz"))
    assert first.read_bytes() == second.read_bytes()
    assert gzip.decompress(first.read_bytes()) == plain.read_bytes()
    assert len(first.read_bytes()) < len(plain.read_bytes()) / 3


def test_what_is_not_closed_leaves_no_file(tmp_path: Path) -> None:
    story = STORIES["growing"]()

    def give_up() -> None:
        with Writer(tmp_path / "a.jsonl", HEADER, story.snapshot) as writer:
            writer.add(story.steps[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        give_up()
    assert list(tmp_path.iterdir()) == []


def test_ten_times_the_trace_does_not_take_twice_the_memory(tmp_path: Path) -> None:
    def peak(envelopes: int) -> int:
        story = STORIES["growing"]()
        del story.steps[3:]
        for _ in range(envelopes):
            story.tell([], story.steps[-1].partition, paused=True)
        path = tmp_path / f"{envelopes}.jsonl.gz"
        trace.write(path, HEADER, story.snapshot, story.steps, closing(story))
        del story
        tracemalloc.start()
        assert follow(path) == 3 + envelopes
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    assert peak(2000) < 2 * peak(200)


Harm = Callable[[list[bytes]], list[bytes]]


def replaced(number: int, old: bytes, new: bytes) -> Harm:
    """Line ``number`` with something else in it."""

    def harm(lines: list[bytes]) -> list[bytes]:
        assert old in lines[number - 1]
        return [line.replace(old, new) if at == number else line for at, line in enumerate(lines, 1)]

    return harm


# The story has six envelopes: a header and a snapshot, lines 3 to 8, and the closing snapshot in line 9.
BROKEN: list[tuple[str, Harm, str]] = [
    ("is empty", lambda lines: [], "line 1: the file ends, and a header must follow"),
    ("is no JSON", lambda lines: [b"no json", *lines], "line 1: this must be a header"),
    ("is another file", lambda lines: [b'{"label": "x"}', *lines], "line 1: this must be a header"),
    ("has no model", replaced(1, b'"model"', b'"other"'), "line 1: this must be a header (Object missing required field"),
    ("is another format", replaced(1, b"paged-trace", b"other-trace"), "line 1: other-trace version 1, and this program"),
    ("is another version", replaced(1, b'"v":1', b'"v":99'), "line 1: paged-trace version 99, and this program reads"),
    ("has only a header", lambda lines: lines[:1], "line 2: the file ends, and a snapshot must follow"),
    ("opens with a step", lambda lines: [lines[0], *lines[2:]], "line 2: this must be a snapshot"),
    ("has a snapshot of another version", replaced(2, b'"v":1', b'"v":2'), "line 2: version 2, and this program reads"),
    ("has a snapshot in disorder", replaced(2, b'"free":12', b'"free":9'), "line 2: impossible snapshot 0: "),
    ("has a step of another version", replaced(4, b'"v":1', b'"v":2'), "line 4: version 2, and this program reads"),
    ("has no JSON within", lambda lines: [*lines[:4], b"{", *lines[4:]], "line 5: this must be a step or the closing"),
    ("has an unknown event", replaced(4, b"request_admitted", b"block_teleported"), "line 4: this must be a step or the"),
    ("lacks a step", lambda lines: [*lines[:3], *lines[4:]], "line 4: the step of (arena, epoch, number) ('story', 0, 3)"),
    ("repeats a step", lambda lines: [*lines[:4], *lines[3:]], "line 5: the step of (arena, epoch, number) ('story', 0, 2)"),
    ("swaps two steps", lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "line 3: the step of"),
    ("changes its arena", replaced(5, b'"arena":"story"', b'"arena":"other"'), "line 5: the step of"),
    ("changes its epoch", replaced(5, b'"epoch":0', b'"epoch":1'), "line 5: the step of"),
    ("is cut after a step", lambda lines: lines[:6], "line 6: the file ends after step 4 without a closing snapshot"),
    ("is cut within a line", lambda lines: [*lines[:5], lines[5][:40]], "line 6: this must be a step or the closing"),
    ("closes too early", lambda lines: [*lines[:7], lines[8]], "line 8: the closing snapshot of (arena, epoch, number)"),
    ("goes on after its end", lambda lines: [*lines, lines[8]], "line 10: nothing may follow the closing snapshot"),
    ("says what is impossible", replaced(7, b'"block":5', b'"block":4'), "line 7: impossible event in envelope 5"),
    ("closes with another state", replaced(9, b'"step":4', b'"step":5'), "line 9: the steps do not lead to the closing"),
]  # fmt: skip


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize(("harm", "words"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_trace_that(harm: Harm, words: str, suffix: str, tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl").read_bytes().splitlines()
    content = b"".join(line + b"\n" for line in harm(good))
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    with pytest.raises(TraceError) as refusal:
        follow(path)
    assert str(refusal.value).startswith(f"{path}, {words}")
    assert refusal.value.line == int(words.split(":")[0].removeprefix("line "))


def test_damaged_compression_is_said(tmp_path: Path) -> None:
    whole = write(tmp_path / "good.jsonl.gz").read_bytes()
    cases = {
        "cut": (whole[: len(whole) // 2], "the file is damaged or cut short"),
        "no gzip": (b'{"label": "plain"}\n', "line 1: the file is damaged or cut short"),
        "changed": (whole[:40] + bytes([whole[40] ^ 255]) + whole[41:], "line"),
        "empty": (b"", "line 1: the file ends, and a header must follow"),
    }
    for name, (content, words) in cases.items():
        path = tmp_path / f"{name}.jsonl.gz"
        path.write_bytes(content)
        with pytest.raises(TraceError) as refusal:
            follow(path)
        assert words in str(refusal.value), name


def test_what_cannot_be_opened_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.jsonl: cannot be read \(No such file or directory\)"):
        Reader(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match=r"cannot be read \(Is a directory\)"):
        Reader(tmp_path)
    with pytest.raises(TraceError, match=r"cannot be written \(No such file or directory\)"):
        write(tmp_path / "no" / "folder.jsonl")
    with pytest.raises(TraceError, match=r"\.zst cannot be written: name it \.jsonl, or \.jsonl\.gz"):
        write(tmp_path / "a.jsonl.zst")


def test_a_line_without_end_does_not_take_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_LINE", 100)
    with pytest.raises(TraceError, match="line 1: longer than 100 bytes"):
        follow(write(tmp_path / "a.jsonl"))


def test_a_difference_is_named_by_its_place_with_both_sides() -> None:
    mine = {"step": 1, "blocks": [{"refs": 1}, {"refs": 2}]}
    assert difference(mine, mine | {"step": 2}) == "state.step is 1 there, and 2 by the steps"
    other = {"step": 1, "blocks": [{"refs": 1}, {"refs": 3}]}
    assert difference(mine, other) == "state.blocks[1].refs is 2 there, and 3 by the steps"
    fewer = {"step": 1, "blocks": [{"refs": 1}]}
    assert difference(mine, fewer).startswith('state.blocks is [{"refs":1},{"refs":2}] there, and [{"refs":1}]')


def final(path: Path) -> ArenaState:
    with Reader(path) as reader:
        return [state for _, state in replay(reader)][-1]


def test_the_recording_of_the_page_shows_what_the_chapter_tells() -> None:
    """Blocks out of order, one new block at a time, two requests whose steps interleave; at the end all is free."""
    with Reader(RECORDING) as reader:
        assert (reader.header.model.name, reader.header.model.dtype) == ("SmolLM2-135M-Instruct", "float32")
        events = [event for step in reader for event in step.events]
    allocated = [event for event in events if isinstance(event, BlockAllocated)]
    first = [event.block for event in allocated if event.sequence == 4]
    assert first != sorted(first)
    ended = {event.request: event.reason for event in events if isinstance(event, RequestFinished)}
    assert ended == dict.fromkeys(range(6), "length")
    owners = [event.sequence for event in allocated if event.sequence >= 4]
    assert owners != sorted(owners)
    state = final(RECORDING)
    assert {request.status for request in state.requests} == {"finished"}
    assert (state.blocks, state.partition.free) == ([], state.num_blocks * state.block_size)


@pytest.mark.parametrize("kind", [BlockAllocated, SequenceFinished, RequestFinished])
def test_an_event_that_is_lost_from_it_does_not_go_unnoticed(kind: type, tmp_path: Path) -> None:
    with Reader(RECORDING) as reader:
        steps = list(reader)
        end = reader.closing
    assert end is not None
    step = next(step for step in steps if any(isinstance(event, kind) for event in step.events))
    step.events.remove(next(event for event in step.events if isinstance(event, kind)))
    trace.write(tmp_path / "lost.jsonl", reader.header, reader.opening, steps, end)
    with pytest.raises(TraceError):
        follow(tmp_path / "lost.jsonl")
