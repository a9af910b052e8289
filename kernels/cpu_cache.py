"""What the CPU path does to the cache: write rows to their slots, copy and swap blocks. Without Numba, the reference."""

from __future__ import annotations

import ctypes

import torch

from kernels import cpu_threads, reference
from kernels.checks import check_moves, check_same_rows
from kernels.cpu_compiled import c_function, worker

MIN_PARALLEL_BYTES = 1 << 20  # from here on a second core pays for its waking


def store_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write each row's key and value to its slot; see ``kernels.reference.store_kv``."""
    fields = worker()
    if fields is None or key.dtype != key_cache.dtype or value.dtype != value_cache.dtype:
        reference.store_kv(key, value, key_cache, value_cache, slot_mapping)
        return
    rows, (slots, kv_heads, head_dim) = slot_mapping.shape[0], key_cache.shape
    if not key.shape == value.shape == (rows, kv_heads, head_dim):
        raise ValueError(
            f"key {list(key.shape)} and value {list(value.shape)} must both be "
            f"{[rows, kv_heads, head_dim]}: one row for each entry of slot_mapping, as wide as the cache's"
        )
    key, value, slot_mapping = key.contiguous(), value.contiguous(), slot_mapping.contiguous()
    args = (ctypes.c_int64 * fields.STORE_FIELDS)(
        0,
        0,
        -1,
        slot_mapping.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        rows,
        slots,
        kv_heads * head_dim * key.element_size(),
    )
    c_function("store").call(ctypes.addressof(args))
    if args[fields.BAD_SLOT] != -1:
        raise IndexError(
            f"slot_mapping holds slot {args[fields.BAD_SLOT]}, but the cache has the slots 0 to {slots - 1}; only -1 "
            "(skip the row) may lie outside"
        )


def copy_blocks(cache: torch.Tensor, moves: torch.Tensor) -> None:
    """Copy runs of slots within a cache, all layers at once; see ``kernels.reference.copy_blocks``."""
    if worker() is None or not cache.is_contiguous():
        reference.copy_blocks(cache, moves)
        return
    check_moves(moves, cache.shape[1], cache.shape[1], same_cache=True)
    _move(cache, cache, moves)


def swap_blocks(source: torch.Tensor, destination: torch.Tensor, moves: torch.Tensor) -> None:
    """Copy runs of slots from one cache to another; see ``kernels.reference.swap_blocks``."""
    if worker() is None or not (source.is_contiguous() and destination.is_contiguous()):
        reference.swap_blocks(source, destination, moves)
        return
    check_same_rows(source, destination)
    check_moves(moves, source.shape[1], destination.shape[1])
    _move(source, destination, moves)


def _move(source: torch.Tensor, destination: torch.Tensor, moves: torch.Tensor) -> None:
    """The compiled kernel trusts the moves: they are checked."""
    fields = worker()
    count, (planes, slots, kv_heads, head_dim) = len(moves), source.shape
    if fields is None or not count:
        return
    moves = moves.contiguous()
    width = kv_heads * head_dim * source.element_size()
    args = (ctypes.c_int64 * fields.MOVE_FIELDS)(
        0,
        0,
        -1,
        moves.data_ptr(),
        source.data_ptr(),
        destination.data_ptr(),
        count,
        planes,
        slots,
        destination.shape[1],
        width,
    )
    function, address = c_function("move"), ctypes.addressof(args)
    threads = min(torch.get_num_threads(), planes * count)
    if threads > 1 and planes * int(moves[:, 2].sum()) * width >= MIN_PARALLEL_BYTES:
        cpu_threads.parallel()[0](function, address, threads)
    else:
        function.call(address)
