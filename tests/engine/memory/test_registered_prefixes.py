"""Prefixes registered ahead keep their blocks; requests that begin with them share those (paper section 4.4)."""

from __future__ import annotations

import pytest

from engine.arena import Refused
from engine.events import (
    BlockCopied,
    BlockShared,
    Preempted,
    RequestFinished,
    SequenceFinished,
    SlotsWritten,
    TokenGenerated,
)
from tests.engine.harness import Rig

PREFIX = list(range(10))


def register(rig: Rig, tokens: list[int] = PREFIX, salt: str = "") -> int:
    """Register a prefix and compute it."""
    number = rig.arena.register_prefix(tokens, salt).number
    rig.settle()
    rig.run()
    return number


def begin(rig: Rig, prompt: list[int], **options) -> tuple[int, int]:
    """Run a prompt's first step: its number, and how many of its tokens were not computed again."""
    number = rig.submit(prompt, max_tokens=3, **options)
    rig.step()
    return number, rig.arena.requests[number].cached_tokens


def test_a_prefix_is_computed_once_and_samples_nothing():
    rig = Rig(10, 4)
    number = register(rig)
    assert rig.tables(number) == [[0, 1, 2]]
    assert [(e.request, e.reason, e.output_tokens) for e in rig.events(RequestFinished)] == [(number, "registered", 0)]
    assert sum(e.count for e in rig.events(SlotsWritten)) == 10
    assert rig.events(TokenGenerated) == []
    assert rig.free == 7


def test_the_partial_last_block_is_shared_too_and_copied_on_write():
    rig = Rig(10, 4)
    prefix = register(rig)
    first, cached = begin(rig, [*PREFIX, 50, 51])
    assert cached == 10
    assert rig.last(BlockShared) == [BlockShared(block, 1, block, 2) for block in (0, 1, 2)]
    assert rig.last(BlockCopied) == [BlockCopied(2, [3], 2)]
    assert [(e.block, e.first, e.tokens) for e in rig.last(SlotsWritten)] == [(3, 2, [50, 51])]
    second, _ = begin(rig, [*PREFIX, 60, 61, 62])
    assert [rig.tables(number)[0][:2] for number in (prefix, first, second)] == [[0, 1]] * 3
    assert (rig.pool.refs[:3], rig.tables(prefix)) == ([3, 3, 1], [[0, 1, 2]])
    rig.run()
    assert rig.free == 7


def test_a_prompt_equal_to_the_prefix_runs_at_least_its_last_token():
    rig = Rig(10, 4)
    register(rig)
    number, cached = begin(rig, PREFIX)
    assert cached == 8
    assert rig.tables(number) == [[0, 1, 3]]
    assert sum(e.count for e in rig.last(SlotsWritten)) == 2


def test_full_blocks_need_no_copy():
    rig = Rig(10, 4)
    register(rig, PREFIX[:8])
    number, cached = begin(rig, [*PREFIX, 50])
    assert (cached, rig.tables(number)) == (8, [[0, 1, 2]])
    assert rig.events(BlockCopied) == []


@pytest.mark.parametrize(
    ("prompt", "salt"),
    [([9, *PREFIX], ""), (PREFIX[:9], ""), ([*PREFIX[:9], 99, 98], ""), ([*PREFIX, 50], "another")],
)
def test_what_does_not_begin_with_the_prefix_or_has_another_salt_shares_nothing(prompt, salt):
    rig = Rig(10, 4)
    register(rig, salt="")
    assert begin(rig, prompt, cache_salt=salt)[1] == 0
    assert rig.events(BlockShared) == []


def test_the_same_salt_shares():
    rig = Rig(10, 4)
    register(rig, salt="mine")
    assert begin(rig, [*PREFIX, 50], cache_salt="mine")[1] == 10


def test_the_longest_prefix_is_taken():
    rig = Rig(20, 4)
    register(rig, PREFIX[:5])
    register(rig, PREFIX)
    register(rig, PREFIX[:7])
    assert begin(rig, [*PREFIX, 50])[1] == 10


def test_unregistering_frees_the_blocks_that_nobody_else_reads():
    rig = Rig(10, 4)
    prefix = register(rig)
    number, _ = begin(rig, [*PREFIX, 50])
    rig.abort(prefix)
    assert (rig.tables(prefix), rig.free) == ([[]], 7)
    assert begin(rig, [*PREFIX, 60])[1] == 0
    rig.abort(prefix)
    rig.run()
    assert len(rig.outputs(number)) == 3
    assert rig.free == 10


def test_a_prefix_aborted_before_it_is_computed_was_never_registered():
    rig = Rig(10, 4, budget=4)
    number = rig.arena.register_prefix(PREFIX).number
    rig.settle()
    rig.step()
    rig.abort(number)
    assert (rig.free, begin(rig, [*PREFIX, 50])[1]) == (10, 0)


def test_samples_and_beams_share_the_prefix_as_well():
    for kind in ({"temperature": 1.0}, {"beam_search": True}):
        rig = Rig(20, 4)
        register(rig)
        number, cached = begin(rig, [*PREFIX, 50, 51], n=3, **kind)
        assert (cached, rig.tables(number)) == (10, [[0, 1, 3]] * 3)
        assert rig.pool.refs[:4] == [4, 4, 1, 3]
        rig.run()
        assert rig.free == 17


def test_a_preempted_request_finds_its_prefix_again():
    rig = Rig(9, 4)
    register(rig)
    rig.submit([*PREFIX, 50], max_tokens=12)
    victim = rig.submit([*PREFIX, 60], max_tokens=12)
    while not rig.events(Preempted):
        rig.step()
    assert rig.waiting() == [victim]
    before = len(rig.events(SlotsWritten))
    while victim not in rig.running():
        rig.step()
    again = [e for e in rig.events(SlotsWritten)[before:] if e.tokens[0] == 60]
    # Behind the ten tokens of the prefix, in its own copy of the third block.
    assert [e.first for e in again] == [2]
    rig.run()
    assert (len(rig.outputs(victim)), rig.free) == (12, 6)


def test_where_prefixes_leave_no_room_a_request_ends_at_capacity_and_the_next_one_runs():
    rig = Rig(10, 4)
    prefix = register(rig, list(range(100, 128)))
    big = rig.submit(17, max_tokens=2)
    small = rig.submit(5, max_tokens=2)
    rig.run(limit=10)
    ends = [(e.request, e.reason, e.output_tokens) for e in rig.events(RequestFinished)]
    assert ends == [(prefix, "registered", 0), (big, "capacity", 0), (small, "length", 2)]
    # It never ran, so no sequence of it was ever known.
    assert [e.reason for e in rig.events(SequenceFinished)] == ["registered", "length"]
    assert rig.free == 3


def test_prefixes_that_can_never_be_are_refused():
    rig = Rig(10, 4, max_model_len=32)
    assert register(rig, list(range(31))) == 0
    for tokens, message in (
        (list(range(32)), "32 tokens and the model's limit is 32 .* to at most 31 tokens"),
        ([], "the prompt has 0 tokens"),
    ):
        with pytest.raises(Refused, match=message):
            rig.arena.register_prefix(tokens)
        rig.settle()
    contiguous = Rig(10, 4, manager="orca_max", max_len=20)
    with pytest.raises(Refused, match="orca_max shares no memory: register prefixes where it is paged"):
        contiguous.arena.register_prefix(PREFIX)


def test_the_cache_knows_the_blocks_of_a_prefix_and_finds_more_than_it():
    rig = Rig(20, 4, prefix_cache=True)
    register(rig)
    rig.submit([*PREFIX, *range(50, 57)], max_tokens=1)
    rig.run()
    # 16 tokens are in the cache by now, and the registered prefix has 10.
    assert begin(rig, [*PREFIX, *range(50, 57)])[1] == 16
    assert begin(rig, [*PREFIX, 99])[1] == 10
