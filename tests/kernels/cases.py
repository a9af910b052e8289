"""Batches over scattered blocks for the tests: every block that a sequence owns lies somewhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kernels import reference
from kernels.batch import PagedBatch

FAR_AWAY = 2**31 - 1  # a table entry that leads out of any cache


@dataclass(frozen=True)
class Sequence:
    """``rows`` query rows at the end of ``context`` tokens, in blocks of ``block_size``. Sequences with the same block
    size share an arena. A block as large as the context is a contiguous region."""

    rows: int
    context: int
    block_size: int = 16


@dataclass
class Case:
    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    batch: PagedBatch
    keys: list[torch.Tensor]  # each sequence's own, contiguous: [context, kv_heads, head_dim]
    values: list[torch.Tensor]

    @property
    def scale(self) -> float:
        return self.query.shape[-1] ** -0.5

    def oracle(self, window: int = 0, softcap: float = 0.0) -> torch.Tensor:
        """The float64 reference over the block tables."""
        caches = self.key_cache.double(), self.value_cache.double()
        return reference.paged_attention(self.query.double(), *caches, self.batch, self.scale, window, softcap)


def float32_tolerance(device: torch.device) -> float:
    """How far float32 may lie from the oracle: a GPU's exponential is an approximation."""
    return 1e-5 if device.type == "cuda" else 2e-6


def build(
    sequences: list[Sequence],
    heads: int = 6,
    kv_heads: int = 2,
    head_dim: int = 16,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    placement: int = 0,
    unused: float = float("nan"),
    padding: int = FAR_AWAY,
) -> Case:
    """The same numbers for the same shapes. ``placement`` seeds where the blocks lie; ``unused`` fills every slot that
    no token owns, ``padding`` every table entry past the context."""
    numbers, places = torch.Generator().manual_seed(1), torch.Generator().manual_seed(placement)
    blocks = [-(-s.context // s.block_size) for s in sequences]
    bases, free, end = {}, {}, 5  # the first arena does not begin at slot 0
    for size in dict.fromkeys(s.block_size for s in sequences):
        count = sum(b for b, s in zip(blocks, sequences, strict=True) if s.block_size == size) + 2
        bases[size], free[size] = end, torch.randperm(count, generator=places).tolist()
        end += count * size + 3

    key_cache = torch.full((end, kv_heads, head_dim), unused, dtype=dtype)
    value_cache = key_cache.clone()
    table = torch.full((len(sequences), max(blocks, default=0) + 1), padding, dtype=torch.int32)
    keys, values, written = [], [], []
    for i, (sequence, count) in enumerate(zip(sequences, blocks, strict=True)):
        size = sequence.block_size
        mine = torch.tensor([free[size].pop() for _ in range(count)], dtype=torch.int32)
        table[i, :count] = mine
        token = torch.arange(sequence.context)
        slots = bases[size] + mine[token // size].long() * size + token % size
        keys.append(torch.randn(sequence.context, kv_heads, head_dim, generator=numbers).to(dtype))
        values.append(torch.randn(sequence.context, kv_heads, head_dim, generator=numbers).to(dtype))
        key_cache[slots], value_cache[slots] = keys[-1], values[-1]
        written.append(slots[sequence.context - sequence.rows :])
    rows = [s.rows for s in sequences]
    batch = PagedBatch(
        query_start=torch.tensor([0, *rows]).cumsum(0).int(),
        context_len=torch.tensor([s.context for s in sequences], dtype=torch.int32),
        block_table=table,
        block_size=torch.tensor([s.block_size for s in sequences], dtype=torch.int32),
        slot_base=torch.tensor([bases[s.block_size] for s in sequences], dtype=torch.int64),
        slot_mapping=torch.cat([torch.empty(0, dtype=torch.int64), *written]),
        max_query_len=max(rows, default=0),
        max_context_len=max((s.context for s in sequences), default=0),
    )
    query = torch.randn(sum(rows), heads, head_dim, generator=numbers).to(dtype)
    moved = {name: getattr(batch, name).to(device) for name in batch.__slots__ if torch.is_tensor(getattr(batch, name))}
    return Case(query.to(device), key_cache.to(device), value_cache.to(device), replace(batch, **moved), keys, values)
