"""One arena as the web process knows it: who may drive it, who watches it, and what they have been sent."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field

import msgspec

from app.arena_log import ArenaLog
from app.outbox import Outbox
from app.server_messages import Closed, Opened, encode
from engine.events import Snapshot, Step
from engine.messages import Memory, OpenArena


@dataclass(eq=False)
class Client:
    """One socket: what waits to be sent to it and the arenas it has joined."""

    outbox: Outbox
    arenas: set[Arena] = field(default_factory=set)


class Shape(msgspec.Struct, frozen=True):
    """What an arena is opened with. ``pace_ms``: least milliseconds between two steps."""

    memory: Memory
    pace_ms: float
    scene: str


class Arena:
    """``name`` is public; ``drive_secret`` lets its holder drive, ``view_id`` only watch.

    Attributes:
        epoch: rises when the engine's memory of the arena is lost; ``seq`` starts anew in each.
        paused: as of the last envelope.
        drivers: the sockets that opened it with the secret.
        grace: runs while no driver is there; the arena closes at its end.
        resume_on_return: it was running when its last driver left.
    """

    def __init__(self, name: str, shape: Shape, log_limit: int) -> None:
        self.name = name
        self.shape = shape
        self.drive_secret = secrets.token_urlsafe(24)
        self.view_id = secrets.token_urlsafe(12)
        self.epoch = 0
        self.paused = False
        self.drivers: set[Client] = set()
        self.grace: asyncio.TimerHandle | None = None
        self.resume_on_return = False
        self._log = ArenaLog(log_limit)
        self._viewers: dict[Client, int | None] = {}
        self._asked: object | None = None

    def open_command(self) -> OpenArena:
        return OpenArena(0, self.name, self.shape.memory, self.shape.pace_ms, self.shape.scene, self.epoch)

    def opened(self, ref: int, drive: bool) -> str:
        """The ``opened`` message, with the secret for a driver alone."""
        return encode(
            Opened(
                ref=ref,
                arena=self.name,
                epoch=self.epoch,
                drive=drive,
                view_id=self.view_id,
                drive_secret=self.drive_secret if drive else msgspec.UNSET,
            )
        )

    def join(self, client: Client, drive: bool) -> None:
        """``client`` watches from now on, once it has a snapshot or what it missed.

        One that drives already goes on driving, even if it now asks for a view: a socket drives until it leaves.
        """
        self._viewers[client] = None
        client.arenas.add(self)
        if drive:
            self.drivers.add(client)

    def leave(self, client: Client) -> None:
        self._viewers.pop(client, None)
        client.arenas.discard(self)
        self.drivers.discard(client)

    def dissolve(self, reason: str) -> None:
        """Tell everyone that the arena is gone, and let them go."""
        text = encode(Closed(arena=self.name, reason=reason))
        for client in list(self._viewers):
            client.outbox.reply(text)
            self.leave(client)

    def publish(self, step: Step) -> None:
        """Log an envelope and pass it to all who are up to date. One of another epoch is dropped."""
        if step.epoch != self.epoch:
            return
        text = encode(step)
        self.paused = step.paused
        self._log.append(step.seq, text)
        for client in self._viewers:
            if self._is_live(client) and not client.outbox.envelope(text):
                self._viewers[client] = None

    def replay(self, client: Client, epoch: int, since: int) -> bool:
        """Send what ``client`` missed after envelope ``since``; False when it needs a snapshot instead."""
        missed = self._log.after(since) if epoch == self.epoch else None
        if missed is None or not client.outbox.room_for(len(missed)):
            return False
        for text in missed:
            client.outbox.envelope(text)
        self._viewers[client] = client.outbox.overflows
        return True

    def suspend(self) -> None:
        """What follows does not continue what was sent: everyone waits for a new snapshot."""
        self._log.clear()
        self._asked = None
        self._viewers = dict.fromkeys(self._viewers)

    def ask(self) -> object | None:
        """A token for one request of a snapshot, or None when nobody needs one or one is on its way."""
        if self._asked is not None or all(self._is_live(client) for client in self._viewers):
            return None
        self._asked = object()
        return self._asked

    def answer(self, token: object, snapshot: Snapshot | None) -> None:
        """The snapshot asked for under ``token``, or None where there is none; an outdated token changes nothing."""
        if token is not self._asked:
            return
        self._asked = None
        if snapshot is None or snapshot.epoch != self.epoch:
            return
        self.paused = snapshot.state.paused
        text = encode(snapshot)
        for client in self._viewers:
            if not self._is_live(client) and client.outbox.envelope(text):
                self._viewers[client] = client.outbox.overflows

    def _is_live(self, client: Client) -> bool:
        return self._viewers[client] == client.outbox.overflows
