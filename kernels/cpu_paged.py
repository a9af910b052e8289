"""The native CPU path: decode rows on compiled kernels, long prefill chunks on PyTorch's contiguous attention.

Without Numba, or for a cache that is neither float32 nor bfloat16, the plain reference does the work.
"""

from __future__ import annotations

import ctypes
import logging
import threading

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels import cpu_threads, reference
from kernels.batch import PagedBatch
from kernels.cpu_compiled import c_function, worker
from kernels.cpu_plan import Chunk, Layer, Plan

log = logging.getLogger(__name__)

NATIVE = {torch.float32: "attend_float32", torch.bfloat16: "attend_bfloat16"}

_lock = threading.Lock()  # a plan's counters and scratch memory serve one call at a time
_plan: Plan | None = None


def is_native(dtype: torch.dtype) -> bool:
    """Whether the compiled kernels take caches of this dtype and are there."""
    return dtype in NATIVE and worker() is not None


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


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    batch: PagedBatch,
    scale: float,
) -> torch.Tensor:
    """Causal attention of a mixed batch over block tables; see ``kernels.reference.paged_attention``.

    What depends on the batch alone is worked out in its first call and kept until another batch comes, so the tensors
    of a ``PagedBatch`` must not change once it was used. A slot outside the cache raises IndexError.
    """
    global _plan
    fields = worker() if key_cache.dtype in NATIVE else None
    if fields is None:
        return reference.paged_attention(query, key_cache, value_cache, batch, scale)
    if not (key_cache.is_contiguous() and value_cache.is_contiguous()):
        raise ValueError("key_cache and value_cache must be contiguous [num_slots, kv_heads, head_dim]")
    wide = query.to(torch.float32).contiguous()
    out = torch.empty_like(wide)
    with _lock:
        plan = _plan
        if plan is None or plan.batch is not batch:
            plan = _plan = Plan(batch, fields)
        if plan.items:
            _attend_rows(plan, wide, key_cache, value_cache, out, scale)
    for chunk in plan.chunks:
        _attend_chunk(chunk, query, key_cache, value_cache, out, scale)
    return out.to(query.dtype)


def _attend_rows(
    plan: Plan,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    scale: float,
) -> None:
    """Rows that the compiled kernel does. query, out: float32 [t, heads, head_dim], contiguous."""
    global _plan
    rows, heads, head_dim = query.shape
    slots, kv_heads, _ = key_cache.shape
    threads = plan.threads(torch.get_num_threads())
    plan.enter(
        Layer(rows, slots, heads, kv_heads, head_dim, threads, scale),
        (query.data_ptr(), key_cache.data_ptr(), value_cache.data_ptr(), out.data_ptr()),
    )
    function = c_function(NATIVE[key_cache.dtype])
    if threads == 1:
        function.call(plan.args_address)
    else:
        cpu_threads.parallel()[0](function, plan.args_address, threads)
    bad = plan.bad_slot()
    if bad is not None:
        _plan = None
        raise IndexError(f"a block table leads to slot {bad}, but the cache has the slots 0 to {slots - 1}")


def _attend_chunk(
    chunk: Chunk,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    scale: float,
) -> None:
    """A long run of query rows of one sequence: gather its slots, then attend as if they had been contiguous."""
    rows = slice(chunk.first, chunk.last)
    attended = scaled_dot_product_attention(
        query[rows].transpose(0, 1).unsqueeze(0),
        key_cache.index_select(0, chunk.slots).transpose(0, 1).unsqueeze(0),
        value_cache.index_select(0, chunk.slots).transpose(0, 1).unsqueeze(0),
        attn_mask=chunk.mask,
        is_causal=chunk.mask is None,
        scale=scale,
        enable_gqa=query.shape[1] != key_cache.shape[1],
    )
    out[rows] = attended.squeeze(0).transpose(0, 1)


def warm_up(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    """Load (on a machine's first run: compile) the kernels, start their threads and run them once."""
    tokens = 512
    one = torch.ones(1, dtype=torch.int32)
    cache = torch.zeros(tokens, kv_heads, head_dim, dtype=dtype)
    batch = PagedBatch(
        query_start=torch.tensor([0, 1], dtype=torch.int32),
        context_len=one * tokens,
        block_table=torch.zeros(1, 1, dtype=torch.int32),
        block_size=one * tokens,
        slot_base=torch.zeros(1, dtype=torch.int64),
        slot_mapping=torch.zeros(1, dtype=torch.int64),
        max_query_len=1,
        max_context_len=tokens,
    )
    store_kv(cache[:1].clone(), cache[:1].clone(), cache, cache, batch.slot_mapping)
    paged_attention(torch.ones(1, heads, head_dim, dtype=dtype), cache, cache, batch, 1.0)
    if is_native(dtype):
        log.info("native CPU attention runs on %s", cpu_threads.parallel()[1])
