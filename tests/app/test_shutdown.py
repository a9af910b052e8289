"""The end of the server: everyone is told, nobody is waited for, and nothing is reported that is no fault."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from app.engine_client import OnAnswer
from engine.events import RequestArrived
from engine.messages import AnyCommand
from tests.app.conftest import PATIENCE_S, Site, serve

FOREVER = {"model": "fake-model", "prompt": "forever"}


async def test_the_end_is_told_to_streams_waiting_requests_and_sockets(caplog: pytest.LogCaptureFixture) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http, serve() as site, site.browser() as page:
        await page.open()
        url = f"{site.url}/v1/completions"
        waiting = asyncio.create_task(http.post(url, json=FOREVER))
        await site.ear.wait_for_event(RequestArrived, "api")
        async with http.stream("POST", url, json={**FOREVER, "stream": True}) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            site.server.should_exit = True
            events = [line async for line in lines if line]
        error = json.loads(events[-1].removeprefix("data: "))["error"]
        assert (error["type"], error["code"]) == ("server_error", "engine_unavailable")
        assert error["message"] == "the server is shutting down; try again when it is back."
        whole = await waiting
        assert (whole.status_code, whole.json()["error"]["message"]) == (503, error["message"])
        await page.socket.wait_closed()
        assert page.socket.close_code == 1012
    # Nobody had to be cut off after the time that connections have at the end.
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_client_that_does_not_finish_its_request_is_cut_off_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serve() as site:
        reading = asyncio.Event()
        app = site.server._app

        async def listening(scope: Scope, receive: Receive, send: Send) -> None:
            reading.set()
            await app(scope, receive, send)

        site.server._app = listening  # type: ignore[assignment]
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n"
        writer.write(head + b'Content-Type: application/json\r\n\r\n{"model":')
        await reading.wait()
        site.server.should_exit = True
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        writer.close()
    assert [record for record in caplog.records if record.exc_info] == []


async def test_once_the_end_has_begun_nothing_new_is_started(site: Site) -> None:
    async with site.browser() as page, site.http() as http:
        await page.open()
        site.arenas.shut_down()
        for answer in (await http.get("/v1/models"), await http.post("/v1/completions", json=FOREVER)):
            assert (answer.status_code, "shutting down" in answer.text) == (503, True)
        ref = await page.say("submit", arena="a1", prompt="2 words")
        error = await page.hear("error", "ok")
        assert (error["ref"], error["code"], "shutting down" in error["message"]) == (ref, "engine_unavailable", True)


async def test_whoever_waits_for_a_hung_engine_is_told_at_once(site: Site) -> None:
    async with site.browser() as page:
        await page.open()
        taken = asyncio.Event()
        pid = site.arenas.engine.pid
        assert pid is not None
        send = site.arenas.engine.send

        def sending(command: AnyCommand, on_answer: OnAnswer) -> None:
            send(command, on_answer)
            taken.set()

        site.arenas.engine.send = sending  # type: ignore[method-assign]
        ref = await page.say("submit", arena="a1", prompt="hang")
        await taken.wait()
        site.arenas.shut_down()
        error = await page.hear("error", "ok")
        assert (error["ref"], error["code"], "shutting down" in error["message"]) == (ref, "engine_unavailable", True)
        os.kill(pid, signal.SIGKILL)  # it would be given time to answer
