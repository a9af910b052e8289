"""From the engine's outputs to an answer, whole or as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from app import openai_errors
from app.errors import EngineUnavailable, Invalid
from app.generations import Generation
from app.openai_answers import Answers, Piece, Usage
from engine.messages import Echo, Output

CLIENT_CLOSED_REQUEST = 499
# The engine's reasons in OpenAI's words; an arena without room left ends a text as a limit of length does.
FINISH = {"stop": "stop", "length": "length", "capacity": "length"}

Release = Callable[[Generation], None]
Result = TypeVar("Result")


class Reading:
    """The outputs of ``generation`` as pieces of choices: prompt ``p`` has those from ``p * n`` on.

    ``scores_only``: of the choices only the prompts are wanted. ``usage`` is complete once the pieces are over.
    """

    def __init__(self, generation: Generation, n: int, scores_only: bool) -> None:
        self.generation = generation
        self.choices = range(n * len(generation.parts))
        self._n = n
        self._scores_only = scores_only
        self._written = 0
        self._cached = [0] * len(generation.parts)

    @property
    def usage(self) -> Usage:
        prompts = sum(part.prompt_tokens for part in self.generation.parts)
        return Usage(prompts, self._written, sum(self._cached))

    async def pieces(self) -> AsyncIterator[Piece]:
        """Raises Invalid and EngineUnavailable where the request comes to no good end."""
        unfinished = set(self.choices)
        async for number, said in self.generation.outputs():
            choices = range(number * self._n, (number + 1) * self._n)
            if isinstance(said, Echo):
                for index in choices:
                    yield Piece(index, said.text, logprobs=said.logprobs)
                continue
            self._cached[number] = max(self._cached[number], said.cached_tokens)
            piece = self._piece(choices[said.index], said)
            yield piece
            if piece.finish is not None:
                unfinished.discard(piece.index)
            if said.last:
                # Beam search that runs out of room may have fewer answers than were asked for.
                for index in sorted(unfinished.intersection(choices)):
                    yield Piece(index, finish=piece.finish)

    def _piece(self, index: int, output: Output) -> Piece:
        finish = None if output.finish is None else _finish(output.finish)
        if self._scores_only:
            return Piece(index, finish=finish and "length")
        self._written += len(output.tokens)
        return Piece(index, output.text, len(output.tokens), output.logprobs, finish, output.stop_reason)


async def collect(reading: Reading, answers: Answers, release: Release, request: Request) -> Response:
    """Wait for the whole texts; a client that hangs up meanwhile ends the request at once."""
    whole = await unless_gone(_read_all(reading), request, lambda: release(reading.generation))
    if whole is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    body = msgspec.json.encode(answers.whole(whole, reading.usage))
    return Response(body, media_type="application/json")


async def unless_gone(
    work: Coroutine[Any, Any, Result], request: Request, clean_up: Callable[[], None]
) -> Result | None:
    """What the coroutine ``work`` returns, or None if the client hangs up before; ``clean_up`` either way."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_until_disconnect(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        clean_up()
        for task in (working, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineUnavailable, Invalid):
                await task


def stream(reading: Reading, answers: Answers, release: Release) -> Response:
    """Server-sent events as the tokens come, closed by ``[DONE]``."""
    return _EventStream(_events(reading, answers), lambda: release(reading.generation))


class _EventStream(StreamingResponse):
    """A stream that cleans up however it ends, even if not one event of it was ever asked for."""

    def __init__(self, events: AsyncIterator[bytes], clean_up: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._clean_up = clean_up

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._clean_up()


async def _events(reading: Reading, answers: Answers) -> AsyncIterator[bytes]:
    for index in reading.choices:
        opening = answers.opening(index)
        if opening is not None:
            yield _event(opening)
    try:
        async for piece in reading.pieces():
            if piece.text or piece.logprobs or piece.finish is not None:
                yield _event(answers.chunk(piece))
    except (EngineUnavailable, Invalid) as gone:
        # The status has long been sent: OpenAI's clients raise an error for an event of this shape.
        yield _event(openai_errors.of(gone))
        return
    usage = answers.usage_chunk(reading.usage)
    if usage is not None:
        yield _event(usage)
    yield b"data: [DONE]\n\n"


async def _read_all(reading: Reading) -> list[Piece]:
    choices = [Piece(index) for index in reading.choices]
    async for piece in reading.pieces():
        choices[piece.index].add(piece)
    return choices


async def _until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _finish(reason: str) -> str:
    """Raises Invalid for a request that was aborted under its client."""
    if reason not in FINISH:
        text = "this request was aborted: whoever drives its arena ended it or started the arena over. Send it again."
        raise Invalid("request_aborted", "X-Arena", text)
    return FINISH[reason]


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
