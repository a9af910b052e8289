"""Answers of the OpenAI-compatible API: what a choice, a piece of a stream and a whole answer look like."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app import openai_logprobs
from app.openai_logprobs import CompletionLogprobs
from engine.messages import TokenLogprob


@dataclass
class Piece:
    """Some of choice ``index``: its next text, or all of it. ``tokens`` counts those that the model wrote; ``logprobs``
    has an entry for each and, with ``echo``, for each of the prompt's. ``finish``: OpenAI's reason, with the last piece.
    """

    index: int
    text: str = ""
    tokens: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: str | None = None
    stop_reason: int | str | None = None

    def add(self, more: Piece) -> None:
        """Append what comes next of the same choice."""
        self.text += more.text
        self.tokens += more.tokens
        self.logprobs += more.logprobs
        self.finish, self.stop_reason = more.finish, more.stop_reason


@dataclass
class Usage:
    """Tokens: those of each prompt once, whatever the number of its answers; those of the answers; and those of the
    prompts that were found in the prefix cache or in a registered prefix."""

    prompt: int
    completion: int
    cached: int

    def body(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


class Answers(ABC):
    """Shapes of one request's answer. ``logprobs``: whether they were asked for."""

    prefix: str
    object: str
    chunk_object: str

    def __init__(self, model: str, include_usage: bool, logprobs: bool) -> None:
        self._include_usage = include_usage
        self._logprobs_wanted = logprobs
        self._head = {"id": f"{self.prefix}-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}

    def whole(self, choices: Sequence[Piece], usage: Usage) -> dict[str, Any]:
        """The answer of a request that does not stream."""
        shown = [{**self._choice(choice), "stop_reason": choice.stop_reason} for choice in choices]
        return {**self._head, "object": self.object, "choices": shown, "usage": usage.body()}

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """One event of a stream."""
        choice = self._delta(piece)
        if piece.finish is not None:
            choice["stop_reason"] = piece.stop_reason
        return self._chunk(choice)

    def usage_chunk(self, usage: Usage) -> dict[str, Any] | None:
        """The event after the last choice, if it was asked for."""
        if not self._include_usage:
            return None
        return {**self._head, "object": self.chunk_object, "choices": [], "usage": usage.body()}

    def opening(self, index: int) -> dict[str, Any] | None:
        """The event that a choice begins with in a stream, if the kind has one."""
        return None

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        # Where usage was asked for, all chunks but the last carry an empty one.
        empty: dict[str, Any] = {"usage": None} if self._include_usage else {}
        return {**self._head, "object": self.chunk_object, "choices": [choice], **empty}

    def _logprobs(self, piece: Piece, of_all: bool = False) -> dict[str, Any] | None:
        """Those of a piece that has no token are none; those of a whole text, ``of_all``, an empty list."""
        return self._shape_logprobs(piece) if self._logprobs_wanted and (of_all or piece.logprobs) else None

    @abstractmethod
    def _choice(self, choice: Piece) -> dict[str, Any]: ...

    @abstractmethod
    def _delta(self, piece: Piece) -> dict[str, Any]: ...

    @abstractmethod
    def _shape_logprobs(self, piece: Piece) -> dict[str, Any]: ...


class CompletionAnswers(Answers):
    prefix = "cmpl"
    object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, model: str, include_usage: bool, logprobs: bool) -> None:
        super().__init__(model, include_usage, logprobs)
        self._told: defaultdict[int, CompletionLogprobs] = defaultdict(CompletionLogprobs)

    def _choice(self, choice: Piece) -> dict[str, Any]:
        return self._shape(choice, self._logprobs(choice, of_all=True))

    def _delta(self, piece: Piece) -> dict[str, Any]:
        return self._shape(piece, self._logprobs(piece))

    @staticmethod
    def _shape(piece: Piece, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        return {"index": piece.index, "text": piece.text, "logprobs": logprobs, "finish_reason": piece.finish}

    def _shape_logprobs(self, piece: Piece) -> dict[str, Any]:
        return self._told[piece.index].take(piece.logprobs)


class ChatAnswers(Answers):
    prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        return self._chunk({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})

    def _choice(self, choice: Piece) -> dict[str, Any]:
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        return {
            "index": choice.index,
            "message": message,
            "logprobs": self._logprobs(choice, of_all=True),
            "finish_reason": choice.finish,
        }

    def _delta(self, piece: Piece) -> dict[str, Any]:
        return {
            "index": piece.index,
            "delta": {"content": piece.text} if piece.text else {},
            "logprobs": self._logprobs(piece),
            "finish_reason": piece.finish,
        }

    def _shape_logprobs(self, piece: Piece) -> dict[str, Any]:
        return openai_logprobs.chat(piece.logprobs)
