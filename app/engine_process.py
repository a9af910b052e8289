"""The engine's process seen from outside: start it, send frames, read frames, end it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from engine import wire
from engine.messages import AnyReply, Shutdown

STOP_S = 5.0
EXIT_S = 0.5
ROOT = Path(__file__).resolve().parent.parent


class EngineProcess:
    """One run of the engine; a restart makes a new one. Its stderr is ours, so its log lines appear among ours."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the engine's stdin and stdout must be pipes: start it with EngineProcess.start")
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    @classmethod
    async def start(cls, command: Sequence[str]) -> EngineProcess:
        """Start ``command``. Raises OSError when it cannot be started."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            # Ctrl-C in a terminal goes to the whole session. The web process alone should get it, and then end the
            # engine in good order; if the web process dies, the engine reads the end of its stdin and ends by itself.
            start_new_session=True,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, frame: bytes) -> None:
        """Queue a frame of ``wire.encode`` for the pipe. A pipe that is closed already takes it and forgets it: the
        end is seen by ``replies``."""
        if not self._stdin.is_closing():
            self._stdin.write(frame)

    async def drain(self) -> None:
        """Wait while the engine is slow to read; returns at once when the pipe is gone."""
        with contextlib.suppress(ConnectionError):
            await self._stdin.drain()

    async def replies(self) -> AsyncIterator[AnyReply]:
        """Frames until the pipe ends. Raises ValueError (or msgspec's DecodeError, which is one) on a broken frame."""
        while True:
            try:
                header = await self._stdout.readexactly(wire.HEADER)
                body = await self._stdout.readexactly(wire.frame_length(header))
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            yield wire.decode_reply(body)

    async def wait(self) -> int:
        """Exit status, once it has ended; negative for a signal."""
        return await self._process.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self, listening: bool) -> None:
        """Ask it to end, wait ``STOP_S`` seconds, then insist. While it loads a model it is not ``listening``."""
        self.send(wire.encode(Shutdown(ref=0)))
        self._stdin.close()
        if not listening:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        try:
            await asyncio.wait_for(self._read_to_end(), STOP_S)
            # It has said its last word. What is left is to take a large interpreter apart, which can be had faster.
            await asyncio.wait_for(self._process.wait(), EXIT_S)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    async def _read_to_end(self) -> None:
        # An engine in the middle of a long reply must get rid of it before it can look at its stdin again.
        while await self._stdout.read(1 << 16):
            pass
