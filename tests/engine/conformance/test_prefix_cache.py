"""B: the prefix cache, through a whole arena. Blocks are numbered from 0, one less than in the cases."""

from __future__ import annotations

import pytest

from engine.events import BlockAllocated, BlockEvicted, PrefixHit
from engine.memory.prefix_cache import block_hashes, match
from tests.engine.conformance.rigs import COMMON
from tests.engine.harness import Rig


def caching(num_blocks: int = 10, block_size: int = 16) -> Rig:
    return Rig(num_blocks, block_size, prefix_cache=True)


def prefill(rig: Rig, prompt: list[int], **options) -> tuple[int, list[int], list[int]]:
    """Run a prompt's first step: the request's number, the blocks it hit, and its table."""
    number = rig.submit(prompt, max_tokens=100, **options)
    rig.step()
    [sequence] = rig.arena.requests[number].sequences
    hits = [event.block for event in rig.last(PrefixHit) if event.sequence == sequence.number]
    assert rig.arena.requests[number].cached_tokens == len(hits) * rig.arena.memory.block_size
    return number, hits, sequence.table.blocks


def hashed(rig: Rig) -> list[int]:
    return [block for block in range(rig.pool.num_blocks) if rig.pool.hash_of(block) is not None]


def test_B1_full_blocks_of_a_prompt_are_hashed_in_a_chain():
    rig = caching()
    _, hits, table = prefill(rig, COMMON + [3] * 7)
    assert (hits, table) == ([], [0, 1, 2, 3])
    assert [rig.pool.hash_of(block) for block in table] == [*block_hashes(COMMON, 16), None]
    assert rig.pool.refs[:4] == [1, 1, 1, 1]


def test_B2_the_next_request_shares_the_full_blocks():
    rig = caching()
    prefill(rig, COMMON + [3] * 7)
    _, hits, table = prefill(rig, COMMON + [3] * 5)
    assert (hits, table) == ([0, 1, 2], [0, 1, 2, 4])
    assert rig.pool.refs[:5] == [2, 2, 2, 1, 1]
    assert rig.free == 5


def freed_after_two() -> Rig:
    rig = caching()
    first, _, _ = prefill(rig, COMMON + [3] * 7)
    second, _, _ = prefill(rig, COMMON + [3] * 5)
    rig.abort(first)
    rig.abort(second)
    return rig


def test_B3_blocks_without_a_hash_are_reused_first_and_hashed_ones_last_tails_before_heads():
    rig = freed_after_two()
    assert rig.pool.free_order() == [4, 3, 5, 6, 7, 8, 9, 2, 1, 0]


def test_B4_a_free_block_is_hit_and_leaves_the_free_list():
    rig = freed_after_two()
    number, hits, table = prefill(rig, COMMON + [3] * 6)
    assert (hits, table) == ([0, 1, 2], [0, 1, 2, 4])
    assert rig.free == 6
    assert [rig.pool.refs[block] for block in rig.pool.free_order()] == [0] * 6
    rig.abort(number)
    assert rig.pool.free_order() == [4, 3, 5, 6, 7, 8, 9, 2, 1, 0]


def test_B5_a_prompt_without_hits_takes_the_free_list_in_order():
    rig = freed_after_two()
    number, _, _ = prefill(rig, COMMON + [3] * 6)
    rig.abort(number)
    old = block_hashes(COMMON, 16)
    _, hits, table = prefill(rig, [99] * 160)
    assert (hits, table) == ([], [4, 3, 5, 6, 7, 8, 9, 2, 1, 0])
    assert rig.pool.free_order() == []
    assert [event.block for event in rig.last(BlockEvicted)] == [2, 1, 0]
    assert [rig.pool.lookup(digest) for digest in old] == [None] * 3


@pytest.mark.parametrize(("length", "blocks"), [(15, 0), (16, 0), (17, 1), (31, 1), (32, 1), (33, 2), (48, 2), (55, 3)])
def test_B6_a_hit_never_covers_the_whole_prompt(length, blocks):
    rig = caching()
    prompt = list(range(length))
    rig.submit(prompt, max_tokens=1)
    rig.run()
    _, hits, _ = prefill(rig, prompt)
    assert hits == list(range(blocks))


def test_B7_generated_tokens_fill_and_hash_blocks_too():
    rig = caching()
    number, _, table = prefill(rig, COMMON + [3] * 7)
    [sequence] = rig.arena.requests[number].sequences
    for _ in range(4):
        rig.step()
    assert (sequence.computed, table, hashed(rig)) == (59, [0, 1, 2, 3], [0, 1, 2])
    for _ in range(19):
        rig.step()
    assert (sequence.computed, table, hashed(rig)) == (78, [0, 1, 2, 3, 4], [0, 1, 2, 3])


def test_B8_the_order_of_the_free_list_over_two_requests_and_a_third_that_hits():
    rig = caching()
    first, _, _ = prefill(rig, list(range(87)))
    second = rig.submit(list(range(87, 135)), max_tokens=1)
    rig.step()
    rig.abort(first)
    assert rig.arena.requests[second].ended
    assert rig.pool.free_order() == [5, 9, 8, 7, 6, 4, 3, 2, 1, 0]
    _, hits, table = prefill(rig, list(range(35)))
    assert (hits, table, rig.free) == ([0, 1], [0, 1, 5], 7)


def test_B9_the_only_block_loses_its_hash_to_the_next_prompt():
    rig = caching(num_blocks=1)
    first = list(range(16))
    rig.submit(first, max_tokens=1)
    rig.run()
    assert hashed(rig) == [0]
    _, hits, table = prefill(rig, list(range(100, 115)))
    assert (hits, table, hashed(rig)) == ([], [0], [])
    assert match(rig.pool, block_hashes([*first, 99], 16)) == []


def test_B10_a_block_just_hit_is_not_evicted_for_the_rest_of_the_prompt():
    rig = caching(num_blocks=2)
    for prompt in (list(range(16)), list(range(16, 32))):
        rig.submit(prompt, max_tokens=1)
        rig.run()
    assert hashed(rig) == [0, 1]
    _, hits, table = prefill(rig, list(range(32)))
    assert (hits, table) == ([0], [0, 1])
    assert [event.block for event in rig.last(BlockEvicted)] == [1]


def test_B11_without_the_cache_nothing_is_hit_and_a_full_pool_makes_the_next_wait():
    rig = Rig(4, 4)
    number, _, table = prefill(rig, list(range(10)))
    assert len(table) == 3
    rig.abort(number)
    _, hits, table = prefill(rig, list(range(16)))
    assert (hits, sorted(table), rig.free) == ([], [0, 1, 2, 3], 0)
    waiting = rig.submit(4)
    assert not rig.arena.manager.can_admit(rig.arena.requests[waiting], 0)
    assert not rig.events(PrefixHit)


def test_B13_the_same_block_after_another_one_is_a_miss():
    rig = caching()
    rig.submit([1] * 16 + [2] * 16, max_tokens=1)
    rig.run()
    _, hits, _ = prefill(rig, [9] * 16 + [2] * 16 + [0])
    assert hits == []


def test_B14_a_salt_keeps_requests_apart():
    rig = caching(num_blocks=30)
    prompt = COMMON + [3] * 11
    assert len(prefill(rig, prompt, cache_salt="salt1")[1]) == 0
    assert len(prefill(rig, prompt, cache_salt="salt1")[1]) == 3
    assert len(prefill(rig, prompt, cache_salt="salt2")[1]) == 0
    assert len(prefill(rig, prompt)[1]) == 0


def test_B20_the_cache_is_reset_only_when_no_block_is_in_use():
    rig = caching()
    number, _, _ = prefill(rig, COMMON + [3] * 7)
    before = rig.arena.manager.blocks()
    assert rig.arena.manager.reset_cache() is False
    assert rig.arena.manager.blocks() == before
    rig.abort(number)
    assert rig.arena.manager.reset_cache() is True
    rig.settle()
    assert hashed(rig) == []
    assert sorted(event.block for event in rig.last(BlockEvicted)) == [0, 1, 2]
    assert prefill(rig, COMMON + [3] * 7)[1] == []


def test_B23_a_sampled_token_is_cached_only_when_it_has_been_computed():
    rig = caching(block_size=1)
    rig.submit([0, 1], max_tokens=1)
    rig.step(2)
    _, hits, _ = prefill(rig, [0, 1, 2, 3])
    assert hits == [0, 1]


def test_the_answer_is_part_of_the_next_rounds_prefix():
    rig = caching(block_size=4)
    first = rig.submit([0, 1, 2, 3, 4, 5], max_tokens=7)
    rig.run(token=lambda chunk: chunk.start + chunk.count)
    said = [*range(6), *rig.outputs(first)]
    assert said == list(range(13))
    _, hits, _ = prefill(rig, [*said, 50, 51])
    # The 13th token was sampled and never computed, so three blocks of four are known.
    assert len(hits) == 3


def test_a_cached_block_in_use_takes_no_free_one_so_that_two_fit_where_one_would():
    rig = caching(num_blocks=5, block_size=4)
    prefill(rig, list(range(15)))
    assert rig.free == 1
    _, hits, table = prefill(rig, [*range(12), 99])
    assert (hits, table) == ([0, 1, 2], [0, 1, 2, 4])
    assert [event.block for event in rig.last(BlockAllocated)] == [4]
