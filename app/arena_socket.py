"""The browser's socket: frames in, frames out. What they mean is said in ``driving`` and ``arenas``."""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from starlette.websockets import WebSocketState

from app import driving, origin
from app.arena import Client
from app.arenas import Arenas
from app.client_messages import AnyClientMessage, ArenaMessage, Misfit, Open, Ping, decode
from app.errors import EngineUnavailable, Invalid
from app.server_messages import Error, Pong, encode
from app.settings import Settings

TRY_AGAIN_LATER = 1013

router = APIRouter()


@router.websocket("/ws/arena")
async def arena_socket(socket: WebSocket) -> None:
    """One visitor. Refused with 403 before the handshake when a foreign page asks."""
    settings: Settings = socket.app.state.settings
    arenas: Arenas = socket.app.state.arenas
    if not origin.is_allowed(socket.headers, settings.origins()):
        await socket.close()
        return
    await socket.accept()
    try:
        client = arenas.connect()
    except Invalid as full:
        # Said twice: the error for whoever reads messages, the code and the reason for whoever sees only the end.
        with contextlib.suppress(WebSocketDisconnect):
            await socket.send_text(_error(full, None, None))
            await socket.close(TRY_AGAIN_LATER, full.message)
        return
    try:
        await _converse(socket, client, arenas, settings)
    finally:
        arenas.disconnect(client)


async def _converse(socket: WebSocket, client: Client, arenas: Arenas, settings: Settings) -> None:
    """Read and write until either side ends."""
    reader = asyncio.create_task(_read(socket, client, arenas, settings))
    writer = asyncio.create_task(_write(socket, client, arenas))
    try:
        done, _ = await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (reader, writer):
            task.cancel()
        await asyncio.gather(reader, writer, return_exceptions=True)
    for task in done:
        if not task.cancelled() and task.exception() is not None:
            if socket.client_state is WebSocketState.CONNECTED:
                with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                    await socket.close(1011)
            task.result()


async def _read(socket: WebSocket, client: Client, arenas: Arenas, settings: Settings) -> None:
    """One message at a time; the next is not read before this one is answered and the answers are nearly taken."""
    while True:
        await client.outbox.wait_for_room()
        frame = await socket.receive()
        if frame["type"] == "websocket.disconnect":
            return
        text = frame.get("text")
        if text is None:
            problem = Invalid("not_text", "", "the frame is binary; send JSON as a text frame.")
            client.outbox.reply(_error(problem, None, None))
            continue
        await _handle(text, client, arenas, settings)


async def _handle(text: str, client: Client, arenas: Arenas, settings: Settings) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > settings.max_message_bytes:
        problem = Invalid(
            "message_too_large",
            "",
            f"the message has {size} bytes; the limit is {settings.max_message_bytes}. Send a shorter prompt.",
        )
        client.outbox.reply(_error(problem, None, None))
        return
    message = decode(text)
    if isinstance(message, Misfit):
        client.outbox.reply(_error(message.problem, message.ref, message.arena))
        return
    try:
        if isinstance(message, Ping):
            client.outbox.reply(encode(Pong(message.ref)))
        elif isinstance(message, Open):
            driving.open_arena(arenas, settings.arena_grace_s, client, message)
        else:
            await driving.drive(arenas, settings, client, message)
    except Invalid as problem:
        client.outbox.reply(_error(problem, message.ref, _name(message)))
    except EngineUnavailable as gone:
        client.outbox.reply(_error(Invalid("engine_unavailable", "", str(gone)), message.ref, _name(message)))


async def _write(socket: WebSocket, client: Client, arenas: Arenas) -> None:
    while True:
        text = await client.outbox.take()
        if text is None:
            arenas.catch_up(client)
        else:
            try:
                await socket.send_text(text)
            except WebSocketDisconnect:
                return


def _name(message: AnyClientMessage) -> str | None:
    return message.arena if isinstance(message, ArenaMessage) else None


def _error(problem: Invalid, ref: int | None, arena: str | None) -> str:
    return encode(Error(ref=ref, arena=arena, code=problem.code, field=problem.field, message=problem.message))
