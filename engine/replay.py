"""Play a trace through the independent reducer: whatever memory cannot have done is found, and its line named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from engine.events import ArenaState, Step
from engine.reducer import Impossible, Reducer
from engine.trace import Reader, TraceError


def replay(reader: Reader) -> Iterator[tuple[Step, ArenaState]]:
    """Each step of a trace with the state after it, which belongs to the reducer: copy it to keep it. After the last one the
    state is compared with the closing snapshot.

    Raises TraceError, with the line, for a broken file, an impossible event, and an end that is not the closing snapshot's.
    """
    try:
        reducer = Reducer(reader.opening)
        for step in reader:
            reducer.apply(step)
            yield step, reducer.state()
    except Impossible as why:
        raise TraceError(reader.path, reader.line, str(why)) from why
    if reader.closing is not None and reader.closing.state != reducer.state():
        where = difference(msgspec.to_builtins(reader.closing.state), msgspec.to_builtins(reducer.state()))
        raise TraceError(reader.path, reader.line, f"the steps do not lead to the closing snapshot: {where}")


def difference(snapshot: Any, replayed: Any, path: str = "state") -> str:
    """The first place where two values of JSON differ, with both sides."""
    if isinstance(snapshot, dict) and isinstance(replayed, dict):
        for key in snapshot:
            if snapshot[key] != replayed.get(key):
                return difference(snapshot[key], replayed.get(key), f"{path}.{key}")
    if isinstance(snapshot, list) and isinstance(replayed, list) and len(snapshot) == len(replayed):
        for at, (mine, theirs) in enumerate(zip(snapshot, replayed, strict=True)):
            if mine != theirs:
                return difference(mine, theirs, f"{path}[{at}]")
    return f"{path} is {_short(snapshot)} there, and {_short(replayed)} by the steps"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."
