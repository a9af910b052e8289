"""Record an arena of a running server, as one more of its viewers."""

from __future__ import annotations

import copy
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from engine.events import Snapshot, Step, StepCompleted
from engine.messages import ModelInfo
from engine.reducer import Impossible, Reducer
from engine.trace import Header, Writer, today

LOOK_S = 0.2
"""Seconds between two looks at whether Ctrl-C was pressed."""
PATIENCE_S = 30.0


class Unfollowable(Exception):
    """The server cannot be reached, does not know the arena, or tells what cannot be; the message says which."""


def follow(url: str, view: str, path: Path, label: str, most: int) -> str:
    """Write what happens in the arena from now on to ``path``, until Ctrl-C, its end, or ``most`` steps (0: any number).

    Returns what was recorded, in words. Raises Unfollowable, and TraceError where the file cannot be written.
    """
    with _interrupts() as interrupted, _joined(url, view) as viewer:
        opening = viewer.snapshot()
        print(f"recording arena {opening.arena} of {url} into {path}: Ctrl-C ends it", flush=True)
        header = Header(label or f"Arena {opening.arena}", viewer.model, today())
        with Writer(path, header, opening) as writer:
            tape = Tape(opening, writer)
            until = ""
            while not until:
                until = tape.hear(viewer.message(LOOK_S))
                if interrupted:
                    until = "you stopped it"
                elif most and tape.steps >= most:
                    until = f"{most} steps were made"
            closing = tape.closing()
            if interrupted or (most and tape.steps >= most):
                closing = _finish(tape, viewer, url, view) or closing
            writer.close(closing)
    return f"{path}: {tape.steps} steps, {path.stat().st_size} bytes, until {until}"


class Tape:
    """What has been recorded so far, and the state that it leads to."""

    def __init__(self, opening: Snapshot, writer: Writer) -> None:
        self.reducer = Reducer(opening)
        self.steps = 0
        self._last: Snapshot | Step = opening
        self._writer = writer

    def hear(self, message: Snapshot | Step | str | None) -> str:
        """Take a message; returns why the recording ends with it, or nothing."""
        if isinstance(message, Step):
            try:
                self.reducer.apply(message)
            except Impossible as why:
                raise Unfollowable(f"the server tells what cannot be: {why}") from why
            self._writer.add(message)
            self._last = message
            self.steps += any(isinstance(event, StepCompleted) for event in message.events)
        elif isinstance(message, Snapshot):
            if message.epoch == self.reducer.epoch and message.seq != self.reducer.seq:
                raise Unfollowable(
                    f"steps {self.reducer.seq + 1} to {message.seq} were lost, since they came faster than they were "
                    "written: slow the arena down"
                )
            return "" if message.epoch == self.reducer.epoch else "the arena began anew"
        return message if isinstance(message, str) else ""

    def closing(self) -> Snapshot:
        """The state by the steps, where the server gives no snapshot of it any more."""
        last = self._last
        return Snapshot(last.arena, last.epoch, last.seq, last.t, copy.deepcopy(self.reducer.state()))


def _finish(tape: Tape, viewer: Viewer, url: str, view: str) -> Snapshot | None:
    """The server's own snapshot, seen through another socket so that this one misses no step before it; None where the
    server or the arena has just gone."""
    try:
        with _joined(url, view) as other:
            closing = other.snapshot()
    except Unfollowable:
        return None
    while tape.reducer.epoch == closing.epoch and tape.reducer.seq < closing.seq:
        message = viewer.message(PATIENCE_S)
        if message is None or tape.hear(message):
            return None
    return closing if (tape.reducer.epoch, tape.reducer.seq) == (closing.epoch, closing.seq) else None


class Viewer:
    def __init__(self, socket: ClientConnection, url: str) -> None:
        self._socket = socket
        self._url = url
        self.model = ModelInfo("unknown", "", "", "", "", "", 0, 0, 0)

    def snapshot(self) -> Snapshot:
        """The first message but for those that say how the server is."""
        while True:
            message = self.message(PATIENCE_S)
            if isinstance(message, Snapshot):
                return message
            if isinstance(message, str):
                raise Unfollowable(f"nothing to record: {message}")
            if message is None:
                raise Unfollowable(f"{self._url} sends no snapshot within {PATIENCE_S:.0f} s: is its model ready?")

    def message(self, timeout: float) -> Snapshot | Step | str | None:
        """The next snapshot or step; why there is none any more; or None: nothing has come in ``timeout`` seconds, or
        something else."""
        try:
            text = self._socket.recv(timeout)
        except TimeoutError:
            return None
        except ConnectionClosed:
            return "the server is gone"
        message: dict[str, Any] = json.loads(text)
        match message["kind"]:
            case "snapshot":
                return msgspec.convert(message, Snapshot)
            case "step":
                return msgspec.convert(message, Step)
            case "error":
                raise Unfollowable(f"the server refuses: {message['message']}")
            case "closed":
                return f"the arena was closed: {message['reason']}"
            case "status" if message.get("model"):
                self.model = msgspec.convert(message["model"], ModelInfo)
                return self.message(timeout)
            case _:
                return self.message(timeout)


@contextmanager
def _joined(url: str, view: str) -> Iterator[Viewer]:
    address = url.rstrip("/").replace("http", "ws", 1) + "/ws/arena"
    with ExitStack() as stack:
        try:
            socket = stack.enter_context(connect(address, max_size=None))
        except (OSError, InvalidHandshake, InvalidURI) as error:
            why = f"{url} cannot be reached ({error}): give the address that paged serve printed"
            raise Unfollowable(why) from error
        socket.send(json.dumps({"type": "open", "ref": 1, "view_id": view}))
        yield Viewer(socket, url)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Gathers Ctrl-C and a request to terminate, which end a recording and do not break it."""
    got: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: got.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield got
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
