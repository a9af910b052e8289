"""Who gets an arena and when: first come first served, while there are arenas and room in the cache."""

from __future__ import annotations

import logging
from collections.abc import Callable

from app.arena import Arena, Client, Shape
from app.engine_client import Answer, EngineClient
from app.server_messages import Error, encode
from app.settings import Settings
from app.waiting_line import Visitor, WaitingLine
from engine.messages import Done, Failed, Memory, ModelInfo

API_ARENA = "api"
CACHE_FULL = "cache_full"
"""The engine's code for an arena that does not fit now and may when others have closed."""

log = logging.getLogger("paged.arenas")


def api_shape(settings: Settings, model: ModelInfo) -> Shape:
    """Of the API's own arena: ``API_SLOTS`` and ``API_CPU_SLOTS``, but at most half of each cache, since visitors need
    theirs."""
    size = settings.api_block_size
    blocks = max(1, min(settings.api_slots, model.slots // 2) // size)
    cpu_blocks = min(settings.api_cpu_slots, model.cpu_slots // 2) // size
    if settings.api_slots > model.slots // 2:
        log.warning(
            "API_SLOTS is %d, more than half of the cache's %d: the API's arena gets %d, so that readers have room",
            settings.api_slots,
            model.slots,
            blocks * size,
        )
    memory = Memory(
        size,
        blocks,
        cpu_blocks=cpu_blocks,
        prefix_cache=settings.api_prefix_cache == "on",
        preemption=settings.api_preemption,
        prefill_chunk=settings.api_prefill_chunk,
    )
    return Shape(memory, 0.0, "empty")


class Admission:
    """``arenas`` is the hub's registry, shared: admitted arenas appear in it while they are being opened.

    ``welcome`` is called with each arena that the engine has opened and the visitor it is for.
    """

    def __init__(
        self,
        settings: Settings,
        engine: EngineClient,
        arenas: dict[str, Arena],
        welcome: Callable[[Arena, Visitor], None],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._arenas = arenas
        self._welcome = welcome
        self._line = WaitingLine()
        self._opened = 0
        self._opening: dict[Arena, Client] = {}
        self._cache_is_full = False

    @property
    def visitors(self) -> int:
        """Arenas of visitors, those included that are being opened; the API's own is none."""
        return len(self._arenas) - (API_ARENA in self._arenas)

    @property
    def waiting(self) -> int:
        """Visitors in line."""
        return len(self._line)

    def count(self, client: Client) -> int:
        """Arenas that ``client`` has asked for and not been given yet: in line, or being opened by the engine."""
        return self._line.count(client) + sum(opening is client for opening in self._opening.values())

    def join(self, visitor: Visitor) -> None:
        """Give ``visitor`` an arena, or the last place in line."""
        self._line.join(visitor)
        self._admit()

    def leave(self, client: Client) -> None:
        """``client`` has gone."""
        self._line.leave(client)
        self._line.tell()

    def room_was_made(self) -> None:
        """An arena has closed or shrunk, or the engine is there (again)."""
        self._cache_is_full = False
        self._admit()

    def _admit(self) -> None:
        if not self._engine.ready:
            return
        while self.visitors < self._settings.max_arenas and not self._cache_is_full:
            visitor = self._line.next()
            if visitor is None:
                return
            self._open(visitor)
        self._line.tell()

    def _open(self, visitor: Visitor) -> None:
        self._opened += 1
        arena = Arena(f"a{self._opened}", visitor.shape, self._settings.log_envelopes)
        self._arenas[arena.name] = arena
        self._opening[arena] = visitor.client
        self._engine.send(arena.open_command(), lambda answer: self._answered(arena, visitor, answer))

    def _answered(self, arena: Arena, visitor: Visitor, answer: Answer | None) -> None:
        del self._opening[arena]
        if isinstance(answer, Done):
            self._welcome(arena, visitor)
            return
        del self._arenas[arena.name]
        if not isinstance(answer, Failed):
            self._line.rejoin(visitor)  # the engine was lost; this visitor is the first when it is back
        elif answer.code == CACHE_FULL and self.visitors:
            self._line.rejoin(visitor)
            self._cache_is_full = True
            self._line.tell()
        else:
            error = Error(ref=visitor.ref, arena=None, code=answer.code, field=answer.field, message=answer.message)
            visitor.client.outbox.reply(encode(error))
            self.room_was_made()
