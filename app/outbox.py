"""What waits to be sent to one client, bounded, so that a slow one costs nobody anything.

Three kinds of messages wait here. *Replies* answer the client's own messages; there is room for a few, and the socket
reads no further message while they are many, so a client that floods is slowed by its own flood. *News* (the engine's
status, the place in line) comes one to a topic, the newest. *Envelopes* of arenas
come whether the client reads or not; when more than ``limit`` wait, all of them are dropped and the client is behind:
once it has taken what is left, it gets a snapshot of each arena instead of the envelopes it missed.
"""

from __future__ import annotations

import asyncio
from collections import deque

MAX_REPLIES = 16


class Outbox:
    """``limit``: envelopes that may wait.

    Attributes:
        behind: True from an overflow until the client has taken what was left; envelopes are refused meanwhile.
        overflows: how many there have been; whoever remembers the number can tell whether anything was dropped since.
    """

    def __init__(self, limit: int) -> None:
        self.behind = False
        self.overflows = 0
        self._limit = limit
        self._queue: deque[tuple[bool, str]] = deque()
        self._envelopes = 0
        self._news: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def reply(self, text: str) -> None:
        """Queue an answer, in order with the envelopes."""
        self._queue.append((False, text))
        self._wake.set()
        if len(self._queue) - self._envelopes >= MAX_REPLIES:
            self._room.clear()

    def news(self, topic: str, text: str) -> None:
        """Queue what nobody asked for: ahead of all else, and in place of older news on ``topic`` that still waits."""
        self._news.pop(topic, None)
        self._news[topic] = text
        self._wake.set()

    def envelope(self, text: str) -> bool:
        """Queue an envelope. False: there was no room, all that waited are dropped, the client is behind."""
        if self.behind:
            return False
        if self._envelopes >= self._limit:
            self._queue = deque(entry for entry in self._queue if not entry[0])
            self._envelopes = 0
            self.behind = True
            self.overflows += 1
            self._wake.set()
            return False
        self._queue.append((True, text))
        self._envelopes += 1
        self._wake.set()
        return True

    def room_for(self, count: int) -> bool:
        """Whether ``count`` more envelopes would fit."""
        return not self.behind and self._envelopes + count <= self._limit

    async def wait_for_room(self) -> None:
        """Until few enough replies wait for another message to be read."""
        await self._room.wait()

    async def take(self) -> str | None:
        """The next message to send, waiting for one; None when the client has caught up and needs snapshots."""
        while True:
            if self._news:
                return self._news.pop(next(iter(self._news)))
            if self._queue:
                is_envelope, text = self._queue.popleft()
                self._envelopes -= is_envelope
                if len(self._queue) - self._envelopes < MAX_REPLIES:
                    self._room.set()
                return text
            if self.behind:
                self.behind = False
                return None
            self._wake.clear()
            await self._wake.wait()
