"""Every test of attention runs on every backend. Triton is compiled where there is a GPU, else interpreted."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

HAS_CUDA = torch.cuda.is_available()
if not HAS_CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is decorated: before kernels.triton_paged is imported

from kernels.dispatch import AttentionBackend, select_backend  # noqa: E402

BACKENDS = ("reference", "cpu", "triton")


def device_of(name: str) -> torch.device:
    """Where the tests run this backend."""
    return torch.device("cuda" if HAS_CUDA and name != "cpu" else "cpu")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> AttentionBackend:
    if request.param == "triton" and importlib.util.find_spec("triton") is None:
        pytest.skip("the package triton is not installed here")
    return select_backend(device_of(request.param), torch.float32, request.param)


@pytest.fixture
def device(backend: AttentionBackend) -> torch.device:
    return device_of(backend.name)
