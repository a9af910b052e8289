"""Visitors who wait for an arena, first come first served."""

from __future__ import annotations

from dataclasses import dataclass

from app.arena import Client, Shape
from app.server_messages import Queued, encode


@dataclass(eq=False)
class Visitor:
    """An ``open`` that has not been answered yet; ``told`` is the position last said, 0 for none."""

    client: Client
    ref: int
    shape: Shape
    told: int = 0


class WaitingLine:
    """The line itself. Its length is bounded by what one socket may ask for, times the number of sockets."""

    def __init__(self) -> None:
        self._visitors: list[Visitor] = []

    def __len__(self) -> int:
        return len(self._visitors)

    def join(self, visitor: Visitor) -> None:
        self._visitors.append(visitor)

    def rejoin(self, visitor: Visitor) -> None:
        """Back to the front: it was served, but what it got is lost."""
        self._visitors.insert(0, visitor)

    def next(self) -> Visitor | None:
        """Take the first one out."""
        return self._visitors.pop(0) if self._visitors else None

    def leave(self, client: Client) -> None:
        self._visitors = [visitor for visitor in self._visitors if visitor.client is not client]

    def count(self, client: Client) -> int:
        return sum(visitor.client is client for visitor in self._visitors)

    def tell(self) -> None:
        """Say its position to each visitor whose position has changed."""
        for position, visitor in enumerate(self._visitors, start=1):
            if visitor.told != position:
                visitor.told = position
                text = encode(Queued(ref=visitor.ref, position=position))
                visitor.client.outbox.news(f"position of {visitor.ref}", text)
