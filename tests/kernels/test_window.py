"""Sliding window and soft cap: the reference against a mask written down, every backend against the reference."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kernels import reference
from kernels.dispatch import AttentionBackend
from tests.kernels.cases import Case, Sequence, build, float32_tolerance

CHANGES = [(1, 0.0), (5, 0.0), (16, 0.0), (7, 1.5), (0, 1.5)]
BATCH = [Sequence(1, 40), Sequence(1, 1), Sequence(7, 30), Sequence(12, 12)]


def assert_matches_oracle(backend: AttentionBackend, case: Case, window: int, softcap: float) -> None:
    out = backend.paged_attention(case.query, case.key_cache, case.value_cache, case.batch, case.scale, window, softcap)
    # tanh is 1 minus a small number: near 0 it is as far off as float32 is near 1, times the cap.
    tolerance = float32_tolerance(case.query.device) + (2e-6 if softcap else 0)
    torch.testing.assert_close(out.double(), case.oracle(window, softcap), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("window", "softcap"), CHANGES)
def test_reference_sees_the_last_tokens_and_bends_scores(window: int, softcap: float) -> None:
    case = build(BATCH, 2, 2, dtype=torch.float64)
    out = case.oracle(window, softcap)
    for i, (first, last) in enumerate(pairwise(case.batch.query_start.tolist())):
        context = BATCH[i].context
        for row in range(first, last):
            position = context - last + row
            seen = range(max(0, position - window + 1) if window else 0, position + 1)
            for head in range(2):
                key, value = case.keys[i][seen, head], case.values[i][seen, head]
                scores = key @ case.query[row, head] * case.scale
                if softcap:
                    scores = softcap * (scores / softcap).tanh()
                torch.testing.assert_close(out[row, head], scores.softmax(0) @ value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("window", "softcap"), [(5, 0.0), (16, 1.5)])
@pytest.mark.parametrize("block_size", [1, 4, 48])
def test_block_sizes(
    backend: AttentionBackend, device: torch.device, block_size: int, window: int, softcap: float
) -> None:
    sequences = [Sequence(s.rows, s.context, block_size) for s in BATCH]
    assert_matches_oracle(backend, build(sequences, 2, 1, device=device), window, softcap)


@pytest.mark.parametrize(("window", "softcap"), [(7, 0.0), (0, 1.5)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (8, 1)])
def test_head_layouts(
    backend: AttentionBackend, device: torch.device, heads: int, kv_heads: int, window: int, softcap: float
) -> None:
    assert_matches_oracle(backend, build(BATCH[2:], heads, kv_heads, device=device), window, softcap)


@pytest.mark.parametrize("window", [1, 16, 65])
@pytest.mark.parametrize("decode", [True, False])
def test_contexts_at_the_edge_of_the_window(
    backend: AttentionBackend, device: torch.device, window: int, decode: bool
) -> None:
    contexts = [context for context in (1, window - 1, window, window + 1) if context]
    sequences = [Sequence(1 if decode else min(context, 18), context, 8) for context in contexts]
    assert_matches_oracle(backend, build(sequences, 2, 1, device=device), window, 0.0)


def test_a_window_as_long_as_the_context_changes_nothing(backend: AttentionBackend, device: torch.device) -> None:
    case = build(BATCH, 2, 1, device=device)
    longest = case.batch.max_context_len
    args = (case.query, case.key_cache, case.value_cache, case.batch, case.scale)
    whole = backend.paged_attention(*args)
    torch.testing.assert_close(backend.paged_attention(*args, longest), whole, rtol=2e-6, atol=2e-6)
    assert not torch.allclose(backend.paged_attention(*args, longest - 1), whole, rtol=1e-4, atol=1e-4)


def test_what_is_refused(backend: AttentionBackend, device: torch.device) -> None:
    case = build([Sequence(1, 9)], 2, 1, device=device)
    args = (case.query, case.key_cache, case.value_cache, case.batch, case.scale)
    with pytest.raises(ValueError, match="window is -1"):
        backend.paged_attention(*args, -1)
    with pytest.raises(ValueError, match=r"softcap -2\.0"):
        backend.paged_attention(*args, 0, -2.0)
    with pytest.raises(ValueError, match="3 heads of 16, the cache 2 KV heads of 16"):
        reference.check_attention(torch.zeros(1, 3, 16), torch.zeros(4, 2, 16), torch.zeros(4, 2, 16), 0, 0.0)
