"""What only the native CPU path promises: independence of batch and threads, work in proportion to the window, checks of
its input, no second compile."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kernels import cpu_cache, cpu_compiled, cpu_paged, cpu_threads, reference
from kernels.cpu_plan import MAX_NATIVE_ROWS, PIECE_ROWS, Plan
from tests.kernels.cases import FAR_AWAY, Case, Sequence, build

LONG = [Sequence(1, 1000), Sequence(1, 127), Sequence(1, 128), Sequence(1, 129), Sequence(16, 300), Sequence(17, 300)]
CHUNKS = [Sequence(140, 140), Sequence(200, 500), Sequence(1, 40), Sequence(17, 1000)]


def attend(case: Case, window: int = 0, softcap: float = 0.0) -> torch.Tensor:
    return cpu_paged.paged_attention(
        case.query, case.key_cache, case.value_cache, case.batch, case.scale, window, softcap
    )


def oracle(case: Case, window: int = 0, softcap: float = 0.0) -> torch.Tensor:
    """The float64 reference over the block tables."""
    wide = (case.query.double(), case.key_cache.double(), case.value_cache.double())
    return reference.paged_attention(*wide, case.batch, case.scale, window, softcap)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_contexts_are_split_and_merged(dtype: torch.dtype) -> None:
    case = build(LONG, dtype=dtype)
    tolerance = 2e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(attend(case).double(), case.oracle(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("window", "softcap"), [(1, 0.0), (5, 2.0), (127, 0.0), (128, 50.0), (129, 2.0), (700, 0.0), (2000, 50.0)]
)
def test_window_and_softcap(window: int, softcap: float) -> None:
    """Windows around an item's tokens, on both ways: rows on the compiled kernel, and gathered runs in pieces."""
    for sequences in (LONG, CHUNKS):
        case = build(sequences)
        expected = oracle(case, window, softcap)
        torch.testing.assert_close(attend(case, window, softcap).double(), expected, rtol=2e-6, atol=2e-6)
        if window < 500:
            assert (expected - oracle(case, 0, softcap)).abs().max() > 0.1


@pytest.mark.parametrize("softcap", [2.0, 50.0])
def test_a_cap_holds_large_scores(softcap: float) -> None:
    case = build(LONG + CHUNKS)
    case.query *= 30
    expected = oracle(case, 0, softcap)
    torch.testing.assert_close(attend(case, 0, softcap).double(), expected, rtol=2e-5, atol=2e-5)
    assert (expected - oracle(case)).abs().max() > 0.1


def test_window_and_softcap_in_bfloat16() -> None:
    case = build(LONG + CHUNKS, dtype=torch.bfloat16)
    for window, softcap in ((90, 0.0), (0, 20.0), (90, 20.0)):
        out = attend(case, window, softcap)
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.double(), oracle(case, window, softcap), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("softcap", [0.0, 50.0])
def test_tokens_before_the_window_are_neither_looked_up_nor_read(softcap: float) -> None:
    """Their table entries lead out of the cache, and their slots hold no numbers."""
    window = 32
    sequences = [Sequence(1, 1000), Sequence(16, 301), Sequence(200, 500), Sequence(1, 20)]
    case = build(sequences)
    right = attend(case, window, softcap)
    table = case.batch.block_table.clone()
    for i, sequence in enumerate(sequences):
        unseen = max(0, sequence.context - sequence.rows - window + 1) // 16  # whole blocks that no row sees
        table[i, :unseen] = FAR_AWAY if sequence.rows <= MAX_NATIVE_ROWS else table[i, 0]
        for key_or_value in (case.key_cache, case.value_cache):
            for block in case.batch.block_table[i, :unseen].tolist():
                first = int(case.batch.slot_base[i]) + block * 16
                key_or_value[first : first + 16] = float("nan")
    hidden = replace(case, batch=replace(case.batch, block_table=table))
    assert torch.equal(attend(hidden, window, softcap), right)


@pytest.mark.parametrize(("window", "items"), [(0, 8 + 4), (1, 2), (128, 2), (129, 4), (500, 4 + 4), (512, 4 + 4)])
def test_items_are_in_proportion_to_the_window(window: int, items: int) -> None:
    """Two decode rows, of 1000 and 512 tokens, 128 tokens an item."""
    fields = cpu_compiled.worker()
    assert Plan(build([Sequence(1, 1000), Sequence(1, 512)]).batch, fields, window).items == items


def test_pieces_of_a_run_gather_what_they_see() -> None:
    rows, context, window = 300, 1000, 100
    batch = build([Sequence(rows, context)]).batch
    fields = cpu_compiled.worker()
    pieces = Plan(batch, fields, window).chunks
    assert [(piece.first, piece.last) for piece in pieces] == [(0, 128), (128, 256), (256, 300)]
    slots = reference.slots_of(batch, 0)
    for piece in pieces:
        oldest = context - rows + piece.first - window + 1
        assert torch.equal(piece.slots, slots[oldest : context - rows + piece.last])
        assert piece.mask.sum(1).tolist() == [window] * (piece.last - piece.first)
    assert max(len(piece.slots) for piece in pieces) == PIECE_ROWS + window - 1
    assert [(piece.first, piece.last) for piece in Plan(batch, fields).chunks] == [(0, 300)]


def test_layers_with_and_without_a_window_keep_their_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Gemma's layers alternate: a step plans once for each window, not for each layer."""
    built = []

    def plan(batch, fields, window, capped):
        built.append((window, capped))
        return Plan(batch, fields, window, capped)

    monkeypatch.setattr(cpu_paged, "Plan", plan)
    for case in (build(LONG[:4]), build(CHUNKS)):
        expected = {window: oracle(case, window) for window in (40, 0)}
        for window in (40, 0, 40, 0, 5000, 40):
            right = expected.get(window, expected[0])
            torch.testing.assert_close(attend(case, window).double(), right, rtol=2e-6, atol=2e-6)
    assert built == [(40, False), (0, False)] * 2


@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (200, 30.0)])
def test_number_of_threads_changes_no_bit(window: int, softcap: float) -> None:
    before = torch.get_num_threads()
    outs = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            case = build(LONG[:4])
            outs += [attend(case, window, softcap) for _ in range(5)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(outs[0], out) for out in outs)


def test_without_openmp_a_pool_of_threads_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    before, case, calls = torch.get_num_threads(), build(LONG[:4]), []

    def run(function: cpu_compiled.Function, argument: int, threads: int) -> None:
        calls.append(threads)
        cpu_threads.run_pool(function, argument, threads)

    torch.set_num_threads(2)
    try:
        expected = attend(case)
        monkeypatch.setattr(cpu_threads, "parallel", lambda: (run, "a pool"))
        assert torch.equal(attend(case), expected)
    finally:
        torch.set_num_threads(before)
    assert calls == [2]


def test_compiled_code_goes_where_it_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "asked"))
    assert cpu_compiled.cache_folder().parent == tmp_path / "asked"
    (tmp_path / "file").touch()  # no folder can be made below a file
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert tmp_path in cpu_compiled.cache_folder().parents
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(OSError, match="set NUMBA_CACHE_DIR"):
        cpu_compiled.cache_folder()


@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (200, 30.0)])
def test_a_row_does_not_depend_on_its_batch(window: int, softcap: float) -> None:
    case = build(LONG[:4])
    together = attend(case, window, softcap)
    for i in range(4):
        batch = replace(
            case.batch,
            query_start=torch.tensor([0, 1], dtype=torch.int32),
            **{
                name: getattr(case.batch, name)[i : i + 1]
                for name in ("context_len", "block_table", "block_size", "slot_base")
            },
        )
        case_alone = replace(case, query=case.query[i : i + 1], batch=batch)
        assert torch.equal(attend(case_alone, window, softcap)[0], together[i])


def test_layers_of_a_step_and_steps_in_turn() -> None:
    """One batch serves many layers, with other caches each time; then another batch comes, and the first again."""
    first, second = build(LONG[:2]), build(LONG[2:])
    other_layer = replace(first, key_cache=first.key_cache * 2, value_cache=first.value_cache * 3)
    for case in (first, other_layer, second, first):
        torch.testing.assert_close(attend(case).double(), case.oracle(), rtol=5e-6, atol=5e-6)


def test_a_table_that_leads_out_of_the_cache() -> None:
    case = build(LONG)
    right = attend(case)
    broken = replace(case.batch, block_table=case.batch.block_table.clone())
    broken.block_table[1, 3] = FAR_AWAY
    with pytest.raises(IndexError, match=rf"the slots 0 to {case.key_cache.shape[0] - 1}"):
        attend(replace(case, batch=broken))
    assert torch.equal(attend(case), right)


@pytest.mark.parametrize(
    ("field", "entry", "message"),
    [
        ("context_len", 0, "query rows, but context_len"),
        ("context_len", 10**6, "too narrow"),
        ("block_size", 0, "block_size must be at least 1"),
    ],
)
def test_batches_that_contradict_themselves(field: str, entry: int, message: str) -> None:
    case = build([Sequence(1, 40), Sequence(3, 9)])
    wrong = getattr(case.batch, field).clone()
    wrong[1] = entry
    with pytest.raises(ValueError, match=message):
        attend(replace(case, batch=replace(case.batch, **{field: wrong})))


def test_rows_that_do_not_fit_the_cache() -> None:
    cache = torch.zeros(4, 2, 16)
    with pytest.raises(ValueError, match=r"key \[1, 3, 16\].*\[1, 2, 16\]"):
        cpu_cache.store_kv(torch.zeros(1, 3, 16), torch.zeros(1, 3, 16), cache, cache, torch.tensor([0]))


def test_tanh_is_exact_where_scores_are_small_beside_the_cap() -> None:
    fields = cpu_compiled.worker()
    sizes = np.concatenate([[0.0, np.inf], np.logspace(-30, 2, 4000)]).astype(np.float32)
    scores = np.stack([sizes, -sizes])
    expected = np.tanh(scores.astype(np.float64))
    fields.cap_scores(scores, len(sizes), np.float32(1.0))
    np.testing.assert_allclose(scores, expected, rtol=5e-7, atol=0)
    nan = np.full((1, 9), np.nan, dtype=np.float32)
    fields.cap_scores(nan, 9, np.float32(1.0))
    assert np.isnan(nan).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_moves_run_on_two_threads_and_small_ones_on_one(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = torch.Generator().manual_seed(0)
    cache, host = (torch.randn(8, slots, 3, 80, generator=numbers).to(dtype) for slots in (1000, 500))
    calls, before, parallel = [], torch.get_num_threads(), cpu_threads.parallel()

    def run(function: cpu_compiled.Function, argument: int, threads: int) -> None:
        calls.append(threads)
        parallel[0](function, argument, threads)

    monkeypatch.setattr(cpu_threads, "parallel", lambda: (run, "counted"))
    torch.set_num_threads(2)
    try:
        for moves in (torch.tensor([[0, 300, 200], [999, 0, 1], [200, 10, 180]]), torch.tensor([[3, 4, 5]])):
            swapped, expected = host.clone(), host.clone()
            cpu_cache.swap_blocks(cache, swapped, moves)
            reference.swap_blocks(cache, expected, moves)
            assert torch.equal(swapped, expected)
            copied, expected = cache.clone(), cache.clone()
            apart = moves + torch.tensor([0, 450, 0])
            apart[:, 0] %= 300
            cpu_cache.copy_blocks(copied, apart)
            reference.copy_blocks(expected, apart)
            assert torch.equal(copied, expected)
            assert not torch.equal(copied, cache)
    finally:
        torch.set_num_threads(before)
    assert calls == [2, 2]


SECOND_START = """
import torch
from numba.core import event
with event.install_recorder("numba:compile") as compiled:
    from kernels import cpu_compiled, cpu_paged, cpu_threads
    for dtype in (torch.float32, torch.bfloat16):
        cpu_paged.warm_up(6, 2, 16, dtype)
print(len(compiled.buffer))
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        cpu_paged.warm_up(6, 2, 16, dtype)
    run = subprocess.run(
        [sys.executable, "-c", SECOND_START],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert run.stdout.strip() == "0"


@pytest.mark.slow
def test_importing_the_dispatch_loads_no_compiler() -> None:
    code = "import sys, kernels.dispatch, kernels.cpu_paged; print({'numba', 'triton'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.strip() == "set()"
