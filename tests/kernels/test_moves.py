"""Copying blocks within a cache and swapping them between two (every backend)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import reference
from kernels.checks import check_moves
from kernels.dispatch import AttentionBackend

DTYPES = [torch.float32, torch.bfloat16]


def cache_of(slots: int, dtype: torch.dtype, device: torch.device | str, seed: int = 0) -> torch.Tensor:
    """[4 planes, slots, 2, 8] of random bits, NaNs with payloads among them."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(-(2**15), 2**15, (4, slots, 2, 8 * dtype.itemsize // 2), generator=generator)
    return words.to(torch.int16).view(dtype).to(device)


def moves_of(*rows: tuple[int, int, int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)


def bits(cache: torch.Tensor) -> torch.Tensor:
    return cache.view(torch.int16).cpu()


def slot_by_slot(source: torch.Tensor, destination: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    """The bits that ``destination`` must hold in the end."""
    expected, words = bits(destination).clone(), bits(source)
    for first, target, count in moves.tolist():
        for i in range(count):
            expected[:, target + i] = words[:, first + i]
    return expected


MANY = moves_of((0, 20, 4), (0, 300, 4), (0, 9, 4), (6, 4, 1), (40, 170, 130), (7, 24, 2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_source_many_destinations_all_sizes(
    backend: AttentionBackend, device: torch.device, dtype: torch.dtype
) -> None:
    cache = cache_of(310, dtype, device)
    expected = slot_by_slot(cache, cache, MANY)
    backend.copy_blocks(cache, MANY)
    assert torch.equal(bits(cache), expected)


def test_no_moves(backend: AttentionBackend, device: torch.device) -> None:
    cache = cache_of(9, torch.float32, device)
    before = bits(cache).clone()
    backend.copy_blocks(cache, moves_of())
    backend.swap_blocks(cache, cache_of(5, torch.float32, device), moves_of())
    assert torch.equal(bits(cache), before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_out_and_in_again_keeps_every_bit(backend: AttentionBackend, device: torch.device, dtype: torch.dtype) -> None:
    """The blocks come back to other places, as they do when the old ones are taken."""
    cache = cache_of(310, dtype, device)
    host = cache_of(200, dtype, "cpu", seed=1)
    host = host.pin_memory() if device.type == "cuda" else host
    before = cache.clone()
    out = moves_of((40, 20, 150), (3, 7, 4), (0, 11, 1))
    expected = slot_by_slot(cache, host, out)
    backend.swap_blocks(cache, host, out)
    synchronize(device)
    assert torch.equal(bits(host), expected)
    assert torch.equal(bits(cache), bits(before))

    back = moves_of((20, 160, 150), (7, 0, 4), (11, 39, 1))
    backend.swap_blocks(host, cache, back)
    for old, new, count in ((40, 160, 150), (3, 0, 4), (0, 39, 1)):
        assert torch.equal(bits(cache[:, new : new + count]), bits(before[:, old : old + count]))
    untouched = [slot for slot in range(310) if not (slot < 4 or slot == 39 or slot >= 160)]
    assert torch.equal(bits(cache[:, untouched]), bits(before[:, untouched]))


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([(0, 5, 0)], ValueError, "a move of 0 slots"),
        ([(0, 5, -2)], ValueError, "a move of -2 slots"),
        ([(0, 5, 2), (0, 6, 2)], ValueError, "two moves write slot 6"),
        ([(0, 5, 2), (6, 8, 1)], ValueError, r"moves\[1\] reads slots from 6 on.*writes from 5 on"),
        ([(3, 4, 4)], ValueError, r"moves\[0\] reads slots from 3 on"),
        ([(0, 17, 4)], IndexError, r"moves\[0\] has 4 slots of the destination from 17 on.*slots 0 to 19"),
        ([(0, 2, 1), (-1, 5, 1)], IndexError, r"moves\[1\] has 1 slots of the source from -1 on"),
        ([(2**62, 5, 1)], IndexError, "of the source from 4611686018427387904 on"),
        ([(0, 5, 2**62)], IndexError, "has 4611686018427387904 slots"),
    ],
)
def test_moves_that_cannot_be(
    backend: AttentionBackend,
    device: torch.device,
    rows: list[tuple[int, int, int]],
    error: type[Exception],
    message: str,
) -> None:
    cache = cache_of(20, torch.float32, device)
    before = bits(cache).clone()
    with pytest.raises(error, match=message):
        backend.copy_blocks(cache, moves_of(*rows))
    assert torch.equal(bits(cache), before)


@pytest.mark.parametrize("moves", [torch.zeros(3, dtype=torch.int64), torch.zeros(1, 2).long(), torch.ones(1, 3).int()])
def test_moves_of_another_form(backend: AttentionBackend, device: torch.device, moves: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"moves must be int64 \[m, 3\]"):
        backend.copy_blocks(cache_of(20, torch.float32, device), moves)


def test_caches_that_differ(backend: AttentionBackend, device: torch.device) -> None:
    cache = cache_of(20, torch.float32, device)
    for other in (cache[:3], cache[..., :4], cache.double(), cache[0]):
        with pytest.raises(ValueError, match="alike but for num_slots"):
            backend.swap_blocks(cache, other, moves_of((0, 0, 1)))


runs = st.tuples(st.integers(0, 24), st.integers(0, 24), st.integers(1, 6))


@given(st.lists(runs, max_size=5))
@settings(max_examples=300, deadline=None)
def test_moves_are_refused_exactly_when_their_order_would_matter(rows: list[tuple[int, int, int]]) -> None:
    reads = [slot for first, _, count in rows for slot in range(first, first + count)]
    writes = [slot for _, target, count in rows for slot in range(target, target + count)]
    ordered = len(set(writes)) < len(writes) or set(reads) & set(writes)
    cache = cache_of(30, torch.float32, "cpu")
    if ordered:
        with pytest.raises(ValueError, match=r"two moves write slot|have no order"):
            check_moves(moves_of(*rows), 30, 30, same_cache=True)
    else:
        expected = slot_by_slot(cache, cache, moves_of(*rows))
        reference.copy_blocks(cache, moves_of(*rows))
        assert torch.equal(bits(cache), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that could fail to reach memory")
def test_memory_that_the_gpu_cannot_reach() -> None:
    triton_cache = pytest.importorskip("kernels.triton_cache")
    cache = cache_of(20, torch.float32, "cuda")
    with pytest.raises(ValueError, match="pin_memory=True"):
        triton_cache.swap_blocks(cache, cache.cpu(), moves_of((0, 0, 1)))


def test_slots_that_do_not_lie_side_by_side() -> None:
    triton_cache = pytest.importorskip("kernels.triton_cache")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cache = cache_of(20, torch.float32, device).transpose(1, 2).contiguous().transpose(1, 2)
    with pytest.raises(ValueError, match="side by side"):
        triton_cache.copy_blocks(cache, moves_of((0, 5, 1)))
