"""The web server under the application: connections that take nothing are cut, and the end is quick and quiet."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from app.arenas import Arenas
from app.settings import Settings

GRACEFUL_S = 1
"""Seconds that connections have at the end to take what is left for them."""
OVERSIZE = 4
"""The server takes frames up to this many times the limit, so that they can be answered with an error; beyond, it closes
the connection with code 1009."""


class Server(uvicorn.Server):
    """Serves ``app`` with ``settings``; ``options`` are further ones of ``uvicorn.Config``."""

    def __init__(self, app: FastAPI, settings: Settings, **options: Any) -> None:
        self._app = app
        self._arenas: Arenas = app.state.arenas
        config = uvicorn.Config(
            self._quietly,
            ws_max_size=settings.max_message_bytes * OVERSIZE,
            # One encoded envelope goes to all viewers; compressing it for each would cost more than a step.
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=GRACEFUL_S,
            interface="asgi3",
            **options,
        )
        config.load()
        config.http_protocol_class = _impatient(config.http_protocol_class, settings.client_stall_s)
        if config.ws_protocol_class is not None:
            config.ws_protocol_class = _impatient(config.ws_protocol_class, settings.client_stall_s)
        super().__init__(config)

    async def shutdown(self, sockets: Any = None) -> None:
        """Tell everyone who waits for the engine before the connections are closed, so that nobody has to be cut off."""
        self._arenas.shut_down()
        await super().shutdown(sockets)

    async def _quietly(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            # At the end the server cancels what a client has kept it from finishing; that is no fault to report.
            if not self.should_exit:
                raise


class _Impatience(asyncio.Protocol):
    """Cuts a connection whose peer has taken nothing for ``stall_s`` seconds while something waits to be sent.

    Nothing else would: a peer that is alive and never reads keeps its connection for ever, and pings do not reach it.
    """

    stall_s: float
    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # other loops' transports are no subclasses of it
        # Anything that waits counts. More than one message need not wait here: the outbox keeps the rest.
        self._transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        self._stop_waiting()
        super().resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(error)

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.stall_s, self._look, self._transport.get_write_buffer_size())

    def _look(self, before: int) -> None:
        if self._transport.get_write_buffer_size() < before:
            self._wait()
        else:
            self._timer = None
            self._transport.abort()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _impatient(base: type[asyncio.Protocol], stall_s: float) -> type[asyncio.Protocol]:
    return type("Impatient", (_Impatience, base), {"stall_s": stall_s})
