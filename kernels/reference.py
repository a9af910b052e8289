"""Paged attention in plain PyTorch: slow, short, any floating dtype. The other backends are tested against it."""

from __future__ import annotations

from itertools import pairwise

import torch

from kernels.batch import PagedBatch


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
) -> torch.Tensor:
    """Causal attention of a mixed batch over block tables, one sequence after the other.

    Args:
        query: [t, heads, head_dim]; ``heads`` is a multiple of the cache's ``kv_heads``.
        key_cache, value_cache: [num_slots, kv_heads, head_dim]; this step's rows are already stored.
        batch: which rows belong to which sequence, and where its keys lie.
        scale: factor of the scores before the softmax.

    Returns:
        [t, heads, head_dim] in the query's dtype; scores and sums are float32 (float64 if the query is float64).
    """
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    out = torch.empty_like(query)
    group = query.shape[1] // key_cache.shape[1]
    starts = batch.query_start.tolist()
    for sequence, (first, last) in enumerate(pairwise(starts)):
        slots = slots_of(batch, sequence)
        key = key_cache[slots].to(wide).repeat_interleave(group, dim=1)
        value = value_cache[slots].to(wide).repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", query[first:last].to(wide), key) * scale
        rows, context = last - first, len(slots)
        seen = context - rows + torch.arange(rows, device=query.device)  # the last token each row attends to
        hidden = torch.arange(context, device=query.device)[None, :] > seen[:, None]
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        out[first:last] = torch.einsum("hqk,khd->qhd", weights, value).to(query.dtype)
    return out


def warm_up(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    """Nothing to compile."""
