"""Arenas over real sockets: opening, driving, coming back, standing in line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.admission import api_shape
from app.settings import FIRST_ARENA, SMALLEST_CACHE, Settings
from engine.events import RequestArrived
from engine.messages import Stepped
from tests.app.conftest import Site, serve
from tests.app.fake_engine import MODEL


async def test_open_submit_and_see_the_steps(site: Site) -> None:
    async with site.browser() as page:
        status = await page.hear()
        assert (status["kind"], status["state"], status["model"]["name"]) == ("status", "ready", "fake-model")
        opened = await page.open(params={"block_size": 8, "num_blocks": 5})
        assert opened["arena"] == "a1"
        assert opened["drive"] is True
        assert opened["epoch"] == 0
        assert opened["snapshot"]["seq"] == 0
        assert (opened["snapshot"]["state"]["block_size"], opened["snapshot"]["state"]["num_blocks"]) == (8, 5)
        ref = await page.say("submit", arena="a1", prompt="2 words", max_tokens=7)
        assert await page.hear("ok") == {"v": 1, "kind": "ok", "ref": ref, "arena": "a1", "request": 0}
        step = await page.hear("step")
        assert step["seq"] == 1
        arrived = {"type": "request_arrived", "request": 0, "prompt_tokens": 2, "max_tokens": 7, "source": "page"}
        arrived |= {"width": 1, "beam": False, "priority": 0}
        assert step["events"] == [arrived]


async def test_every_driving_message_is_answered(site: Site) -> None:
    async with site.browser() as page:
        await page.open()
        for kind, fields in (
            ("pause", {}),
            ("resume", {}),
            ("step", {}),
            ("set", {"params": {"pace_ms": 10}}),
            ("abort", {"request": 0}),
            ("close", {}),
        ):
            ref = await page.say(kind, arena="a1", **fields)
            assert await page.hear("ok", "error") == {"v": 1, "kind": "ok", "ref": ref, "arena": "a1"}
        assert (await page.hear("closed"))["arena"] == "a1"
        await page.say("pause", arena="a1")
        assert (await page.hear("error"))["code"] == "unknown_arena"


async def test_reset_begins_a_new_epoch_with_a_snapshot(site: Site) -> None:
    async with site.browser() as page:
        await page.open()
        await page.say("reset", arena="a1", params={"block_size": 16, "num_blocks": 3})
        snapshot = await page.hear("snapshot", "step")
        assert snapshot["kind"] == "snapshot"
        assert (snapshot["epoch"], snapshot["state"]["block_size"], snapshot["state"]["num_blocks"]) == (1, 16, 3)
        await page.say("submit", arena="a1", prompt="2 words")
        step = await page.hear("step")
        assert (step["epoch"], step["seq"]) == (1, snapshot["seq"] + 1)


async def test_a_viewer_sees_and_cannot_drive(site: Site) -> None:
    async with site.browser() as page, site.browser() as viewer:
        opened = await page.open()
        seen = await viewer.open(view_id=opened["view_id"])
        assert seen["drive"] is False
        assert "drive_secret" not in seen
        await page.say("submit", arena="a1", prompt="2 words")
        assert (await viewer.hear("step"))["events"][0]["type"] == "request_arrived"
        ref = await viewer.say("pause", arena="a1")
        error = await viewer.hear("error")
        assert (error["ref"], error["arena"], error["code"], error["field"]) == (ref, "a1", "view_only", "arena")
        await page.say("close", arena="a1")
        assert (await viewer.hear("closed"))["arena"] == "a1"


async def test_a_wrong_secret_opens_nothing(site: Site) -> None:
    async with site.browser() as page:
        opened = await page.open()
        for fields in ({"drive_secret": opened["view_id"]}, {"view_id": opened["drive_secret"]}, {"drive_secret": "é"}):
            await page.say("open", **fields)
            error = await page.hear("error", "opened")
            assert (error["kind"], error["code"]) == ("error", "unknown_arena")


async def test_since_brings_what_was_missed(site: Site) -> None:
    async with site.browser() as page:
        opened = await page.open()
        for _ in range(3):
            await page.say("submit", arena="a1", prompt="2 words")
            await page.hear("ok")
    async with site.browser() as page:
        await page.say("open", drive_secret=opened["drive_secret"], epoch=0, since=1)
        await page.hear("opened")
        # Then came the pause of the dropped socket, and now the end of it.
        seen = [await page.hear("step", "snapshot") for _ in range(4)]
        assert [(message["kind"], message["seq"]) for message in seen] == [
            ("step", 2),
            ("step", 3),
            ("step", 4),
            ("step", 5),
        ]
        assert [message["paused"] for message in seen] == [False, False, True, False]


async def test_since_that_is_gone_brings_a_snapshot() -> None:
    async with serve(log_envelopes=2) as site, site.browser() as page, site.browser() as other:
        opened = await page.open()
        for _ in range(5):
            await page.say("submit", arena="a1", prompt="2 words")
            await page.hear("ok")
        for epoch, since in ((0, 1), (0, 99), (7, 4)):
            await other.say("open", view_id=opened["view_id"], epoch=epoch, since=since)
            await other.hear("opened")
            snapshot = await other.hear("snapshot", "step")
            assert (snapshot["kind"], snapshot["seq"]) == ("snapshot", 5)


async def test_a_dropped_driver_pauses_its_arena_and_then_loses_it() -> None:
    async with serve(arena_grace_s=0.2) as site:
        async with site.browser() as page:
            opened = await page.open()
        paused = await site.ear.wait_for(lambda said: isinstance(said, Stepped) and said.step.arena == "a1")
        assert paused.step.paused is True
        closed = await site.ear.wait_for(lambda said: getattr(said, "reason", None) is not None)
        assert (closed.arena, closed.reason) == ("a1", "its page has been away for 0.2 s")
        assert site.arenas.visitors == 0
        async with site.browser() as page:
            await page.say("open", drive_secret=opened["drive_secret"])
            assert (await page.hear("error"))["code"] == "unknown_arena"


async def test_an_arena_that_was_paused_by_hand_stays_so_over_a_return(site: Site) -> None:
    async with site.browser() as page:
        opened = await page.open()
        await page.say("pause", arena="a1")
        await page.hear("step")
    async with site.browser() as page:
        again = await page.open(drive_secret=opened["drive_secret"])
        assert again["snapshot"]["state"]["paused"] is True
        await page.say("submit", arena="a1", prompt="2 words")
        assert (await page.hear("step"))["paused"] is True


async def test_the_line_moves_when_an_arena_closes() -> None:
    async with serve(max_arenas=1) as site, site.browser() as first, site.browser() as second, site.browser() as third:
        await first.open()
        waits = await second.say("open", scene="empty")
        assert await second.hear("queued", "opened") == {"v": 1, "kind": "queued", "ref": waits, "position": 1}
        await third.say("open", scene="empty")
        assert (await third.hear("queued"))["position"] == 2
        await first.say("close", arena="a1")
        opened = await second.hear("opened")
        assert (opened["ref"], opened["arena"]) == (waits, "a2")
        assert (await third.hear("queued"))["position"] == 1
        await second.socket.close()
        # The second's arena is kept for its return, so the third still waits.
        assert site.arenas.waiting == 1


async def test_a_full_cache_makes_visitors_wait_too() -> None:
    async with serve(max_arena_slots=1024) as site, site.browser() as page, site.browser() as other:
        await page.open(params={"block_size": 32, "num_blocks": 29})
        await other.say("open", scene="empty", params={"block_size": 8, "num_blocks": 20})
        assert (await other.hear("queued", "opened"))["kind"] == "queued"
        await page.say("close", arena="a1")
        assert (await other.hear("opened"))["drive"] is True


async def test_an_arena_larger_than_the_cache_is_refused() -> None:
    async with serve(max_arena_slots=2000) as site, site.browser() as page:
        await page.say("open", params={"block_size": 32, "num_blocks": 40})
        error = await page.hear("error", "queued")
        assert error["code"] == "arena_too_large"
        assert "1280 slots" in error["message"]
        assert "at most 960" in error["message"]


async def test_one_socket_carries_so_many_arenas_and_no_more() -> None:
    async with serve(max_arenas_per_socket=2) as site, site.browser() as page:
        for _ in range(2):
            await page.open(params={"block_size": 4, "num_blocks": 4})
        await page.say("open")
        error = await page.hear("error", "opened")
        assert (error["code"], error["message"][:29]) == ("too_many_arenas", "this socket has 2 arenas, ope")


async def test_a_full_site_says_so_and_closes() -> None:
    async with serve(max_sockets=1) as site, site.browser() as page:
        await page.hear("status")
        async with site.browser() as late:
            error = await late.hear()
            assert (error["kind"], error["code"]) == ("error", "too_many_sockets")
            await late.socket.wait_closed()
            assert late.socket.close_code == 1013
            assert (
                late.socket.close_reason == error["message"] == "1 sockets are open; the limit is 1. Try again later."
            )
        assert len(site.arenas.clients) == 1


async def test_visitors_do_not_see_each_other(site: Site) -> None:
    async with site.browser() as page, site.browser() as other:
        await page.open()
        await other.open()
        await page.say("submit", arena="a1", prompt="2 words")
        await page.hear("ok")
        await other.say("submit", arena="a2", prompt="2 words")
        step: dict[str, Any] = await other.hear("step")
        assert (step["arena"], step["seq"]) == ("a2", 1)
        arrived = await site.ear.wait_for_event(RequestArrived, "a1")
        assert arrived.request == 0


@pytest.mark.parametrize("block_size", [1, 16, 192, 225, 256])
@pytest.mark.parametrize("slots", [SMALLEST_CACHE, 1024, 16384])
def test_the_api_leaves_room_for_the_pages_first_arena(block_size: int, slots: int) -> None:
    settings = Settings(kv_slots=slots, api_block_size=block_size)
    shape = api_shape(settings, msgspec.structs.replace(MODEL, slots=slots))
    assert 1 <= shape.memory.slots <= max(slots // 2, block_size)
    assert slots - shape.memory.slots >= FIRST_ARENA
