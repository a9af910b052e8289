"""Paged attention in plain PyTorch: slow, short, any floating dtype. The other backends are tested against it."""

from __future__ import annotations

from itertools import pairwise

import torch

from kernels.batch import PagedBatch
from kernels.checks import check_attention, check_moves, check_same_rows


def store_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write each row's key and value to its slot of the flat cache.

    Args:
        key, value: [t, kv_heads, head_dim], in the cache's dtype.
        key_cache, value_cache: [num_slots, kv_heads, head_dim]; changed in place.
        slot_mapping: int64 [t], absolute slots, each at most once; a row with slot -1 is skipped.

    Raises:
        IndexError: a slot lies outside the cache.
    """
    keep = slot_mapping != -1
    slots = slot_mapping[keep]
    if slots.numel() and not 0 <= int(slots.min()) <= int(slots.max()) < key_cache.shape[0]:
        raise IndexError(
            f"slot_mapping reaches from {int(slots.min())} to {int(slots.max())}, but the cache has the slots 0 to "
            f"{key_cache.shape[0] - 1}; only -1 (skip the row) may lie outside"
        )
    key_cache[slots] = key[keep]
    value_cache[slots] = value[keep]


def slots_of(batch: PagedBatch, sequence: int) -> torch.Tensor:
    """Absolute slots of the tokens that ``sequence`` attends to, in order: int64 [context_len]."""
    block_size = int(batch.block_size[sequence])
    position = torch.arange(int(batch.context_len[sequence]), device=batch.block_table.device)
    physical = batch.block_table[sequence].long()[position // block_size]
    return batch.slot_base[sequence] + physical * block_size + position % block_size


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    batch: PagedBatch,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Causal attention of a mixed batch over block tables, one sequence after the other.

    Args:
        query: [t, heads, head_dim]; ``heads`` is a multiple of the cache's ``kv_heads``.
        key_cache, value_cache: [num_slots, kv_heads, head_dim]; this step's rows are already stored.
        batch: which rows belong to which sequence, and where its keys lie.
        scale: factor of the scores before the softmax.
        window: a row sees the last ``window`` tokens only, itself included; 0: all before it.
        softcap: above 0, scores are bent to ``softcap * tanh(scores / softcap)`` before they are masked.

    Returns:
        [t, heads, head_dim] in the query's dtype; scores and sums are float32 (float64 if the query is float64).

    Raises:
        ValueError: shapes that do not go together, a negative window or softcap.
    """
    check_attention(query, key_cache, value_cache, window, softcap)
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    out = torch.empty_like(query)
    group = query.shape[1] // key_cache.shape[1]
    starts = batch.query_start.tolist()
    for sequence, (first, last) in enumerate(pairwise(starts)):
        slots = slots_of(batch, sequence)
        key = key_cache[slots].to(wide).repeat_interleave(group, dim=1)
        value = value_cache[slots].to(wide).repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", query[first:last].to(wide), key) * scale
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        rows, context = last - first, len(slots)
        position = (context - rows + torch.arange(rows, device=query.device))[:, None]
        token = torch.arange(context, device=query.device)[None, :]
        hidden = token > position
        if window:
            hidden |= token <= position - window
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        out[first:last] = torch.einsum("hqk,khd->qhd", weights, value).to(query.dtype)
    return out


def copy_blocks(cache: torch.Tensor, moves: torch.Tensor) -> None:
    """Copy runs of slots within a cache, all layers at once: the copies of a step's copy-on-write (paper section 5.1).

    Args:
        cache: [planes, num_slots, kv_heads, head_dim], keys and values of every layer; changed in place.
        moves: int64 [m, 3] on the CPU; first source slot, first destination slot, number of slots. No destination may
            overlap another or any source, since the copies have no order; a source may be copied many times.

    Raises:
        ValueError: moves of another shape or dtype, a count under 1, or overlapping moves.
        IndexError: a move leads out of the cache.
    """
    check_moves(moves, cache.shape[1], cache.shape[1], same_cache=True)
    for source, destination, count in moves.tolist():
        cache[:, destination : destination + count] = cache[:, source : source + count]


def swap_blocks(source: torch.Tensor, destination: torch.Tensor, moves: torch.Tensor) -> None:
    """Copy runs of slots from one cache to another, bit for bit: swapping out or in (paper section 4.5).

    Args:
        source, destination: [planes, num_slots, kv_heads, head_dim], alike but for their slots and their device;
            ``destination`` is changed in place.
        moves: int64 [m, 3] on the CPU; first source slot, first destination slot, number of slots. No destination may
            overlap another.

    Raises:
        ValueError: caches that differ in more than their slots, moves of another shape or dtype, a count under 1, or
            overlapping destinations.
        IndexError: a move leads out of a cache.
    """
    check_same_rows(source, destination)
    check_moves(moves, source.shape[1], destination.shape[1])
    for first, target, count in moves.tolist():
        destination[:, target : target + count] = source[:, first : first + count]


def warm_up(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    """Nothing to compile."""
