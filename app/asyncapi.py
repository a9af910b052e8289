"""``/asyncapi.json``: what is said on the socket, as an AsyncAPI 3.0 document made from the very types that speak it.

Its schemas are those of a trace file's lines too: ``Header``, ``Snapshot`` and ``Step``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any, get_args

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from app import client_messages as ask
from app import server_messages as tell
from engine.events import Snapshot, Step
from engine.trace import Header

router = APIRouter(tags=["Operations"])

CHANNEL = {"$ref": "#/channels/arena"}
HEARD: tuple[type, ...] = get_args(ask.AnyClientMessage)
SAID: tuple[type, ...] = (
    tell.Status,
    tell.Opened,
    tell.Queued,
    tell.Ok,
    tell.Pong,
    tell.Error,
    tell.Closed,
    Snapshot,
    Step,
)
ANSWERS: dict[type, tuple[type, ...]] = {ask.Open: (tell.Opened, tell.Queued), ask.Ping: (tell.Pong,)}
"""What answers a message, besides ``Error``; all others are answered with ``Ok``."""
UNASKED = (tell.Status, tell.Opened, Snapshot, Step, tell.Closed)


@router.get("/asyncapi.json")
async def asyncapi(request: Request) -> JSONResponse:
    """The socket's messages and the events in them, as an AsyncAPI 3.0 document."""
    protocol = "wss" if request.url.scheme == "https" else "ws"
    return JSONResponse({**document(), "servers": {"here": {"host": request.url.netloc, "protocol": protocol}}})


@cache
def document() -> dict[str, Any]:
    """The document but for the servers. It belongs to all callers: copy it to change it."""
    types = [*HEARD, *SAID]
    payloads, schemas = msgspec.json.schema_components([*types, Header], ref_template="#/components/schemas/{name}")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Virtual Memory for the KV Cache",
            "version": version("paged"),
            "description": (
                "A socket carries arenas: small private memories in which a real engine runs. Whoever opens one drives it; "
                "everything that happens in it comes as a snapshot and, after that, in numbered steps of events."
            ),
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {
            "arena": {
                "address": "/ws/arena",
                "description": "JSON objects as text frames, one a frame. Each message of a client has a number, `ref`, "
                "that its answer repeats.",
                "messages": {kind.__name__: {"$ref": f"#/components/messages/{kind.__name__}"} for kind in types},
            }
        },
        "operations": {
            **{_tag(kind): _request(kind) for kind in HEARD},
            "tell": {
                "action": "send",
                "channel": CHANNEL,
                "summary": "What the server says unasked.",
                "messages": _messages(UNASKED),
            },
        },
        "components": {
            "schemas": {name: _draft_7(schema) for name, schema in schemas.items()},
            "messages": {
                kind.__name__: _message(kind, payload) for kind, payload in zip(types, payloads, strict=False)
            },
        },
    }


def _request(kind: type) -> dict[str, Any]:
    answers = (*ANSWERS.get(kind, (tell.Ok,)), tell.Error)
    return {
        "action": "receive",
        "channel": CHANNEL,
        "summary": _summary(kind),
        "messages": _messages([kind]),
        "reply": {"channel": CHANNEL, "messages": _messages(answers)},
    }


def _messages(kinds: Iterable[type]) -> list[dict[str, str]]:
    return [{"$ref": f"#/channels/arena/messages/{kind.__name__}"} for kind in kinds]


def _message(kind: type, payload: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {
        "name": _tag(kind),
        "title": kind.__name__,
        "summary": _summary(kind),
        "payload": payload,
    }
    if "ref" in kind.__struct_fields__:  # type: ignore[attr-defined]
        message["correlationId"] = {"location": "$message.payload#/ref"}
    return message


def _tag(kind: type) -> str:
    return str(kind.__struct_config__.tag)  # type: ignore[attr-defined]


def _summary(kind: type) -> str:
    """The first sentence of its documentation, or what it is called."""
    text = " ".join((kind.__doc__ or f"The message `{_tag(kind)}`").split())
    return text.split(". ")[0].rstrip(".") + "."


def _draft_7(schema: Any) -> Any:
    """The schema in the words of JSON Schema draft 7, which AsyncAPI extends: tuples are lists of items, and a discriminator
    is left out, since the alternatives tell themselves apart by a constant."""
    if isinstance(schema, list):
        return [_draft_7(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: _draft_7(part) for name, part in schema.items() if name != "discriminator"}
    if "prefixItems" in changed:
        changed |= {"items": changed.pop("prefixItems"), "additionalItems": False}
    return changed
