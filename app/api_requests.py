"""What every request under ``/v1`` goes through: whose arena, which model, how much at once."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Request

from app import limits
from app.admission import API_ARENA
from app.arenas import Arenas
from app.errors import EngineUnavailable, Invalid
from app.settings import Settings
from engine.messages import ChatTurn, ModelInfo


def _arenas(request: Request) -> Arenas:
    arenas: Arenas = request.app.state.arenas
    return arenas


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


Hub = Annotated[Arenas, Depends(_arenas)]
Bounds = Annotated[Settings, Depends(_settings)]
XArena = Annotated[str | None, Header(description="Drive secret of the arena to run in; without it, the API's own.")]


def arena_of(hub: Arenas, secret: str | None) -> str:
    """The arena that a request is for. Raises Invalid for a secret that is none."""
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


def check_turn(hub: Arenas, arena: str, bounds: Settings, prompts: int) -> None:
    """Raises Invalid where ``prompts`` more requests would be too many for ``arena``.

    Each has a limit of its own, so that one whose reader has paused it holds up nobody else.
    """
    count = hub.generations.count(arena)
    own = arena == API_ARENA
    limit = bounds.max_api_requests if own else bounds.max_arena_requests
    if prompts > limit:
        raise Invalid(
            "too_many_prompts",
            "prompt",
            f"prompt lists {prompts} prompts; the limit is {limit}. Send them in several requests.",
        )
    if count + prompts > limit:
        where, way_out = ("", "") if own else (" in this arena", ", and see that the arena is not paused")
        raise Invalid(
            "too_many_requests",
            "",
            f"{count} API requests are running or waiting{where}; the limit is {limit}. Try again shortly{way_out}.",
        )


def check_prompt(field: str, prompt: str | list[int], bounds: Settings) -> None:
    """Raises Invalid for a prompt that is empty, too long, or not to be written down."""
    if isinstance(prompt, str):
        limits.check_text(field, prompt, bounds.max_prompt_chars)
    else:
        limits.check_token_ids(field, prompt, bounds.max_prompt_chars)


def check_turns(turns: list[ChatTurn], bounds: Settings) -> None:
    """As ``check_prompt`` for a conversation."""
    if not turns:
        raise Invalid("empty_prompt", "messages", "messages is empty: send at least one.")
    limits.check_text("messages", "".join(turn.content for turn in turns), bounds.max_prompt_chars)


def running(hub: Arenas) -> ModelInfo:
    """The model. Raises EngineUnavailable while there is none."""
    model = hub.engine.status.model
    if model is None or not hub.engine.ready:
        raise EngineUnavailable(hub.engine.why_unavailable())
    return model


def served(hub: Arenas, name: str) -> ModelInfo:
    """The model, if ``name`` is the one that runs. Raises Invalid, and as ``running`` does."""
    model = running(hub)
    if name != model.name:
        raise Invalid(
            "model_not_found", "model", f"model {name[:80]!r} is not served here; the one that is: {model.name!r}."
        )
    return model
