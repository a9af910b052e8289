"""How an arena opens: real requests that leave memory as a running server would have it."""

from __future__ import annotations

from collections.abc import Callable

from engine.arena import Arena
from engine.messages import Sampling
from engine.submission import Refused

EARLIER = (
    ("An operating system gives each process", 3),
    ("The quick brown fox", 9),
    ("Memory is allocated one page at a time, so", 2),
    ("Once upon a time there was", 5),
)
FIRST = ("The operating system keeps each process on its own", 40)


class Scene:
    """Called between an open arena's steps until it says that it is over. ``encode`` turns text into tokens."""

    def __init__(self, arena: Arena, encode: Callable[[str], list[int]]) -> None:
        self._arena = arena
        self._encode = encode

    def advance(self) -> bool:
        """Do what is due now; False when the scene is over."""
        return False

    def _submit(self, text: str, max_tokens: int, source: str) -> int:
        sampling = Sampling(max_tokens=max_tokens, ignore_eos=True)
        return self._arena.submit(self._encode(text), sampling, source).number


class Growing(Scene):
    """Four requests come and go, which leaves the free list out of order. Then one is prefilled and the arena pauses."""

    def __init__(self, arena: Arena, encode: Callable[[str], list[int]]) -> None:
        super().__init__(arena, encode)
        self._first: int | None = None
        for text, max_tokens in EARLIER:
            self._try(text, max_tokens, "earlier")

    def advance(self) -> bool:
        if self._first is None:
            if self._arena.scheduler.has_work:
                return True
            self._first = self._try(*FIRST, "scene")
            return self._first is not None
        if self._arena.requests[self._first].sequences[0].outputs:
            self._arena.paused = True
            return False
        return True

    def _try(self, text: str, max_tokens: int, source: str) -> int | None:
        # A reader may have chosen a memory too small for this prompt; the scene then goes on without it.
        try:
            return self._submit(text, max_tokens, source)
        except Refused:
            return None


SCENES: dict[str, type[Scene]] = {"empty": Scene, "growing": Growing}
