"""Writing keys and values to their slots."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch import AttentionBackend


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kv_heads", "head_dim"), [(3, 16), (1, 80)])
def test_rows_land_in_their_slots(
    backend: AttentionBackend, device: torch.device, dtype: torch.dtype, kv_heads: int, head_dim: int
) -> None:
    slots = torch.tensor([7, 0, -1, 29, 8], device=device)
    key = torch.randn(5, kv_heads, head_dim, device=device).to(dtype)
    value = torch.randn(5, kv_heads, head_dim, device=device).to(dtype)
    key_cache = torch.randn(30, kv_heads, head_dim, device=device).to(dtype)
    value_cache = torch.randn(30, kv_heads, head_dim, device=device).to(dtype)
    expected_keys, expected_values = key_cache.clone(), value_cache.clone()
    for row, slot in ((0, 7), (1, 0), (3, 29), (4, 8)):
        expected_keys[slot], expected_values[slot] = key[row], value[row]

    backend.store_kv(key, value, key_cache, value_cache, slots)

    assert torch.equal(key_cache, expected_keys)
    assert torch.equal(value_cache, expected_values)


def test_strided_rows(backend: AttentionBackend, device: torch.device) -> None:
    """As a model hands them over: [1, kv_heads, t, head_dim], seen from the tokens."""
    key, value = (torch.randn(2, 6, 16, device=device).transpose(0, 1) for _ in range(2))
    key_cache, value_cache = (torch.zeros(10, 2, 16, device=device) for _ in range(2))
    backend.store_kv(key, value, key_cache, value_cache, torch.arange(2, 8, device=device))
    assert torch.equal(key_cache[2:8], key)
    assert torch.equal(value_cache[2:8], value)
    assert not key_cache[:2].any()
    assert not key_cache[8:].any()


def test_no_rows(backend: AttentionBackend, device: torch.device) -> None:
    cache = torch.ones(4, 2, 16, device=device)
    none = torch.empty(0, 2, 16, device=device)
    backend.store_kv(none, none, cache, cache, torch.empty(0, dtype=torch.int64, device=device))
    assert cache.eq(1).all()


@pytest.mark.parametrize("slot", [4, -2, 2**40])
def test_slot_outside_the_cache(backend: AttentionBackend, device: torch.device, slot: int) -> None:
    cache = torch.ones(4, 2, 16, device=device)
    rows = torch.zeros(2, 2, 16, device=device)
    slots = torch.tensor([-1, slot], device=device)
    if backend.name == "triton":  # a check would make the GPU wait: the row is skipped
        backend.store_kv(rows, rows, cache, cache, slots)
    else:
        with pytest.raises(IndexError, match=rf"{slot}.*slots 0 to 3"):
            backend.store_kv(rows, rows, cache, cache, slots)
    assert cache.eq(1).all()
