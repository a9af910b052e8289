"""The hub between sockets and engine: all arenas by name, who gets one, and how long it is kept."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence

from app.admission import API_ARENA, Admission, api_shape
from app.arena import Arena, Client, Shape
from app.engine_client import SHUTTING_DOWN, Answer, EngineClient, OnAnswer
from app.errors import EngineUnavailable, Invalid
from app.generations import Generations
from app.metrics import API, VISITORS, Metrics
from app.observer import Observer
from app.outbox import Outbox
from app.prefixes import Prefixes
from app.server_messages import status_text
from app.settings import Settings
from app.waiting_line import Visitor
from engine.messages import (
    ArenaClosed,
    CloseArena,
    Done,
    Echo,
    Failed,
    ModelInfo,
    Output,
    Pause,
    Reset,
    Resume,
    SnapshotTaken,
    Status,
    Stepped,
    TakeSnapshot,
)

log = logging.getLogger("paged.arenas")


class Arenas:
    """Owns the engine's supervisor and listens to it. All methods run in the event loop and none of them waits.

    Attributes:
        api: the arena of API requests that name no other; opened as soon as the engine is ready, no visitor's.
    """

    def __init__(self, settings: Settings, engine_command: Sequence[str]) -> None:
        self.engine = EngineClient(engine_command, self, settings.engine_timeout_s)
        self.generations = Generations()
        self.prefixes = Prefixes()
        self.metrics = Metrics()
        self.observer = Observer(self.metrics, API_ARENA)
        self.clients: set[Client] = set()
        self.api: Arena | None = None
        self._settings = settings
        self._arenas: dict[str, Arena] = {}
        self._admission = Admission(settings, self.engine, self._arenas, self._welcome)
        self._reopened = False
        self._closing = False

    # --- sockets ---------------------------------------------------------------------------------------------------

    def connect(self) -> Client:
        """A new socket. Raises Invalid over the limit."""
        limit = self._settings.max_sockets
        if len(self.clients) >= limit:
            raise Invalid(
                "too_many_sockets", "", f"{len(self.clients)} sockets are open; the limit is {limit}. Try again later."
            )
        client = Client(Outbox(self._settings.client_queue))
        self.clients.add(client)
        client.outbox.news("status", status_text(self.engine.status))
        return client

    def disconnect(self, client: Client) -> None:
        """A socket is gone. The arenas that it alone drove pause at once and close after the grace period."""
        self.clients.discard(client)
        self._admission.leave(client)
        for arena in list(client.arenas):
            arena.leave(client)
            self._mind(arena)

    def catch_up(self, client: Client) -> None:
        """The client has taken everything that was left for it: whatever it missed comes as snapshots."""
        for arena in client.arenas:
            self._refresh(arena)

    # --- opening and closing ---------------------------------------------------------------------------------------

    def open(self, client: Client, ref: int, shape: Shape) -> None:
        """A new arena for ``client``, now or when its turn comes.

        Raises Invalid when it carries too many, EngineUnavailable when no engine will ever come.
        """
        self._check_room(client)
        if self.engine.status.state == "failed":
            raise EngineUnavailable(self.engine.why_unavailable())
        self._admission.join(Visitor(client, ref, shape))

    def reattach(
        self, client: Client, ref: int, arena: Arena, drive: bool, epoch: int | None, since: int | None
    ) -> None:
        """Join an arena that exists, from envelope ``since`` of ``epoch`` on where that is still known."""
        if arena not in client.arenas:
            self._check_room(client)
        arena.join(client, drive)
        client.outbox.reply(arena.opened(ref, client in arena.drivers))
        if epoch is None or since is None or not arena.replay(client, epoch, since):
            self._refresh(arena)
        self._mind(arena)

    def close(self, arena: Arena, reason: str) -> None:
        """End ``arena`` for everyone; the next in line gets its place."""
        self.engine.send(CloseArena(0, arena.name, reason), lambda _: None)
        self._forget(arena, reason)

    def by_secret(self, secret: str) -> Arena | None:
        """The visitor's arena that ``secret`` may drive."""
        return next((arena for arena in self._visitors_arenas() if _same(arena.drive_secret, secret)), None)

    def by_view_id(self, view_id: str) -> Arena | None:
        """The visitor's arena that ``view_id`` may watch."""
        return next((arena for arena in self._visitors_arenas() if _same(arena.view_id, view_id)), None)

    @property
    def visitors(self) -> int:
        """Arenas of visitors, those included that are being opened."""
        return self._admission.visitors

    @property
    def waiting(self) -> int:
        """Visitors in line."""
        return self._admission.waiting

    @property
    def largest(self) -> int:
        """Slots of the largest arena that a visitor may ask for."""
        model = self.engine.status.model
        if model is None or self.api is None:
            return self._settings.max_arena_slots
        return min(self._settings.max_arena_slots, model.slots - self.api.shape.memory.slots)

    @property
    def largest_cpu(self) -> int:
        """Slots of the largest pool to swap to that a visitor may ask for."""
        model = self.engine.status.model
        if model is None or self.api is None:
            return self._settings.max_arena_cpu_slots
        return max(0, min(self._settings.max_arena_cpu_slots, model.cpu_slots - self.api.shape.memory.cpu_slots))

    def named(self, name: str) -> Arena | None:
        """The open arena of that name, the API's own too."""
        return self._arenas.get(name)

    def kinds(self) -> dict[str, list[Arena]]:
        """The arenas that are open, apart: the API's own, and those of visitors."""
        api = [self.api] if self.api is not None and API_ARENA in self._arenas else []
        return {API: api, VISITORS: self._visitors_arenas()}

    def shut_down(self) -> None:
        """The site is closing: whoever waits for the engine is told so at once, and no timer fires any more."""
        self._closing = True
        self.engine.close()
        self.generations.lose(EngineUnavailable(SHUTTING_DOWN))
        for arena in self._arenas.values():
            if arena.grace is not None:
                arena.grace.cancel()

    # --- driving ---------------------------------------------------------------------------------------------------

    async def reset(self, arena: Arena, shape: Shape, on_answer: OnAnswer) -> None:
        """Start ``arena`` over, in a new epoch. Raises Invalid, EngineUnavailable."""

        def at_once(answer: Answer | None) -> None:
            on_answer(answer)
            # Whatever comes next does not continue what the viewers have seen; if it failed, no harm is done.
            arena.suspend()
            if isinstance(answer, Done):
                arena.epoch += 1
                arena.shape = shape
                self.prefixes.forget(arena.name)
                self._admission.room_was_made()
            self._refresh(arena)

        arena.suspend()
        await self.engine.request(Reset(0, arena.name, shape.memory, shape.scene), at_once)

    # --- what the engine says --------------------------------------------------------------------------------------

    def on_status(self, status: Status) -> None:
        text = status_text(status)
        for client in self.clients:
            client.outbox.news("status", text)
        if status.state == "ready" and status.model is not None and not self._reopened:
            self._reopened = True
            self.metrics.model_name = status.model.name
            self._open_api(status.model)
            for arena in self._visitors_arenas():
                self._reopen(arena)
            self._admission.room_was_made()

    def on_stepped(self, stepped: Stepped) -> None:
        arena = self._arenas.get(stepped.step.arena)
        if arena is None or stepped.step.epoch != arena.epoch:
            return  # of an arena, or of a life of one, that is over
        arena.publish(stepped.step)
        self.prefixes.observe(stepped.step)
        self.observer.observe(stepped.step, arena.shape.memory)

    def on_output(self, output: Output | Echo) -> None:
        self.generations.pass_on(output)

    def on_arena_closed(self, closed: ArenaClosed) -> None:
        arena = self._arenas.get(closed.arena)
        if arena is not None:
            self._forget(arena, closed.reason)

    def on_lost(self) -> None:
        self._reopened = False
        self.generations.lose(
            EngineUnavailable("the engine was lost in the middle of this request; send it again in a moment.")
        )
        self.prefixes.clear()
        for arena in self._arenas.values():
            self.observer.forget(arena.name)
            arena.epoch += 1
            arena.paused = False
            arena.suspend()

    # --- within ----------------------------------------------------------------------------------------------------

    def _visitors_arenas(self) -> list[Arena]:
        return [arena for arena in self._arenas.values() if arena.name != API_ARENA]

    def _check_room(self, client: Client) -> None:
        limit = self._settings.max_arenas_per_socket
        count = len(client.arenas) + self._admission.count(client)
        if count >= limit:
            raise Invalid(
                "too_many_arenas",
                "",
                f"this socket has {count} arenas, open or asked for; the limit is {limit}. Close one of them first.",
            )

    def _welcome(self, arena: Arena, visitor: Visitor) -> None:
        if visitor.client not in self.clients:
            self.close(arena, "its page has gone")
            return
        arena.join(visitor.client, drive=True)
        visitor.client.outbox.reply(arena.opened(visitor.ref, drive=True))
        self._refresh(arena)

    def _reopen(self, arena: Arena) -> None:
        def on_answer(answer: Answer | None) -> None:
            if isinstance(answer, Failed):
                self._forget(arena, f"it could not be reopened: {answer.message}")
            elif isinstance(answer, Done):
                self._refresh(arena)

        self.engine.send(arena.open_command(), on_answer)
        if not arena.drivers and arena.shape.scene == "empty":  # the others pause by themselves
            arena.resume_on_return = True
            self.engine.send(Pause(0, arena.name), lambda _: None)

    def _open_api(self, model: ModelInfo) -> None:
        epoch = self.api.epoch if self.api is not None else 0
        arena = Arena(API_ARENA, api_shape(self._settings, model), self._settings.log_envelopes)
        arena.epoch = epoch
        self.api = self._arenas[API_ARENA] = arena

        def on_answer(answer: Answer | None) -> None:
            if isinstance(answer, Failed):
                log.error("the arena of the API could not be opened: %s", answer.message)

        self.engine.send(arena.open_command(), on_answer)

    def _forget(self, arena: Arena, reason: str) -> None:
        self._arenas.pop(arena.name, None)
        if arena.grace is not None:
            arena.grace.cancel()
            arena.grace = None
        text = f"the arena of this request was closed: {reason}. Open another, or send it without X-Arena."
        self.generations.lose(Invalid("arena_closed", "X-Arena", text), arena.name)
        self.prefixes.forget(arena.name)
        self.observer.forget(arena.name)
        arena.dissolve(reason)
        self._admission.room_was_made()

    def _mind(self, arena: Arena) -> None:
        """After every coming and going: the time of grace runs exactly while nobody drives."""
        if self._closing or arena.name not in self._arenas:
            return
        if arena.drivers:
            self._end_grace(arena)
        elif arena.grace is None:
            self._begin_grace(arena)

    def _begin_grace(self, arena: Arena) -> None:
        arena.resume_on_return = not arena.paused
        self.engine.send(Pause(0, arena.name), lambda _: None)
        seconds = self._settings.arena_grace_s
        arena.grace = asyncio.get_running_loop().call_later(
            seconds, self.close, arena, f"its page has been away for {seconds:g} s"
        )

    def _end_grace(self, arena: Arena) -> None:
        if arena.grace is None:
            return
        arena.grace.cancel()
        arena.grace = None
        if arena.resume_on_return:
            self.engine.send(Resume(0, arena.name), lambda _: None)

    def _refresh(self, arena: Arena) -> None:
        """Ask the engine for a snapshot if anyone needs one and none is on its way."""
        token = arena.ask()
        if token is None:
            return

        def on_answer(answer: Answer | None) -> None:
            arena.answer(token, answer.snapshot if isinstance(answer, SnapshotTaken) else None)

        self.engine.send(TakeSnapshot(0, arena.name), on_answer)


def _same(secret: str, given: str) -> bool:
    return secrets.compare_digest(secret.encode(), given.encode("utf-8", "replace"))
