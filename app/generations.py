"""Texts that the engine is writing for API requests, each with the one client that reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from app.engine_client import Answer, EngineClient
from app.errors import EngineUnavailable, Invalid
from engine.messages import Abort, ChatTurn, Output, Sampling, Submit, Submitted


class Generation:
    """One request. Its queue is bounded by the request's own length in tokens.

    Attributes:
        prompt_tokens: known once the engine has taken the request.
    """

    def __init__(self, arena: str) -> None:
        self.arena = arena
        self.request: int | None = None
        self.prompt_tokens = 0
        self.abandoned = False
        self.finished = False
        self._outputs: asyncio.Queue[Output | EngineUnavailable | Invalid] = asyncio.Queue()

    def put(self, item: Output | EngineUnavailable | Invalid) -> None:
        if not isinstance(item, Output) or item.finish is not None:
            self.finished = True
        self._outputs.put_nowait(item)

    async def outputs(self) -> AsyncIterator[Output]:
        """Pieces of text until one carries ``finish``.

        Raises EngineUnavailable when the engine is lost, Invalid when its arena is closed.
        """
        while True:
            item = await self._outputs.get()
            if not isinstance(item, Output):
                raise item
            yield item
            if item.finish is not None:
                return


class Generations:
    """All that are running. Whoever starts one must ``release`` it, finished or not."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], Generation] = {}
        self._held: set[Generation] = set()

    def __len__(self) -> int:
        """Requests in flight, those included that the engine has not answered yet."""
        return len(self._held)

    def count(self, arena: str) -> int:
        """Those of ``arena``."""
        return sum(generation.arena == arena for generation in self._held)

    async def start(
        self, engine: EngineClient, arena: str, prompt: str | Sequence[int | ChatTurn], sampling: Sampling
    ) -> Generation:
        """Submit a request. Raises Invalid when it is refused, EngineUnavailable when there is no engine."""
        generation = Generation(arena)

        def at_once(answer: Answer | None) -> None:
            if not isinstance(answer, Submitted):
                return
            generation.request = answer.request
            generation.prompt_tokens = answer.prompt_tokens
            if generation.abandoned:
                self._abort(engine, generation)
            else:
                self._running[arena, answer.request] = generation

        self._held.add(generation)
        try:
            await engine.request(Submit(0, arena, prompt, sampling, source="api", stream=True), at_once)
        except BaseException:
            self.release(engine, generation)
            raise
        return generation

    def release(self, engine: EngineClient, generation: Generation) -> None:
        """The client needs no more of it: an unfinished one is aborted at once. A second call does nothing."""
        if generation.abandoned:
            return
        generation.abandoned = True
        self._held.discard(generation)
        if generation.request is None:
            return
        self._running.pop((generation.arena, generation.request), None)
        if not generation.finished:
            self._abort(engine, generation)

    def pass_on(self, output: Output) -> None:
        """New text from the engine; nobody reads that of a released request."""
        generation = self._running.get((output.arena, output.request))
        if generation is not None:
            generation.put(output)

    def lose(self, why: EngineUnavailable | Invalid, arena: str | None = None) -> None:
        """The engine, or one arena, is gone, and with it all that runs there or has just been sent there."""
        for generation in self._held:
            if not generation.finished and arena in (None, generation.arena):
                if generation.request is not None:
                    self._running.pop((generation.arena, generation.request), None)
                generation.put(why)

    @staticmethod
    def _abort(engine: EngineClient, generation: Generation) -> None:
        if generation.request is not None:
            engine.send(Abort(0, generation.arena, generation.request, "the client disconnected"), lambda _: None)
