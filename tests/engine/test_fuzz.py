"""Any sequence of submissions, aborts and steps keeps the books of memory right, and every request ends."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from engine.arena import Refused
from engine.events import RequestAborted, RequestFinished
from tests.engine.harness import Rig


class Arenas(RuleBasedStateMachine):
    """``Rig`` compares engine and reducer, and verifies pool, tables and slots, after every envelope."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    @initialize(blocks=st.integers(1, 12), size=st.integers(1, 9), budget=st.integers(4, 40), most=st.integers(1, 4))
    def begin(self, blocks, size, budget, most):
        self.rig = Rig(blocks, size, max_model_len=60, budget=budget, max_sequences=most, eos=frozenset([5]))

    @rule(prompt=st.integers(0, 70), outputs=st.integers(1, 30), known=st.booleans())
    def submit(self, prompt, outputs, known):
        try:
            self.rig.submit([7] * prompt, max_tokens=outputs, ignore_eos=known)
            self.taken += 1
        except Refused:
            self.rig.settle()

    @rule(number=st.integers(0, 20))
    def abort(self, number):
        self.rig.abort(number)

    @rule(token=st.sampled_from([1, 2, 5]))
    def step(self, token):
        written = []
        for chunk in self.rig.step(token):
            if chunk.sequence.table.blocks:
                for block, first, count in chunk.sequence.table.runs(chunk.start, chunk.count):
                    written += [(block, slot) for slot in range(first, first + count)]
        assert len(written) == len(set(written))

    def teardown(self):
        if hasattr(self, "rig"):
            self.rig.run(limit=3000)
            ends = [e.request for kind in (RequestFinished, RequestAborted) for e in self.rig.events(kind)]
            assert sorted(ends) == list(range(self.taken))
            assert self.rig.free == self.rig.arena.shape.num_blocks


TestArenas = Arenas.TestCase
TestArenas.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_the_same_history_gives_the_same_log():
    def log() -> list[bytes]:
        rig = Rig(6, 4)
        rig.submit(9, max_tokens=12)
        rig.submit(7, max_tokens=12)
        rig.step()
        rig.submit(3)
        rig.run()
        return [msgspec.json.encode(step) for step in rig.steps]

    assert log() == log()
