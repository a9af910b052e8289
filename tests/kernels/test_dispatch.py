"""Which backend is picked, and what is said about it."""

from __future__ import annotations

import importlib.util
import logging
import sys

import pytest
import torch

from kernels import cpu_compiled, cpu_paged, reference
from kernels.dispatch import select_backend
from tests.kernels.cases import Sequence, build

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cpu_takes_the_native_path_and_says_so(dtype: torch.dtype, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kernels.dispatch"):
        backend = select_backend(CPU, dtype)
    assert (backend.name, backend.paged_attention) == ("cpu", cpu_paged.paged_attention)
    assert backend.store_kv is cpu_paged.store_kv
    assert "attention: cpu" in caplog.text
    assert "because the device is a CPU" in caplog.text


def test_other_dtypes_take_the_reference() -> None:
    assert select_backend(CPU, torch.float64).paged_attention is reference.paged_attention


@needs_triton
def test_cuda_takes_the_triton_kernels() -> None:
    from kernels import triton_cache, triton_paged

    backend = select_backend(CUDA, torch.bfloat16)
    assert backend.name == "triton"
    assert backend.paged_attention is triton_paged.paged_attention
    assert backend.store_kv is triton_cache.store_kv
    assert backend.copy_blocks is triton_cache.copy_blocks
    assert backend.swap_blocks is triton_cache.swap_blocks


def test_cuda_without_triton_takes_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert select_backend(CUDA, torch.bfloat16).name == "reference"
    with pytest.raises(ValueError, match="pip install triton"):
        select_backend(CUDA, torch.bfloat16, "triton")


def test_by_name() -> None:
    assert select_backend(CPU, torch.float32, "reference").paged_attention is reference.paged_attention


def test_unknown_name_lists_the_choices() -> None:
    with pytest.raises(ValueError, match=r"'flash'.*auto, triton, cpu, reference"):
        select_backend(CPU, torch.float32, "flash")


@needs_triton
def test_triton_on_a_cpu_needs_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        select_backend(CPU, torch.float32, "triton")


def test_cpu_kernels_do_not_run_on_cuda() -> None:
    with pytest.raises(ValueError, match="'cpu' runs on a CPU, not on cuda"):
        select_backend(CUDA, torch.float32, "cpu")


def test_without_numba_the_reference_does_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    cpu_compiled.worker.cache_clear()
    try:
        assert select_backend(CPU, torch.float32).name == "reference"
        assert "pip install numba" in caplog.text
        case = build([Sequence(1, 20)])
        out = cpu_paged.paged_attention(case.query, case.key_cache, case.value_cache, case.batch, case.scale)
        torch.testing.assert_close(out.double(), case.oracle(), rtol=2e-6, atol=2e-6)
    finally:
        cpu_compiled.worker.cache_clear()
