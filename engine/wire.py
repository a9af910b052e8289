"""Framing of messages between the two processes: four bytes of length, big-endian, then msgpack."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from engine.messages import AnyCommand, AnyReply

HEADER = 4
MAX_FRAME = 64 * 1024 * 1024

_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(AnyCommand)
_replies = msgspec.msgpack.Decoder(AnyReply)


def encode(message: AnyCommand | AnyReply) -> bytes:
    """One frame. Raises ValueError when it would exceed ``MAX_FRAME`` bytes."""
    body = _encoder.encode(message)
    frame_length(len(body).to_bytes(HEADER, "big"))
    return len(body).to_bytes(HEADER, "big") + body


def frame_length(header: bytes) -> int:
    """Bytes of body that follow ``header``. Raises ValueError above ``MAX_FRAME``."""
    length = int.from_bytes(header, "big")
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes exceeds the limit of {MAX_FRAME}: send less at once")
    return length


def decode_command(body: bytes) -> AnyCommand:
    return _commands.decode(body)


def decode_reply(body: bytes) -> AnyReply:
    return _replies.decode(body)


def read_body(stream: BinaryIO) -> bytes | None:
    """The next frame's body, or None when the other side has closed the pipe."""
    header = stream.read(HEADER)
    if len(header) < HEADER:
        return None
    length = frame_length(header)
    body = stream.read(length)
    return body if len(body) == length else None
