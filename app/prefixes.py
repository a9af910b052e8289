"""Prefixes that the API keeps registered (paper section 4.4): their blocks stay until they are deleted."""

from __future__ import annotations

import secrets
import time
from collections.abc import Hashable
from dataclasses import dataclass, field

from app.errors import Invalid
from engine.events import RequestAborted, Step


@dataclass(eq=False)
class Prefix:
    """``content``: what makes two of them the same. ``request``: the engine's number for it, None while it is only being
    asked for. ``kept``: its blocks are computed and stay."""

    arena: str
    content: Hashable
    id: str = field(default_factory=lambda: f"prefix-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))
    request: int | None = None
    tokens: int = 0
    kept: bool = False


class Prefixes:
    """All of them, by arena: those that are kept, and those that are on their way to it."""

    def __init__(self) -> None:
        self._by_arena: dict[str, list[Prefix]] = {}

    def of(self, arena: str) -> list[Prefix]:
        """Those that ``arena`` keeps, oldest first."""
        return [prefix for prefix in self._by_arena.get(arena, ()) if prefix.kept]

    def same(self, arena: str, content: Hashable) -> Prefix | None:
        """The one of equal content that ``arena`` keeps. Raises Invalid if it is only on its way."""
        for prefix in self._by_arena.get(arena, ()):
            if prefix.content == content:
                if not prefix.kept:
                    raise Invalid(
                        "prefix_in_progress", "", "this very prefix is being registered; wait for that to be answered."
                    )
                return prefix
        return None

    def begin(self, arena: str, content: Hashable, limit: int) -> Prefix:
        """A place for a new one. Raises Invalid where ``limit`` are there."""
        there = self._by_arena.setdefault(arena, [])
        if len(there) >= limit:
            raise Invalid(
                "too_many_prefixes",
                "",
                f"{len(there)} prefixes are registered in this arena; the limit is {limit}. "
                "Delete one with DELETE /v1/prefixes/{id}.",
            )
        prefix = Prefix(arena, content)
        there.append(prefix)
        return prefix

    def tokens(self, arena: str) -> int:
        """Of all that ``arena`` has, those included that are on their way."""
        return sum(prefix.tokens for prefix in self._by_arena.get(arena, ()))

    def holds(self, prefix: Prefix) -> bool:
        """Whether it is still there: its arena may have been reset, or its request aborted."""
        return prefix in self._by_arena.get(prefix.arena, ())

    def drop(self, prefix: Prefix) -> None:
        """It is no more. A second call does nothing."""
        if self.holds(prefix):
            self._by_arena[prefix.arena].remove(prefix)

    def observe(self, step: Step) -> None:
        """Whoever drives an arena may abort a prefix as any request of it."""
        if not self._by_arena.get(step.arena):
            return
        ended = {event.request for event in step.events if isinstance(event, RequestAborted)}
        for prefix in [prefix for prefix in self._by_arena[step.arena] if prefix.request in ended]:
            self.drop(prefix)

    def forget(self, arena: str) -> None:
        """The arena has begun anew, or is gone."""
        self._by_arena.pop(arena, None)

    def clear(self) -> None:
        """The engine is gone, and with it all blocks."""
        self._by_arena.clear()
