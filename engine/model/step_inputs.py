"""Turn the plans of all arenas into the tensors of one forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from engine.scheduler import Chunk
from kernels.batch import PagedBatch


@dataclass(frozen=True, slots=True)
class Entry:
    """A chunk, and the first slot of its arena in the flat cache. ``every_row``: logits of all its rows are wanted."""

    arena: str
    chunk: Chunk
    base: int
    every_row: bool = False

    @property
    def rows(self) -> int:
        """How many rows of logits come back."""
        return self.chunk.count if self.every_row else int(self.chunk.sample)


@dataclass(frozen=True, slots=True)
class StepInputs:
    """``t`` query rows. ``input_ids``, ``position_ids``: int64 [1, t]. ``sample_rows``: int64 [m], the last row of each
    chunk that samples, or all rows where they are wanted, in the order of the entries."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    sample_rows: torch.Tensor
    batch: PagedBatch


def build(entries: list[Entry], device: torch.device) -> StepInputs:
    """Tensors for ``entries``, which must not be empty."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[np.ndarray] = []
    sample_rows: list[int] = []
    for entry in entries:
        chunk, table = entry.chunk, entry.chunk.sequence.table
        end = chunk.start + chunk.count
        tokens += chunk.sequence.tokens[chunk.start : end]
        place = np.arange(chunk.start, end)
        positions += range(chunk.start, end)
        blocks = np.asarray(table.blocks, dtype=np.int64)
        base = entry.base + table.offset
        slots.append(base + blocks[place // table.block_size] * table.block_size + place % table.block_size)
        sample_rows += range(len(tokens) - entry.rows, len(tokens))
    counts = [entry.chunk.count for entry in entries]
    contexts = [entry.chunk.start + entry.chunk.count for entry in entries]

    def put(values: object, dtype: type[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.asarray(values, dtype=dtype)).to(device)

    batch = PagedBatch(
        query_start=put(np.concatenate(([0], np.cumsum(counts))), np.int32),
        context_len=put(contexts, np.int32),
        block_table=put(_padded([entry.chunk.sequence.table.blocks for entry in entries]), np.int32),
        block_size=put([entry.chunk.sequence.table.block_size for entry in entries], np.int32),
        slot_base=put([entry.base + entry.chunk.sequence.table.offset for entry in entries], np.int64),
        slot_mapping=put(np.concatenate(slots), np.int64),
        max_query_len=max(counts),
        max_context_len=max(contexts),
    )
    return StepInputs(
        input_ids=put([tokens], np.int64),
        position_ids=put([positions], np.int64),
        sample_rows=put(sample_rows, np.int64),
        batch=batch,
    )


def _padded(tables: list[list[int]]) -> np.ndarray:
    padded = np.zeros((len(tables), max(len(table) for table in tables)), dtype=np.int32)
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    return padded
