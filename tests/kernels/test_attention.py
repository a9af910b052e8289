"""Paged attention of every backend against the float64 reference, and that against attention over contiguous keys."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels import reference
from kernels.dispatch import AttentionBackend
from tests.kernels.cases import Case, Sequence, build, float32_tolerance

MIXED = [Sequence(1, 37), Sequence(1, 1), Sequence(1, 70), Sequence(5, 5), Sequence(3, 21), Sequence(19, 33)]


def attend(backend: AttentionBackend, case: Case) -> torch.Tensor:
    return backend.paged_attention(case.query, case.key_cache, case.value_cache, case.batch, case.scale)


def assert_matches_oracle(backend: AttentionBackend, case: Case, tolerance: float = 0.0) -> None:
    """``tolerance``: absolute and relative; 0 takes what float32 allows here."""
    out = attend(backend, case)
    tolerance = tolerance or float32_tolerance(case.query.device)
    assert out.dtype == case.query.dtype
    assert out.shape == case.query.shape
    torch.testing.assert_close(out.double(), case.oracle(), rtol=tolerance, atol=tolerance)


def test_reference_is_contiguous_attention() -> None:
    case = build(MIXED, dtype=torch.float64)
    out = reference.paged_attention(case.query, case.key_cache, case.value_cache, case.batch, case.scale)
    start = 0
    for sequence, key, value in zip(MIXED, case.keys, case.values, strict=True):
        rows = slice(start, start + sequence.rows)
        start += sequence.rows
        sees = torch.ones(sequence.rows, sequence.context).tril(sequence.context - sequence.rows).bool()
        query, key, value = (x.transpose(0, 1)[None] for x in (case.query[rows], key, value))
        expected = scaled_dot_product_attention(query, key, value, attn_mask=sees, enable_gqa=True)
        torch.testing.assert_close(out[rows], expected[0].transpose(0, 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("block_size", [1, 4, 7, 16, 32])
def test_mixed_batch(backend: AttentionBackend, device: torch.device, block_size: int) -> None:
    sequences = [Sequence(s.rows, s.context, block_size) for s in MIXED]
    assert_matches_oracle(backend, build(sequences, device=device))


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (9, 3), (8, 1), (40, 2)])
@pytest.mark.parametrize("head_dim", [16, 64, 80])
def test_head_layouts(
    backend: AttentionBackend, device: torch.device, heads: int, kv_heads: int, head_dim: int
) -> None:
    sequences = [Sequence(1, 18), Sequence(1, 70), Sequence(2, 9), Sequence(10, 12)]
    assert_matches_oracle(backend, build(sequences, heads, kv_heads, head_dim, device=device))


@pytest.mark.parametrize("rows", ["decode", "prefill", "all but one"])
@pytest.mark.parametrize("block_size", [4, 16])
def test_h5_block_boundaries(backend: AttentionBackend, device: torch.device, rows: str, block_size: int) -> None:
    contexts = (1, block_size - 1, block_size, block_size + 1, 2 * block_size)
    count = {"decode": lambda c: 1, "prefill": lambda c: c, "all but one": lambda c: max(1, c - 1)}[rows]
    assert_matches_oracle(backend, build([Sequence(count(c), c, block_size) for c in contexts], device=device))


def test_arenas_and_a_contiguous_region_share_one_launch(backend: AttentionBackend, device: torch.device) -> None:
    """Each block size has an arena of its own; the region of 256 slots is a block table of one entry."""
    sequences = [Sequence(1, 33, 4), Sequence(1, 20, 256), Sequence(1, 9, 1), Sequence(12, 30, 7), Sequence(4, 4, 32)]
    case = build(sequences, device=device)
    assert len(set(case.batch.slot_base.tolist())) == 5
    assert_matches_oracle(backend, case)


def test_a_region_equals_blocks(backend: AttentionBackend, device: torch.device) -> None:
    paged = [Sequence(1, 70, 4), Sequence(9, 30, 16)]
    contiguous = [Sequence(s.rows, s.context, 100) for s in paged]
    out, expected = (attend(backend, build(sequences, device=device)) for sequences in (contiguous, paged))
    tolerance = float32_tolerance(device)
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)


def test_chunks_of_a_prefill_equal_the_whole(backend: AttentionBackend, device: torch.device) -> None:
    whole = attend(backend, build([Sequence(40, 40)], device=device))
    for first, last in ((0, 11), (11, 12), (12, 40)):
        case = build([Sequence(40, 40)], device=device)
        chunk = build([Sequence(last - first, last)], device=device)
        chunk.batch.block_table[:] = case.batch.block_table[:, : chunk.batch.block_table.shape[1]]
        out = backend.paged_attention(case.query[first:last], case.key_cache, case.value_cache, chunk.batch, case.scale)
        tolerance = float32_tolerance(device)
        torch.testing.assert_close(out, whole[first:last], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("unused", [float("nan"), float("inf"), -3e38])
def test_h2_unused_slots_do_not_leak(backend: AttentionBackend, device: torch.device, unused: float) -> None:
    clean = attend(backend, build(MIXED, 3, 1, device=device, unused=0.0))
    dirty = attend(backend, build(MIXED, 3, 1, device=device, unused=unused))
    assert clean.isfinite().all()
    assert torch.equal(clean, dirty)


@pytest.mark.parametrize("padding", [-1, -(2**31), 2**31 - 1])
def test_h3_table_padding_is_not_read(backend: AttentionBackend, device: torch.device, padding: int) -> None:
    zeros = attend(backend, build(MIXED, 3, 1, device=device, padding=0))
    assert torch.equal(zeros, attend(backend, build(MIXED, 3, 1, device=device, padding=padding)))


def test_h3_placement_of_blocks_changes_no_bit(backend: AttentionBackend, device: torch.device) -> None:
    here, there = build(MIXED, 3, 1, device=device, placement=1), build(MIXED, 3, 1, device=device, placement=2)
    assert not torch.equal(here.batch.block_table, there.batch.block_table)
    assert torch.equal(attend(backend, here), attend(backend, there))


def test_bfloat16(backend: AttentionBackend, device: torch.device) -> None:
    assert_matches_oracle(backend, build(MIXED, dtype=torch.bfloat16, device=device), tolerance=2e-2)


def test_large_scores_do_not_overflow(backend: AttentionBackend, device: torch.device) -> None:
    case = build(MIXED, device=device)
    case.query *= 300
    assert_matches_oracle(backend, case, tolerance=1e-3)


def test_strided_query(backend: AttentionBackend, device: torch.device) -> None:
    case = build(MIXED, device=device)
    expected = attend(backend, case)
    case.query = case.query.transpose(0, 1).contiguous().transpose(0, 1)
    assert not case.query.is_contiguous()
    assert torch.equal(attend(backend, case), expected)


def test_empty_batch(backend: AttentionBackend, device: torch.device) -> None:
    assert attend(backend, build([], device=device)).shape == (0, 6, 16)
