"""A trace: an arena's envelopes as JSON lines, to be played back and verified.

The first line is a ``Header``, the second a snapshot, and each further line one step, as they go over the socket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from engine.events import VERSION, Snapshot, Step
from engine.messages import ModelInfo

FORMAT = "paged-trace"


class Header(msgspec.Struct, frozen=True):
    """``label`` says what was recorded; ``recorded`` is a date in ISO 8601."""

    label: str
    model: ModelInfo
    recorded: str
    format: str = FORMAT
    v: int = VERSION


class TraceError(ValueError):
    """The file is no trace, or of a version that this program does not read."""


def write(path: Path, label: str, model: ModelInfo, snapshot: Snapshot, steps: Iterable[Step]) -> None:
    """Write a whole trace, stamped with today's date."""
    encode = msgspec.json.encode
    today = datetime.now(UTC).date().isoformat()
    lines = [encode(Header(label, model, today)), encode(snapshot), *(encode(step) for step in steps)]
    path.write_bytes(b"\n".join(lines) + b"\n")


def read(path: Path) -> tuple[Header, Snapshot, Iterator[Step]]:
    """The header, the snapshot and the steps of a trace. Raises TraceError."""
    lines = path.read_bytes().splitlines()
    try:
        header = msgspec.json.decode(lines[0], type=Header)
        if (header.format, header.v) != (FORMAT, VERSION):
            raise TraceError(
                f"{path} is {header.format} version {header.v}, this program reads {FORMAT} version {VERSION}"
            )
        snapshot = msgspec.json.decode(lines[1], type=Snapshot)
    except (IndexError, msgspec.DecodeError) as error:
        raise TraceError(
            f"{path} is not a trace: its first two lines must be a header and a snapshot ({error})"
        ) from error
    return header, snapshot, (msgspec.json.decode(line, type=Step) for line in lines[2:])
