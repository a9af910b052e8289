"""What the socket says to browsers besides the engine's own ``snapshot`` and ``step``, and how all of it is encoded."""

from __future__ import annotations

import msgspec

from engine.events import VERSION, Snapshot, Step
from engine.messages import ModelInfo
from engine.messages import Status as EngineStatus


class ServerMessage(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """Base of all; ``kind`` tells them apart."""

    v: int = VERSION


class Status(ServerMessage, frozen=True, tag="status"):
    """How the engine is: on connect and on every change. ``progress`` runs from 0 to 1 while a model loads."""

    state: str
    stage: str
    progress: float
    model: ModelInfo | None


class Opened(ServerMessage, frozen=True, tag="opened", omit_defaults=False):
    """``drive_secret`` only for who may drive; ``view_id`` is safe to share."""

    ref: int
    arena: str
    epoch: int
    drive: bool
    view_id: str
    drive_secret: str | msgspec.UnsetType = msgspec.UNSET


class Queued(ServerMessage, frozen=True, tag="queued"):
    """All arenas are taken; ``position`` counts from 1. ``Opened`` follows by itself."""

    ref: int
    position: int


class Ok(ServerMessage, frozen=True, tag="ok"):
    """Done. ``request``: the number that a submitted request was given."""

    ref: int
    arena: str
    request: int | msgspec.UnsetType = msgspec.UNSET


class Pong(ServerMessage, frozen=True, tag="pong"):
    ref: int


class Error(ServerMessage, frozen=True, tag="error"):
    """Not done, and why; the connection lives on."""

    ref: int | None
    arena: str | None
    code: str
    field: str
    message: str


class Closed(ServerMessage, frozen=True, tag="closed"):
    """The arena is gone for everyone."""

    arena: str
    reason: str


_encoder = msgspec.json.Encoder()


def encode(message: ServerMessage | Snapshot | Step) -> str:
    """JSON text of one frame; done once, however many clients it goes to."""
    return _encoder.encode(message).decode()


def status_text(status: EngineStatus) -> str:
    """The engine's status as the socket says it."""
    return encode(Status(state=status.state, stage=status.stage, progress=status.progress, model=status.model))
