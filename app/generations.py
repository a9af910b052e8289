"""What the engine is doing for API requests, each with the one client that reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from app.engine_client import Answer, EngineClient, OnAnswer
from app.errors import EngineUnavailable, Invalid
from engine.messages import Abort, Echo, Output, RegisterPrefix, Submit, Submitted

REGISTERED = "registered"


class Part:
    """One request of the engine, ``number`` among those of one API request. ``prompt_tokens`` is known once the engine has
    taken it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.request: int | None = None
        self.prompt_tokens = 0
        self.finished = False


class Generation:
    """One request of the API: ``parts`` are the engine's requests for it, one for each prompt.

    The queue that they share is bounded by their own length in tokens. ``abandoned``: why nobody reads it any more.
    """

    def __init__(self, arena: str, parts: int) -> None:
        self.arena = arena
        self.parts = [Part(number) for number in range(parts)]
        self.abandoned = ""
        self._news: asyncio.Queue[tuple[int, Output | Echo] | EngineUnavailable | Invalid] = asyncio.Queue()

    def put(self, part: Part, output: Output | Echo) -> None:
        # A registered prefix holds its blocks until it is aborted, or until somebody takes charge of it.
        part.finished = isinstance(output, Output) and output.last and output.finish != REGISTERED
        self._news.put_nowait((part.number, output))

    def lose(self, why: EngineUnavailable | Invalid) -> None:
        """Nothing more will come."""
        for part in self.parts:
            part.finished = True
        self._news.put_nowait(why)

    async def outputs(self) -> AsyncIterator[tuple[int, Output | Echo]]:
        """What the engine says, with the number of the part that it belongs to, until all parts are over.

        Raises EngineUnavailable when the engine is lost, Invalid when its arena is closed.
        """
        running = len(self.parts)
        while running:
            news = await self._news.get()
            if isinstance(news, EngineUnavailable | Invalid):
                raise news
            yield news
            running -= isinstance(news[1], Output) and news[1].last


class Generations:
    """All that are running. Whoever starts one must ``release`` it, finished or not."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], tuple[Generation, Part]] = {}
        self._held: set[Generation] = set()

    def __len__(self) -> int:
        """The engine's requests for the API, those included that the engine has not answered yet."""
        return sum(len(generation.parts) for generation in self._held)

    def count(self, arena: str) -> int:
        """Those of ``arena``."""
        return sum(len(generation.parts) for generation in self._held if generation.arena == arena)

    async def start(self, engine: EngineClient, arena: str, commands: Sequence[Submit | RegisterPrefix]) -> Generation:
        """Have the engine take all of ``commands``, or none.

        Raises Invalid with what is wrong with the first that it refuses, EngineUnavailable when there is no engine.
        """
        generation = Generation(arena, len(commands))
        self._held.add(generation)
        asking = [
            engine.request(command, self._on_taken(engine, generation, part))
            for command, part in zip(commands, generation.parts, strict=True)
        ]
        try:
            answers = await asyncio.gather(*asking, return_exceptions=True)
            for index, answer in enumerate(answers):
                if isinstance(answer, Invalid) and answer.field == "prompt" and len(commands) > 1:
                    raise Invalid(answer.code, f"prompt[{index}]", answer.message)
                if isinstance(answer, BaseException):
                    raise answer
        except BaseException:
            self.release(engine, generation, "another prompt of the same request was refused")
            raise
        return generation

    def release(self, engine: EngineClient, generation: Generation, why: str = "the client disconnected") -> None:
        """The client needs no more of it: what is unfinished is aborted at once. A second call does nothing."""
        if generation.abandoned:
            return
        generation.abandoned = why
        self._held.discard(generation)
        for part in generation.parts:
            if part.request is not None:
                self._running.pop((generation.arena, part.request), None)
                self._abort(engine, generation, part)

    def pass_on(self, output: Output | Echo) -> None:
        """News from the engine; nobody reads those of a released request."""
        found = self._running.get((output.arena, output.request))
        if found is not None:
            generation, part = found
            generation.put(part, output)

    def lose(self, why: EngineUnavailable | Invalid, arena: str | None = None) -> None:
        """The engine, or one arena, is gone, and with it all that runs there or has just been sent there."""
        for generation in self._held:
            if arena in (None, generation.arena) and not all(part.finished for part in generation.parts):
                for part in generation.parts:
                    if part.request is not None:
                        self._running.pop((generation.arena, part.request), None)
                generation.lose(why)

    def _on_taken(self, engine: EngineClient, generation: Generation, part: Part) -> OnAnswer:
        def on_answer(answer: Answer | None) -> None:
            if not isinstance(answer, Submitted):
                return
            part.request = answer.request
            part.prompt_tokens = answer.prompt_tokens
            if generation.abandoned:
                self._abort(engine, generation, part)
            else:
                self._running[generation.arena, answer.request] = generation, part

        return on_answer

    @staticmethod
    def _abort(engine: EngineClient, generation: Generation, part: Part) -> None:
        if part.request is not None and not part.finished:
            engine.send(Abort(0, generation.arena, part.request, generation.abandoned), lambda _: None)
