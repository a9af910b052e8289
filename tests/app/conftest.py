"""A real server on a free port over the scripted engine, in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import msgspec
import pytest
import websockets

from app.arenas import Arenas
from app.main import create_app
from app.server import Server
from app.settings import Settings
from engine.messages import ArenaClosed, Echo, Output, Status, Stepped

PATIENCE_S = 120


class Ear:
    """Hears everything that the engine says, in front of the hub, so that a test can wait for it."""

    def __init__(self, arenas: Arenas) -> None:
        self._arenas = arenas
        self.heard: list[Any] = []
        self._news = asyncio.Event()

    def _pass(self, name: str, *said: Any) -> None:
        getattr(self._arenas, name)(*said)
        self.heard.extend(said or (name,))
        self._news.set()

    def on_status(self, status: Status) -> None:
        self._pass("on_status", status)

    def on_stepped(self, stepped: Stepped) -> None:
        self._pass("on_stepped", stepped)

    def on_output(self, output: Output | Echo) -> None:
        self._pass("on_output", output)

    def on_arena_closed(self, closed: ArenaClosed) -> None:
        self._pass("on_arena_closed", closed)

    def on_lost(self) -> None:
        self._pass("on_lost")

    async def wait_for(self, wanted: Callable[[Any], bool]) -> Any:
        """The first thing heard, ever, that is ``wanted``."""
        looked_at = 0
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for said in self.heard[looked_at:]:
                    if wanted(said):
                        return said
                looked_at = len(self.heard)
                self._news.clear()
                await self._news.wait()

    async def wait_for_event(self, kind: type, arena: str) -> Any:
        """The first event of ``kind`` in ``arena``'s log."""
        found = await self.wait_for(
            lambda said: (
                isinstance(said, Stepped)
                and said.step.arena == arena
                and any(isinstance(event, kind) for event in said.step.events)
            )
        )
        return next(event for event in found.step.events if isinstance(event, kind))


class Browser:
    """A socket as a page holds it."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self.socket = socket
        self._ref = 0

    async def say(self, kind: str, **fields: Any) -> int:
        self._ref += 1
        await self.socket.send(json.dumps({"type": kind, "ref": self._ref, **fields}))
        return self._ref

    async def hear(self, *kinds: str) -> dict[str, Any]:
        """The next message whose kind is among ``kinds``; others are passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message: dict[str, Any] = json.loads(await self.socket.recv())
                if not kinds or message["kind"] in kinds:
                    return message

    async def open(self, **fields: Any) -> dict[str, Any]:
        """Open an arena; returns ``opened``, with its snapshot under ``snapshot``."""
        fields.setdefault("scene", "empty")
        await self.say("open", **fields)
        opened = await self.hear("opened", "error")
        assert opened["kind"] == "opened", opened
        return {**opened, "snapshot": await self.hear("snapshot")}


class Site:
    """The running server."""

    def __init__(self, app: Any, port: int, server: Server) -> None:
        self.app = app
        self.server = server
        self.arenas: Arenas = app.state.arenas
        self.ear = Ear(self.arenas)
        self.arenas.engine.listener = self.ear
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    @contextlib.asynccontextmanager
    async def browser(self, origin: str | None = None, **options: Any) -> AsyncIterator[Browser]:
        address = f"ws://127.0.0.1:{self.port}/ws/arena"
        async with websockets.connect(address, origin=origin or self.url, max_size=None, **options) as socket:
            yield Browser(socket)

    async def ready(self) -> None:
        await self.ear.wait_for(lambda said: isinstance(said, Status) and said.state == "ready")

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_S)


class _Server(Server):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.listening = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


def fake_engine_command(settings: Settings) -> list[str]:
    config = msgspec.json.encode(settings.engine_config()).decode()
    return [sys.executable, "-m", "tests.app.fake_engine", config]


@contextlib.asynccontextmanager
async def serve(
    wait: bool = True, command: Callable[[Settings], list[str]] = fake_engine_command, **settings: Any
) -> AsyncIterator[Site]:
    """A site with ``settings`` over the engine that ``command`` starts; with ``wait`` it is ready."""
    chosen = Settings(**{"arena_grace_s": 30.0, "api_slots": 64, **settings})
    app = create_app(chosen, command(chosen))
    server = _Server(app, chosen, port=0, log_level="warning", log_config=None)
    site = Site(app, 0, server)
    running = asyncio.create_task(server.serve())
    try:
        waiting = asyncio.create_task(server.listening.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
        site.port = server.servers[0].sockets[0].getsockname()[1]
        site.url = f"http://127.0.0.1:{site.port}"
        if wait:
            await site.ready()
        yield site
    finally:
        server.should_exit = True
        await running


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serve() as running:
        yield running
