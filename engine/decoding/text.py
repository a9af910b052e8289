"""Tokens to text: what a slot shows, and what a client reads as it streams."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jinja2 import TemplateError
from tokenizers.decoders import DecodeStream


class Vocabulary:
    """A tokenizer as the engine uses it. ``tokenizer`` is a fast tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.token_text = lru_cache(maxsize=8192)(self._token_text)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text))

    def encode_chat(self, turns: list[dict[str, str]], answer: bool = True) -> list[int]:
        """The chat template's tokens, ready for the ``answer`` or for more turns.

        Raises ValueError where the model has no template, or where its template refuses these turns (many insist that user
        and assistant take turns).
        """
        if not self.tokenizer.chat_template:
            raise ValueError("this model has no chat template: use /v1/completions with a plain prompt")
        try:
            text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=answer)
        except TemplateError as error:
            raise ValueError(f"the model's chat template refuses these messages: {error}") from error
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def check(self, tokens: list[int]) -> None:
        """Raises ValueError for a token id that the vocabulary does not have."""
        size = len(self.tokenizer)
        for token in tokens:
            if not 0 <= token < size:
                raise ValueError(f"token id {token} is not in the vocabulary: ids run from 0 to {size - 1}")

    def text(self, tokens: list[int]) -> str:
        """The text of a prompt, special tokens as they are written."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False))

    def texts(self, tokens: list[int]) -> list[str]:
        """Each token's own text, as its slot shows it. Part of a character appears as U+FFFD."""
        return [self.token_text(token) for token in tokens]

    def _token_text(self, token: int) -> str:
        return str(self.tokenizer.decode([token], skip_special_tokens=False))


class TextStream:
    """Text of one output as it grows: complete characters only, cut before the first stop string.

    What might be the beginning of a stop string is held back until the next tokens decide.
    """

    def __init__(self, vocabulary: Vocabulary, stop: list[str]) -> None:
        self._backend = vocabulary.tokenizer.backend_tokenizer
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._stop = stop
        self._held = ""
        self.stopped = ""

    def push(self, token: int, may_stop: bool = True) -> str:
        """New text that ``token`` completes, perhaps none; ``stopped`` is then the stop string that has been reached, if
        one has and it ``may_stop``."""
        self._held += self._decoder.step(self._backend, token) or ""
        ends = [(at, stop) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if ends and may_stop:
            at, self.stopped = min(ends)
            return self._release(at)
        return self._release(len(self._held) - self._undecided())

    def flush(self) -> str:
        """The text held back, once no token can follow."""
        return "" if self.stopped else self._release(len(self._held))

    def _release(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        return text

    def _undecided(self) -> int:
        longest = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:length]):
                    longest = length
                    break
        return longest
