"""Paged attention against PyTorch's attention over contiguous keys and values: ``python -m tests.bench.attention``.

One decode step of one layer in the shape of SmolLM2-135M (9 heads, 3 KV heads, head dim 64), blocks of 16 tokens in
random places. Both are timed in turn, several times; the ratio is the median of the ratios of the pairs. Contiguous
attention is the faster of two ways to share keys within a group: ``enable_gqa``, or the group as query rows.
``--threads 1`` measures the thread's own time, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels.batch import PagedBatch
from kernels.dispatch import AttentionBackend, select_backend

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 9, 3, 64, 16


def decode_batch(sequences: int, context: int, device: torch.device) -> PagedBatch:
    """``sequences`` decodes, every block somewhere else."""
    blocks = -(-context // BLOCK_SIZE)
    ones = torch.ones(sequences, dtype=torch.int32, device=device)
    return PagedBatch(
        query_start=torch.arange(sequences + 1, dtype=torch.int32, device=device),
        context_len=ones * context,
        block_table=torch.randperm(sequences * blocks).int().view(sequences, blocks).to(device),
        block_size=ones * BLOCK_SIZE,
        slot_base=torch.zeros(sequences, dtype=torch.int64, device=device),
        slot_mapping=torch.arange(sequences, device=device),
        max_query_len=1,
        max_context_len=context,
    )


def milliseconds(call: Callable[[], torch.Tensor], device: torch.device) -> float:
    clock = time.thread_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    started = clock()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (clock() - started) * 1e3


def compare(
    backend: AttentionBackend, device: torch.device, dtype: torch.dtype, sequences: int, context: int, repeats: int
) -> tuple[float, float, float]:
    """Median milliseconds of paged and of contiguous attention, and the median ratio of the pairs."""
    batch = decode_batch(sequences, context, device)
    slots = batch.block_table.numel() * BLOCK_SIZE
    key_cache, value_cache = (torch.randn(slots, KV_HEADS, HEAD_DIM, device=device).to(dtype) for _ in range(2))
    query = torch.randn(sequences, HEADS, HEAD_DIM, device=device).to(dtype)
    token = torch.arange(context, device=device)
    places = batch.block_table.long()[:, token // BLOCK_SIZE] * BLOCK_SIZE + token % BLOCK_SIZE
    key, value = (cache[places].transpose(1, 2).contiguous() for cache in (key_cache, value_cache))
    scale, rows = HEAD_DIM**-0.5, query[:, :, None]
    grouped = query.view(sequences, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)

    def paged() -> torch.Tensor:
        return backend.paged_attention(query, key_cache, value_cache, batch, scale)

    contiguous = (
        lambda: scaled_dot_product_attention(rows, key, value, enable_gqa=True),
        lambda: scaled_dot_product_attention(grouped, key, value),
    )
    for call in contiguous:
        expected = call().reshape(sequences, HEADS, HEAD_DIM)
        torch.testing.assert_close(paged(), expected, rtol=2e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-2)
    best = min(contiguous, key=lambda call: statistics.median(milliseconds(call, device) for _ in range(5)))
    pairs = [(milliseconds(paged, device), milliseconds(best, device)) for _ in range(repeats)]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return ours, theirs, statistics.median(a / b for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25, help="paired runs of each shape (default 25)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads on the CPU")
    options = parser.parse_args()
    repeats = options.repeats
    torch.set_num_threads(options.threads)
    devices = [torch.device("cpu")] + ([torch.device("cuda")] if torch.cuda.is_available() else [])
    print("backend   dtype     batch  context   paged ms  contiguous ms  ratio")
    for device in devices:
        for dtype in (torch.float32, torch.bfloat16):
            backend = select_backend(device, dtype)
            backend.warm_up(HEADS, KV_HEADS, HEAD_DIM, dtype)
            for sequences in (1, 8):
                for context in (512, 4096):
                    ours, theirs, ratio = compare(backend, device, dtype, sequences, context, repeats)
                    name = str(dtype).removeprefix("torch.")
                    print(
                        f"{backend.name:9} {name:9} {sequences:5}  {context:7}  {ours:9.3f}  {theirs:13.3f}  {ratio:5.2f}"
                    )


if __name__ == "__main__":
    main()
