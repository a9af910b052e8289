"""The OpenAI-compatible API: ``/v1/completions``, ``/v1/chat/completions``, ``/v1/models``."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from app.api_requests import Bounds, Hub, XArena, arena_of, check_prompt, check_turn, check_turns, running, served
from app.generations import Generation
from app.openai_answers import Answers, ChatAnswers, CompletionAnswers
from app.openai_reading import Reading, collect, stream
from app.openai_schema import ChatRequest, CompletionRequest, Generate
from engine.messages import ChatTurn, ModelInfo, Submit

COMPLETION_MAX_TOKENS = 16  # OpenAI's default of /v1/completions; a chat answer runs to the model's limit
STARTED = int(time.time())

router = APIRouter(prefix="/v1", tags=["OpenAI-compatible"])


@router.post("/completions")
async def completions(
    body: CompletionRequest, request: Request, hub: Hub, bounds: Bounds, x_arena: XArena = None
) -> Response:
    """Continue a prompt, or each of several."""
    prompts = body.prompts()
    for index, prompt in enumerate(prompts):
        check_prompt("prompt" if len(prompts) == 1 else f"prompt[{index}]", prompt, bounds)
    model = served(hub, body.model)
    answers = CompletionAnswers(model.name, body.include_usage, body.logprobs is not None)
    echo = bool(body.echo)
    return await _generate(body, prompts, COMPLETION_MAX_TOKENS, echo, answers, request, hub, bounds, x_arena)


@router.post("/chat/completions")
async def chat_completions(
    body: ChatRequest, request: Request, hub: Hub, bounds: Bounds, x_arena: XArena = None
) -> Response:
    """Answer a conversation, through the model's own chat template."""
    turns = [message.turn() for message in body.messages]
    check_turns(turns, bounds)
    model = served(hub, body.model)
    answers = ChatAnswers(model.name, body.include_usage, bool(body.logprobs))
    return await _generate(body, [turns], model.max_model_len, False, answers, request, hub, bounds, x_arena)


@router.head("/models", include_in_schema=False)
@router.get("/models")
async def models(hub: Hub) -> JSONResponse:
    """The one model that is served."""
    return JSONResponse({"object": "list", "data": [_card(running(hub))]})


@router.head("/models/{name:path}", include_in_schema=False)
@router.get("/models/{name:path}")
async def one_model(name: str, hub: Hub) -> JSONResponse:
    """As ``/v1/models``, for clients that ask by name."""
    return JSONResponse(_card(served(hub, name)))


async def _generate(
    body: Generate,
    prompts: Sequence[str | Sequence[int | ChatTurn]],
    max_tokens: int,
    echo: bool,
    answers: Answers,
    request: Request,
    hub: Hub,
    bounds: Bounds,
    secret: str | None,
) -> Response:
    sampling = body.sampling(max_tokens, bounds.max_samples)
    arena = arena_of(hub, secret)
    check_turn(hub, arena, bounds, len(prompts))
    priority, salt = body.priority or 0, body.cache_salt or ""
    submissions = [
        Submit(0, arena, prompt, sampling, "api", stream=True, echo=echo, priority=priority, cache_salt=salt)
        for prompt in prompts
    ]
    generation = await hub.generations.start(hub.engine, arena, submissions)
    reading = Reading(generation, sampling.n, body.scores_only)

    def release(done: Generation) -> None:
        hub.generations.release(hub.engine, done)

    if body.stream:
        return stream(reading, answers, release)
    return await collect(reading, answers, release, request)


def _card(model: ModelInfo) -> dict[str, object]:
    return {
        "id": model.name,
        "object": "model",
        "created": STARTED,
        "owned_by": "paged",
        "max_model_len": model.max_model_len,
    }
