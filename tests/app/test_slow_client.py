"""A client that does not read costs the others nothing, and gets a snapshot when it comes round."""

from __future__ import annotations

import asyncio

from app.arena import Arena, Client, Shape
from app.arena_log import ArenaLog
from app.outbox import MAX_REPLIES, Outbox
from engine.events import Partition, Step
from engine.messages import Memory
from tests.app.conftest import serve

FREE = Partition(0, 0, 0, 0, 0, 8)


async def test_overflow_drops_envelopes_keeps_replies_and_asks_for_a_snapshot() -> None:
    outbox = Outbox(limit=3)
    assert [outbox.envelope(text) for text in "abc"] == [True, True, True]
    outbox.reply("answer")
    assert outbox.envelope("d") is False
    assert (outbox.behind, outbox.overflows) == (True, 1)
    assert outbox.envelope("e") is False
    assert await outbox.take() == "answer"
    assert await outbox.take() is None
    assert outbox.behind is False
    assert outbox.envelope("f") is True
    assert await outbox.take() == "f"


async def test_news_goes_first_and_only_the_newest() -> None:
    outbox = Outbox(limit=3)
    outbox.reply("answer")
    outbox.news("status", "loading")
    outbox.news("status", "ready")
    assert [await outbox.take(), await outbox.take()] == ["ready", "answer"]


async def test_replies_hold_up_the_reading_of_further_messages() -> None:
    outbox = Outbox(limit=3)
    for _ in range(MAX_REPLIES):
        outbox.reply("answer")
    waiting = asyncio.create_task(outbox.wait_for_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await outbox.take()
    await waiting


def test_the_log_is_bounded_and_says_what_it_has_not() -> None:
    log = ArenaLog(limit=3)
    assert log.after(0) is None
    for seq in range(1, 6):
        log.append(seq, f"s{seq}")
    assert log.after(5) == []
    assert log.after(2) == ["s3", "s4", "s5"]
    assert log.after(1) is None
    assert log.after(6) is None
    log.append(9, "s9")
    assert log.after(8) == ["s9"]
    assert log.after(5) is None
    log.append(10, "x" * (1 << 20))
    assert log.after(9) == ["x" * (1 << 20)]
    assert log.after(8) is None


def test_an_overflow_in_one_arena_makes_the_clients_others_stale_too() -> None:
    client = Client(Outbox(limit=2))
    arenas = [Arena(name, Shape(Memory(4, 4), 0.0, "empty"), 10) for name in ("a1", "a2")]
    for arena in arenas:
        arena.join(client, drive=True)
        arena.publish(Step(arena.name, 0, 1, 0.0, False, FREE, []))
        assert arena.replay(client, 0, 1)
    for seq in (2, 3, 4):
        arenas[0].publish(Step("a1", 0, seq, 0.0, False, FREE, []))
    assert client.outbox.overflows == 1
    assert all(arena.ask() is not None for arena in arenas)
    assert arenas[0].ask() is None, "one request of a snapshot at a time"


def test_an_envelope_is_encoded_once_for_all() -> None:
    arena = Arena("a1", Shape(Memory(4, 4), 0.0, "empty"), 10)
    clients = [Client(Outbox(limit=8)) for _ in range(2)]
    for client in clients:
        arena.join(client, drive=False)
    arena.publish(Step("a1", 0, 1, 0.0, False, FREE, []))
    for client in clients:
        assert arena.replay(client, 0, 1)
    arena.publish(Step("a1", 0, 2, 0.0, False, FREE, []))
    first, second = (asyncio.run(client.outbox.take()) for client in clients)
    assert first is second


async def test_a_client_that_stops_reading_gets_a_snapshot_instead_of_what_it_missed() -> None:
    async with (
        serve(client_queue=8) as site,
        site.browser(close_timeout=0.1) as page,
        site.browser(max_queue=1) as sleeper,
    ):
        opened = await page.open()
        await sleeper.open(view_id=opened["view_id"])
        # Nobody reads the sleeper's socket now. 20 MB are more than the kernel and both libraries keep for it.
        await page.say("submit", arena="a1", prompt="flood 2000")
        await site.ear.wait_for(lambda said: getattr(getattr(said, "step", None), "seq", 0) == 2001)
        await page.say("submit", arena="a1", prompt="2 words")
        last = 0
        while True:
            message = await sleeper.hear("step", "snapshot")
            if message["kind"] == "snapshot":
                break
            assert message["seq"] == last + 1
            last = message["seq"]
        assert message["seq"] > last + 1, "it did miss something"
        assert message["seq"] >= 2001
