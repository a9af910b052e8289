"""What the CPU path works out once a step, for all layers: which rows go to which kernel, cut into which items."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch

from kernels.batch import PagedBatch
from kernels.reference import slots_of

# A sequence with up to this many query rows runs row by row on the compiled kernel; a longer run is gathered.
MAX_NATIVE_ROWS = 16
# Waking a second core pays from this much work on, in tokens of context; an item costs as much as 16 tokens besides.
MIN_PARALLEL_WORK, ITEM_WORK = 384, 16
# A gathered run whose mask is not plainly causal is cut into pieces of this many rows: each gathers what its rows see.
PIECE_ROWS = 128


@dataclass(frozen=True, slots=True)
class Chunk:
    """Query rows ``first:last`` of a sequence; ``slots`` int64 [tokens] of what they see, in order; ``mask`` bool [rows,
    tokens], true where a row may look, or None where the rows are the whole context."""

    first: int
    last: int
    slots: torch.Tensor
    mask: torch.Tensor | None


class Layer(NamedTuple):
    """The shapes of a call, in the order of the kernel's fields; the same for all layers of most models."""

    rows: int
    slots: int
    heads: int
    kv_heads: int
    head_dim: int
    threads: int
    scale: float
    softcap: float


class Plan:
    """The work of one ``PagedBatch`` in layers with this ``window`` (0: none), with or without a soft cap.

    Attributes:
        chunks: sequences with more than ``MAX_NATIVE_ROWS`` query rows, in pieces where there is a window or a cap.
        items: pieces of work for the compiled kernel: a query row and ``CHUNK`` tokens that it sees each.
        args_address: the kernel's argument; see ``kernels.cpu_worker``.
    """

    def __init__(self, batch: PagedBatch, worker: ModuleType, window: int = 0, capped: bool = False) -> None:
        start, context = batch.query_start.numpy(), batch.context_len.numpy()
        block_size, table = batch.block_size.contiguous(), batch.block_table.contiguous()
        lengths = start[1:] - start[:-1]
        _check(lengths, context, block_size.numpy(), table.shape[1])

        native = lengths <= MAX_NATIVE_ROWS
        sequence = np.repeat(np.arange(len(context), dtype=np.int32), np.where(native, lengths, 0))
        query_row = np.flatnonzero(np.repeat(native, lengths)).astype(np.int32)
        visible = context[sequence] - start[1:][sequence] + query_row + 1
        first_token = np.maximum(visible - window, 0) if window else np.zeros_like(visible)
        pieces = -(-(visible - first_token) // worker.CHUNK)
        first_item = np.zeros(len(pieces) + 1, dtype=np.int32)
        np.cumsum(pieces, out=first_item[1:])
        item_row = np.repeat(np.arange(len(pieces), dtype=np.int32), pieces)
        done = np.zeros(len(pieces), dtype=np.int64)

        self.items = len(item_row)
        self._work = int((visible - first_token).sum()) + ITEM_WORK * self.items
        piece_rows = PIECE_ROWS if window or capped else batch.max_query_len
        self.chunks = [chunk for i in np.flatnonzero(~native) for chunk in _chunks(batch, int(i), window, piece_rows)]
        # The kernel sees addresses only: keep what they point to.
        rows = (query_row, sequence, first_token.astype(np.int32), visible.astype(np.int32))
        self._kept = (item_row, first_item, *rows, done)
        self._tensors = (table, block_size, batch.slot_base.contiguous())
        self._fields = worker
        self._layer: Layer | None = None
        self._args = args = (ctypes.c_int64 * worker.ATTEND_FIELDS)()
        self.args_address = ctypes.addressof(args)
        args[worker.ITEM_ROW : worker.ROW_DONE + 1] = [array.ctypes.data for array in self._kept]
        args[worker.TABLE : worker.SLOT_BASE + 1] = [tensor.data_ptr() for tensor in self._tensors]
        args[worker.ITEMS : worker.TABLE_WIDTH + 1] = [self.items, len(pieces), len(context), table.shape[1]]

    def threads(self, available: int) -> int:
        """On how many of the ``available`` threads to run."""
        return min(available, self.items) if self._work >= MIN_PARALLEL_WORK else 1

    def enter(self, layer: Layer, addresses: tuple[int, int, int, int]) -> None:
        """Fill in what the next run of the kernel works on: the addresses of query, keys, values and output."""
        fields, args = self._fields, self._args
        if layer != self._layer:
            self._layer = layer
            self._scratch = self._lay_out_scratch(layer)
            cap = layer.softcap * math.log2(math.e)
            scale = layer.scale / layer.softcap if layer.softcap else layer.scale * math.log2(math.e)
            numbers = struct.unpack("qq", struct.pack("dd", scale, cap))
            args[fields.QUERY_ROWS : fields.CAP_BITS + 1] = (*layer[:-2], *numbers)
        args[: fields.BAD_SLOT + 1] = (0, 0, -1)
        args[fields.QUERY : fields.OUT + 1] = addresses

    def bad_slot(self) -> int | None:
        """A slot outside the cache that the last run met."""
        slot: int = self._args[self._fields.BAD_SLOT]
        return None if slot == -1 else slot

    def _lay_out_scratch(self, layer: Layer) -> np.ndarray:
        """Memory for the parts of rows and for each thread. Allocated once a step, or taken from the step before."""
        chunk = self._fields.CHUNK
        sizes = (
            self.items * layer.heads,
            self.items * layer.heads,
            self.items * layer.heads * layer.head_dim,
            layer.threads * layer.heads * layer.head_dim,
            layer.threads * layer.heads * chunk,
            layer.threads * chunk * 2,  # int64
        )
        scratch = _reserve(sum(size + 16 for size in sizes))
        address = scratch.ctypes.data
        for field, size in zip(self._fields.SCRATCH_FIELDS, sizes, strict=True):
            address += -address % 64  # a cache line
            self._args[field] = address
            address += size * 4
        return scratch


_scratch = np.empty(0, dtype=np.float32)


def _reserve(size: int) -> np.ndarray:
    """At least ``size`` float32: the same memory step after step, since fresh pages cost more than the kernel."""
    global _scratch
    if _scratch.size < size:
        _scratch = np.empty(size * 3 // 2, dtype=np.float32)
    return _scratch


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


def _chunks(batch: PagedBatch, sequence: int, window: int, piece_rows: int) -> Iterator[Chunk]:
    """The query rows of a sequence, ``piece_rows`` at a time."""
    start, end = int(batch.query_start[sequence]), int(batch.query_start[sequence + 1])
    slots = slots_of(batch, sequence)
    before = len(slots) - (end - start)  # tokens before the first row
    for row in range(start, end, piece_rows):
        last = min(row + piece_rows, end)
        position = before + row - start  # of the first row of the piece
        oldest = max(position - window + 1, 0) if window else 0
        seen = slots[oldest : position + last - row]
        offset = position - oldest  # row i sees the tokens up to i + offset, and the last ``window`` of them
        if not window and not offset:
            yield Chunk(row, last, seen, None)
            continue
        mask = torch.ones(last - row, len(seen), dtype=torch.bool).tril_(offset)
        yield Chunk(row, last, seen, mask.triu_(offset - window + 1) if window else mask)
