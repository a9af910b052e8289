"""What only the native CPU path promises: independence of batch and threads, checks of its input, no second compile."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernels import cpu_compiled, cpu_paged, cpu_threads
from tests.kernels.cases import FAR_AWAY, Case, Sequence, build

LONG = [Sequence(1, 1000), Sequence(1, 127), Sequence(1, 128), Sequence(1, 129), Sequence(16, 300), Sequence(17, 300)]


def attend(case: Case) -> torch.Tensor:
    return cpu_paged.paged_attention(case.query, case.key_cache, case.value_cache, case.batch, case.scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_contexts_are_split_and_merged(dtype: torch.dtype) -> None:
    case = build(LONG, dtype=dtype)
    tolerance = 2e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(attend(case).double(), case.oracle(), rtol=tolerance, atol=tolerance)


def test_number_of_threads_changes_no_bit() -> None:
    before = torch.get_num_threads()
    outs = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            case = build(LONG[:4])
            outs += [attend(case) for _ in range(5)]
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


def test_a_row_does_not_depend_on_its_batch() -> None:
    case = build(LONG[:4])
    together = attend(case)
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
        assert torch.equal(attend(case_alone)[0], together[i])


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
        cpu_paged.store_kv(torch.zeros(1, 3, 16), torch.zeros(1, 3, 16), cache, cache, torch.tensor([0]))


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
