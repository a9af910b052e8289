"""E7: what is swapped out and in again is bit-equal, and the text goes on as if nothing had happened."""

from __future__ import annotations

import pytest
import torch

from engine.events import SwappedIn, SwappedOut
from engine.sequence import Sequence
from tests.engine.runs import Run
from tests.engine.tiny_configs import build

PROMPTS = ([5, 6, 7, 8, 9, 10, 11], [90, 3, 4], [3, 3, 150, 12, 8])


class Watched(Run):
    """A run that remembers the keys and values of every sequence. Only a recomputation may change what is computed."""

    def __init__(self, blocks: int, cpu_blocks: int) -> None:
        super().__init__(build("llama", 3), cpu_slots=4 * cpu_blocks)
        self.open("a", num_blocks=blocks, block_size=4, cpu_blocks=cpu_blocks, preemption="swap")
        self.place = self.engine.places["a"]
        self.known: dict[Sequence, torch.Tensor] = {}
        self.compared = 0

    def step(self) -> None:
        super().step()
        for sequence in self.place.arena.sequences():
            table = sequence.table
            if not table.blocks:
                continue
            places = [table.locate(position) for position in range(sequence.computed)]
            slots = [self.place.base + block * table.block_size + slot for block, slot in places]
            now = self.engine.runner.cache[:, slots].clone()
            if sequence in self.known:
                before = self.known[sequence]
                assert torch.equal(now[:, : before.shape[1]], before)
                self.compared += before.shape[1]
            self.known[sequence] = now


@pytest.mark.parametrize("kind", [{}, {"n": 2, "temperature": 1.0, "seed": 3}, {"n": 3, "beam_search": True}])
def test_E7_swapped_keys_and_values_are_bit_equal_and_so_is_the_text(kind):
    answers = []
    for blocks, cpu_blocks in ((100, 0), (11, 40)):
        run = Watched(blocks, cpu_blocks)
        for prompt in PROMPTS:
            run.submit("a", prompt, max_tokens=12, **kind)
        run.drain()
        answers.append(run.outputs("a"))
        swapped = run.events(SwappedOut)
        assert (len(swapped) > 0) == (cpu_blocks > 0)
        assert sorted(event.bytes for event in run.events(SwappedIn)) == sorted(event.bytes for event in swapped)
        assert all(event.bytes % run.engine.runner.bytes_per_token == 0 for event in swapped)
        assert run.compared > 200
    assert answers[0] == answers[1]
