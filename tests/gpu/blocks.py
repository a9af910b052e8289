"""Moving blocks: one fused launch against one copy after the other, and swapping straight over the bus against staging."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from kernels import reference, triton_cache
from tests.gpu.timing import Setting, synchronize, transfer_milliseconds

BLOCK_SIZE = 16
PLANES, KV_HEADS, HEAD_DIM = 60, 3, 64  # keys and values of SmolLM2-135M's layers


def copies_and_swaps(setting: Setting) -> Iterator[str]:
    """Lines of a table. Blocks lie scattered; all layers move; GB/s count each byte once."""
    planes, most = (2, 4) if setting.quick else (PLANES, 1024)
    size = (planes, 2 * most * BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    cache = torch.randn(size, device=setting.device).to(torch.bfloat16)
    host = torch.zeros(size, dtype=torch.bfloat16, pin_memory=setting.is_gpu)
    yield "blocks    copy: fused ms  one by one ms   out: direct ms (GB/s)  staged ms   in: direct ms (GB/s)  staged ms"
    for blocks in (1, 4) if setting.quick else (1, 64, 1024):
        order = torch.randperm(2 * most)[: 2 * blocks] * BLOCK_SIZE
        moves = torch.stack([order[:blocks], order[blocks:], torch.full((blocks,), BLOCK_SIZE)], dim=1)
        gigabytes = blocks * BLOCK_SIZE * planes * KV_HEADS * HEAD_DIM * 2 / 1e9
        fused = transfer_milliseconds(partial(triton_cache.copy_blocks, cache, moves), setting)
        single = transfer_milliseconds(partial(reference.copy_blocks, cache, moves), setting)
        line = f"{blocks:6}    {fused:14.3f}  {single:13.3f}"
        for source, destination in ((cache, host), (host, cache)):
            direct = transfer_milliseconds(partial(triton_cache.swap_blocks, source, destination, moves), setting)
            moved = destination.clone()
            destination.zero_()
            staged = transfer_milliseconds(partial(stage, source, destination, moves, setting), setting)
            for _, target, count in moves.tolist():
                place = slice(target, target + count)
                torch.testing.assert_close(moved[:, place], destination[:, place], rtol=0, atol=0, equal_nan=True)
            line += f"   {direct:14.3f} ({gigabytes / direct * 1e3:5.1f})  {staged:9.3f}"
        yield line


def stage(source: torch.Tensor, destination: torch.Tensor, moves: torch.Tensor, setting: Setting) -> None:
    """The other way to swap: gather into one buffer, one copy over the bus, scatter."""
    token = torch.arange(BLOCK_SIZE)
    read, write = ((moves[:, column, None] + token).flatten() for column in (0, 1))
    buffer = source.index_select(1, read.to(source.device))
    if buffer.device != destination.device:
        there = torch.empty(buffer.shape, dtype=buffer.dtype, device=destination.device, pin_memory=source.is_cuda)
        there.copy_(buffer, non_blocking=True)
        synchronize(setting)
        buffer = there
    destination.index_copy_(1, write.to(destination.device), buffer)
