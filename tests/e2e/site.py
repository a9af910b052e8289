"""The product as a user starts it, and an independent client that follows an arena beside the page."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
from websockets.sync.client import connect

from engine.events import ArenaState, Snapshot, Step
from engine.reducer import Reducer

PATIENCE_S = 120
Found = TypeVar("Found")


def wait(what: Callable[[], Found], words: str, seconds: float = PATIENCE_S) -> Found:
    """The first true value of ``what``, asked again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds:.0f} s for {words}")


class Site:
    """``paged serve`` on a port of its own, with the settings given as environment."""

    def __init__(self, **settings: str) -> None:
        self.port = "0"
        self._settings = settings
        self.start()

    def start(self) -> None:
        """Start, or start again at the same address; returns when it listens (the model may still load)."""
        command = [str(Path(sys.executable).parent / "paged"), "serve"]
        environment = {**os.environ, "HOST": "127.0.0.1", "PORT": self.port, "LOG_LEVEL": "warning", **self._settings}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if "http://" not in line:
            raise AssertionError(f"the server did not start: {line!r}")
        self.url = "http://" + line.split("http://")[1].split()[0]
        self.port = self.url.rsplit(":", 1)[1]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)

    def state(self) -> dict[str, Any]:
        return dict(httpx.get(self.url + "/readyz", timeout=30).json())

    def ready(self) -> dict[str, Any]:
        return wait(lambda: (now := self.state())["state"] == "ready" and now, "the model")

    def engine_pid(self) -> int:
        """The engine process, found as the server's only child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        if len(children) != 1:
            raise AssertionError(f"the server has the children {children}")
        return int(children[0])


class Follower:
    """A second socket on the page's arena. A thread reads; ``states`` are what Python's reducer makes of each envelope."""

    def __init__(self, site: Site, secret: str) -> None:
        self._open = ExitStack()
        address = site.url.replace("http", "ws") + "/ws/arena"
        self._socket = self._open.enter_context(connect(address, origin=site.url, max_size=None))
        self._socket.send(json.dumps({"type": "open", "ref": 1, "drive_secret": secret}))
        self.steps: list[Step] = []
        self.states: dict[int, ArenaState] = {}
        self.failure: BaseException | None = None
        self._reducer: Reducer | None = None
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        wait(lambda: self.states or self.failure, "a snapshot")

    def _read(self) -> None:
        try:
            for text in self._socket:
                kind = json.loads(text)["kind"]
                if kind == "snapshot":
                    snapshot = msgspec.json.decode(text, type=Snapshot)
                    self._reducer = Reducer(snapshot)
                    self._remember()
                elif kind == "step" and self._reducer:
                    step = msgspec.json.decode(text, type=Step)
                    self._reducer.apply(step)
                    self.steps.append(step)
                    self._remember()
        except BaseException as error:
            self.failure = error

    def _remember(self) -> None:
        state = self._reducer.state()
        self.states[self._reducer.seq] = msgspec.convert(msgspec.to_builtins(state), ArenaState)

    def say(self, kind: str, **fields: Any) -> None:
        self._socket.send(json.dumps({"type": kind, "ref": 2, **fields}))

    @property
    def latest(self) -> ArenaState:
        if self.failure:
            raise self.failure
        return self.states[max(self.states)]

    def close(self) -> None:
        self._open.close()
