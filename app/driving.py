"""From a browser's message to the engine's command."""

from __future__ import annotations

import msgspec

from app import client_messages as ask
from app import limits
from app.arena import Arena, Client, Shape
from app.arenas import Arenas
from app.engine_client import Answer
from app.errors import Invalid
from app.server_messages import Ok, encode
from engine.messages import Abort, AnyCommand, Done, Pause, Resume, RunStep, Sampling, SetPace, Submit, Submitted

MAX_REQUEST = 2**31


def open_arena(arenas: Arenas, grace_s: float, client: Client, message: ask.Open) -> None:
    """Open or rejoin; the hub answers with ``opened`` or ``queued``. Raises Invalid."""
    if message.drive_secret is not None:
        arena = arenas.by_secret(message.drive_secret)
        field = "drive_secret"
    elif message.view_id is not None:
        arena = arenas.by_view_id(message.view_id)
        field = "view_id"
    else:
        params = message.params
        limits.check_geometry(params.block_size, params.num_blocks, arenas.largest)
        limits.check_pace(params.pace_ms)
        shape = Shape(params.block_size, params.num_blocks, params.pace_ms, message.scene)
        arenas.open(client, message.ref, shape)
        return
    if arena is None:
        raise Invalid(
            "unknown_arena",
            field,
            f"no arena has this {field}; one whose page is away is kept for {grace_s:g} s. "
            "Open a new one by leaving it out.",
        )
    arenas.reattach(client, message.ref, arena, field == "drive_secret", message.epoch, message.since)


async def drive(arenas: Arenas, max_prompt_chars: int, client: Client, message: ask.ArenaMessage) -> None:
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
            size = params.block_size if params.block_size is not None else arena.shape.block_size
            blocks = params.num_blocks if params.num_blocks is not None else arena.shape.num_blocks
            limits.check_geometry(size, blocks, arenas.largest)
            await arenas.reset(arena, Shape(size, blocks, arena.shape.pace_ms, message.scene), answer_ok)
        case ask.Set(params=params):
            limits.check_pace(params.pace_ms)
            await arenas.engine.request(SetPace(0, arena.name, params.pace_ms), answer_ok)
            arena.shape = msgspec.structs.replace(arena.shape, pace_ms=params.pace_ms)
        case ask.Submit():
            await arenas.engine.request(_submission(message, max_prompt_chars), answer_ok)
        case _:
            await arenas.engine.request(_command(message), answer_ok)


def _driven(client: Client, name: str) -> Arena:
    arena = next((arena for arena in client.arenas if arena.name == name), None)
    if arena is None:
        raise Invalid("unknown_arena", "arena", f"this socket has no arena {name[:40]!r}. Send open first.")
    if client not in arena.drivers:
        raise Invalid(
            "view_only", "arena", f"arena {name} is open for viewing only. Driving it needs its drive_secret."
        )
    return arena


def _submission(message: ask.Submit, max_prompt_chars: int) -> Submit:
    limits.check_text("prompt", message.prompt, max_prompt_chars)
    sampling = Sampling(
        max_tokens=message.max_tokens,
        temperature=message.temperature,
        top_p=message.top_p,
        top_k=message.top_k,
        seed=message.seed,
        stop=message.stop,
        ignore_eos=message.ignore_eos,
    )
    limits.check_sampling(sampling)
    return Submit(0, message.arena, message.prompt, sampling, source="page")


def _command(message: ask.ArenaMessage) -> AnyCommand:
    match message:
        case ask.Abort(request=request):
            limits.check_whole("request", request, 0, MAX_REQUEST, "Name a request by the number that submit returned.")
            return Abort(0, message.arena, request)
        case ask.Pause():
            return Pause(0, message.arena)
        case ask.Resume():
            return Resume(0, message.arena)
        case ask.RunStep():
            return RunStep(0, message.arena)
    raise TypeError(f"{type(message).__name__} is no message that drives an arena")
