"""What the CPU path works out once a step, for all layers: which rows go to which kernel, cut into which items."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch

from kernels.batch import PagedBatch
from kernels.reference import slots_of

# A sequence with up to this many query rows runs row by row on the compiled kernel; a longer run is gathered.
MAX_NATIVE_ROWS = 8


@dataclass(frozen=True, slots=True)
class Chunk:
    """A sequence's query rows ``first:last``; ``slots`` int64 [context], in order; ``mask`` bool [rows, context], true
    where a row may look, or None where the rows are the whole context."""

    first: int
    last: int
    slots: torch.Tensor
    mask: torch.Tensor | None


class Plan:
    """The work of one ``PagedBatch``. Keeps the batch, so that ``plan.batch is batch`` is a safe test.

    Attributes:
        chunks: sequences with more than ``MAX_NATIVE_ROWS`` query rows.
        items: pieces of work for the compiled kernel: a query row and ``CHUNK`` tokens of its context each.
        tokens: tokens of context in all items together.
        args, args_address: the kernel's argument, with everything filled in that does not change between layers.
    """

    def __init__(self, batch: PagedBatch, worker: ModuleType) -> None:
        self.batch = batch
        start, context = batch.query_start.numpy(), batch.context_len.numpy()
        block_size, table = batch.block_size.contiguous(), batch.block_table.contiguous()
        lengths = start[1:] - start[:-1]
        _check(lengths, context, block_size.numpy(), table.shape[1])

        native = lengths <= MAX_NATIVE_ROWS
        sequence = np.repeat(np.arange(len(context), dtype=np.int32), np.where(native, lengths, 0))
        query_row = np.flatnonzero(np.repeat(native, lengths)).astype(np.int32)
        visible = context[sequence] - start[1:][sequence] + query_row + 1
        pieces = -(-visible // worker.CHUNK)
        first_item = np.zeros(len(pieces) + 1, dtype=np.int32)
        np.cumsum(pieces, out=first_item[1:])
        item_row = np.repeat(np.arange(len(pieces), dtype=np.int32), pieces)
        done = np.zeros(len(pieces), dtype=np.int64)

        self.items = len(item_row)
        self.tokens = int(visible.sum())
        self.chunks = [_chunk(batch, int(i)) for i in np.flatnonzero(~native)]
        # The kernel sees addresses only: keep what they point to.
        self._kept = (item_row, first_item, query_row, sequence, visible.astype(np.int32), done)
        self._tensors = (table, block_size, batch.slot_base.contiguous())
        self.args = (ctypes.c_int64 * worker.ATTEND_FIELDS)()
        self.args_address = ctypes.addressof(self.args)
        self.args[worker.ITEM_ROW : worker.ROW_DONE + 1] = [array.ctypes.data for array in self._kept]
        self.args[worker.TABLE : worker.SLOT_BASE + 1] = [tensor.data_ptr() for tensor in self._tensors]
        self.args[worker.ITEMS : worker.TABLE_WIDTH + 1] = [self.items, len(pieces), len(context), table.shape[1]]


def _check(lengths: np.ndarray, context: np.ndarray, block_size: np.ndarray, width: int) -> None:
    """The compiled kernel trusts these; a wrong one would make it read foreign memory."""
    if (lengths < 0).any() or (lengths > context).any():
        raise ValueError(
            f"query_start gives the sequences {lengths.tolist()} query rows, but context_len, which includes them, "
            f"is {context.tolist()}"
        )
    if (block_size < 1).any():
        raise ValueError(f"block_size must be at least 1, not {block_size.tolist()}")
    if (context > block_size * width).any():
        raise ValueError(
            f"block_table is {width} wide: too narrow for contexts {context.tolist()} in blocks of "
            f"{block_size.tolist()} tokens"
        )


def _chunk(batch: PagedBatch, sequence: int) -> Chunk:
    first, last = int(batch.query_start[sequence]), int(batch.query_start[sequence + 1])
    slots = slots_of(batch, sequence)
    rows, context = last - first, len(slots)
    mask = None
    if rows < context:
        mask = torch.ones(rows, context, dtype=torch.bool).tril(diagonal=context - rows)
    return Chunk(first, last, slots, mask)
