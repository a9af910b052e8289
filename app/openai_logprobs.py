"""Log probabilities of tokens in the two shapes that OpenAI's API has for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.messages import TokenLogprob

LEAST = -9999.0
"""What is written for a probability of 0: JSON has no infinity, and clients take the one that vLLM writes."""
BROKEN = "\ufffd"


class CompletionLogprobs:
    """Those of one choice of ``/v1/completions``; ``text_offset`` runs on from piece to piece of a stream.

    Offsets count the characters of the tokens' own texts, special ones included, as OpenAI's do.
    """

    def __init__(self) -> None:
        self._offset = 0

    def take(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """The lists for the tokens that come next."""
        offsets = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += len(entry.text)
        return {
            "text_offset": offsets,
            "token_logprobs": [_number(entry.logprob) for entry in entries],
            "tokens": [entry.text for entry in entries],
            "top_logprobs": [_by_text(entry) for entry in entries],
        }


def chat(entries: Sequence[TokenLogprob]) -> dict[str, Any]:
    """Those of a choice, or of a piece of one, of ``/v1/chat/completions``."""
    content = [
        {
            **_chat_token(entry.text, entry.logprob),
            "top_logprobs": [_chat_token(text, logprob) for _, text, logprob in entry.top],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def _chat_token(text: str, logprob: float | None) -> dict[str, Any]:
    # A token that is only a part of a character has no text of its own, and what its bytes are is not known here.
    data = None if BROKEN in text else list(text.encode())
    return {"token": text, "logprob": _number(logprob), "bytes": data}


def _by_text(entry: TokenLogprob) -> dict[str, float] | None:
    """The likeliest tokens and the one that was taken; of several with one text the likeliest. None for a prompt's first."""
    if entry.logprob is None:
        return None
    likeliest: dict[str, float] = {}
    for _, text, logprob in [*entry.top, (entry.token, entry.text, entry.logprob)]:
        likeliest.setdefault(text, max(logprob, LEAST))
    return likeliest


def _number(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, LEAST)
