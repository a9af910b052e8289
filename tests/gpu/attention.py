"""The price of paging: our kernel over scattered blocks, the same kernel over a contiguous region, and PyTorch's attention
over contiguous tensors (the question of the paper's Figure 18a, which found 20 to 26 % against FasterTransformer)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels import triton_paged
from kernels.batch import PagedBatch
from kernels.triton_plan import MAX_SPLITS, choose_splits, plan_tiles
from tests.gpu.timing import Setting, launch_microseconds, milliseconds

BLOCK_SIZE = 16


@dataclass(frozen=True)
class Shape:
    """Query heads, KV heads and head dim of a model."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int


SMOLLM2 = Shape("SmolLM2-135M", 9, 3, 64)
LLAMA = Shape("Llama-3-8B", 32, 8, 128)


class Decodes:
    """``sequences`` decodes of ``context`` tokens each, in bfloat16 (float32 on a CPU): paged, in regions, contiguous."""

    def __init__(self, shape: Shape, sequences: int, context: int, setting: Setting, rows: int = 1) -> None:
        self.shape, self.sequences, self.context, self.rows, self.setting = shape, sequences, context, rows, setting
        dtype = torch.bfloat16 if setting.is_gpu else torch.float32
        blocks = -(-context // BLOCK_SIZE)
        self.slots = sequences * blocks * BLOCK_SIZE
        row = (shape.kv_heads, shape.head_dim)

        def draw(*size: int) -> torch.Tensor:
            return torch.randn(size, device=setting.device, dtype=dtype)

        self.query = draw(sequences * rows, shape.heads, shape.head_dim)
        self.key_cache, self.value_cache = draw(self.slots, *row), draw(self.slots, *row)
        scattered = torch.randperm(sequences * blocks, device=setting.device).int().view(sequences, blocks)
        regions = torch.arange(sequences, device=setting.device).int().view(sequences, 1)
        self.paged_batch = self._batch(scattered, BLOCK_SIZE)
        self.region_batch = self._batch(regions, blocks * BLOCK_SIZE)
        token = torch.arange(context, device=setting.device)
        places = scattered.long()[:, token // BLOCK_SIZE] * BLOCK_SIZE + token % BLOCK_SIZE
        self.key, self.value = (c[places].transpose(1, 2).contiguous() for c in (self.key_cache, self.value_cache))

    def _batch(self, table: torch.Tensor, block_size: int) -> PagedBatch:
        ones = torch.ones(self.sequences, dtype=torch.int32, device=self.setting.device)
        rows = torch.arange(self.sequences + 1, dtype=torch.int32, device=self.setting.device) * self.rows
        return PagedBatch(
            query_start=rows,
            context_len=ones * self.context,
            block_table=table,
            block_size=ones * block_size,
            slot_base=torch.zeros(self.sequences, dtype=torch.int64, device=self.setting.device),
            slot_mapping=torch.zeros(self.sequences * self.rows, dtype=torch.int64, device=self.setting.device),
            max_query_len=self.rows,
            max_context_len=self.context,
        )

    def paged(self, splits: int | None = None) -> torch.Tensor:
        return self._ours(self.paged_batch, splits)

    def region(self) -> torch.Tensor:
        return self._ours(self.region_batch, None)

    def _ours(self, batch: PagedBatch, splits: int | None) -> torch.Tensor:
        scale = self.shape.head_dim**-0.5
        return triton_paged.paged_attention(self.query, self.key_cache, self.value_cache, batch, scale, splits=splits)

    def contiguous(self) -> torch.Tensor:
        """PyTorch's own, which shares the keys of a group of heads (``enable_gqa``)."""
        query = self.query.view(self.sequences, self.rows, self.shape.heads, self.shape.head_dim).transpose(1, 2)
        gqa = self.shape.heads != self.shape.kv_heads
        return scaled_dot_product_attention(query, self.key, self.value, is_causal=self.rows > 1, enable_gqa=gqa)

    def grouped(self) -> torch.Tensor:
        """PyTorch's own with the group as query rows: the faster way for some of its kernels. Decodes only."""
        group = self.shape.heads // self.shape.kv_heads
        query = self.query.view(self.sequences, self.shape.kv_heads, group, self.shape.head_dim)
        return scaled_dot_product_attention(query, self.key, self.value)

    def check(self) -> None:
        """All must agree on the result before anything is timed."""
        expected = self.contiguous().transpose(1, 2).reshape(self.query.shape)
        # The mean of thousands of values is small; a prefill's first rows see few, and bfloat16 rounds those.
        tolerance = {"rtol": 2e-2, "atol": 2e-3 if self.rows == 1 else 2e-2}
        for out in (self.paged(), self.paged(splits=1), self.paged(splits=3)):
            torch.testing.assert_close(out, expected, **tolerance)
        if self.rows == 1:
            torch.testing.assert_close(self.grouped().reshape(self.query.shape), expected, **tolerance)

    def gigabytes(self) -> float:
        """Of keys and values that must be read."""
        return 2 * self.key.numel() * self.key.element_size() / 1e9


def paged_and_contiguous(setting: Setting) -> Iterator[str]:
    """Lines of a table, one for each shape, batch and context."""
    yield "model          batch  context  rows    paged ms   GB/s  region ms  torch ms  paged/region  paged/torch  launch us"
    for shape, sequences, context, rows in _sizes(setting):
        case = Decodes(shape, sequences, context, setting, rows)
        case.check()
        theirs = [case.contiguous] + ([case.grouped] if rows == 1 else [])
        paged, region = milliseconds(case.paged, setting), milliseconds(case.region, setting)
        torch_ms = min(milliseconds(call, setting) for call in theirs)
        launch = launch_microseconds(case.paged, setting)
        yield (
            f"{shape.name:13} {sequences:6} {context:8} {rows:5}  {paged:10.4f} {case.gigabytes() / paged * 1e3:6.0f} "
            f"{region:10.4f} {torch_ms:9.4f}  {paged / region:12.2f} {paged / torch_ms:12.2f}  {launch:9.1f}"
        )


def _sizes(setting: Setting) -> list[tuple[Shape, int, int, int]]:
    if setting.quick:
        return [(SMOLLM2, 1, 40, 1), (SMOLLM2, 1, 20, 20)]
    decodes = [(1, 512), (1, 4096), (8, 512), (8, 4096), (32, 512), (32, 4096), (128, 1024)]
    sizes = [(shape, sequences, context, 1) for shape in (SMOLLM2, LLAMA) for sequences, context in decodes]
    return sizes + [(shape, 1, 2048, 2048) for shape in (SMOLLM2, LLAMA)]


def splits(setting: Setting) -> Iterator[str]:
    """Is the number of splits that is chosen about the best? Milliseconds for each number, the chosen one starred."""
    tried = [1, 2, 3] if setting.quick else [1, 2, 4, 8, 16, 32, MAX_SPLITS]
    yield "model          batch  context  " + "".join(f"{count:>10}" for count in tried) + "    chosen"
    shape, sizes = SMOLLM2, [(1, 40)] if setting.quick else [(1, 1024), (1, 8192), (8, 4096), (32, 4096), (128, 1024)]
    processors = torch.cuda.get_device_properties(setting.device).multi_processor_count if setting.is_gpu else 1
    for sequences, context in sizes:
        case = Decodes(shape, sequences, context, setting)
        tiles = plan_tiles(sequences, sequences, 1, shape.heads, shape.kv_heads, shape.head_dim, 2)
        chosen = choose_splits(tiles.programs, context, processors)
        times = [milliseconds(partial(case.paged, count), setting) for count in tried]
        mine = milliseconds(partial(case.paged, chosen), setting)
        yield (
            f"{shape.name:13} {sequences:6} {context:8}  "
            + "".join(f"{ms:10.4f}" for ms in times)
            + f"  {chosen:3}: {mine:.4f}"
        )
