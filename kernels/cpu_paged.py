"""Attention on a CPU: decode rows on compiled kernels, long prefill chunks on PyTorch's contiguous attention.

Without Numba, or for a cache that is neither float32 nor bfloat16, the plain reference does the work.
"""

from __future__ import annotations

import logging
import threading
from types import ModuleType

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels import cpu_threads, reference
from kernels.batch import PagedBatch
from kernels.checks import check_attention
from kernels.cpu_cache import copy_blocks, store_kv
from kernels.cpu_compiled import c_function, worker
from kernels.cpu_plan import Chunk, Layer, Plan

log = logging.getLogger(__name__)

NATIVE = {torch.float32: "attend_float32", torch.bfloat16: "attend_bfloat16"}

_lock = threading.Lock()  # a plan's counters and scratch memory serve one call at a time
_batch: PagedBatch | None = None
_plans: dict[tuple[int, bool], Plan] = {}  # of ``_batch``, by window and whether there is a cap


def is_native(dtype: torch.dtype) -> bool:
    """Whether the compiled kernels take caches of this dtype and are there."""
    return dtype in NATIVE and worker() is not None


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    batch: PagedBatch,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Causal attention of a mixed batch over block tables; see ``kernels.reference.paged_attention``.

    What depends on the batch alone is worked out once for each ``window`` that comes with it and kept until another
    batch comes, so the tensors of a ``PagedBatch`` must not change once it was used. A slot outside the cache raises
    IndexError.
    """
    fields = worker() if key_cache.dtype in NATIVE else None
    if fields is None:
        return reference.paged_attention(query, key_cache, value_cache, batch, scale, window, softcap)
    check_attention(query, key_cache, value_cache, window, softcap)
    if not (key_cache.is_contiguous() and value_cache.is_contiguous()):
        raise ValueError("key_cache and value_cache must be contiguous [num_slots, kv_heads, head_dim]")
    wide = query.to(torch.float32).contiguous()
    out = torch.empty_like(wide)
    with _lock:
        plan = _plan_of(batch, fields, window, softcap > 0)
        if plan.items:
            _attend_rows(plan, wide, key_cache, value_cache, out, scale, softcap)
    for chunk in plan.chunks:
        _attend_chunk(chunk, query, key_cache, value_cache, out, scale, softcap)
    return out.to(query.dtype)


def _plan_of(batch: PagedBatch, fields: ModuleType, window: int, capped: bool) -> Plan:
    """The batch's plan for such layers, from the layer before where there was one. The batch itself is kept, so that
    its identity is a safe test."""
    global _batch
    if _batch is not batch:
        _plans.clear()
        _batch = batch
    kind = (window if window < batch.max_context_len else 0, capped)  # a window that hides nothing is none
    plan = _plans.get(kind)
    if plan is None:
        plan = _plans[kind] = Plan(batch, fields, *kind)
    return plan


def _attend_rows(
    plan: Plan,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    softcap: float,
) -> None:
    """Rows that the compiled kernel does. query, out: float32 [t, heads, head_dim], contiguous."""
    rows, heads, head_dim = query.shape
    slots, kv_heads, _ = key_cache.shape
    threads = plan.threads(torch.get_num_threads())
    plan.enter(
        Layer(rows, slots, heads, kv_heads, head_dim, threads, scale, softcap),
        (query.data_ptr(), key_cache.data_ptr(), value_cache.data_ptr(), out.data_ptr()),
    )
    function = c_function(NATIVE[key_cache.dtype])
    if threads == 1:
        function.call(plan.args_address)
    else:
        cpu_threads.parallel()[0](function, plan.args_address, threads)
    bad = plan.bad_slot()
    if bad is not None:
        _plans.clear()  # its counters stand anywhere
        raise IndexError(f"a block table leads to slot {bad}, but the cache has the slots 0 to {slots - 1}")


def _attend_chunk(
    chunk: Chunk,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    softcap: float,
) -> None:
    """A long run of query rows of one sequence: gather its slots, then attend as if they had been contiguous."""
    rows = slice(chunk.first, chunk.last)
    part = query[rows].transpose(0, 1).unsqueeze(0)
    key = key_cache.index_select(0, chunk.slots).transpose(0, 1).unsqueeze(0)
    value = value_cache.index_select(0, chunk.slots).transpose(0, 1).unsqueeze(0)
    if softcap:
        attended = _capped_attention(part, key, value, chunk.mask, scale, softcap)
    else:
        attended = scaled_dot_product_attention(
            part,
            key,
            value,
            attn_mask=chunk.mask,
            is_causal=chunk.mask is None,
            scale=scale,
            enable_gqa=query.shape[1] != key_cache.shape[1],
        )
    out[rows] = attended.squeeze(0).transpose(0, 1)


def _capped_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float, softcap: float
) -> torch.Tensor:
    """What PyTorch's attention does, in float32 and with a soft cap, which it has not. query: [1, heads, rows, head
    dim]; key, value: [1, KV heads, tokens, head dim]."""
    _, kv_heads, tokens, _ = key.shape
    _, heads, rows, _ = query.shape
    if mask is None:
        mask = torch.ones(rows, tokens, dtype=torch.bool).tril_()
    grouped = query.float().reshape(kv_heads, -1, query.shape[-1])  # the heads of a group are rows of one product
    scores = torch.matmul(grouped, key[0].float().transpose(1, 2)).mul_(scale / softcap).tanh_().mul_(softcap)
    weights = scores.view(heads, rows, tokens).masked_fill_(~mask, float("-inf")).softmax(dim=-1)
    return torch.matmul(weights.view(kv_heads, -1, tokens), value[0].float()).view(1, heads, rows, -1)


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
    copy_blocks(cache.unsqueeze(0), torch.tensor([[0, 1, 1]]))
    if is_native(dtype):
        log.info("native CPU attention runs on %s", cpu_threads.parallel()[1])
