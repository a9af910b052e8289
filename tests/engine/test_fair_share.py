"""Arenas share passes: nobody's flood stalls another's tokens, and no row is left unused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fair_share import ROWS_PER_BASE, FairShare, PassCost, divide


def test_an_arena_alone_has_the_whole_budget():
    assert FairShare(512).budgets({"a": 3}) == {"a": 512}


def test_shares_are_max_min_fair():
    assert divide(100, {"a": 10, "b": 200, "c": 300}) == {"a": 10, "b": 45, "c": 45}
    assert divide(7, {"a": 5, "b": 5}) == {"a": 3, "b": 4}


@given(total=st.integers(1, 600), wanted=st.dictionaries(st.text(max_size=2), st.integers(1, 400), min_size=1))
def test_nothing_is_left_that_somebody_wants(total, wanted):
    shares = divide(total, wanted)
    assert sum(shares.values()) == min(total, sum(wanted.values()))
    assert all(shares[name] <= wanted[name] for name in wanted)
    least = min(shares.values())
    assert all(shares[name] >= min(wanted[name], least) for name in wanted)


def test_cost_is_learned_from_passes_of_different_sizes():
    cost = PassCost()
    assert cost.rows_per_base == ROWS_PER_BASE
    for _ in range(20):
        cost.observe(1, 0.051)
    assert cost.rows_per_base == ROWS_PER_BASE  # one size tells nothing
    for rows in (1, 100, 40, 7):
        cost.observe(rows, 0.05 + 0.001 * rows)
    assert cost.rows_per_base == pytest.approx(50)
    assert cost.rows_within(2.0, 1) == 52


def flood(passes: int, base: float, each: float, mine: int = 1) -> tuple[float, float, int]:
    """Seconds of a decoding arena's step alone and beside another that could always use 10,000 rows, and the other's rows in
    a pass, by a cost that is linear in the rows."""
    share = FairShare(512)
    seconds, others = 0.0, 0
    for _ in range(passes):
        budgets = share.budgets({"mine": mine, "flood": 10_000})
        assert budgets["mine"] >= mine
        rows = {"mine": mine, "flood": budgets["flood"]}
        for name, count in rows.items():
            share.used(name, count)
        took = base + each * sum(rows.values())
        share.cost.observe(sum(rows.values()), took)
        seconds += took
        others += rows["flood"]
    return base + each * mine, seconds / passes, others // passes


@pytest.mark.parametrize(("base", "each"), [(0.054, 0.0017), (0.010, 0.0001), (0.030, 0.0010)])
@pytest.mark.parametrize("mine", [1, 8])
def test_a_flood_slows_a_decoding_arena_at_most_by_half(base, each, mine):
    alone, beside, others = flood(200, base, each, mine)
    assert beside <= 2.05 * alone
    assert others >= min(512 - mine, 0.75 * (base / each))


def test_what_was_taken_beyond_the_share_is_owed():
    share = FairShare(8)
    demands = {"group": 6, "other": 6}
    assert share.budgets(demands) == {"group": 4, "other": 4}
    share.used("group", 6)  # a group takes every step together, or not at all
    share.used("other", 4)
    assert share.budgets(demands) == {"group": 2, "other": 4}
    share.used("group", 6)
    share.used("other", 4)
    assert share.budgets(demands) == {"group": 0, "other": 4}


def test_what_could_not_be_used_is_kept_up_to_a_whole_pass():
    share = FairShare(8)
    demands = {"a": 20, "b": 20}
    seen = []
    for _ in range(4):
        seen.append(share.budgets(demands)["a"])
        share.used("b", 4)
    assert seen == [4, 8, 8, 8]
