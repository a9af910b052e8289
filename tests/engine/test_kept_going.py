"""What makes engines hang, or fail for everybody: here each request ends, and memory is whole again. Two more such cases,
a prompt that never fits and a text that outgrows memory, are C20 and C21 of the conformance tests."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from engine.events import Preempted, RequestAborted, RequestFinished
from tests.engine.conformance.rigs import busy
from tests.engine.harness import Rig


class Bare(Rig):
    """A rig for long stories: its books are verified now and then, and nothing is compared with the reducer."""

    def settle(self) -> None:
        envelope = self.arena.envelope(0.0)
        if envelope is not None:
            self.steps.append(envelope)
        if len(self.steps) % 20 == 0:
            self.arena.verify()


@pytest.mark.parametrize(("kind", "prompts"), [(Rig, 10), pytest.param(Bare, 200, marks=pytest.mark.slow)])
def test_fifty_samples_of_every_prompt_with_a_small_cpu_pool(kind, prompts):
    rig = kind(110, 4, max_sequences=120, cpu_blocks=8)
    draw = random.Random(5)
    lengths = {}
    for _ in range(prompts):
        outputs = draw.randint(1, 6)
        lengths[rig.submit(draw.randint(1, 30), n=50, temperature=1.0, max_tokens=outputs)] = 50 * outputs
    rig.run(limit=10 * prompts)
    assert {event.request: event.output_tokens for event in rig.events(RequestFinished)} == lengths
    assert {event.reason for event in rig.events(RequestFinished)} == {"length"}
    modes = Counter(event.mode for event in rig.events(Preempted))
    # Those that hold more than eight blocks are computed again.
    assert modes["recompute"] > 0
    assert modes["swap"] > 0
    rig.arena.verify()
    assert (rig.free, rig.arena.manager.swap_space.num_free) == (110, 8)


@pytest.mark.parametrize("kind", [{}, {"n": 3, "temperature": 1.0}, {"n": 3, "beam_search": True}])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_an_abort_in_every_step(kind, preemption):
    rig = Rig(12, 4, cpu_blocks=12, preemption=preemption, budget=7)
    draw = random.Random(3)
    alive: list[int] = []
    for _ in range(35):
        alive.append(rig.submit(draw.randint(1, 12), max_tokens=30, **kind))
        if len(alive) > 3:
            rig.abort(alive.pop(draw.randrange(len(alive))))
        rig.step()
        alive = [number for number in alive if not rig.arena.requests[number].ended]
    for number in alive:
        rig.abort(number)
    assert not rig.arena.scheduler.has_work
    assert (rig.free, rig.arena.manager.swap_space.num_free) == (12, 12)
    assert rig.pool.refs == [0] * 12
    assert len(rig.events(RequestAborted)) > 25


@pytest.mark.parametrize("between", [0, 1, 5])
def test_two_clients_that_disconnect_in_mid_beam(between):
    rig = Rig(30, 4)
    clients = [rig.submit(length, n=4, beam_search=True, max_tokens=40) for length in (9, 6)]
    bystander = rig.submit(5, max_tokens=20)
    for _ in range(6):
        rig.step()
    rig.abort(clients[0])
    for _ in range(between):
        rig.step()
    rig.abort(clients[1])
    # What is left belongs to the one that stayed.
    assert 30 - rig.free == len(rig.tables(bystander)[0])
    assert [event.request for event in rig.events(RequestAborted)] == clients
    rig.run()
    assert [(e.request, e.reason, e.output_tokens) for e in rig.events(RequestFinished)] == [(bystander, "length", 20)]
    assert rig.free == 30


def test_clients_that_disconnect_while_swapped_out():
    rig = Rig(16, 4, cpu_blocks=16, preemption="swap")
    clients = [rig.submit(9, n=3, beam_search=True, max_tokens=30) for _ in range(3)]
    while len(rig.swapped()) < 2:
        rig.step()
    for number in reversed(clients):
        rig.abort(number)
    assert (rig.free, rig.arena.manager.swap_space.num_free) == (16, 16)
    assert not rig.arena.scheduler.has_work


@pytest.mark.parametrize("blocks", [5, 6, 8])
def test_a_memory_that_hardly_holds_one_request_serves_them_one_by_one(blocks):
    rig = Rig(blocks, 4, cpu_blocks=3, prefix_cache=True)
    for _ in range(12):
        rig.submit(17, max_tokens=3, ignore_eos=True)
    rig.run(limit=200)
    assert [(e.request, e.reason) for e in rig.events(RequestFinished)] == [(number, "length") for number in range(12)]
    assert rig.free == blocks


@pytest.mark.parametrize("manager", ["orca_max", "orca_pow2", "orca_oracle", "static_batch"])
def test_the_other_managers_end_every_request_too(manager):
    rig = Rig(40, 4, manager=manager, max_len=32)
    busy(rig, seed=6, requests=14)
    ends = Counter(e.request for kind in (RequestFinished, RequestAborted) for e in rig.events(kind))
    assert ends == Counter(range(14))
    assert rig.steps[-1].partition.free == 160
