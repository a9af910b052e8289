"""Prefix caching as serving engines do it, at the level of the pool: who gets which block, and what is found again."""

import hashlib

import pytest

from engine.memory.block_pool import BlockPool
from engine.memory.block_table import blocks_for
from engine.memory.free_list import OutOfBlocks
from engine.memory.prefix_cache import block_hashes, extend_hashes, match

COMMON = [0] * 16 + [1] * 16 + [2] * 16


class Owner:
    """A request's table over ``pool``: it takes the blocks of its prompt that are cached, and new ones for the rest."""

    def __init__(self, pool: BlockPool, prompt: list[int], size: int = 16, salt: str = "", caching: bool = True):
        self.pool, self.tokens, self.size, self.salt, self.caching = pool, [], size, salt, caching
        self.hashes: list[bytes] = []
        self.hits = match(pool, block_hashes(prompt[:-1], size, salt))
        for block in self.hits:
            pool.share(block)
        self.blocks = list(self.hits)
        self.new = self.grow(prompt)

    def grow(self, tokens: list[int]) -> list[int]:
        """Compute ``tokens`` too, in blocks that are full or become so; returns the blocks that were added."""
        self.tokens += tokens
        new = self.pool.allocate(blocks_for(len(self.tokens), self.size) - len(self.blocks))
        self.blocks += new
        extend_hashes(self.hashes, self.tokens, self.size, self.salt)
        if self.caching:
            for block, digest in zip(self.blocks, self.hashes, strict=False):
                self.pool.register(block, digest)
        return new

    def free(self) -> None:
        self.pool.release(reversed(self.blocks))


def hashed(pool: BlockPool) -> list[int]:
    return [block for block in range(pool.num_blocks) if pool.hash_of(block)]


def test_requests_with_a_common_beginning():
    """One pool of ten blocks through four requests, with the numbers that vLLM gives (less one: block 0 is usable here)."""
    pool = BlockPool(10)
    first = Owner(pool, COMMON + [3] * 7)
    assert (first.hits, first.blocks) == ([], [0, 1, 2, 3])
    assert ([pool.hash_of(block) for block in first.blocks], pool.refs[:4]) == (
        [*block_hashes(COMMON, 16), None],
        [1] * 4,
    )

    second = Owner(pool, COMMON + [3] * 5)
    assert (second.hits, second.new) == ([0, 1, 2], [4])
    assert (pool.refs[:5], pool.num_free) == ([2, 2, 2, 1, 1], 5)

    first.free()
    second.free()
    assert (pool.num_free, pool.free_order()) == (10, [4, 3, 5, 6, 7, 8, 9, 2, 1, 0])

    third = Owner(pool, COMMON + [3] * 6)
    assert (third.hits, third.new, pool.num_free) == ([0, 1, 2], [4], 6)
    assert [pool.refs[block] for block in pool.free_order()] == [0] * 6
    third.free()

    fourth = Owner(pool, [99] * 160)
    assert (fourth.hits, fourth.new) == ([], [4, 3, 5, 6, 7, 8, 9, 2, 1, 0])
    assert pool.free_order() == []
    assert [pool.lookup(digest) for digest in block_hashes(COMMON, 16)] == [None] * 3


def test_a_hit_never_covers_the_whole_prompt():
    pool = BlockPool(10)
    prompt = COMMON + [3] * 7
    Owner(pool, prompt).free()
    found = []
    for length in (15, 16, 17, 31, 32, 33, 48, 55):
        owner = Owner(pool, prompt[:length])
        found.append(len(owner.hits))
        owner.free()
    assert found == [0, 0, 1, 1, 1, 2, 2, 3]


def test_a_block_is_hashed_when_it_is_full():
    pool = BlockPool(10)
    owner = Owner(pool, COMMON + [3] * 7)
    assert owner.grow([4] * 4) == []
    assert hashed(pool) == [0, 1, 2]
    assert owner.grow([5] * 19) == [4]
    assert hashed(pool) == [0, 1, 2, 3]


def test_eviction_order_of_two_requests():
    pool = BlockPool(10)
    first, second = Owner(pool, list(range(87))), Owner(pool, list(range(87, 135)))
    assert (len(first.blocks), len(second.blocks), pool.num_free) == (6, 3, 1)
    first.free()
    assert pool.free_order() == [5, 9, 4, 3, 2, 1, 0]
    second.free()
    assert pool.free_order() == [5, 9, 4, 3, 2, 1, 0, 8, 7, 6]
    third = Owner(pool, list(range(35)))
    assert (third.hits, third.new, pool.num_free) == ([0, 1], [5], 7)


def test_a_block_that_is_reused_loses_its_hash():
    pool = BlockPool(1)
    Owner(pool, list(range(16))).free()
    assert hashed(pool) == [0]
    other = Owner(pool, list(range(100, 115)))
    assert (other.blocks, hashed(pool)) == ([0], [])
    other.free()
    assert match(pool, block_hashes(list(range(17))[:-1], 16)) == []


def test_a_hit_is_not_evicted_for_the_rest_of_its_request():
    pool = BlockPool(2)
    first, second = Owner(pool, list(range(16))), Owner(pool, list(range(16, 32)))
    first.free()
    second.free()
    third = Owner(pool, list(range(32)))
    assert (third.hits, third.new) == ([0], [1])


def test_without_caching_nothing_is_found():
    pool = BlockPool(4)
    owner = Owner(pool, list(range(10)), size=4, caching=False)
    assert len(owner.blocks) == 3
    owner.free()
    owner = Owner(pool, list(range(16)), size=4, caching=False)
    assert (owner.hits, len(owner.blocks)) == ([], 4)
    with pytest.raises(OutOfBlocks, match="1 blocks asked for, 0 of 4 free"):
        Owner(pool, list(range(4)), size=4, caching=False)


def test_the_same_block_after_another_beginning_is_a_miss():
    pool = BlockPool(10)
    Owner(pool, [1] * 16 + [2] * 16)
    assert Owner(pool, [9] * 16 + [2] * 16 + [0]).hits == []


def test_salts_do_not_share():
    pool = BlockPool(20)
    prompt = COMMON + [3] * 11
    Owner(pool, prompt, salt="salt1").free()
    found = [match(pool, block_hashes(prompt[:-1], 16, salt)) for salt in ("salt1", "salt2", "")]
    assert found == [[0, 1, 2], [], []]


def test_of_two_computations_of_one_block_the_first_is_found():
    pool = BlockPool(4)
    first, second = Owner(pool, [7] * 16), Owner(pool, [7] * 16)
    assert (first.blocks, second.blocks, hashed(pool)) == ([0], [1], [0])
    first.free()
    assert match(pool, first.hashes) == [0]


def test_reset_forgets_everything_once_nothing_is_in_use():
    pool = BlockPool(10)
    owner = Owner(pool, [*COMMON, 3])
    assert not pool.reset_cache()
    assert hashed(pool) == [0, 1, 2]
    owner.free()
    assert pool.reset_cache()
    assert (hashed(pool), pool.num_free) == ([], 10)
    assert Owner(pool, [*COMMON, 3]).hits == []


def test_the_longest_run_ends_at_the_first_miss():
    pool = BlockPool(10)
    owner = Owner(pool, [*COMMON, 3])
    owner.free()
    hashes = block_hashes(COMMON, 16)
    pool.allocate(8)  # all but the two that were used last: the head of the chain
    assert match(pool, hashes) == [0, 1]
    assert match(pool, [hashes[0], b"unknown", hashes[1]]) == [0]
    assert match(pool, []) == []


def test_hashes_are_chained_digests_of_parent_and_tokens():
    tokens = [1, 2, 3, 2**32 - 1, 5]
    root = hashlib.blake2b(b"", digest_size=32, person=b"salt").digest()
    first = hashlib.blake2b(root + b"\1\0\0\0\2\0\0\0", digest_size=32).digest()
    second = hashlib.blake2b(first + b"\3\0\0\0\xff\xff\xff\xff", digest_size=32).digest()
    assert block_hashes(tokens, 2) == [first, second]
    assert block_hashes(tokens, 2, "é\ud800") != block_hashes(tokens, 2)


@pytest.mark.parametrize("size", [1, 3, 16])
def test_a_growing_sequence_hashes_its_new_blocks_only(size):
    tokens = list(range(48))
    hashes: list[bytes] = []
    for length in range(len(tokens) + 1):
        extend_hashes(hashes, tokens[:length], size, "s")
        assert len(hashes) == length // size
    assert hashes == block_hashes(tokens, size, "s")
    known = [b"not looked at", b"parent"]
    extend_hashes(known, tokens[: 3 * size], size)
    assert len(known) == 3
    assert (
        known[2]
        == hashlib.blake2b(
            b"parent" + b"".join(token.to_bytes(4, "little") for token in tokens[2 * size : 3 * size]), digest_size=32
        ).digest()
    )


@pytest.mark.parametrize("token", [-1, 2**32])
def test_token_ids_that_do_not_fit_are_refused(token):
    with pytest.raises(OverflowError):
        block_hashes([token], 1)
