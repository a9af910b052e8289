"""The supervisor: keeps one engine process running, and passes commands to it and replies from it.

A crash costs nobody the site: whoever waits for an answer is told, the listener hears ``on_lost``, and the engine
starts again after a pause that doubles up to ``MAX_PAUSE_S``. A model that cannot be loaded (status ``failed``) will
not load the next time either, so the engine is then left alone until the operator acts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from app.engine_process import EngineProcess
from app.errors import EngineUnavailable, Invalid
from engine import wire
from engine.messages import (
    AnyCommand,
    AnyReply,
    ArenaClosed,
    Done,
    Echo,
    Failed,
    Output,
    SnapshotTaken,
    Status,
    Stepped,
    Submitted,
)

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 30.0
HEALTHY_S = 30.0
SHUTTING_DOWN = "the server is shutting down; try again when it is back."

Answer = Done | Submitted | SnapshotTaken | Failed
OnAnswer = Callable[[Answer | None], None]
"""Called with the answer, or with None when the engine is lost, before any later frame is looked at."""

log = logging.getLogger("paged.engine")


class EngineListener(Protocol):
    """Who hears what the engine says by itself. Methods are called in the order of the frames and must not block."""

    def on_status(self, status: Status) -> None: ...

    def on_stepped(self, stepped: Stepped) -> None: ...

    def on_output(self, output: Output | Echo) -> None: ...

    def on_arena_closed(self, closed: ArenaClosed) -> None: ...

    def on_lost(self) -> None: ...


class EngineClient:
    """``command``: the engine's command line. ``timeout_s``: an answer that takes longer means a hung engine.

    Attributes:
        status: the last status; ``restarting`` instead of the engine's own ``starting`` and ``loading`` after a crash.
        restarts: how often the engine has been started again.
    """

    def __init__(self, command: Sequence[str], listener: EngineListener, timeout_s: float) -> None:
        self.status = Status("starting", "starting the engine")
        self.restarts = 0
        self.listener = listener
        self._command = list(command)
        self._timeout_s = timeout_s
        self._process: EngineProcess | None = None
        self._waiting: dict[int, OnAnswer] = {}
        self._next_ref = 1
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def ready(self) -> bool:
        """Whether commands can be sent."""
        return self._process is not None and self.status.state == "ready" and not self._closing

    @property
    def pid(self) -> int | None:
        """The engine's process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the engine and keep it running; returns at once."""
        self._task = asyncio.create_task(self._supervise(), name="engine supervisor")

    def close(self) -> None:
        """Take no more commands, and tell everyone who waits for an answer that none will come."""
        self._closing = True
        self._fail_waiting()

    async def stop(self) -> None:
        """End the engine in good order; nothing restarts it."""
        self.close()
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def send(self, command: AnyCommand, on_answer: OnAnswer) -> None:
        """Send ``command`` under a ref of its own.

        With no engine ready ``on_answer`` is called with None at once; a command that no frame can hold is answered
        ``Failed`` at once.
        """
        process = self._process
        if process is None or not self.ready:
            on_answer(None)
            return
        ref = self._next_ref
        self._next_ref += 1
        try:
            frame = wire.encode(msgspec.structs.replace(command, ref=ref))
        except (ValueError, TypeError, OverflowError) as error:
            text = f"this cannot be passed on to the engine ({error}); send ordinary text and numbers."
            on_answer(Failed(ref, "invalid_value", "", text))
            return
        self._waiting[ref] = on_answer
        process.send(frame)

    async def request(self, command: AnyCommand, at_once: OnAnswer | None = None) -> Done | Submitted | SnapshotTaken:
        """Send ``command`` and wait for the answer; ``at_once`` sees it before any later frame is looked at.

        Raises Invalid when the engine refuses and EngineUnavailable when it is not there, or dies, or hangs (and is
        then restarted).
        """
        future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def settle(answer: Answer | None) -> None:
            if at_once is not None:
                at_once(answer)
            if not future.done():
                future.set_result(answer)

        process = self._process
        self.send(command, settle)
        if process is not None:
            await process.drain()
        try:
            answer = await asyncio.wait_for(future, self._timeout_s)
        except TimeoutError:
            log.error("no answer for %g s to %s: restarting the engine", self._timeout_s, type(command).__name__)
            if process is not None:
                process.kill()
            raise EngineUnavailable(
                f"the engine has not answered for {self._timeout_s:g} s and is being restarted; try again in a moment."
            ) from None
        if answer is None:
            raise EngineUnavailable(self.why_unavailable())
        if isinstance(answer, Failed):
            raise Invalid(answer.code, answer.field, answer.message)
        return answer

    def why_unavailable(self) -> str:
        """One sentence for a client that wants something while no engine is ready."""
        status = self.status
        if self._closing:
            return SHUTTING_DOWN
        if status.state == "failed":
            return f"the engine has failed ({status.stage}); its log on stderr says more, and it must be started again."
        if status.state == "restarting":
            return "the engine is restarting; what was running is lost. Try again in a moment."
        if status.state == "ready":
            return "the engine has just been lost; try again in a moment."
        percent = f", {status.progress:.0%}" if status.state == "loading" else ""
        return f"the model is loading ({status.stage or status.state}{percent}); try again in a moment."

    async def _supervise(self) -> None:
        pause = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            how = await self._run_once()
            if loop.time() - started > HEALTHY_S:
                pause = FIRST_PAUSE_S
            failed = self.status.state == "failed"
            if not failed:
                self._set_status(Status("restarting", f"the engine ended ({how})"))
            self._fail_waiting()
            self.listener.on_lost()
            if failed:
                log.error("the engine failed: %s", self.status.stage)
                return
            log.error("the engine ended (%s): starting it again in %.1f s", how, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)
            self.restarts += 1

    async def _run_once(self) -> str:
        """Run the engine until it ends; returns how it ended."""
        try:
            process = await EngineProcess.start(self._command)
        except OSError as error:
            return f"{self._command[0]} cannot be started: {error}"
        self._process = process
        try:
            async for reply in process.replies():
                try:
                    self._dispatch(reply)
                except Exception:
                    # A fault of ours in one arena must not end the engine of all others.
                    log.exception("a reply of the engine could not be handled: %s", type(reply).__name__)
        except ValueError as error:
            log.error("the engine sent a broken frame: %s", error)
            process.kill()
        except asyncio.CancelledError:
            await process.stop(listening=self.status.state == "ready")
            raise
        finally:
            self._process = None
        process.kill()  # its stdout is closed: whatever is left of it is of no use
        status = await process.wait()
        return f"exit status {status}" if status >= 0 else f"signal {-status}"

    def _dispatch(self, reply: AnyReply) -> None:
        match reply:
            case Stepped():
                self.listener.on_stepped(reply)
            case Output() | Echo():
                self.listener.on_output(reply)
            case Status():
                if self.restarts and reply.state in ("starting", "loading"):
                    reply = msgspec.structs.replace(reply, state="restarting")
                self._set_status(reply)
            case ArenaClosed():
                self.listener.on_arena_closed(reply)
            case _:
                on_answer = self._waiting.pop(reply.ref, None)
                if on_answer is not None:
                    on_answer(reply)

    def _set_status(self, status: Status) -> None:
        self.status = status
        self.listener.on_status(status)

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for on_answer in waiting.values():
            on_answer(None)
