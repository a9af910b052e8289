"""The engine: arenas that share one cache and one forward pass for each step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from engine.arena import Arena
from engine.decoding.decoding import Decoding
from engine.decoding.text import Vocabulary
from engine.events import StepTimes
from engine.fair_share import FairShare
from engine.log import EventLog
from engine.memory import managers
from engine.memory.memory_manager import Move
from engine.memory.slot_ranges import SlotRanges
from engine.messages import OpenArena
from engine.model import step_inputs
from engine.model.model_runner import ModelRunner
from engine.model.step_results import read
from engine.scene import SCENES, Scene
from engine.submission import Limits


@dataclass(slots=True)
class Pace:
    """When an arena may step. ``interval``: least seconds between two steps; ``due``: not before; ``owed``: steps that a
    paused arena was asked for, one by one."""

    interval: float = 0.0
    due: float = 0.0
    owed: int = 0


@dataclass(slots=True)
class Place:
    """An open arena with its pace and, while it still opens, its scene. ``base`` and ``cpu_base``: the first of its slots
    in the flat cache and in the CPU's."""

    arena: Arena
    base: int = 0
    cpu_base: int = 0
    pace: Pace = field(default_factory=Pace)
    scene: Scene | None = None

    def ready(self, now: float) -> bool:
        if not self.arena.scheduler.has_work:
            return False
        if self.scene is not None:
            return True
        return self.pace.owed > 0 if self.arena.paused else now >= self.pace.due


class Engine:
    """Runs all arenas. ``token_budget``: query rows of one pass, shared by the arenas that have work. With ``verify`` the
    books of every arena are checked after every step. ``clock`` gives seconds; it paces arenas and stamps envelopes."""

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
        self._seed = seed
        self._verify = verify
        self._ranges = SlotRanges(runner.cache.shape[1], "KV_SLOTS", "num_blocks")
        self._cpu_ranges = SlotRanges(runner.host.shape[1], "CPU_KV_SLOTS", "cpu_blocks")
        self._shares = FairShare(token_budget)

    def check(self, wish: OpenArena) -> None:
        """Raises ValueError for a memory or scene that cannot be, CacheFull for more slots than there are."""
        if wish.scene not in SCENES:
            raise ValueError(f"scene {wish.scene!r} does not exist: choose one of {', '.join(sorted(SCENES))}")
        managers.check(wish.memory)
        self._ranges.check(wish.arena, wish.memory.slots)
        self._cpu_ranges.check(wish.arena, wish.memory.cpu_slots)

    def open(self, wish: OpenArena) -> Place:
        """Carve out an arena. Raises as ``check`` does."""
        self.check(wish)
        log = EventLog(wish.arena, wish.epoch, self.clock())
        arena = Arena(log, wish.memory, self.vocabulary, self.limits, self._seed, self.runner.bytes_per_token)
        place = Place(
            arena,
            base=self._ranges.take(wish.arena, wish.memory.slots),
            cpu_base=self._cpu_ranges.take(wish.arena, wish.memory.cpu_slots),
            pace=Pace(interval=wish.pace_ms / 1000),
        )
        place.scene = SCENES[wish.scene](arena, self.vocabulary.encode)
        self._advance(place)
        self.places[wish.arena] = place
        return place

    def close(self, name: str) -> None:
        """Forget an arena and give its slots back."""
        del self.places[name]
        self._ranges.give_back(name)
        self._cpu_ranges.give_back(name)

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
        """One step of every arena that is due and has its turn, in one forward pass. Returns the places that stepped."""
        started = time.perf_counter()
        now = self.clock()
        stepped, entries = self._plan(now)
        if entries:
            inputs = step_inputs.build(entries, self.runner.device)
            self._move(stepped)
            planned = time.perf_counter()
            logits = self.runner.forward(inputs)
            self._synchronise()
            ran = time.perf_counter()
            results = read(entries, logits, self._decoding)
            sampled = time.perf_counter()
            times = StepTimes(schedule=_ms(started, planned), forward=_ms(planned, ran), sample=_ms(ran, sampled))
            self._shares.cost.observe(inputs.input_ids.shape[1], sampled - planned)
            for name, result in results.items():
                self.places[name].arena.commit(result.chunks, result.picks, times, result.scored)
        for place in stepped:
            self._after(place, now)
        return stepped

    def _plan(self, now: float) -> tuple[list[Place], list[step_inputs.Entry]]:
        ready = {name: place for name, place in self.places.items() if place.ready(now)}
        budgets = self._shares.budgets({name: place.arena.scheduler.demand() for name, place in ready.items()})
        stepped: list[Place] = []
        entries: list[step_inputs.Entry] = []
        for name, place in ready.items():
            if budgets[name] == 0:
                continue
            stepped.append(place)
            chunks = place.arena.plan(budgets[name]).chunks
            self._shares.used(name, sum(chunk.count for chunk in chunks))
            entries += [step_inputs.Entry(name, chunk, place.base, place.arena.reads(chunk)) for chunk in chunks]
        return stepped, entries

    def _move(self, stepped: list[Place]) -> None:
        """Swap and copy what the plans ask for: out before in before copies, and all before the pass writes."""
        out: list[Move] = []
        back: list[Move] = []
        copies: list[Move] = []
        for place in stepped:
            moves, base, cpu = place.arena.manager.take_moves(), place.base, place.cpu_base
            out += [(source + base, target + cpu, count) for source, target, count in moves.out]
            back += [(source + cpu, target + base, count) for source, target, count in moves.back]
            copies += [(source + base, target + base, count) for source, target, count in moves.copies]
        if out:
            self.runner.swap_out(out)
        if back:
            self.runner.swap_in(back)
        if copies:
            self.runner.copy(copies)

    def _decoding(self, name: str) -> Decoding:
        return self.places[name].arena.decoding

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


def _ms(start: float, end: float) -> float:
    return round((end - start) * 1000, 3)
