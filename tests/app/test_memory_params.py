"""How an arena's memory is chosen on the socket, and what may be done in it beside generating."""

from __future__ import annotations

import json
from typing import Any

from tests.app.conftest import Browser, Site, serve

MODEL = "fake-model"


async def memory_of(site: Site, opened: dict[str, Any]) -> dict[str, Any]:
    """As the engine has been told to run it."""
    async with site.http() as http:
        body = {"model": MODEL, "prompt": "show memory"}
        answer = await http.post("/v1/completions", json=body, headers={"X-Arena": opened["drive_secret"]})
        memory: dict[str, Any] = json.loads(answer.json()["choices"][0]["text"])
        return memory


async def test_an_arena_is_opened_as_its_page_wants_it(site: Site) -> None:
    async with site.browser() as page:
        plain = await page.open()
        assert await memory_of(site, plain) == {
            "block_size": 4,
            "num_blocks": 48,
            "manager": "paged",
            "max_len": 0,
            "cpu_blocks": 0,
            "prefix_cache": False,
            "preemption": "auto",
            "prefill_chunk": 0,
        }
        wish = {
            "block_size": 8,
            "num_blocks": 16,
            "manager": "orca_pow2",
            "max_len": 64,
            "cpu_blocks": 10,
            "prefix_cache": True,
            "preemption": "swap",
            "prefill_chunk": -1,
        }
        opened = await page.open(params={**wish, "pace_ms": 5})
        assert await memory_of(site, opened) == wish
        assert (opened["snapshot"]["state"]["manager"], opened["snapshot"]["state"]["num_cpu_blocks"]) == (
            "orca_pow2",
            10,
        )


async def test_a_reset_changes_what_it_names_and_keeps_the_rest(site: Site) -> None:
    async with site.browser() as page:
        opened = await page.open(params={"cpu_blocks": 6, "prefix_cache": True, "preemption": "recompute"})
        await page.say("reset", arena="a1", params={"manager": "static_batch", "max_len": 32, "prefix_cache": False})
        assert (await page.hear("snapshot"))["state"]["manager"] == "static_batch"
        memory = await memory_of(site, opened)
        assert memory == {
            "block_size": 4,
            "num_blocks": 48,
            "manager": "static_batch",
            "max_len": 32,
            "cpu_blocks": 6,
            "prefix_cache": False,
            "preemption": "recompute",
            "prefill_chunk": 0,
        }
        await page.say("reset", arena="a1")
        await page.hear("snapshot")
        assert await memory_of(site, opened) == memory
        # A crash opens it again as it is now.
        await page.say("submit", arena="a1", prompt="crash")
        while (await page.hear("snapshot"))["epoch"] != 3:
            pass
        assert await memory_of(site, opened) == memory


async def shown(site: Site, page: Browser, **fields: Any) -> dict[str, Any]:
    """The event of a request's arrival."""
    await page.say("submit", arena="a1", prompt="2 words", **fields)
    answer = await page.hear("ok", "error")
    assert answer["kind"] == "ok", answer
    arrived: dict[str, Any] = (await page.hear("step"))["events"][0]
    return arrived


async def test_a_submission_may_have_samples_beams_and_a_priority(site: Site) -> None:
    async with site.browser() as page:
        await page.open()
        arrived = await shown(site, page, n=2, best_of=3, logit_bias={"5": -1, "6": 2.5}, cache_salt="s")
        assert (arrived["width"], arrived["beam"], arrived["priority"]) == (3, False, 0)
        arrived = await shown(
            site,
            page,
            beam_search=True,
            n=4,
            length_penalty=0.5,
            early_stopping="never",
            priority=-2,
            min_tokens=1,
            min_p=0.5,
            repetition_penalty=1.5,
            presence_penalty=1,
            frequency_penalty=-1,
            stop_token_ids=[1],
        )
        assert (arrived["width"], arrived["beam"], arrived["priority"]) == (4, True, -2)


async def test_fork_prefixes_and_the_cache(site: Site) -> None:
    async with site.browser() as page:
        await page.open()
        ref = await page.say("fork", arena="a1", sequence=0)
        assert await page.hear("ok") == {"v": 1, "kind": "ok", "ref": ref, "arena": "a1"}
        forked = (await page.hear("step"))["events"]
        assert forked == [{"type": "sequence_forked", "sequence": 1, "parent": 0}]
        ref = await page.say("register_prefix", arena="a1", prompt="be brief", cache_salt="s")
        assert await page.hear("ok") == {"v": 1, "kind": "ok", "ref": ref, "arena": "a1", "request": 0}
        await page.say("reset_cache", arena="a1")
        error = await page.hear("error", "ok")
        assert (error["kind"], error["code"]) == ("error", "cache_in_use")
        await page.say("abort", arena="a1", request=0)
        assert (await page.hear("ok", "error"))["kind"] == "ok"
        ref = await page.say("reset_cache", arena="a1")
        assert (await page.hear("ok", "error")) == {"v": 1, "kind": "ok", "ref": ref, "arena": "a1"}


async def test_the_pools_for_swapping_are_bounded_and_waited_for() -> None:
    async with serve(max_arena_cpu_slots=400, api_cpu_slots=200) as site, site.browser() as page:
        await page.say("open", params={"cpu_blocks": 81})
        error = await page.hear("error", "queued", "opened")
        assert (error["code"], error["field"]) == ("arena_too_large", "params.cpu_blocks")
        # 512 slots in all, of which the API has 12 blocks of 16.
        assert all(part in error["message"] for part in ("324 slots", "at most 320", "at most 80 blocks")), error
        async with site.browser() as other:
            await page.open(params={"cpu_blocks": 80})
            await other.say("open", scene="empty", params={"cpu_blocks": 1})
            assert (await other.hear("queued", "opened", "error"))["kind"] == "queued"
            await page.say("close", arena="a1")
            assert (await other.hear("opened", "error"))["kind"] == "opened"


async def test_a_site_without_a_pool_for_swapping_refuses_to_swap() -> None:
    async with serve(max_arena_cpu_slots=0) as site, site.browser() as page:
        await page.say("open", params={"cpu_blocks": 1})
        error = await page.hear("error", "opened")
        assert (error["code"], error["field"]) == ("out_of_range", "params.cpu_blocks")
        assert "between 0 and 0" in error["message"]
