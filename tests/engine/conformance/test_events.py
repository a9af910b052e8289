"""G: what the events tell of the cache, and that memory can be rebuilt from them alone."""

from __future__ import annotations

import pytest

from engine.events import BlockCached, BlockEvicted, PrefixHit
from engine.memory.prefix_cache import block_hashes
from engine.messages import Sampling
from engine.model.tiny_model import build
from tests.engine.conformance.ledger import Ledger
from tests.engine.conformance.rigs import busy
from tests.engine.harness import Rig
from tests.engine.runs import Run

SIZE = 4


def cached_once(k: int) -> tuple[Rig, list[int], list[str]]:
    """A pool of ``k`` blocks that a prompt of as many filled, and that is free again."""
    rig = Rig(k, SIZE, prefix_cache=True)
    prompt = list(range(k * SIZE))
    rig.submit(prompt, max_tokens=1)
    rig.run()
    assert rig.free == k
    return rig, prompt, [digest.hex() for digest in block_hashes(prompt, SIZE)]


def cache_events(rig: Rig) -> list[BlockCached | BlockEvicted]:
    return [event for event in rig.steps[-1].events if isinstance(event, BlockCached | BlockEvicted)]


@pytest.mark.parametrize("k", [2, 3, 10])
def test_G1_a_prompt_enters_the_cache_in_one_event(k):
    rig, prompt, hashes = cached_once(k)
    assert rig.events(BlockCached) == [BlockCached(0, list(range(k)), hashes, "", prompt)]


@pytest.mark.parametrize("k", [2, 3, 10])
def test_G1_without_a_lookup_every_block_is_evicted_and_stored_again(k):
    rig, prompt, hashes = cached_once(k)
    # Whoever asks for the prompt's log probabilities needs every token run, so nothing is looked up.
    rig.submit(prompt, max_tokens=1, echo=True, logprobs=0)
    rig.run()
    # Least recently used first, and of a prompt its tail before its head.
    order = list(range(k))[::-1]
    assert cache_events(rig) == [
        *(BlockEvicted(block, hashes[block]) for block in order),
        BlockCached(1, order, hashes, "", prompt),
    ]


@pytest.mark.parametrize("k", [2, 3, 10])
def test_G1_with_a_lookup_only_the_last_block_is_evicted_and_stored_again(k):
    rig, prompt, hashes = cached_once(k)
    rig.submit(prompt, max_tokens=1)
    rig.run()
    assert [event.block for event in rig.last(PrefixHit)] == list(range(k - 1))
    assert cache_events(rig) == [
        BlockEvicted(k - 1, hashes[-1]),
        BlockCached(1, [k - 1], [hashes[-1]], hashes[-2], prompt[-SIZE:]),
    ]


def test_G2_reading_the_events_drains_them():
    rig = Rig(4, SIZE)
    rig.arena.submit([1, 2, 3], Sampling(), "page")
    first = rig.arena.envelope(0.0)
    assert [type(event).__name__ for event in first.events] == ["RequestArrived"]
    assert rig.arena.envelope(0.0) is None
    assert rig.arena.log.seq == 1


def test_G5_no_events_pile_up_where_nobody_watches():
    model, _ = build(0)
    run = Run(model.eval(), slots=64)
    run.open("a", num_blocks=8, block_size=4)
    run.submit("a", [1, 2, 3], max_tokens=9)
    run.step()
    assert run.engine.places["a"].arena.envelope(0.0) is None


@pytest.mark.parametrize("seed", range(3))
def test_G8_references_tables_and_cache_follow_from_the_events_alone(seed):
    rig = Rig(14, SIZE, cpu_blocks=(0, 12)[seed % 2], prefix_cache=True)
    ledger = Ledger()
    compared = 0
    settle = rig.settle

    def settle_and_compare() -> None:
        nonlocal compared
        settle()
        for step in rig.steps[compared:]:
            for event in step.events:
                ledger.apply(event)
        compared = len(rig.steps)
        blocks = range(rig.pool.num_blocks)
        assert [ledger.refs[block] for block in blocks] == rig.pool.refs
        known = {digest.hex(): block for block in blocks if (digest := rig.pool.hash_of(block))}
        assert ledger.cache == known
        for sequence in rig.arena.sequences():
            assert ledger.table(sequence.number) == rig.arena.manager.table(sequence)

    rig.settle = settle_and_compare
    busy(rig, seed)
    assert compared > 30
