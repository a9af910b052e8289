"""What the engine does for each command, and what it answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import singledispatchmethod

from engine.engine import Engine, Place
from engine.memory.paged_manager import PagedManager
from engine.memory.slot_ranges import CacheFull
from engine.messages import (
    Abort,
    AnyCommand,
    AnyReply,
    ArenaClosed,
    ChatTurn,
    CloseArena,
    Done,
    Failed,
    Fork,
    OpenArena,
    Pause,
    RegisterPrefix,
    Reset,
    ResetCache,
    Resume,
    RunStep,
    SetPace,
    SnapshotTaken,
    Stepped,
    Submit,
    Submitted,
    TakeSnapshot,
)
from engine.submission import Refused

log = logging.getLogger(__name__)
Send = Callable[[AnyReply], None]
MAX_PACE_MS = 60_000.0


class Unknown(Exception):
    """The arena does not exist, or no longer."""


class Commands:
    """Carries out commands on ``engine``; answers and news go to ``send``, an arena's envelopes in their order."""

    def __init__(self, engine: Engine, send: Send) -> None:
        self._engine = engine
        self._send = send

    def carry_out(self, command: AnyCommand) -> None:
        """Answer ``command`` exactly once, whatever is wrong with it."""
        try:
            self._do(command)
        except Refused as refused:
            self._send(Failed(command.ref, refused.code, refused.field, str(refused)))
        except Unknown as unknown:
            self._send(Failed(command.ref, "unknown_arena", "arena", str(unknown)))
        except CacheFull as full:
            self._send(Failed(command.ref, "cache_full", full.field, str(full)))
        except ValueError as wrong:
            self._send(Failed(command.ref, "invalid_value", "", str(wrong)))
        except Exception as error:
            # One client's command must not end everybody's engine.
            log.exception("%s failed", type(command).__name__)
            self._send(Failed(command.ref, "engine_error", "", f"the engine could not do this: {error!r}"))
        arena = getattr(command, "arena", None)
        if arena in self._engine.places:
            self.tell(self._engine.places[arena])

    def tell(self, place: Place) -> None:
        """Send what an arena has to say since the last time."""
        envelope = place.arena.envelope(self._engine.clock())
        if envelope is not None:
            self._send(Stepped(envelope))
        for output in place.arena.take_outputs():
            self._send(output)

    def _place(self, arena: str) -> Place:
        try:
            return self._engine.places[arena]
        except KeyError:
            raise Unknown(f"arena {arena!r} does not exist or is closed: open one first") from None

    @singledispatchmethod
    def _do(self, command: AnyCommand) -> None:
        raise ValueError(f"{type(command).__name__} is no command of the engine")

    @_do.register
    def _(self, command: OpenArena) -> None:
        if command.arena in self._engine.places:
            raise ValueError(f"arena {command.arena!r} is open already: close it, or choose another name")
        _check_pace(command.pace_ms)
        self._engine.open(command)
        self._send(Done(command.ref))

    @_do.register
    def _(self, command: CloseArena) -> None:
        place = self._place(command.arena)
        for number in list(place.arena.requests):
            place.arena.abort(number, command.reason)
        self.tell(place)
        self._engine.close(command.arena)
        self._send(Done(command.ref))
        self._send(ArenaClosed(command.arena, command.reason))

    @_do.register
    def _(self, command: Submit) -> None:
        place = self._place(command.arena)
        tokens = self._tokens(command.prompt)
        request = place.arena.submit(
            tokens,
            command.sampling,
            command.source,
            command.stream,
            command.echo,
            command.priority,
            command.cache_salt,
        )
        self._send(Submitted(command.ref, command.arena, request.number, request.prompt_tokens))

    @_do.register
    def _(self, command: RegisterPrefix) -> None:
        place = self._place(command.arena)
        request = place.arena.register_prefix(self._tokens(command.prompt, answer=False), command.cache_salt)
        self._send(Submitted(command.ref, command.arena, request.number, request.prompt_tokens))

    @_do.register
    def _(self, command: Fork) -> None:
        self._place(command.arena).arena.fork(command.sequence)
        self._send(Done(command.ref))

    @_do.register
    def _(self, command: ResetCache) -> None:
        manager = self._place(command.arena).arena.manager
        if not isinstance(manager, PagedManager):
            raise Refused("unsupported", "arena", f"{manager.name} has no prefix cache: reset it where memory is paged")
        if not manager.reset_cache():
            used = manager.num_blocks - manager.num_free
            raise Refused("cache_in_use", "arena", f"{used} blocks are in use: wait until all requests have ended")
        self._send(Done(command.ref))

    def _tokens(self, prompt: str | Sequence[int | ChatTurn], answer: bool = True) -> list[int]:
        vocabulary = self._engine.vocabulary
        try:
            if isinstance(prompt, str):
                return vocabulary.encode(prompt)
            turns = [{"role": turn.role, "content": turn.content} for turn in prompt if isinstance(turn, ChatTurn)]
            if turns:
                return vocabulary.encode_chat(turns, answer)
            tokens = [token for token in prompt if isinstance(token, int)]
            vocabulary.check(tokens)
            return tokens
        except ValueError as wrong:
            raise Refused("invalid_prompt", "prompt", str(wrong)) from wrong

    @_do.register
    def _(self, command: Abort) -> None:
        self._place(command.arena).arena.abort(command.request, command.reason)
        self._send(Done(command.ref))

    @_do.register
    def _(self, command: Pause) -> None:
        self._place(command.arena).arena.paused = True
        self._send(Done(command.ref))

    @_do.register
    def _(self, command: Resume) -> None:
        place = self._place(command.arena)
        place.arena.paused = False
        place.pace.owed = 0
        self._send(Done(command.ref))

    @_do.register
    def _(self, command: RunStep) -> None:
        place = self._place(command.arena)
        if not place.arena.paused:
            raise ValueError(f"arena {command.arena!r} runs by itself: pause it before asking for single steps")
        if not place.arena.scheduler.has_work:
            raise ValueError("nothing waits and nothing runs in this arena: submit a prompt first")
        place.pace.owed = 1
        self._send(Done(command.ref))

    @_do.register
    def _(self, command: SetPace) -> None:
        _check_pace(command.pace_ms)
        place = self._place(command.arena)
        place.pace.interval = command.pace_ms / 1000
        place.pace.due = min(place.pace.due, self._engine.clock() + place.pace.interval)
        self._send(Done(command.ref))

    @_do.register
    def _(self, command: Reset) -> None:
        """The arena begins a new epoch, so whoever follows it needs a snapshot."""
        place = self._place(command.arena)
        old = place.arena
        wish = OpenArena(
            ref=command.ref,
            arena=command.arena,
            memory=command.memory or old.memory,
            pace_ms=place.pace.interval * 1000,
            scene=command.scene,
            epoch=old.log.epoch + 1,
        )
        self._engine.check(wish)
        for number in list(old.requests):
            old.abort(number, "the arena was reset")
        self.tell(place)
        self._engine.close(command.arena)
        self._engine.open(wish)
        self._send(Done(command.ref))

    @_do.register
    def _(self, command: TakeSnapshot) -> None:
        place = self._place(command.arena)
        self.tell(place)
        self._send(SnapshotTaken(command.ref, place.arena.snapshot(self._engine.clock())))


def _check_pace(pace_ms: float) -> None:
    if not 0 <= pace_ms <= MAX_PACE_MS:
        raise ValueError(f"pace_ms is {pace_ms}: choose 0 (as fast as it goes) to {MAX_PACE_MS:.0f} milliseconds")
