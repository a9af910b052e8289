"""The OpenAI-compatible API: ``/v1/completions``, ``/v1/chat/completions``, ``/v1/models``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from starlette.responses import JSONResponse, Response

from app import limits
from app.admission import API_ARENA
from app.arenas import Arenas
from app.errors import EngineUnavailable, Invalid
from app.generations import Generation
from app.openai_answers import Answers, ChatAnswers, CompletionAnswers, collect, stream
from app.openai_schema import ChatRequest, CompletionRequest, Generate
from app.settings import Settings
from engine.messages import ChatTurn, ModelInfo

COMPLETION_MAX_TOKENS = 16  # OpenAI's default of /v1/completions; a chat answer runs to the model's limit
STARTED = int(time.time())

router = APIRouter(prefix="/v1", tags=["OpenAI-compatible"])


def _arenas(request: Request) -> Arenas:
    arenas: Arenas = request.app.state.arenas
    return arenas


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


Hub = Annotated[Arenas, Depends(_arenas)]
Bounds = Annotated[Settings, Depends(_settings)]
XArena = Annotated[str | None, Header(description="Drive secret of the arena to run in; without it, the API's own.")]


@router.post("/completions")
async def completions(
    body: CompletionRequest, request: Request, hub: Hub, bounds: Bounds, x_arena: XArena = None
) -> Response:
    """Continue a prompt."""
    prompt = _single(body)
    if isinstance(prompt, str):
        limits.check_text("prompt", prompt, bounds.max_prompt_chars)
    else:
        limits.check_token_ids("prompt", prompt, bounds.max_prompt_chars)
    model = _served(hub, body.model)
    answers = CompletionAnswers(model.name, body.include_usage)
    return await _generate(body, prompt, COMPLETION_MAX_TOKENS, answers, request, hub, bounds, x_arena)


@router.post("/chat/completions")
async def chat_completions(
    body: ChatRequest, request: Request, hub: Hub, bounds: Bounds, x_arena: XArena = None
) -> Response:
    """Answer a conversation, through the model's own chat template."""
    turns = [message.turn() for message in body.messages]
    if not turns:
        raise Invalid("empty_prompt", "messages", "messages is empty: send at least one.")
    limits.check_text("messages", "".join(turn.content for turn in turns), bounds.max_prompt_chars)
    model = _served(hub, body.model)
    answers = ChatAnswers(model.name, body.include_usage)
    return await _generate(body, turns, model.max_model_len, answers, request, hub, bounds, x_arena)


@router.head("/models", include_in_schema=False)
@router.get("/models")
async def models(hub: Hub) -> JSONResponse:
    """The one model that is served."""
    return JSONResponse({"object": "list", "data": [_card(_model(hub))]})


@router.head("/models/{name:path}", include_in_schema=False)
@router.get("/models/{name:path}")
async def one_model(name: str, hub: Hub) -> JSONResponse:
    """As ``/v1/models``, for clients that ask by name."""
    return JSONResponse(_card(_served(hub, name)))


async def _generate(
    body: Generate,
    prompt: str | Sequence[int | ChatTurn],
    max_tokens: int,
    answers: Answers,
    request: Request,
    hub: Arenas,
    bounds: Settings,
    secret: str | None,
) -> Response:
    sampling = body.sampling(max_tokens)
    limits.check_sampling(sampling)
    arena = _arena(hub, secret)
    _check_turn(hub, arena, bounds)
    generation = await hub.generations.start(hub.engine, arena, prompt, sampling)

    def release(done: Generation) -> None:
        hub.generations.release(hub.engine, done)

    if body.stream:
        return stream(generation, answers, release)
    return await collect(generation, answers, release, request)


def _arena(hub: Arenas, secret: str | None) -> str:
    if secret is None:
        return API_ARENA
    arena = hub.by_secret(secret)
    if arena is None:
        raise Invalid(
            "unknown_arena",
            "X-Arena",
            "X-Arena is the drive secret of no open arena; copy it anew from the page, or leave the header out.",
        )
    return arena.name


def _check_turn(hub: Arenas, arena: str, bounds: Settings) -> None:
    """Each arena has a limit of its own, so that one whose reader has paused it holds up nobody else."""
    count = hub.generations.count(arena)
    own = arena == API_ARENA
    limit = bounds.max_api_requests if own else bounds.max_arena_requests
    if count >= limit:
        where, way_out = ("", "") if own else (" in this arena", ", and see that the arena is not paused")
        raise Invalid(
            "too_many_requests",
            "",
            f"{count} API requests are running or waiting{where}; the limit is {limit}. Try again shortly{way_out}.",
        )


def _model(hub: Arenas) -> ModelInfo:
    model = hub.engine.status.model
    if model is None or not hub.engine.ready:
        raise EngineUnavailable(hub.engine.why_unavailable())
    return model


def _served(hub: Arenas, name: str) -> ModelInfo:
    model = _model(hub)
    if name != model.name:
        raise Invalid(
            "model_not_found", "model", f"model {name[:80]!r} is not served here; the one that is: {model.name!r}."
        )
    return model


def _card(model: ModelInfo) -> dict[str, object]:
    return {
        "id": model.name,
        "object": "model",
        "created": STARTED,
        "owned_by": "paged",
        "max_model_len": model.max_model_len,
    }


def _single(body: CompletionRequest) -> str | list[int]:
    try:
        return body.single_prompt()
    except ValueError as error:
        raise Invalid("unsupported_parameter", "prompt", str(error)) from None
