"""Paged attention and the cache's writes as Triton kernels, for CUDA (or, on a CPU, Triton's interpreter).

One kernel serves prefill chunks and decodes of one mixed batch (paper section 4.3): a program takes a tile of query
rows of one sequence and one KV head, walks the sequence's block table, and keeps a running (online) softmax. Importing
this module needs the package triton; ``kernels.dispatch`` imports it only where the kernels are wanted.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.batch import PagedBatch
from kernels.checks import check_attention
from kernels.triton_cache import dense_rows, store_kv

MIN_TILE = 16  # tl.dot takes no side under 16
PREFILL_ROWS = 64  # query rows x heads of a group in a program's tile, where there are that many
TILE_TOKENS = 64  # tokens in a tile of keys, at most
# Bytes of a tile of keys, and of queries: two stages of keys and values, and the queries, then fit the 99 KiB of shared
# memory that GPUs since 2020 have at least.
TILE_BYTES = 16384
QUERY_BYTES = 32768


# Triton's compiler looks up the names in annotations: only constexpr parameters can carry one.
@triton.jit  # type: ignore[untyped-decorator]
def paged_attention_kernel(  # type: ignore[no-untyped-def]
    query,
    key_cache,
    value_cache,
    out,
    query_start,
    context_len,
    block_table,
    block_size,
    slot_base,
    table_stride,
    query_stride_row,
    query_stride_head,
    out_stride_row,
    scale_log2,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    DOT_DTYPE: tl.constexpr,
) -> None:
    """Grid: (tile of query rows, KV head, sequence). A tile's rows are GROUP query heads of each of its tokens, so that
    a key read once serves all the query heads that share it."""
    sequence = tl.program_id(2)
    kv_head = tl.program_id(1)
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
    # Causal: a row sees the tokens before it and itself. A padding row sees one token, so that no row is empty.
    visible = tl.where(real_row, context - num_rows + row + 1, 1)
    last_visible = tl.max(visible, axis=0)

    peak = tl.full([TILE_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([TILE_ROWS], tl.float32)
    acc = tl.zeros([TILE_ROWS, PADDED_DIM], tl.float32)
    for start in range(0, last_visible, TILE_TOKENS):
        token = start + tl.arange(0, TILE_TOKENS)
        real_token = token < last_visible
        # Translate: logical block -> table entry -> physical block -> slot. Nothing past the context is read, neither
        # from the table nor from the cache: what lies there may be another's, or not a number.
        block = tl.load(table + token // size, mask=real_token, other=0)
        slot = base + block.to(tl.int64) * size + token % size
        place = (slot * KV_HEADS + kv_head)[:, None] * HEAD_DIM + x[None, :]
        readable = real_token[:, None] & real_x[None, :]

        k = tl.load(key_cache + place, mask=readable, other=0.0).to(DOT_DTYPE)
        # ieee: float32 stays float32 (the default would round the factors to TF32).
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        scores = tl.where(token[None, :] < visible[:, None], scores, float("-inf"))
        # Token 0 is visible to every row, so from the first tile on each peak is a number.
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, axis=1)
        v = tl.load(value_cache + place, mask=readable, other=0.0).to(DOT_DTYPE)
        acc = acc * shrink[:, None] + tl.dot(weights.to(DOT_DTYPE), v, input_precision="ieee")
        peak = new_peak

    tl.store(
        out + (row_offset * out_stride_row + head * HEAD_DIM)[:, None] + x[None, :],
        (acc / total[:, None]).to(out.dtype.element_ty),
        mask=real_row[:, None] & real_x[None, :],
    )


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    batch: PagedBatch,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Causal attention of a mixed batch over block tables in one launch; see ``kernels.reference.paged_attention``."""
    check_attention(query, key_cache, value_cache, window, softcap)
    if window or softcap:
        raise ValueError(
            f"window is {window} and softcap {softcap}: the Triton kernel takes neither yet, use the reference"
        )
    rows, heads, head_dim = query.shape
    kv_heads = key_cache.shape[1]
    if query.dtype not in (torch.float32, torch.float16, torch.bfloat16) or key_cache.dtype != query.dtype:
        raise ValueError(
            f"Triton attention takes float32, float16 or bfloat16, the same for query ({query.dtype}) and cache "
            f"({key_cache.dtype}); use the reference backend for others"
        )
    out = torch.empty((rows, heads, head_dim), dtype=query.dtype, device=query.device)
    if not rows:
        return out
    query = dense_rows(query)
    group = heads // kv_heads
    padded_dim = max(MIN_TILE, triton.next_power_of_2(head_dim))
    row_bytes = padded_dim * query.element_size()
    tile_rows = max(MIN_TILE, triton.next_power_of_2(group))
    if batch.max_query_len * group > tile_rows:
        tile_rows = max(tile_rows, min(PREFILL_ROWS, QUERY_BYTES // row_bytes))
    tiles = triton.cdiv(batch.max_query_len, tile_rows // group)
    paged_attention_kernel[(tiles, kv_heads, batch.context_len.shape[0])](
        query,
        key_cache,
        value_cache,
        out,
        batch.query_start,
        batch.context_len,
        batch.block_table,
        batch.block_size,
        batch.slot_base,
        batch.block_table.stride(0),
        query.stride(0),
        query.stride(1),
        out.stride(0),
        scale * math.log2(math.e),
        KV_HEADS=kv_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        PADDED_DIM=padded_dim,
        TILE_ROWS=tile_rows,
        TILE_TOKENS=min(TILE_TOKENS, max(MIN_TILE, TILE_BYTES // row_bytes)),
        DOT_DTYPE=_dot_dtype(query.dtype),
        num_stages=2,
    )
    return out


def _dot_dtype(dtype: torch.dtype) -> Any:
    """What the factors of a dot are: the cache's dtype, since tensor cores add up in float32. But the interpreter
    multiplies the bits of bfloat16 numbers as if they were integers, so there they are widened first."""
    if dtype == torch.bfloat16:
        compiled = isinstance(paged_attention_kernel, triton.JITFunction)
        return tl.bfloat16 if compiled else tl.float32
    return tl.float16 if dtype == torch.float16 else tl.float32


def warm_up(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    """Compile (or load from Triton's cache on disk) the kernels for decodes and for prefill."""
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
        paged_attention(query, cache, cache, batch, 1.0)
