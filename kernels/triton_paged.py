"""Paged attention as Triton kernels, for CUDA (or, on a CPU, Triton's interpreter).

One kernel serves prefill chunks and decodes of one mixed batch (paper section 4.3): a program takes a tile of query
rows of one sequence and one KV head, walks the sequence's block table, and keeps a running (online) softmax. Importing
this module needs the package triton; ``kernels.dispatch`` imports it only where the kernels are wanted.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.batch import PagedBatch
from kernels.checks import check_attention
from kernels.triton_cache import COMPILED, dense_rows, store_kv
from kernels.triton_plan import MAX_SPLITS, PREFILL_ROWS, choose_splits, plan_tiles, power_of_two

NO_WINDOW = 2**31 - 1
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the least float32: a peak before any score


# Triton's compiler looks up the names in annotations: only constexpr parameters can carry one. Numbers that change from
# step to step are not specialized on, since that would compile anew in the midst of serving.
@triton.jit(do_not_specialize=("table_stride", "window", "splits"))  # type: ignore[untyped-decorator]
def paged_attention_kernel(  # type: ignore[no-untyped-def]
    query,
    key_cache,
    value_cache,
    out,
    peaks,
    totals,
    query_start,
    context_len,
    block_table,
    block_size,
    slot_base,
    table_stride,
    query_stride_row,
    query_stride_head,
    scale,
    window,
    softcap,
    splits,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SPLIT: tl.constexpr,
    DOT_DTYPE: tl.constexpr,
) -> None:
    """Grid: (tile of query rows, KV head and split, sequence). A tile's rows are GROUP query heads of each of its tokens,
    so that a key read once serves all the query heads that share it."""
    sequence = tl.program_id(2)
    kv_head = tl.program_id(1) // splits
    split = tl.program_id(1) % splits
    first_row = tl.load(query_start + sequence)
    num_rows = tl.load(query_start + sequence + 1) - first_row
    first = tl.program_id(0) * (TILE_ROWS // GROUP)
    if first >= num_rows:
        return  # the grid is as high as the longest sequence needs

    context = tl.load(context_len + sequence)
    size = tl.load(block_size + sequence)
    base = tl.load(slot_base + sequence)
    table = block_table + sequence.to(tl.int64) * table_stride

    lane = tl.arange(0, TILE_ROWS)
    row = first + lane // GROUP
    real_row = (row < num_rows) & (lane < (TILE_ROWS // GROUP) * GROUP)
    head = kv_head * GROUP + lane % GROUP
    x = tl.arange(0, PADDED_DIM)
    real_x = x < HEAD_DIM
    row_offset = (first_row + row).to(tl.int64)
    q = tl.load(
        query + (row_offset * query_stride_row + head * query_stride_head)[:, None] + x[None, :],
        mask=real_row[:, None] & real_x[None, :],
        other=0.0,
    ).to(DOT_DTYPE)

    # Causal: a row sees the tokens before its end, the last `window` of them. Padding rows see what the first row sees.
    first_end = context - num_rows + first + 1
    row_end = tl.where(real_row, context - num_rows + row + 1, first_end)
    newest = tl.max(row_end, axis=0)
    oldest = tl.maximum(first_end - window, 0)
    # The tokens between are dealt to the splits in whole tiles; the last splits may get none.
    tiles = tl.cdiv(newest - oldest, TILE_TOKENS)
    begin = oldest + split * tl.cdiv(tiles, splits) * TILE_TOKENS
    end = tl.minimum(begin + tl.cdiv(tiles, splits) * TILE_TOKENS, newest)

    peak = tl.full([TILE_ROWS], LOWEST, tl.float32)
    total = tl.zeros([TILE_ROWS], tl.float32)
    acc = tl.zeros([TILE_ROWS, PADDED_DIM], tl.float32)
    for start in range(begin, end, TILE_TOKENS):
        token = start + tl.arange(0, TILE_TOKENS)
        real_token = token < end
        # Translate: logical block -> table entry -> physical block -> slot. Nothing past the context is read, neither
        # from the table nor from the cache: what lies there may be another's, or not a number.
        block = tl.load(table + token // size, mask=real_token, other=0)
        slot = base + block.to(tl.int64) * size + token % size
        place = (slot * KV_HEADS + kv_head)[:, None] * HEAD_DIM + x[None, :]
        readable = real_token[:, None] & real_x[None, :]

        k = tl.load(key_cache + place, mask=readable, other=0.0).to(DOT_DTYPE)
        # ieee: float32 stays float32 (the default would round the factors to TF32).
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if SOFTCAP:
            scores = softcap * tanh(scores / softcap)
        seen = (token[None, :] < row_end[:, None]) & (token[None, :] >= row_end[:, None] - window)
        scores = tl.where(seen & real_token[None, :], scores, float("-inf"))
        # A row that has seen no token yet keeps the lowest peak: its weights are exp(-inf) = 0.
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_peak[:, None])
        shrink = tl.exp(peak - new_peak)
        total = total * shrink + tl.sum(weights, axis=1)
        v = tl.load(value_cache + place, mask=readable, other=0.0).to(DOT_DTYPE)
        acc = acc * shrink[:, None] + tl.dot(weights.to(DOT_DTYPE), v, input_precision="ieee")
        peak = new_peak

    cell = (row_offset * (KV_HEADS * GROUP) + head) * splits + split
    if SPLIT:  # combine_splits_kernel divides, when it knows all the totals
        tl.store(peaks + cell, peak, mask=real_row)
        tl.store(totals + cell, total, mask=real_row)
    else:
        acc = acc / total[:, None]
    tl.store(
        out + cell[:, None] * HEAD_DIM + x[None, :],
        acc.to(out.dtype.element_ty),
        mask=real_row[:, None] & real_x[None, :],
    )


@triton.jit
def tanh(x):  # type: ignore[no-untyped-def]
    """Triton has none that its interpreter knows. Where exp overflows, the result is -1, as it should be."""
    return 2 / (1 + tl.exp(-2 * x)) - 1


@triton.jit(do_not_specialize=("splits",))  # type: ignore[untyped-decorator]
def combine_splits_kernel(  # type: ignore[no-untyped-def]
    partial,
    peaks,
    totals,
    out,
    splits,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PADDED_SPLITS: tl.constexpr,
) -> None:
    """One program joins the splits of one query row and head, always in the same order. A split that saw no token has
    the lowest peak, so its weight is 0; some split has seen one, since every row sees itself."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, PADDED_SPLITS)
    real = split < splits
    x = tl.arange(0, PADDED_DIM)
    cell = row * splits + split
    peak = tl.load(peaks + cell, mask=real, other=LOWEST)
    weight = tl.exp(peak - tl.max(peak, axis=0))
    total = tl.sum(weight * tl.load(totals + cell, mask=real, other=0.0), axis=0)
    part = tl.load(
        partial + cell[:, None] * HEAD_DIM + x[None, :], mask=real[:, None] & (x < HEAD_DIM)[None, :], other=0.0
    )
    acc = tl.sum(weight[:, None] * part, axis=0) / total
    tl.store(out + row * HEAD_DIM + x, acc.to(out.dtype.element_ty), mask=x < HEAD_DIM)


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    batch: PagedBatch,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    splits: int | None = None,
) -> torch.Tensor:
    """Causal attention of a mixed batch over block tables; see ``kernels.reference.paged_attention``.

    ``splits``: parts in which each context is read side by side, then combined in a second launch; None chooses, so that
    small batches of long contexts occupy the GPU too. With a window only the window is read.

    Raises ValueError, besides, for another dtype than float32, float16 or bfloat16, one that differs between query and
    cache, and for a cache whose slots do not lie side by side.
    """
    check_attention(query, key_cache, value_cache, window, softcap)
    if query.dtype not in (torch.float32, torch.float16, torch.bfloat16) or key_cache.dtype != query.dtype:
        raise ValueError(
            f"Triton attention takes float32, float16 or bfloat16, the same for query ({query.dtype}) and cache "
            f"({key_cache.dtype}); use the reference backend for others"
        )
    if not (key_cache.is_contiguous() and value_cache.is_contiguous()):
        raise ValueError("key_cache and value_cache must be contiguous [num_slots, kv_heads, head_dim]")
    rows, heads, head_dim = query.shape
    out = torch.empty((rows, heads, head_dim), dtype=query.dtype, device=query.device)
    if not rows:
        return out
    query = dense_rows(query)
    kv_heads, sequences = key_cache.shape[1], batch.context_len.shape[0]
    tiles = plan_tiles(rows, sequences, batch.max_query_len, heads, kv_heads, head_dim, query.element_size())
    if splits is None:
        sees = min(batch.max_context_len, window + batch.max_query_len) if window else batch.max_context_len
        splits = choose_splits(tiles.programs, sees, _multiprocessors(query.device))
    # Not split, the kernel writes the result itself, and nothing to peaks and totals.
    partial = peaks = totals = out
    if splits > 1:
        partial = torch.empty((rows, heads, splits, head_dim), dtype=torch.float32, device=query.device)
        peaks, totals = (torch.empty((rows, heads, splits), dtype=torch.float32, device=query.device) for _ in range(2))
    paged_attention_kernel[(tiles.count, kv_heads * splits, sequences)](
        query,
        key_cache,
        value_cache,
        partial,
        peaks,
        totals,
        batch.query_start,
        batch.context_len,
        batch.block_table,
        batch.block_size,
        batch.slot_base,
        batch.block_table.stride(0),
        query.stride(0),
        query.stride(1),
        scale,
        window or NO_WINDOW,
        softcap,
        splits,
        KV_HEADS=kv_heads,
        GROUP=heads // kv_heads,
        HEAD_DIM=head_dim,
        PADDED_DIM=tiles.padded_dim,
        TILE_ROWS=tiles.rows,
        TILE_TOKENS=tiles.tokens,
        SOFTCAP=softcap > 0,
        SPLIT=splits > 1,
        DOT_DTYPE=_dot_dtype(query.dtype),
        num_stages=2,
    )
    if splits > 1:
        combine_splits_kernel[(rows * heads,)](
            partial,
            peaks,
            totals,
            out,
            splits,
            HEAD_DIM=head_dim,
            PADDED_DIM=tiles.padded_dim,
            PADDED_SPLITS=power_of_two(max(splits, MAX_SPLITS)),  # one kernel for all
        )
    return out


@cache
def _multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1


def _dot_dtype(dtype: torch.dtype) -> Any:
    """What the factors of a dot are: the cache's dtype, since tensor cores add up in float32. But the interpreter
    multiplies the bits of bfloat16 numbers as if they were integers, so there they are widened first."""
    if dtype == torch.bfloat16:
        return tl.bfloat16 if COMPILED else tl.float32
    return tl.float16 if dtype == torch.float16 else tl.float32


def warm_up(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    """Compile (or load from Triton's cache on disk) the kernels for decodes, split or not, and for prefill."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for rows in (1, PREFILL_ROWS):
        cache = torch.zeros(PREFILL_ROWS, kv_heads, head_dim, dtype=dtype, device=device)
        batch = PagedBatch(
            query_start=torch.tensor([0, rows], dtype=torch.int32, device=device),
            context_len=torch.tensor([rows], dtype=torch.int32, device=device),
            block_table=torch.arange(4, dtype=torch.int32, device=device)[None, :],
            block_size=torch.tensor([16], dtype=torch.int32, device=device),
            slot_base=torch.zeros(1, dtype=torch.int64, device=device),
            slot_mapping=torch.arange(rows, dtype=torch.int64, device=device),
            max_query_len=rows,
            max_context_len=rows,
        )
        store_kv(cache[:rows].clone(), cache[:rows].clone(), cache, cache, batch.slot_mapping)
        query = torch.zeros(rows, heads, head_dim, dtype=dtype, device=device)
        for splits in (1, 2):
            paged_attention(query, cache, cache, batch, 1.0, splits=splits)
