"""Answers of the OpenAI-compatible API, whole or as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from fastapi import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from app import openai_errors
from app.errors import EngineUnavailable, Invalid
from app.generations import Generation

CLIENT_CLOSED_REQUEST = 499
# The engine's reasons in OpenAI's words; an arena without room left ends a text as a limit of length does.
FINISH = {"stop": "stop", "length": "length", "capacity": "length"}

Release = Callable[[Generation], None]


class Answers(ABC):
    """Shapes of one request's answer."""

    prefix: str
    object: str
    chunk_object: str

    def __init__(self, model: str, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._head = {"id": f"{self.prefix}-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}

    def whole(self, text: str, finish: str, usage: dict[str, int]) -> dict[str, Any]:
        """The answer of a request that does not stream."""
        return {**self._head, "object": self.object, "choices": [self._choice(text, finish)], "usage": usage}

    def chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        """One event of a stream; where usage was asked for, all but the last carry an empty one."""
        empty: dict[str, Any] = {"usage": None} if self._include_usage else {}
        return {**self._head, "object": self.chunk_object, "choices": [choice], **empty}

    def usage_chunk(self, usage: dict[str, int]) -> dict[str, Any] | None:
        """The event after the last choice, if it was asked for."""
        if not self._include_usage:
            return None
        return {**self._head, "object": self.chunk_object, "choices": [], "usage": usage}

    def opening(self) -> dict[str, Any] | None:
        """A choice to begin the stream with, if the kind has one."""
        return None

    @abstractmethod
    def delta(self, text: str, finish: str | None) -> dict[str, Any]:
        """A choice with new text, with the reason of the end, or with both."""

    @abstractmethod
    def _choice(self, text: str, finish: str) -> dict[str, Any]: ...


class CompletionAnswers(Answers):
    prefix = "cmpl"
    object = "text_completion"
    chunk_object = "text_completion"

    def delta(self, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}

    def _choice(self, text: str, finish: str) -> dict[str, Any]:
        return self.delta(text, finish)


class ChatAnswers(Answers):
    prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(self, text: str, finish: str | None) -> dict[str, Any]:
        return {"index": 0, "delta": {"content": text} if text else {}, "logprobs": None, "finish_reason": finish}

    def _choice(self, text: str, finish: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}


async def collect(generation: Generation, answers: Answers, release: Release, request: Request) -> Response:
    """Wait for the whole text; a client that hangs up meanwhile ends the request at once."""
    reading = asyncio.create_task(_read_all(generation))
    leaving = asyncio.create_task(_until_disconnect(request))
    try:
        await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        text, finish, outputs = reading.result()
    finally:
        release(generation)
        for task in (reading, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineUnavailable, Invalid):
                await task
    return JSONResponse(answers.whole(text, _finish(finish), _usage(generation, outputs)))


def stream(generation: Generation, answers: Answers, release: Release) -> Response:
    """Server-sent events as the tokens come, closed by ``[DONE]``."""
    return _EventStream(_events(generation, answers), lambda: release(generation))


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


async def _events(generation: Generation, answers: Answers) -> AsyncIterator[bytes]:
    opening = answers.opening()
    if opening is not None:
        yield _event(answers.chunk(opening))
    count = 0
    try:
        async for output in generation.outputs():
            count += len(output.tokens)
            if output.finish is not None:
                finish = _finish(output.finish)
                yield _event(answers.chunk(answers.delta(output.text, finish)))
            elif output.text:
                yield _event(answers.chunk(answers.delta(output.text, None)))
    except (EngineUnavailable, Invalid) as gone:
        # The status has long been sent: OpenAI's clients raise an error for an event of this shape.
        yield _event(openai_errors.of(gone))
        return
    usage = answers.usage_chunk(_usage(generation, count))
    if usage is not None:
        yield _event(usage)
    yield b"data: [DONE]\n\n"


async def _read_all(generation: Generation) -> tuple[str, str, int]:
    """The text, why it ended, and how many tokens it has."""
    pieces: list[str] = []
    count = 0
    finish = "stop"
    async for output in generation.outputs():
        pieces.append(output.text)
        count += len(output.tokens)
        finish = output.finish or finish
    return "".join(pieces), finish, count


async def _until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _finish(reason: str) -> str:
    """Raises Invalid for a request that was aborted under its client."""
    if reason not in FINISH:
        text = "this request was aborted: whoever drives its arena ended it or started the arena over. Send it again."
        raise Invalid("request_aborted", "X-Arena", text)
    return FINISH[reason]


def _usage(generation: Generation, outputs: int) -> dict[str, int]:
    return {
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": outputs,
        "total_tokens": generation.prompt_tokens + outputs,
    }


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
