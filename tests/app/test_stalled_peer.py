"""A peer that is there and takes nothing of what it is sent keeps its connection for a while, and not for ever."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import websockets

from app.arena import Client
from app.engine_client import EngineClient
from app.generations import Generation
from tests.app.conftest import PATIENCE_S, serve


async def test_a_peer_that_takes_nothing_is_cut_and_its_arena_set_free() -> None:
    async with serve(client_stall_s=0.3, arena_grace_s=0) as site:
        gone = asyncio.Event()
        disconnect = site.arenas.disconnect

        def told(client: Client) -> None:
            disconnect(client)
            gone.set()

        site.arenas.disconnect = told  # type: ignore[method-assign]
        async with site.browser(close_timeout=0.1, ping_interval=None) as page:
            await page.open()
            # Its own library reads no more, and each message asks for an answer as long as itself.
            page.socket.transport.pause_reading()
            frame = json.dumps({"type": "pause", "ref": 1, "arena": "x" * 60_000})
            with contextlib.suppress(websockets.ConnectionClosed):
                while not gone.is_set():
                    await page.socket.send(frame)
            async with asyncio.timeout(PATIENCE_S):
                await gone.wait()
        assert len(site.arenas.clients) == 0
        await site.ear.wait_for(lambda said: getattr(said, "reason", None) is not None)
        assert site.arenas.visitors == 0


async def test_a_stream_that_nobody_reads_is_cut() -> None:
    async with serve(client_stall_s=0.3) as site:
        cut = asyncio.Event()
        release = site.arenas.generations.release

        def released(engine: EngineClient, generation: Generation) -> None:
            release(engine, generation)
            cut.set()

        site.arenas.generations.release = released  # type: ignore[method-assign]
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.setblocking(False)
        await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", site.port))
        body = json.dumps({"model": "fake-model", "prompt": "30000 words", "max_tokens": 30_000, "stream": True})
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        request = f"{head}Content-Type: application/json\r\n\r\n{body}".encode()
        await asyncio.get_running_loop().sock_sendall(small, request)
        async with asyncio.timeout(PATIENCE_S):
            await cut.wait()
        assert len(site.arenas.generations) == 0
        small.close()
