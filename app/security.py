"""Headers that every response carries, and the bound on what a request may carry."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import origin

# 'self' in connect-src covers ws and wss of the same host in every browser of the last years (in Safari from 15.4 on).
# Naming the host in its own scheme would mean to copy the client's Host header into a policy, which is not worth it.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class SecurityHeaders:
    """Adds ``HEADERS`` to every HTTP response that does not set them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class RequestGuard:
    """Refuses bodies over ``max_bytes`` (413) and posts from foreign pages (403) before anything reads them."""

    def __init__(self, app: ASGIApp, max_bytes: int, origins: frozenset[str]) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not origin.is_allowed(headers, self._origins):
            text = "this request comes from a page of another site; send it from this site or from no page at all."
            await _refuse(403, "foreign_origin", text)(scope, receive, send)
            return
        declared = headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            await self._too_large(f"{declared} bytes")(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._max_bytes:
                await self._too_large(f"more than {self._max_bytes} bytes")(scope, receive, send)
                return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    def _too_large(self, size: str) -> JSONResponse:
        text = f"the body has {size}; the limit is {self._max_bytes}. Send a shorter prompt."
        return _refuse(413, "body_too_large", text)


def _refuse(status: int, code: str, text: str) -> JSONResponse:
    error = {"message": text, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status)
