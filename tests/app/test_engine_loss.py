"""The engine dies, hangs, or never loads; the site stays."""

from __future__ import annotations

import asyncio
import os
import signal

from engine.messages import Stepped
from tests.app.conftest import Site, serve


async def test_a_crash_is_told_and_every_arena_reopened_in_a_new_epoch(site: Site) -> None:
    async with site.browser() as page, site.browser() as other:
        opened = await page.open(params={"block_size": 8, "num_blocks": 5})
        await other.open(view_id=opened["view_id"])
        ref = await page.say("submit", arena="a1", prompt="crash")
        seen = []
        while not seen or seen[-1]["kind"] != "snapshot":
            seen.append(await page.hear())
        kinds = [message["kind"] for message in seen]
        assert kinds.count("error") == 1
        error = seen[kinds.index("error")]
        assert (error["ref"], error["code"]) == (ref, "engine_unavailable")
        assert "restarting" in error["message"]
        states = [message["state"] for message in seen if message["kind"] == "status"]
        assert states[0] == states[-2] == "restarting" or states == ["restarting"]
        assert (seen[-1]["epoch"], seen[-1]["seq"]) == (1, 0)
        assert (seen[-1]["state"]["block_size"], seen[-1]["state"]["num_blocks"]) == (8, 5)
        assert (await other.hear("snapshot"))["epoch"] == 1
        await page.say("submit", arena="a1", prompt="2 words")
        assert (await page.hear("ok"))["request"] == 0
        assert (await page.hear("step"))["epoch"] == 1
        assert site.arenas.engine.restarts == 1


async def test_killing_the_process_twice_counts_epochs(site: Site) -> None:
    async with site.browser() as page:
        await page.open()
        for epoch in (1, 2):
            pid = site.arenas.engine.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert (await page.hear("snapshot"))["epoch"] == epoch


async def test_since_of_an_old_epoch_brings_a_snapshot_of_the_new(site: Site) -> None:
    async with site.browser() as page:
        opened = await page.open()
        await page.say("submit", arena="a1", prompt="crash")
        await page.hear("snapshot")
        await page.say("open", drive_secret=opened["drive_secret"], epoch=0, since=0)
        assert (await page.hear("opened"))["epoch"] == 1
        assert (await page.hear("snapshot", "step"))["epoch"] == 1


async def test_an_arena_without_its_driver_is_reopened_paused(site: Site) -> None:
    async with site.browser() as page:
        opened = await page.open()
    async with site.browser() as page:
        await page.open()
        await page.say("submit", arena="a2", prompt="crash")
        await page.hear("error")
        await site.ear.wait_for(
            lambda said: (
                isinstance(said, Stepped) and (said.step.arena, said.step.epoch, said.step.paused) == ("a1", 1, True)
            )
        )
        again = await page.open(drive_secret=opened["drive_secret"])
        assert again["epoch"] == 1


async def test_opening_while_the_engine_is_away_waits_for_it(site: Site) -> None:
    async with site.browser() as page, site.browser() as other:
        await page.open()
        await page.say("submit", arena="a1", prompt="crash")
        while (await other.hear("status"))["state"] != "restarting":
            pass
        assert (await other.open())["epoch"] == 0


async def test_a_hung_engine_is_restarted() -> None:
    async with serve(engine_timeout_s=0.3) as site, site.browser() as page:
        await page.open()
        await page.say("submit", arena="a1", prompt="hang")
        error = await page.hear("error")
        assert error["code"] == "engine_unavailable"
        assert "0.3 s" in error["message"]
        assert (await page.hear("snapshot"))["epoch"] == 1


async def test_a_model_that_cannot_be_loaded_is_said_and_not_tried_again() -> None:
    async with serve(wait=False, model="broken") as site:
        await site.ear.wait_for(lambda said: said == "on_lost")
        async with site.http() as http, site.browser() as page:
            status = await page.hear("status")
            assert (status["state"], status["stage"]) == ("failed", "there is no model named broken")
            await page.say("open")
            error = await page.hear("error", "queued")
            assert (error["code"], "no model named broken" in error["message"]) == ("engine_unavailable", True)
            ready = await http.get("/readyz")
            assert (ready.status_code, ready.json()["state"]) == (503, "failed")
            assert (await http.get("/healthz")).status_code == 200
        assert site.arenas.engine.restarts == 0


async def test_no_engine_process_outlives_the_site() -> None:
    async with serve() as site:
        pid = site.arenas.engine.pid
        assert pid is not None
    with_signal_zero = await asyncio.to_thread(_is_alive, pid)
    assert not with_signal_zero


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
