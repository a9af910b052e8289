"""Prefixes that stay (paper section 4.4): ``/v1/prefixes``, an addition to OpenAI's API.

A system prompt that many requests begin with is computed once, and its blocks are shared by all of them until the prefix
is deleted. Registering the same prefix again changes nothing and answers with the one that is there.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import JSONResponse, Response

from app import limits
from app.admission import API_ARENA
from app.api_requests import Bounds, Hub, XArena, arena_of, check_prompt, check_turn, check_turns, served
from app.arenas import Arenas
from app.errors import Invalid
from app.generations import REGISTERED, Generation
from app.openai_reading import CLIENT_CLOSED_REQUEST, unless_gone
from app.openai_schema import ChatMessage
from app.prefixes import Prefix
from engine.messages import Abort, ChatTurn, Output, RegisterPrefix

CREATED = 201
SHARE = 2
"""Prefixes take at most one part in so many of an arena: requests need the rest."""

router = APIRouter(prefix="/v1/prefixes", tags=["Registered prefixes"])


class PrefixRequest(BaseModel):
    """``POST /v1/prefixes``: either a ``prompt``, a text or token ids, or the ``messages`` that conversations begin with."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: StrictStr
    prompt: StrictStr | list[StrictInt] | None = None
    messages: list[ChatMessage] | None = None
    cache_salt: StrictStr | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> PrefixRequest:
        if (self.prompt is None) == (self.messages is None):
            raise PydanticCustomError(
                "unsupported", "send either {param} or messages, one of the two.", {"param": "prompt"}
            )
        return self


@router.post("", status_code=CREATED)
async def register(body: PrefixRequest, request: Request, hub: Hub, bounds: Bounds, x_arena: XArena = None) -> Response:
    """Compute a prefix and keep it: 201, or 200 with the one that is there already."""
    salt = body.cache_salt or ""
    limits.check_salt(salt)
    prompt = _prompt(body, bounds)
    served(hub, body.model)
    arena = arena_of(hub, x_arena)
    content = (prompt if isinstance(prompt, str) else tuple(prompt), salt)
    known = hub.prefixes.same(arena, content)
    if known is not None:
        return JSONResponse(_card(known, body.model))
    check_turn(hub, arena, bounds, 1)
    prefix = hub.prefixes.begin(arena, content, bounds.max_prefixes)
    try:
        generation = await hub.generations.start(hub.engine, arena, [RegisterPrefix(0, arena, prompt, salt)])
        _take_share(hub, generation, prefix)
        answered = await unless_gone(
            _until_kept(hub, generation, prefix), request, lambda: hub.generations.release(hub.engine, generation)
        )
    finally:
        if not prefix.kept:
            hub.prefixes.drop(prefix)
    if answered is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return JSONResponse(_card(prefix, body.model), CREATED)


@router.head("", include_in_schema=False)
@router.get("")
async def registered(hub: Hub, x_arena: XArena = None) -> JSONResponse:
    """Those of the API's own arena, or of the one that ``X-Arena`` names; oldest first."""
    model = hub.engine.status.model
    name = model.name if model is not None else ""
    cards = [_card(prefix, name) for prefix in hub.prefixes.of(arena_of(hub, x_arena))]
    return JSONResponse({"object": "list", "data": cards})


@router.delete("/{prefix_id}")
async def delete(prefix_id: str, hub: Hub, x_arena: XArena = None) -> JSONResponse:
    """Give its blocks back; requests that share them go on."""
    arena = arena_of(hub, x_arena)
    prefix = next((prefix for prefix in hub.prefixes.of(arena) if prefix.id == prefix_id), None)
    if prefix is None or prefix.request is None:
        raise Invalid(
            "unknown_prefix",
            "id",
            f"no prefix {prefix_id[:80]!r} is registered here; GET /v1/prefixes lists those that are.",
        )
    hub.prefixes.drop(prefix)
    await hub.engine.request(Abort(0, arena, prefix.request, "its prefix was deleted"))
    return JSONResponse({"id": prefix.id, "object": "prefix", "deleted": True})


def _prompt(body: PrefixRequest, bounds: Bounds) -> str | list[int] | list[ChatTurn]:
    if body.prompt is not None:
        check_prompt("prompt", body.prompt, bounds)
        return body.prompt
    turns = [message.turn() for message in body.messages or []]
    check_turns(turns, bounds)
    return turns


async def _until_kept(hub: Arenas, generation: Generation, prefix: Prefix) -> bool:
    """True once the prefix stays. Raises Invalid if it cannot, EngineUnavailable if the engine is lost."""
    async for _, said in generation.outputs():
        if isinstance(said, Output) and said.last:
            if said.finish == "capacity":
                raise Invalid(
                    "no_room",
                    "prompt",
                    f"the arena ran out of blocks while it computed this prefix of {prefix.tokens} tokens; delete "
                    "another prefix, or send it again when fewer requests run.",
                )
            prefix.kept = said.finish == REGISTERED and hub.prefixes.holds(prefix)
            generation.parts[0].finished = True  # whatever became of it, it is not this request's to abort
    if not prefix.kept:
        text = "registering this prefix was aborted: whoever drives its arena ended it or started the arena over."
        raise Invalid("request_aborted", "X-Arena", text)
    return True


def _take_share(hub: Arenas, generation: Generation, prefix: Prefix) -> None:
    """Only the engine knows how many tokens a prefix has. Raises Invalid for one that takes too much."""
    prefix.request = generation.parts[0].request
    tokens = generation.parts[0].prompt_tokens
    arena = hub.named(prefix.arena)
    slots = arena.shape.memory.slots if arena is not None else 0
    there = hub.prefixes.tokens(prefix.arena)
    if arena is not None and (there + tokens) * SHARE > slots:
        hub.generations.release(hub.engine, generation, "the prefix takes too much of the arena")
        whose = "the API's arena has" if prefix.arena == API_ARENA else "the arena has"
        raise Invalid(
            "no_room",
            "prompt",
            f"this prefix has {tokens} tokens and those registered have {there}; {whose} {slots} slots, of which prefixes "
            f"may take {slots // SHARE}. Shorten it, or delete another.",
        )
    prefix.tokens = tokens


def _card(prefix: Prefix, model: str) -> dict[str, Any]:
    return {
        "id": prefix.id,
        "object": "prefix",
        "created": prefix.created,
        "model": model,
        "tokens": prefix.tokens,
    }
