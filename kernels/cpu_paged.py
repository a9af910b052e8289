"""The native CPU path: decode rows on compiled kernels, long prefill chunks on PyTorch's contiguous attention.

The compiled kernels (``kernels.cpu_worker``) are loaded from Numba's cache on disk by ``warm_up``; only the first run
on a machine compiles. Without Numba the plain reference does the work, with a warning.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import struct
import tempfile
import threading
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels import cpu_plan, cpu_threads, reference
from kernels.batch import PagedBatch

log = logging.getLogger(__name__)

NATIVE_DTYPES = (torch.float32, torch.bfloat16)
# Tokens of context, over all rows, below which waking a second core costs more than it brings.
MIN_PARALLEL_TOKENS = 256

_lock = threading.Lock()  # guards the plan and the scratch memory, which calls reuse
_scratch = np.empty(0, dtype=np.float32)
_plan: cpu_plan.Plan | None = None


def _cache_folder() -> str:
    """A folder for compiled code that this user can write to."""
    from platformdirs import user_cache_dir

    for folder in (Path(user_cache_dir("paged")), Path(tempfile.gettempdir()) / f"paged-{os.getuid()}"):
        try:
            (folder / "numba").mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder / "numba", os.W_OK):
            return str(folder / "numba")
    raise OSError("no folder for compiled kernels can be written to: set NUMBA_CACHE_DIR to one that can")


@cache
def _worker() -> ModuleType | None:
    """The compiled kernels, or None where Numba is missing. Numba is imported here and not before: it takes time."""
    try:
        import numba
    except ImportError as error:
        log.warning("native CPU attention is off, plain PyTorch does its work: %s (pip install numba)", error)
        return None
    before = numba.config.CACHE_DIR  # from NUMBA_CACHE_DIR
    # Numba's own choice, beside the sources, is read-only in many installations.
    numba.config.CACHE_DIR = before or _cache_folder()
    try:
        from kernels import cpu_worker
    finally:
        numba.config.CACHE_DIR = before
    return cpu_worker


def is_native(dtype: torch.dtype) -> bool:
    """Whether the compiled kernels take caches of this dtype and are there."""
    return dtype in NATIVE_DTYPES and _worker() is not None


def store_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write each row's key and value to its slot; see ``kernels.reference.store_kv``."""
    worker = _worker() if key_cache.dtype in NATIVE_DTYPES else None
    if worker is None or key.dtype != key_cache.dtype or value.dtype != value_cache.dtype:
        reference.store_kv(key, value, key_cache, value_cache, slot_mapping)
        return
    rows = slot_mapping.shape[0]
    width = key_cache.shape[1] * key_cache.shape[2]
    if key.numel() != rows * width or value.numel() != rows * width:
        raise ValueError(
            f"key {list(key.shape)} and value {list(value.shape)} do not fit {rows} slots of a cache "
            f"{list(key_cache.shape)}"
        )
    key, value, slot_mapping = key.contiguous(), value.contiguous(), slot_mapping.contiguous()
    args = (ctypes.c_int64 * worker.STORE_FIELDS)(
        0, 0, -1, slot_mapping.data_ptr(), key.data_ptr(), value.data_ptr(), key_cache.data_ptr(),
        value_cache.data_ptr(), rows, key_cache.shape[0], width,
    )  # fmt: skip
    kernel = worker.store_float32 if key_cache.dtype == torch.float32 else worker.store_bfloat16
    cpu_threads.c_function(kernel.address)(ctypes.addressof(args))
    if args[worker.BAD_SLOT] != -1:
        raise IndexError(
            f"slot_mapping holds slot {args[worker.BAD_SLOT]}, but the cache has the slots 0 to "
            f"{key_cache.shape[0] - 1}; only -1 (skip the row) may lie outside"
        )


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    batch: PagedBatch,
    scale: float,
) -> torch.Tensor:
    """Causal attention of a mixed batch over block tables; see ``kernels.reference.paged_attention``.

    What depends on the batch alone is worked out at its first call and kept until another batch comes: the tensors of a
    ``PagedBatch`` must not change once it was used. A slot outside the cache raises IndexError.
    """
    global _plan
    worker = _worker() if key_cache.dtype in NATIVE_DTYPES else None
    if worker is None:
        return reference.paged_attention(query, key_cache, value_cache, batch, scale)
    if not (key_cache.is_contiguous() and value_cache.is_contiguous()):
        raise ValueError("key_cache and value_cache must be contiguous [num_slots, kv_heads, head_dim]")
    with _lock:
        plan = _plan
        if plan is None or plan.batch is not batch:
            plan = _plan = cpu_plan.Plan(batch, worker)
        wide = query.to(torch.float32).contiguous()
        out = torch.empty_like(wide)
        if plan.items:
            _attend_rows(worker, plan, wide, key_cache, value_cache, out, scale)
        for chunk in plan.chunks:
            _attend_chunk(chunk, query, key_cache, value_cache, out, scale)
    return out.to(query.dtype)


def _attend_rows(
    worker: ModuleType,
    plan: cpu_plan.Plan,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    out: torch.Tensor,
    scale: float,
) -> None:
    """Rows that the compiled kernel does. query, out: float32 [t, heads, head_dim], contiguous."""
    global _scratch, _plan
    rows, heads, head_dim = query.shape
    slots, kv_heads, _ = key_cache.shape
    threads = min(torch.get_num_threads(), plan.items) if plan.tokens >= MIN_PARALLEL_TOKENS else 1
    sizes = (
        plan.items * heads,
        plan.items * heads,
        plan.items * heads * head_dim,
        threads * heads * head_dim,
        threads * heads * worker.CHUNK,
        threads * worker.CHUNK * 2,  # int64
    )
    if _scratch.size < sum(sizes) + 1:
        _scratch = np.empty(sum(sizes) * 5 // 4 + 1, dtype=np.float32)
    address = _scratch.ctypes.data
    args = plan.args
    args[: worker.BAD_SLOT + 1] = (0, 0, -1)
    for field, size in zip(worker.SCRATCH_FIELDS, sizes, strict=True):
        args[field] = address
        address += size * 4
    scale_bits = struct.unpack("q", struct.pack("d", scale * math.log2(math.e)))[0]
    args[worker.QUERY : worker.OUT + 1] = (
        query.data_ptr(), key_cache.data_ptr(), value_cache.data_ptr(), out.data_ptr(),
    )  # fmt: skip
    args[worker.QUERY_ROWS : worker.SCALE_BITS + 1] = (rows, slots, heads, kv_heads, head_dim, threads, scale_bits)
    kernel = worker.attend_float32 if key_cache.dtype == torch.float32 else worker.attend_bfloat16
    if threads == 1:
        cpu_threads.c_function(kernel.address)(plan.args_address)
    else:
        cpu_threads.parallel()[0](kernel.address, plan.args_address, threads)
    if args[worker.BAD_SLOT] != -1:
        raise IndexError(
            f"a block table leads to slot {args[worker.BAD_SLOT]}, but the cache has the slots 0 to {slots - 1}"
        )


def _attend_chunk(
    chunk: cpu_plan.Chunk,
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
    """Load (on a machine's first run: compile) the kernels, start their threads and check that they run."""
    one = torch.ones(1, dtype=torch.int32)
    tokens = MIN_PARALLEL_TOKENS * 2
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
        decode_rows=1,
    )
    store_kv(cache[:1].clone(), cache[:1].clone(), cache, cache, batch.slot_mapping)
    paged_attention(torch.ones(1, heads, head_dim, dtype=dtype), cache, cache, batch, 1.0)
    log.info("native CPU attention runs on %s", cpu_threads.parallel()[1])
