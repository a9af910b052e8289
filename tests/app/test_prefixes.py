"""Registered prefixes over the API: kept until deleted, bounded, told apart by arena."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.events import RequestAborted, RequestArrived
from engine.messages import Output
from tests.app.conftest import Site, serve

MODEL = "fake-model"
SYSTEM = {"model": MODEL, "prompt": "You are a helpful page table."}


async def test_a_prefix_is_registered_listed_and_deleted(site: Site) -> None:
    async with site.http() as http:
        answer = await http.post("/v1/prefixes", json=SYSTEM)
        assert answer.status_code == 201
        prefix = answer.json()
        assert prefix.pop("id").startswith("prefix-")
        assert isinstance(prefix.pop("created"), int)
        assert prefix == {"object": "prefix", "model": MODEL, "tokens": 6}
        listed = (await http.get("/v1/prefixes")).json()
        assert listed == {"object": "list", "data": [answer.json()]}
        gone = await http.delete(f"/v1/prefixes/{answer.json()['id']}")
        assert (gone.status_code, gone.json()) == (
            200,
            {"id": answer.json()["id"], "object": "prefix", "deleted": True},
        )
        aborted = await site.ear.wait_for_event(RequestAborted, "api")
        assert (aborted.request, aborted.reason) == (0, "its prefix was deleted")
        assert (await http.get("/v1/prefixes")).json()["data"] == []
        again = await http.delete(f"/v1/prefixes/{answer.json()['id']}")
        assert (again.status_code, again.json()["error"]["code"]) == (404, "unknown_prefix")
    assert len(site.arenas.generations) == 0


async def test_the_same_prefix_twice_is_one(site: Site) -> None:
    async with site.http() as http:
        first = await http.post("/v1/prefixes", json=SYSTEM)
        again = await http.post("/v1/prefixes", json=SYSTEM)
        assert (again.status_code, again.json()) == (200, first.json())
        salted = await http.post("/v1/prefixes", json={**SYSTEM, "cache_salt": "mine"})
        assert (salted.status_code, salted.json()["id"] == first.json()["id"]) == (201, False)
        talk = {"model": MODEL, "messages": [{"role": "system", "content": "be brief"}]}
        ids = [(await http.post("/v1/prefixes", json=talk)).json()["id"] for _ in range(2)]
        assert ids[0] == ids[1]
        assert (await http.post("/v1/prefixes", json={"model": MODEL, "prompt": [1, 2]})).status_code == 201
        assert len((await http.get("/v1/prefixes")).json()["data"]) == 4


async def test_an_arena_has_prefixes_of_its_own_that_end_with_it(site: Site) -> None:
    async with site.browser() as page, site.http() as http:
        opened = await page.open()
        headers = {"X-Arena": opened["drive_secret"]}
        made = await http.post("/v1/prefixes", json=SYSTEM, headers=headers)
        assert made.status_code == 201
        arrived = (await page.hear("step"))["events"][0]
        assert (arrived["type"], arrived["source"]) == ("request_arrived", "prefix")
        assert (await http.get("/v1/prefixes")).json()["data"] == []
        assert (await http.delete(f"/v1/prefixes/{made.json()['id']}")).status_code == 404
        assert (await http.get("/v1/prefixes", headers=headers)).json()["data"] == [made.json()]
        await page.say("reset", arena="a1")
        await page.hear("ok")
        assert (await http.get("/v1/prefixes", headers=headers)).json()["data"] == []
        assert (await http.post("/v1/prefixes", json=SYSTEM, headers=headers)).status_code == 201
        await page.say("close", arena="a1")
        await page.hear("closed")
        assert (await http.get("/v1/prefixes", headers=headers)).status_code == 404


async def test_a_driver_may_abort_a_prefix_as_any_request(site: Site) -> None:
    async with site.browser() as page, site.http() as http:
        opened = await page.open()
        headers = {"X-Arena": opened["drive_secret"]}
        assert (await http.post("/v1/prefixes", json=SYSTEM, headers=headers)).status_code == 201
        await page.say("abort", arena="a1", request=0)
        await site.ear.wait_for_event(RequestAborted, "a1")
        assert (await http.get("/v1/prefixes", headers=headers)).json()["data"] == []


async def test_a_lost_engine_loses_all_prefixes(site: Site) -> None:
    async with site.http() as http:
        assert (await http.post("/v1/prefixes", json=SYSTEM)).status_code == 201
        lost = await http.post("/v1/prefixes", json={"model": MODEL, "prompt": "crash"})
        assert (lost.status_code, lost.json()["error"]["code"]) == (503, "engine_unavailable")
        await site.ear.wait_for(lambda said: said == "on_lost")
        assert (await http.get("/v1/prefixes")).json()["data"] == []


async def test_a_prefix_that_finds_no_room_is_not_there(site: Site) -> None:
    async with site.http() as http:
        answer = await http.post("/v1/prefixes", json={"model": MODEL, "prompt": "no room"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_room")
        assert "2 tokens" in answer.json()["error"]["message"]
        assert (await http.get("/v1/prefixes")).json()["data"] == []


async def test_prefixes_leave_half_of_an_arena_to_requests(site: Site) -> None:
    async with site.http() as http:  # the API's arena has 64 slots here
        assert (await http.post("/v1/prefixes", json={"model": MODEL, "prompt": "a " * 20})).status_code == 201
        answer = await http.post("/v1/prefixes", json={"model": MODEL, "prompt": "b " * 13})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_room")
        message = answer.json()["error"]["message"]
        assert all(part in message for part in ("13 tokens", "have 20", "64 slots", "may take 32"))
        aborted = await site.ear.wait_for_event(RequestAborted, "api")
        assert (aborted.request, aborted.reason) == (1, "the prefix takes too much of the arena")
        assert (await http.post("/v1/prefixes", json={"model": MODEL, "prompt": "b " * 12})).status_code == 201


async def test_there_may_be_so_many_prefixes_and_no_more() -> None:
    async with serve(max_prefixes=2) as site, site.http() as http:
        bodies = [{"model": MODEL, "prompt": f"{number} prefix"} for number in range(3)]
        assert [(await http.post("/v1/prefixes", json=body)).status_code for body in bodies] == [201, 201, 409]
        refused = (await http.post("/v1/prefixes", json=bodies[2])).json()["error"]
        assert (refused["code"], refused["message"][:53]) == (
            "too_many_prefixes",
            "2 prefixes are registered in this arena; the limit is",
        )
        assert (await http.post("/v1/prefixes", json=bodies[0])).status_code == 200, "it is there already"
        for prefix in (await http.get("/v1/prefixes")).json()["data"]:
            await http.delete(f"/v1/prefixes/{prefix['id']}")
        assert (await http.post("/v1/prefixes", json=bodies[2])).status_code == 201


async def test_one_that_is_on_its_way_is_waited_for_and_ends_with_its_client(site: Site) -> None:
    endless = {"model": MODEL, "prompt": "forever"}
    async with site.http() as http:
        waiting = asyncio.create_task(http.post("/v1/prefixes", json=endless))
        await site.ear.wait_for_event(RequestArrived, "api")
        twin = await http.post("/v1/prefixes", json=endless)
        assert (twin.status_code, twin.json()["error"]["code"]) == (409, "prefix_in_progress")
        assert (await http.get("/v1/prefixes")).json()["data"] == []
        waiting.cancel()
        aborted = await site.ear.wait_for_event(RequestAborted, "api")
        assert (aborted.request, aborted.reason) == (0, "the client disconnected")
        await site.ear.wait_for(lambda said: isinstance(said, Output) and said.finish == "abort")
        assert (await http.post("/v1/prefixes", json=SYSTEM)).status_code == 201
        assert [prefix["tokens"] for prefix in (await http.get("/v1/prefixes")).json()["data"]] == [6]


async def test_one_that_its_driver_aborts_on_its_way_is_told_so(site: Site) -> None:
    async with site.browser() as page, site.http() as http:
        opened = await page.open()
        headers = {"X-Arena": opened["drive_secret"]}
        body = {"model": MODEL, "prompt": "forever"}
        waiting = asyncio.create_task(http.post("/v1/prefixes", json=body, headers=headers))
        await site.ear.wait_for_event(RequestArrived, "a1")
        await page.say("abort", arena="a1", request=0)
        answer = await waiting
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "request_aborted")


BAD: list[tuple[Any, int, str | None, str]] = [
    ({}, 400, "model", "missing_parameter"),
    ({"model": "other", "prompt": "x"}, 404, "model", "model_not_found"),
    ({"model": MODEL}, 400, "prompt", "unsupported_parameter"),
    ({**SYSTEM, "messages": [{"role": "user", "content": "x"}]}, 400, "prompt", "unsupported_parameter"),
    ({"model": MODEL, "prompt": " "}, 400, "prompt", "empty_prompt"),
    ({"model": MODEL, "prompt": []}, 400, "prompt", "empty_prompt"),
    ({"model": MODEL, "messages": []}, 400, "messages", "empty_prompt"),
    ({"model": MODEL, "prompt": "x" * 20001}, 400, "prompt", "prompt_too_long"),
    ({"model": MODEL, "prompt": "too long"}, 400, "prompt", "prompt_too_long"),
    ({"model": MODEL, "prompt": [-1]}, 400, "prompt[0]", "out_of_range"),
    ({"model": MODEL, "prompt": ["a"]}, 400, "prompt", "wrong_type"),
    ({**SYSTEM, "cache_salt": "s" * 257}, 400, "cache_salt", "out_of_range"),
    ({**SYSTEM, "max_tokens": 5}, 400, "max_tokens", "unknown_parameter"),
]


@pytest.mark.parametrize("header", [None, "nobody's"])
async def test_each_mistake_is_named(site: Site, header: str | None) -> None:
    async with site.http() as http:
        for body, status, param, code in BAD:
            answer = await http.post("/v1/prefixes", json=body, headers={"X-Arena": header} if header else {})
            error = answer.json()["error"]
            if header and code not in ("missing_parameter", "model_not_found") and status == 400:
                assert (error["code"], error["param"]) in ((code, param), ("unknown_arena", "X-Arena"))
            else:
                assert (answer.status_code, error["param"], error["code"]) == (status, param, code), (body, error)
        assert (await http.get("/v1/prefixes")).json()["data"] == []
        assert (await http.get("/v1/prefixes", headers={"X-Arena": "nobody's"})).status_code == 404
    assert len(site.arenas.generations) == 0
