"""What only the Triton kernels promise: compiled where there is a GPU, and clear about what they do not take."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.cases import Sequence, build
from tests.kernels.conftest import device_of

triton_paged = pytest.importorskip("kernels.triton_paged", reason="Triton is not installed here", exc_type=ImportError)
DEVICE = device_of("triton")


def test_compiled_where_there_is_a_gpu_and_interpreted_where_there_is_none() -> None:
    assert torch.cuda.is_available() == triton_paged.COMPILED


def test_dtypes_that_it_does_not_take() -> None:
    for dtype in (torch.float64, torch.float8_e4m3fn):
        case = build([Sequence(1, 9)], 2, 1, device=DEVICE)
        caches = case.key_cache.to(dtype), case.value_cache.to(dtype)
        with pytest.raises(ValueError, match=rf"query \(torch\.float32\) and cache \({dtype}\); use the reference"):
            triton_paged.paged_attention(case.query, *caches, case.batch, case.scale)


def test_a_cache_whose_slots_do_not_lie_side_by_side() -> None:
    case = build([Sequence(1, 9)], 2, 1, device=DEVICE)
    strided = torch.stack([case.key_cache, case.value_cache], dim=1)
    with pytest.raises(ValueError, match="must be contiguous"):
        triton_paged.paged_attention(case.query, strided[:, 0], strided[:, 1], case.batch, case.scale)
