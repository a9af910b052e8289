"""Whatever sockets do and in whatever order: an arena that nobody drives is paused, and gone after the time of grace."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.arena import Client, Shape
from app.arenas import Arenas
from app.engine_client import OnAnswer
from app.errors import Invalid
from app.settings import Settings
from engine.messages import AnyCommand, CloseArena, Done, Memory, OpenArena, Pause, Resume, Status
from tests.app.conftest import serve
from tests.app.fake_engine import MODEL

SHAPE = Shape(Memory(4, 4), 0.0, "empty")


class Engine:
    """An engine that is told when to answer. ``paused``: what it was last told of each arena that it has."""

    def __init__(self) -> None:
        self.status = Status("ready", "", 1.0, MODEL)
        self.ready = True
        self.paused: dict[str, bool] = {}
        self._unanswered: list[OnAnswer] = []

    def send(self, command: AnyCommand, on_answer: OnAnswer) -> None:
        if isinstance(command, OpenArena):
            self.paused[command.arena] = False
        elif isinstance(command, CloseArena):
            self.paused.pop(command.arena)
        elif isinstance(command, Pause | Resume):
            self.paused[command.arena] = isinstance(command, Pause)
        self._unanswered.append(on_answer)

    def answer(self) -> None:
        """All that waits, and whatever is sent because of that."""
        while self._unanswered:
            self._unanswered.pop(0)(Done(0))


class World:
    """A hub whose engine is scripted; the sockets are those that tests connect."""

    def __init__(self, **settings: Any) -> None:
        self.hub = Arenas(Settings(**settings), ["nothing"])
        self.engine: Any = Engine()
        self.hub.engine = self.hub._admission._engine = self.engine
        self.clients: list[Client] = []

    def do(self, act: str, which: int, what: int) -> None:
        """One act of one socket on one arena; an act that is refused changes nothing."""
        client = self.clients[which % len(self.clients)] if self.clients else None
        opening = self.hub._admission._opening  # nobody has been told their secrets yet
        arenas = [arena for arena in self.hub._arenas.values() if arena not in opening]
        arena = arenas[what % len(arenas)] if arenas else None
        if act == "connect":
            self.clients.append(self.hub.connect())
        elif act == "answer":
            self.engine.answer()
        elif client is None:
            return
        elif act == "disconnect":
            self.clients.remove(client)
            self.hub.disconnect(client)
        elif act == "open":
            self._try(self.hub.open, client, 1, SHAPE)
        elif arena is not None and act in ("drive", "view"):
            self._try(self.hub.reattach, client, 1, arena, act == "drive", None, None)
        elif arena is not None and act == "close" and client in arena.drivers:
            self.hub.close(arena, "its page closed it")

    @staticmethod
    def _try(act: Any, *arguments: Any) -> None:
        with contextlib.suppress(Invalid):  # too many for this socket
            act(*arguments)


ACTS = st.tuples(
    st.sampled_from(["connect", "connect", "open", "open", "drive", "view", "view", "answer", "disconnect", "close"]),
    st.integers(0, 5),
    st.integers(0, 5),
)


@settings(deadline=None)
@given(st.lists(ACTS, max_size=40))
def test_after_the_grace_no_arena_without_a_driver_is_left(acts: list[tuple[str, int, int]]) -> None:
    async def live() -> None:
        world = World(arena_grace_s=0, max_arenas=4)
        for act in acts:
            world.do(*act)
        world.engine.answer()
        driverless = [arena for arena in world.hub._arenas.values() if not arena.drivers]
        assert [arena.grace is not None for arena in driverless] == [True] * len(driverless)
        assert [world.engine.paused[arena.name] for arena in driverless] == [True] * len(driverless)
        for _ in range(3):  # timers of no seconds fire in the next turn of the loop
            await asyncio.sleep(0)
        world.engine.answer()
        left = world.hub._arenas.values()
        assert [arena for arena in left if not arena.drivers or arena.grace is not None] == []
        assert set(world.engine.paused) == {arena.name for arena in left}
        assert {client for arena in left for client in arena.drivers} <= set(world.clients)

    asyncio.run(live())


@settings(deadline=None)
@given(st.lists(ACTS, max_size=40))
def test_a_socket_never_carries_more_than_its_share(acts: list[tuple[str, int, int]]) -> None:
    async def live() -> None:
        world = World(arena_grace_s=0, max_arenas=3, max_arenas_per_socket=2)
        for act in acts:
            world.do(*act)
            assert all(len(client.arenas) <= 2 for client in world.clients)
        world.engine.answer()
        assert all(len(client.arenas) <= 2 for client in world.clients)

    asyncio.run(live())


async def test_a_driver_that_asks_for_a_view_goes_on_driving_until_it_leaves() -> None:
    async with serve(arena_grace_s=0) as site:
        async with site.browser() as page:
            opened = await page.open()
            again = await page.open(view_id=opened["view_id"])
            assert (again["drive"], again["drive_secret"]) == (True, opened["drive_secret"])
            await page.say("pause", arena="a1")
            assert (await page.hear("ok", "error"))["kind"] == "ok"
        closed = await site.ear.wait_for(lambda said: getattr(said, "reason", None) is not None)
        assert (closed.arena, closed.reason) == ("a1", "its page has been away for 0 s")
        assert site.arenas.visitors == 0


async def test_opens_sent_at_once_count_before_they_are_answered() -> None:
    async with serve(max_arenas_per_socket=2) as site, site.browser() as page:
        for _ in range(20):
            await page.say("open", scene="empty", params={"block_size": 4, "num_blocks": 4})
        answers = [await page.hear("opened", "error") for _ in range(20)]
        assert sorted(answer["kind"] for answer in answers) == ["error"] * 18 + ["opened"] * 2
        assert {answer["code"] for answer in answers if answer["kind"] == "error"} == {"too_many_arenas"}
        assert site.arenas.visitors == 2
