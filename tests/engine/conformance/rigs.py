"""What the cases need beside the rig: beams that choose as told, a free list in a given order, a busy arena."""

from __future__ import annotations

import random
from typing import Any

from engine.decoding.sampling import Picked
from engine.scheduler import Chunk
from tests.engine.harness import Rig, Token

COMMON = [0] * 16 + [1] * 16 + [2] * 16
"""48 tokens, three distinct full blocks of 16."""


class BeamRig(Rig):
    """A rig in which a beam's candidates are those that the test names: ``token`` may return a list of them."""

    def _pick(self, chunk: Chunk, token: Token) -> Picked:
        chosen: Any = token(chunk) if callable(token) else token
        if not isinstance(chosen, list):
            return super()._pick(chunk, token)
        self.arena.decoding.row(chunk.sequence)  # asking for a row opens the search
        return Picked(candidates=chosen)


def arrange(rig: Rig, *first: int) -> None:
    """Put the free list of an empty rig in order: ``first``, in this order, will be handed out next.

    Requests of one block each come, and go in the order that leaves those blocks in front.
    """
    count = rig.free
    numbers = [rig.submit([block], max_tokens=100) for block in range(count)]
    rig.step()
    rest = [block for block in range(count) if block not in first]
    for block in [*rest, *reversed(first)]:
        rig.abort(numbers[block])
    if rig.pool.free_order()[: len(first)] != list(first):
        raise AssertionError(f"the free list is {rig.pool.free_order()}")


def busy(rig: Rig, seed: int, requests: int = 18, **options: Any) -> None:
    """Let requests of every kind come in a random order, some of them to be aborted, and run them to their end."""
    draw = random.Random(seed)
    sent: list[int] = []
    while len(sent) < requests or rig.arena.scheduler.has_work:
        if len(sent) < requests and draw.random() < 0.6:
            sent.append(_send(rig, draw, options))
        if draw.random() < 0.08:
            rig.abort(draw.choice(sent) if sent else 0)
        rig.budget = draw.choice((3, 8, 50))
        rig.step(lambda chunk: chunk.start % 7)


def _send(rig: Rig, draw: random.Random, options: dict[str, Any]) -> int:
    prompt = [number % 3 for number in range(draw.randint(1, 18))]
    outputs = draw.randint(1, 14)
    kinds: list[dict[str, Any]] = [{}, {"n": 3, "temperature": 1.0}, {"n": 2, "beam_search": True}]
    more = draw.choice(kinds) | options
    return rig.submit(prompt, outputs, ignore_eos=True, priority=draw.choice((0, 0, 1)), **more)
