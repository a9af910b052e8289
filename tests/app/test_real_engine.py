"""The same server over the real engine process with a tiny random model: where the scripted engine proves nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator

import openai
import pytest

from app.main import engine_command
from engine.events import RequestAborted
from tests.app.conftest import Site, serve

pytestmark = pytest.mark.slow


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serve(command=engine_command, model="tiny", device="cpu", dtype="float32", api_slots=512) as running:
        yield running


async def test_an_arenas_life(site: Site) -> None:
    model = site.arenas.engine.status.model
    assert model is not None
    async with site.browser() as page, openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="none") as client:
        opened = await page.open(scene="growing", params={"block_size": 4, "num_blocks": 48, "pace_ms": 0})
        while not (await page.hear("step"))["paused"]:
            pass

        # A prompt, its tokens, and the blocks that must hold them.
        ref = await page.say("submit", arena="a1", prompt="Hello there", max_tokens=6, ignore_eos=True)
        ok = await page.hear("ok", "error")
        assert (ok["kind"], ok["ref"]) == ("ok", ref)
        await page.say("resume", arena="a1")
        arrived = None
        finished = None
        while finished is None:
            for event in (await page.hear("step"))["events"]:
                if event["type"] == "request_arrived" and event["request"] == ok["request"]:
                    arrived = event
                if event["type"] == "request_finished" and event["request"] == ok["request"]:
                    finished = event
        assert arrived is not None
        assert (arrived["source"], arrived["max_tokens"]) == ("page", 6)
        assert (finished["reason"], finished["output_tokens"]) == ("length", 6)

        # The API in the same arena, then in its own.
        headers = {"X-Arena": opened["drive_secret"]}
        answer = await client.completions.create(
            model=model.name,
            prompt="Hello",
            max_tokens=5,
            temperature=0,
            extra_headers=headers,
            extra_body={"ignore_eos": True},
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5
        again = await client.completions.create(
            model=model.name, prompt="Hello", max_tokens=5, temperature=0, extra_body={"ignore_eos": True}
        )
        assert again.choices[0].text == answer.choices[0].text

        # Too long for the arena, and too long for the model: refused with the numbers, nothing left behind.
        await page.say("submit", arena="a1", prompt="x" * 1500)
        error = await page.hear("error", "ok")
        assert (error["code"], error["field"]) == ("prompt_too_long", "prompt")
        assert "192" in error["message"]
        with pytest.raises(openai.BadRequestError, match=str(model.max_model_len)):
            await client.completions.create(model=model.name, prompt="x" * 10_000)

        # A reader who leaves in the middle.
        stream = await client.completions.create(
            model=model.name, prompt="Hello", max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        )
        await anext(stream)
        await stream.close()
        assert (await site.ear.wait_for_event(RequestAborted, "api")).reason == "the client disconnected"

        # Another block size, then a crash.
        await page.say("reset", arena="a1", params={"block_size": 8, "num_blocks": 20})
        snapshot = await page.hear("snapshot")
        assert (snapshot["epoch"], snapshot["state"]["block_size"], snapshot["state"]["num_blocks"]) == (1, 8, 20)
        pid = site.arenas.engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        snapshot = await page.hear("snapshot")
        assert (snapshot["epoch"], snapshot["state"]["block_size"]) == (2, 8)
        await page.say("close", arena="a1")
        assert (await page.hear("closed"))["arena"] == "a1"
        assert site.arenas.visitors == 0


async def test_the_line_over_a_full_cache() -> None:
    async with serve(
        command=engine_command, model="tiny", device="cpu", dtype="float32", kv_slots=512, api_slots=256
    ) as site:
        async with site.browser() as page, site.browser() as other:
            await page.open(params={"block_size": 4, "num_blocks": 40})
            await other.say("open", scene="empty", params={"block_size": 4, "num_blocks": 40})
            assert (await other.hear("queued", "opened", "error"))["kind"] == "queued"
            await page.say("close", arena="a1")
            assert (await other.hear("opened", "error"))["kind"] == "opened"
        pid = site.arenas.engine.pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
