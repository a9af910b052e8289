"""Any sequence of arrivals, forks, aborts and steps keeps the books of memory right, and every request ends.

``Rig`` compares engine and reducer, verifies pool, tables, hashes and contents after every envelope, and checks that each
sequence reads its own tokens, whatever was copied and swapped.
"""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from engine.events import RequestAborted, RequestArrived, RequestFinished
from engine.submission import Refused
from tests.engine.harness import Rig

EOS = 5
TOKENS = st.sampled_from([1, 2, 3, EOS])
# Prompts of few different beginnings, so that prefixes are shared.
PROMPTS = st.builds(lambda kind, length: [kind] * length, st.sampled_from([7, 8]), st.integers(1, 40))


class Arena(RuleBasedStateMachine):
    """One arena; the subclasses say with which memory."""

    managers: tuple[str, ...] = ("paged",)

    @initialize(
        manager=st.sampled_from(range(5)),
        blocks=st.integers(1, 14),
        size=st.integers(1, 9),
        budget=st.integers(1, 40),
        most=st.integers(1, 6),
        cpu_blocks=st.sampled_from([0, 3, 30]),
        cache=st.booleans(),
        preemption=st.sampled_from(["auto", "recompute", "swap"]),
        chunk=st.sampled_from([-1, 0, 1, 3]),
    )
    def begin(self, manager, blocks, size, budget, most, cpu_blocks, cache, preemption, chunk):
        name = self.managers[manager % len(self.managers)]
        paged = {"cpu_blocks": cpu_blocks, "prefix_cache": cache} if name == "paged" else {"max_len": 32}
        self.rig = Rig(
            blocks,
            size,
            max_model_len=60,
            budget=budget,
            max_sequences=most,
            eos=frozenset([EOS]),
            manager=name,
            preemption=preemption,
            prefill_chunk=chunk,
            **paged,
        )

    def submit(self, prompt, **options):
        with contextlib.suppress(Refused):
            self.rig.submit(prompt, **options)
        self.rig.settle()

    @rule(
        prompt=PROMPTS,
        outputs=st.integers(1, 25),
        known=st.booleans(),
        priority=st.integers(-1, 1),
        salt=st.sampled_from(["", "", "a"]),
    )
    def one(self, prompt, outputs, known, priority, salt):
        self.submit(prompt, max_tokens=outputs, ignore_eos=known, priority=priority, cache_salt=salt)

    @rule(prompt=PROMPTS, outputs=st.integers(1, 12), n=st.integers(2, 4), extra=st.integers(0, 1))
    def samples(self, prompt, outputs, n, extra):
        self.submit(prompt, max_tokens=outputs, n=n, best_of=n + extra, temperature=1.0)

    @rule(prompt=PROMPTS, outputs=st.integers(1, 12), width=st.integers(1, 4), known=st.booleans())
    def beams(self, prompt, outputs, width, known):
        self.submit(prompt, max_tokens=outputs, n=width, beam_search=True, ignore_eos=known)

    @rule(number=st.integers(0, 30))
    def abort(self, number):
        self.rig.abort(number)

    @rule(steps=st.integers(1, 4), token=TOKENS)
    def steps(self, steps, token):
        for _ in range(steps):
            self.rig.step(lambda chunk: token + chunk.sequence.number % 2)

    def teardown(self):
        if not hasattr(self, "rig"):
            return
        rig = self.rig
        rig.run(limit=5000, token=EOS)
        arrived = [event.request for event in rig.events(RequestArrived)]
        ends = [event.request for kind in (RequestFinished, RequestAborted) for event in rig.events(kind)]
        assert sorted(ends) == arrived
        for number in list(rig.arena.requests):
            rig.abort(number)  # registered prefixes give their blocks back
        assert rig.arena.partition().free == rig.arena.manager.capacity


class Paged(Arena):
    @precondition(lambda self: self.rig.arena.scheduler.running)
    @rule(pick=st.integers(0, 10))
    def fork(self, pick):
        live = [sequence for request in self.rig.arena.scheduler.running for sequence in request.live]
        with contextlib.suppress(Refused):
            self.rig.arena.fork(live[pick % len(live)].number)
        self.rig.settle()

    @rule(prompt=PROMPTS)
    def register_prefix(self, prompt):
        with contextlib.suppress(Refused):
            self.rig.arena.register_prefix(prompt)
        self.rig.settle()

    @rule()
    def reset_cache(self):
        manager = self.rig.arena.manager
        idle = manager.num_free == manager.num_blocks
        assert manager.reset_cache() == idle
        self.rig.settle()


class Contiguous(Arena):
    managers = ("orca_max", "orca_pow2", "orca_oracle", "static_batch")


class TestPaged(Paged.TestCase):
    settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class TestContiguous(Contiguous.TestCase):
    settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [Paged, Contiguous])
def test_fifty_thousand_steps(machine, monkeypatch):
    taken = 0
    step = Rig.step

    def counted(rig, token=1):
        nonlocal taken
        taken += 1
        return step(rig, token)

    monkeypatch.setattr(Rig, "step", counted)
    long = settings(max_examples=100, stateful_step_count=100, deadline=None, suppress_health_check=list(HealthCheck))
    while taken < 50_000:
        run_state_machine_as_test(machine, settings=long)


def test_the_same_history_gives_the_same_log():
    def log() -> list[bytes]:
        rig = Rig(12, 4, cpu_blocks=4, prefix_cache=True)
        rig.submit(9, max_tokens=12, n=3, temperature=1.0)
        rig.submit(7, max_tokens=12, n=2, beam_search=True)
        rig.step()
        rig.submit(3)
        rig.run()
        return [msgspec.json.encode(step) for step in rig.steps]

    assert log() == log()


def test_beams_that_wait_for_memory_that_never_comes_end_as_hypotheses():
    rig = Rig(6, 7, max_model_len=60, budget=28, max_sequences=6, prefill_chunk=-1)
    rig.submit([7], max_tokens=8)
    for _ in range(5):
        rig.step()
    beams = rig.submit([7] * 6, max_tokens=11, n=4, beam_search=True)
    rig.run()
    assert rig.arena.requests[beams].reason == "capacity"
    assert [sequence.finish for sequence in rig.arena.requests[beams].sequences] == ["capacity"] * 4
    assert rig.free == 6


def test_beams_that_a_registered_prefix_keeps_swapped_out_leave_the_cpu_pool():
    rig = Rig(10, 4, cpu_blocks=20, prefill_chunk=1, preemption="swap")
    rig.arena.register_prefix(list(range(24)))
    rig.step()
    beams = rig.submit([40, 41, 42, 43], max_tokens=20, n=3, beam_search=True, ignore_eos=True)
    while not rig.swapped():
        rig.step()
    rig.run()
    assert rig.arena.requests[beams].reason == "capacity"
    assert rig.arena.manager.cpu_blocks() == []
    assert rig.free == 4
