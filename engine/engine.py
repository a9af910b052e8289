"""The engine: arenas that share one cache and one forward pass for each step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from engine import step_inputs
from engine.arena import Arena, Limits, Shape
from engine.events import StepTimes
from engine.log import EventLog
from engine.messages import OpenArena, Sampling
from engine.model_runner import ModelRunner
from engine.paged_manager import MAX_BLOCK_SIZE
from engine.sampling import sample
from engine.scene import SCENES, Scene
from engine.scheduler import Chunk
from engine.slot_ranges import SlotRanges
from engine.text import Vocabulary


@dataclass(slots=True)
class Pace:
    """When an arena may step. ``interval``: least seconds between two steps; ``due``: not before; ``owed``: steps that a
    paused arena was asked for, one by one."""

    interval: float = 0.0
    due: float = 0.0
    owed: int = 0


@dataclass(slots=True)
class Place:
    """An open arena with its pace and, while it still opens, its scene."""

    arena: Arena
    pace: Pace = field(default_factory=Pace)
    scene: Scene | None = None

    def ready(self, now: float) -> bool:
        if not self.arena.scheduler.has_work:
            return False
        if self.scene is not None:
            return True
        return self.pace.owed > 0 if self.arena.paused else now >= self.pace.due


class Engine:
    """Runs all arenas. ``token_budget``: query rows of one pass, shared evenly by the arenas that have work; each may
    always run all its decodes. With ``verify`` the books of every arena are checked after every step. ``clock`` gives
    seconds; it paces arenas and stamps envelopes."""

    def __init__(
        self,
        runner: ModelRunner,
        vocabulary: Vocabulary,
        limits: Limits,
        token_budget: int,
        seed: int,
        verify: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runner = runner
        self.vocabulary = vocabulary
        self.limits = limits
        self.places: dict[str, Place] = {}
        self.clock = clock
        self._token_budget = token_budget
        self._seed = seed
        self._verify = verify
        self._ranges = SlotRanges(len(runner.keys[0]))
        self._turn = 0

    def check(self, wish: OpenArena) -> None:
        """Raises ValueError for a shape or scene that cannot be, CacheFull for more slots than the whole cache has."""
        if wish.scene not in SCENES:
            raise ValueError(f"scene {wish.scene!r} does not exist: choose one of {', '.join(sorted(SCENES))}")
        if wish.num_blocks < 1 or not 1 <= wish.block_size <= MAX_BLOCK_SIZE:
            raise ValueError(
                f"{wish.num_blocks} blocks of {wish.block_size} slots cannot be: choose at least 1 block, and a block size "
                f"from 1 to {MAX_BLOCK_SIZE}"
            )
        self._ranges.check(wish.arena, wish.num_blocks * wish.block_size)

    def open(self, wish: OpenArena) -> Place:
        """Carve out an arena. Raises as ``check`` does."""
        self.check(wish)
        shape = Shape(wish.num_blocks, wish.block_size)
        log = EventLog(wish.arena, wish.epoch, self.clock())
        base = self._ranges.take(wish.arena, wish.num_blocks * wish.block_size)
        arena = Arena(log, base, shape, self.vocabulary, self.limits, self._seed)
        place = Place(arena, Pace(interval=wish.pace_ms / 1000))
        place.scene = SCENES[wish.scene](arena, self.vocabulary.encode)
        self._advance(place)
        self.places[wish.arena] = place
        return place

    def close(self, name: str) -> None:
        """Forget an arena and give its slots back."""
        del self.places[name]
        self._ranges.give_back(name)

    def next_due(self) -> float | None:
        """Seconds until a step is due: 0 for now, None if nothing waits for one."""
        now = self.clock()
        waits = [
            0.0 if place.ready(now) else place.pace.due - now
            for place in self.places.values()
            if place.ready(now) or (place.arena.scheduler.has_work and not place.arena.paused)
        ]
        return max(0.0, min(waits)) if waits else None

    def step(self) -> list[Place]:
        """One step of every arena that is due, in one forward pass. Returns the places that have something to tell."""
        started = time.perf_counter()
        now = self.clock()
        stepped, entries, owners = self._plan(now)
        if entries:
            inputs = step_inputs.build(entries, self.runner.device)
            planned = time.perf_counter()
            logits = self.runner.forward(inputs)
            self._synchronise()
            ran = time.perf_counter()
            samplers = [entry.chunk for entry in entries if entry.chunk.sample]
            tokens = sample(logits, [_choice(chunk) for chunk in samplers]) if samplers else []
            sampled = dict(zip(map(id, samplers), tokens, strict=True))
            times = StepTimes(
                schedule=_ms(started, planned), forward=_ms(planned, ran), sample=_ms(ran, time.perf_counter())
            )
            for name, chunks in owners.items():
                results = [sampled[id(chunk)] for chunk in chunks if chunk.sample]
                self.places[name].arena.commit(chunks, results, times)
        for place in stepped:
            self._after(place, now)
        return stepped

    def _plan(self, now: float) -> tuple[list[Place], list[step_inputs.Entry], dict[str, list[Chunk]]]:
        ready = [place for place in self.places.values() if place.ready(now)]
        # Whose prefill comes first rotates, so that no arena is always served last.
        self._turn += 1
        ready = ready[self._turn % len(ready) :] + ready[: self._turn % len(ready)] if ready else []
        budget = max(self.limits.max_sequences, self._token_budget // max(1, len(ready)))
        entries: list[step_inputs.Entry] = []
        owners: dict[str, list[Chunk]] = {}
        for place in ready:
            chunks = place.arena.plan(budget).chunks
            if chunks:
                owners[place.arena.log.arena] = chunks
                entries += [step_inputs.Entry(chunk, place.arena.base) for chunk in chunks]
        return ready, entries, owners

    def _after(self, place: Place, now: float) -> None:
        place.pace.due = now + place.pace.interval
        place.pace.owed = max(0, place.pace.owed - 1)
        self._advance(place)
        if self._verify:
            place.arena.verify()

    def _advance(self, place: Place) -> None:
        if place.scene is not None and not place.scene.advance():
            place.scene = None

    def _synchronise(self) -> None:
        if self.runner.device.type == "cuda":
            torch.cuda.synchronize(self.runner.device)


def _choice(chunk: Chunk) -> tuple[Sampling, int, int]:
    request = chunk.sequence.request
    return request.sampling, request.seed, len(chunk.sequence.tokens)


def _ms(start: float, end: float) -> float:
    return round((end - start) * 1000, 3)
