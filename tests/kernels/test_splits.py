"""Reading a long context in parts side by side, then combining them (Triton; Flash-Decoding)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.triton_plan import MAX_SPLITS, SPLIT_TOKENS, choose_splits, plan_tiles
from tests.kernels.cases import FAR_AWAY, Case, Sequence, build, float32_tolerance
from tests.kernels.conftest import device_of

triton_paged = pytest.importorskip("kernels.triton_paged", reason="Triton is not installed here", exc_type=ImportError)
DEVICE = device_of("triton")

# Contexts of one token, of a block less one, a block, a block more one, of more tiles than splits, of fewer; a chunk.
DECODES = [Sequence(1, 1), Sequence(1, 15), Sequence(1, 16), Sequence(1, 17), Sequence(1, 130, 4)]
CHUNK = [Sequence(6, 70), Sequence(20, 20)]


def attend(case: Case, splits: int | None, window: int = 0, softcap: float = 0.0) -> torch.Tensor:
    caches = case.key_cache, case.value_cache
    out: torch.Tensor = triton_paged.paged_attention(
        case.query, *caches, case.batch, case.scale, window, softcap, splits=splits
    )
    return out


@pytest.mark.parametrize(
    ("splits", "sequences"), [(2, DECODES), (7, DECODES), (3, CHUNK)], ids=["decodes 2", "decodes 7", "chunks 3"]
)
def test_h5_splits_equal_a_single_pass(splits: int, sequences: list[Sequence]) -> None:
    """Seven splits of at most three tiles: most are empty, and the scratch memory they write began as garbage."""
    case = build(sequences, 2, 1, device=DEVICE)
    tolerance = float32_tolerance(DEVICE)
    split = attend(case, splits)
    torch.testing.assert_close(split, attend(case, 1), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(split.double(), case.oracle(), rtol=tolerance, atol=tolerance)


def test_h5_splits_equal_a_single_pass_in_bfloat16() -> None:
    case = build(DECODES[-2:], 2, 1, dtype=torch.bfloat16, device=DEVICE)
    torch.testing.assert_close(attend(case, 3), attend(case, 1), rtol=2e-2, atol=2e-2)


def test_h5_a_context_of_one_token_does_not_notice() -> None:
    case = build(DECODES[:1], 2, 1, device=DEVICE)
    assert torch.equal(attend(case, 8), attend(case, 1))
    torch.testing.assert_close(attend(case, 8)[0, 0], case.values[0][0, 0].to(DEVICE), rtol=1e-6, atol=0)


@pytest.mark.parametrize("window", [1, 65])
def test_splits_of_a_window(window: int) -> None:
    case = build([*DECODES[-2:], CHUNK[0]], 2, 1, device=DEVICE)
    tolerance = float32_tolerance(DEVICE) + 2e-6
    out = attend(case, 3, window, 2.0)
    torch.testing.assert_close(out.double(), case.oracle(window, 2.0), rtol=tolerance, atol=tolerance)


def test_the_same_bits_every_time_and_wherever_blocks_lie() -> None:
    first = attend(build(DECODES[-2:], 2, 1, device=DEVICE, placement=1), 3)
    assert torch.equal(first, attend(build(DECODES[-2:], 2, 1, device=DEVICE, placement=1), 3))
    assert torch.equal(first, attend(build(DECODES[-2:], 2, 1, device=DEVICE, placement=2, unused=0.0), 3))


@pytest.mark.parametrize("splits", [1, 3])
def test_nothing_before_the_window_is_read(splits: int) -> None:
    """The work is proportional to the window: a table that leads astray before it does no harm."""
    case = build([Sequence(1, 130, 4)], 2, 1, device=DEVICE)
    expected = attend(case, splits, window=70)
    table = case.batch.block_table.clone()
    table[:, : (130 - 70) // 4] = FAR_AWAY
    assert torch.equal(attend(replace(case, batch=replace(case.batch, block_table=table)), splits, window=70), expected)


def test_a_window_as_long_as_the_context_changes_no_bit() -> None:
    case = build([*DECODES[-2:], *CHUNK], 2, 1, device=DEVICE)
    assert torch.equal(attend(case, 1, window=130), attend(case, 1))


def test_how_many_splits() -> None:
    assert choose_splits(programs=3, tokens=100, multiprocessors=132) == 1  # too short to be worth it
    assert choose_splits(programs=3, tokens=4096, multiprocessors=132) == 4096 // SPLIT_TOKENS
    assert choose_splits(programs=3, tokens=10**6, multiprocessors=132) == MAX_SPLITS
    assert choose_splits(programs=96, tokens=4096, multiprocessors=132) == 5
    assert choose_splits(programs=600, tokens=4096, multiprocessors=132) == 1  # occupied already
    assert choose_splits(programs=3, tokens=4096, multiprocessors=1) == 1


def test_what_a_small_batch_chooses_on_a_large_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    case = build([Sequence(1, 2 * SPLIT_TOKENS + 1, 32), Sequence(1, 5)], 2, 1, device=DEVICE)
    used = []
    kernel = triton_paged.combine_splits_kernel
    monkeypatch.setattr(
        triton_paged, "combine_splits_kernel", {(4,): lambda *a, **k: (used.append(a[4]), kernel[(4,)](*a, **k))}
    )
    monkeypatch.setattr(triton_paged, "_multiprocessors", lambda device: 132)
    tolerance = float32_tolerance(DEVICE)
    torch.testing.assert_close(attend(case, None).double(), case.oracle(), rtol=tolerance, atol=tolerance)
    assert used == [2]
    attend(case, None, window=SPLIT_TOKENS)  # what lies before the window is not worth a split
    assert used == [2]


def test_programs_with_work() -> None:
    """A mixed batch's grid is as high as its longest chunk; the decodes' empty programs do not count."""
    decodes = plan_tiles(rows=8, sequences=8, max_query_len=1, heads=9, kv_heads=3, head_dim=64, item=2)
    assert (decodes.rows, decodes.count, decodes.programs) == (16, 1, 24)
    mixed = plan_tiles(rows=7 + 210, sequences=8, max_query_len=210, heads=9, kv_heads=3, head_dim=64, item=2)
    assert (mixed.rows, mixed.count, mixed.programs) == (64, 10, 3 * (8 + 217 // 21))
