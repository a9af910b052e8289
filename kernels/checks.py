"""What every backend refuses before it touches memory."""

from __future__ import annotations

import numpy as np
import torch


def check_attention(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, window: int, softcap: float
) -> None:
    """Raise ValueError for arguments of ``paged_attention`` that do not go together."""
    if query.dim() != 3 or key_cache.dim() != 3 or key_cache.shape != value_cache.shape:
        raise ValueError(
            f"query {list(query.shape)} must be [t, heads, head_dim], key_cache {list(key_cache.shape)} and value_cache "
            f"{list(value_cache.shape)} both [num_slots, kv_heads, head_dim]"
        )
    heads, head_dim = query.shape[1:]
    kv_heads = key_cache.shape[1]
    if head_dim != key_cache.shape[2] or not kv_heads or heads % kv_heads:
        raise ValueError(
            f"query has {heads} heads of {head_dim}, the cache {kv_heads} KV heads of {key_cache.shape[2]}: the sizes "
            "must be equal, and the query heads a multiple of the KV heads"
        )
    if window < 0 or softcap < 0:
        raise ValueError(f"window is {window} and softcap {softcap}: use 0 to go without, or a positive number")


def check_same_rows(source: torch.Tensor, destination: torch.Tensor) -> None:
    """Raise ValueError unless both caches hold the same planes, heads and dtype; their slots may differ in number."""
    if (
        source.dim() != 4
        or destination.dim() != 4
        or source.shape[:1] + source.shape[2:] != destination.shape[:1] + destination.shape[2:]
        or source.dtype != destination.dtype
    ):
        raise ValueError(
            f"source {list(source.shape)} {source.dtype} and destination {list(destination.shape)} {destination.dtype} "
            "must both be [planes, num_slots, kv_heads, head_dim], alike but for num_slots"
        )


def check_moves(moves: torch.Tensor, source_slots: int, destination_slots: int, same_cache: bool = False) -> None:
    """Raise ValueError or IndexError unless the moves can be made in any order; see ``kernels.reference.copy_blocks``.

    ``same_cache``: sources and destinations lie in one cache, so they must not overlap either.
    """
    if moves.dim() != 2 or moves.shape[1] != 3 or moves.dtype != torch.int64:
        raise ValueError(
            f"moves must be int64 [m, 3] (first source slot, first destination slot, slots), not {moves.dtype} "
            f"{list(moves.shape)}"
        )
    source, destination, count = moves.cpu().numpy().T
    if not count.size:
        return
    if count.min() < 1:
        raise ValueError(f"a move of {count.min()} slots: each must move at least 1, leave the others out")
    for name, first, slots in (("source", source, source_slots), ("destination", destination, destination_slots)):
        outside = (first < 0) | (first > slots - count)
        if outside.any():
            at = int(outside.argmax())
            raise IndexError(
                f"moves[{at}] has {count[at]} slots of the {name} from {first[at]} on, but that cache has the slots 0 to "
                f"{slots - 1}"
            )
    order = destination.argsort()
    starts, ends = destination[order], (destination + count)[order]
    if (ends[:-1] > starts[1:]).any():
        at = int((ends[:-1] > starts[1:]).argmax())
        raise ValueError(f"two moves write slot {starts[at + 1]}: each slot may be written once")
    if same_cache:
        after = np.minimum(np.searchsorted(ends, source, side="right"), ends.size - 1)  # the first that ends beyond it
        chained = (starts[after] < source + count) & (source < ends[after])
        if chained.any():
            at = int(chained.argmax())
            raise ValueError(
                f"moves[{at}] reads slots from {source[at]} on, which another move writes from {starts[after[at]]} on: "
                "copies of one call have no order, make two calls"
            )
