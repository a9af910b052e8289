"""The recorded trace, read by two independent reducers: Python here, JavaScript in tests/js."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine import trace
from engine.events import BlockAllocated, RequestFinished
from engine.reducer import Impossible, Reducer

RECORDING = Path(__file__).parents[2] / "static/recordings/growing.jsonl"


@pytest.fixture
def recording():
    header, snapshot, steps = trace.read(RECORDING)
    return header, snapshot, list(steps)


def test_the_recording_is_consistent_from_its_first_to_its_last_envelope(recording):
    _, snapshot, steps = recording
    reducer = Reducer(snapshot)
    for step in steps:
        reducer.apply(step)
    final = reducer.state()
    assert {request.status for request in final.requests} == {"finished"}
    assert (final.blocks, final.partition.free) == ([], final.num_blocks * final.block_size)


def test_it_shows_what_the_chapter_tells(recording):
    """Blocks out of order, one new block at a time, two requests whose steps interleave."""
    header, _, steps = recording
    assert header.model.name == "SmolLM2-135M-Instruct"
    assert header.model.dtype == "float32"
    events = [event for step in steps for event in step.events]
    allocated = [event for event in events if isinstance(event, BlockAllocated)]
    first = [event.block for event in allocated if event.sequence == 4]
    assert first != sorted(first)
    assert {event.request: event.reason for event in events if isinstance(event, RequestFinished)} == dict.fromkeys(
        range(6), "length"
    )
    owners = [event.sequence for event in allocated if event.sequence >= 4]
    assert owners != sorted(owners)


@pytest.mark.parametrize("missing", [BlockAllocated, RequestFinished])
def test_a_lost_event_does_not_go_unnoticed(recording, missing):
    _, snapshot, steps = recording
    step = next(step for step in steps if any(isinstance(event, missing) for event in step.events))
    step.events.remove(next(event for event in step.events if isinstance(event, missing)))

    def follow() -> None:
        reducer = Reducer(snapshot)
        for each in steps:
            reducer.apply(each)
        if {request.status for request in reducer.state().requests} != {"finished"}:
            raise Impossible("somebody never ended")

    with pytest.raises((Impossible, KeyError)):
        follow()


def test_a_trace_survives_writing_and_reading(recording, tmp_path):
    header, snapshot, steps = recording
    copy = tmp_path / "copy.jsonl"
    trace.write(copy, header.label, header.model, snapshot, steps)
    again = trace.read(copy)
    assert (again[1], list(again[2])) == (snapshot, steps)


@pytest.mark.parametrize("content", [b"", b"{}\n{}\n", b"no json", b'{"label":"x"}\n'])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(trace.TraceError, match="is not a trace"):
        trace.read(path)


def test_a_trace_of_another_version_is_refused(recording, tmp_path):
    header, snapshot, _ = recording
    path = tmp_path / "x.jsonl"
    newer = msgspec.structs.replace(header, v=99)
    path.write_bytes(msgspec.json.encode(newer) + b"\n" + msgspec.json.encode(snapshot) + b"\n")
    with pytest.raises(trace.TraceError, match="version 99, this program reads paged-trace version 1"):
        trace.read(path)
