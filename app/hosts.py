"""Under which host names this server may be asked for.

A foreign page can point a name of its own at this machine once its visitor has loaded it; to the browser the page and
this server are then one site (DNS rebinding), and no check of origins helps. But the name stands in ``Host``, and no
page can change that. A request without ``Host`` comes from no browser and is let in.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app import openai_errors
from app.settings import name_of

MISDIRECTED = 421
MAX_SHOWN = 80


class HostGuard:
    """Answers 421 to HTTP requests and websocket handshakes for a host not among ``allowed``; None allows every one."""

    def __init__(self, app: ASGIApp, allowed: frozenset[str] | None) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._allowed is None:
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("host")
        if given is None or name_of(given) in self._allowed:
            await self._app(scope, receive, send)
            return
        await _refusal(given, scope["path"])(scope, receive, send)


def _refusal(given: str, path: str) -> Response:
    text = (
        f"this server is not to be asked for as {given[:MAX_SHOWN]!r}; use the address that it printed at its start, or "
        f"add this name to the setting ALLOWED_HOSTS."
    )
    if path.startswith("/v1/"):
        return openai_errors.response(MISDIRECTED, text, "Host", "unknown_host")
    return PlainTextResponse(f"{text[0].upper()}{text[1:]}\n", MISDIRECTED)
