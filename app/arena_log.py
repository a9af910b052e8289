"""The last envelopes of an arena, for clients that come back and ask for what they missed."""

from __future__ import annotations

from collections import deque

MAX_BYTES = 1 << 20


class ArenaLog:
    """At most ``limit`` envelopes and ``MAX_BYTES`` characters of encoded text, oldest dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._texts: deque[str] = deque()
        self._size = 0
        self._last: int | None = None

    def append(self, seq: int, text: str) -> None:
        """``seq`` follows the last one; a gap forgets all before it."""
        if self._last is not None and seq != self._last + 1:
            self.clear()
        self._texts.append(text)
        self._size += len(text)
        self._last = seq
        while len(self._texts) > self._limit or self._size > MAX_BYTES:
            self._size -= len(self._texts.popleft())

    def clear(self) -> None:
        """Forget everything: what comes next does not follow from what came before."""
        self._texts.clear()
        self._size = 0
        self._last = None

    def after(self, since: int) -> list[str] | None:
        """The envelopes after number ``since``, perhaps none; None when they are not all here."""
        if self._last is None:
            return None
        missed = self._last - since
        if not 0 <= missed <= len(self._texts):
            return None
        return list(self._texts)[len(self._texts) - missed :]
