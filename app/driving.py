"""From a browser's message to the engine's command."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from app import client_messages as ask
from app import limits, sampling_limits
from app.arena import Arena, Client, Shape
from app.arenas import Arenas
from app.engine_client import Answer
from app.errors import Invalid
from app.server_messages import Ok, encode
from app.settings import Settings
from engine.messages import (
    Abort,
    AnyCommand,
    Done,
    Fork,
    Memory,
    Pause,
    RegisterPrefix,
    ResetCache,
    Resume,
    RunStep,
    Sampling,
    SetPace,
    Submit,
    Submitted,
)

MAX_NUMBER = 2**31
"""Requests and sequences are numbered from 0; none gets this far."""

Struct = TypeVar("Struct", Memory, Sampling)


def open_arena(arenas: Arenas, grace_s: float, client: Client, message: ask.Open) -> None:
    """Open or rejoin; the hub answers with ``opened`` or ``queued``. Raises Invalid."""
    if message.drive_secret is not None:
        arena = arenas.by_secret(message.drive_secret)
        field = "drive_secret"
    elif message.view_id is not None:
        arena = arenas.by_view_id(message.view_id)
        field = "view_id"
    else:
        memory = _changed(Memory(0, 0), message.params)
        limits.check_memory(memory, arenas.largest, arenas.largest_cpu)
        limits.check_pace(message.params.pace_ms)
        arenas.open(client, message.ref, Shape(memory, message.params.pace_ms, message.scene))
        return
    if arena is None:
        raise Invalid(
            "unknown_arena",
            field,
            f"no arena has this {field}; one whose page is away is kept for {grace_s:g} s. "
            "Open a new one by leaving it out.",
        )
    arenas.reattach(client, message.ref, arena, field == "drive_secret", message.epoch, message.since)


async def drive(arenas: Arenas, settings: Settings, client: Client, message: ask.ArenaMessage) -> None:
    """Do what a driver asks, and answer ``ok``, ahead of the envelopes that show the effect.

    Raises Invalid and EngineUnavailable, having changed nothing.
    """
    arena = _driven(client, message.arena)

    def answer_ok(answer: Answer | None) -> None:
        if isinstance(answer, Done | Submitted):
            request = answer.request if isinstance(answer, Submitted) else msgspec.UNSET
            client.outbox.reply(encode(Ok(ref=message.ref, arena=arena.name, request=request)))

    match message:
        case ask.Close():
            client.outbox.reply(encode(Ok(ref=message.ref, arena=arena.name)))
            arenas.close(arena, "its page closed it")
        case ask.Reset(params=params):
            memory = _changed(arena.shape.memory, params)
            limits.check_memory(memory, arenas.largest, arenas.largest_cpu)
            await arenas.reset(arena, Shape(memory, arena.shape.pace_ms, message.scene), answer_ok)
        case ask.Set(params=params):
            limits.check_pace(params.pace_ms)
            await arenas.engine.request(SetPace(0, arena.name, params.pace_ms), answer_ok)
            arena.shape = msgspec.structs.replace(arena.shape, pace_ms=params.pace_ms)
        case _:
            await arenas.engine.request(_command(message, settings), answer_ok)


def _driven(client: Client, name: str) -> Arena:
    arena = next((arena for arena in client.arenas if arena.name == name), None)
    if arena is None:
        raise Invalid("unknown_arena", "arena", f"this socket has no arena {name[:40]!r}. Send open first.")
    if client not in arena.drivers:
        raise Invalid(
            "view_only", "arena", f"arena {name} is open for viewing only. Driving it needs its drive_secret."
        )
    return arena


def _command(message: ask.ArenaMessage, settings: Settings) -> AnyCommand:
    arena = message.arena
    match message:
        case ask.Submit(prompt=prompt, priority=priority, cache_salt=salt):
            limits.check_text("prompt", prompt, settings.max_prompt_chars)
            limits.check_priority(priority)
            limits.check_salt(salt)
            sampling = _changed(Sampling(), message)
            sampling_limits.check_sampling(sampling, settings.max_samples)
            return Submit(0, arena, prompt, sampling, source="page", priority=priority, cache_salt=salt)
        case ask.RegisterPrefix(prompt=prompt, cache_salt=salt):
            limits.check_text("prompt", prompt, settings.max_prompt_chars)
            limits.check_salt(salt)
            return RegisterPrefix(0, arena, prompt, salt)
        case ask.Fork(sequence=sequence):
            limits.check_whole("sequence", sequence, 0, MAX_NUMBER, "Name a sequence by its number in the events.")
            return Fork(0, arena, sequence)
        case ask.Abort(request=request):
            limits.check_whole("request", request, 0, MAX_NUMBER, "Name a request by the number that submit returned.")
            return Abort(0, arena, request)
        case ask.ResetCache():
            return ResetCache(0, arena)
        case ask.Pause():
            return Pause(0, arena)
        case ask.Resume():
            return Resume(0, arena)
        case ask.RunStep():
            return RunStep(0, arena)
    raise TypeError(f"{type(message).__name__} is no message that drives an arena")


def _changed(target: Struct, source: msgspec.Struct) -> Struct:
    """``target`` with the fields of the same names in ``source``, but for those that are None there."""
    names = set(target.__struct_fields__) & set(source.__struct_fields__)
    wishes = {name: value for name in names if (value := getattr(source, name)) is not None}
    return msgspec.structs.replace(target, **wishes)
