"""At load: does paged attention give this model the logits that its own attention gives?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from engine.model.attention_hook import NAME, UnsupportedAttention
from engine.model.model_runner import ModelRunner
from engine.model.step_inputs import StepInputs
from kernels.batch import PagedBatch

LENGTHS = (1, 6, 18)
BLOCK_SIZE = 4
NARROW = 8  # tokens in a sliding window while the check runs: the longest of LENGTHS leaves it, the others do not
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


@dataclass(frozen=True, slots=True)
class _Part:
    """Tokens ``start`` to ``end`` of a prompt that lies in ``blocks``."""

    prompt: list[int]
    blocks: list[int]
    start: int
    end: int


@torch.inference_mode()
def compare(runner: ModelRunner) -> float:
    """Largest difference of the logits of a packed batch of short and long sequences, relative to the largest logit.

    Prefills all but the last token of each and then decodes it, so both ways through the kernels are taken. A sliding
    window of thousands of tokens would take seconds to leave, so while the check runs every window is narrowed to
    ``NARROW`` tokens, for the model's own attention too: which layers slide, and which way, is compared, and only the
    number is taken on trust. Uses the first slots of the cache.

    Raises UnsupportedAttention above the tolerance of the model's dtype.
    """
    vocabulary = runner.model.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, vocabulary, (length,), generator=generator).tolist() for length in LENGTHS]
    with _narrowed(runner.model):
        paged = _paged_logits(runner, prompts)
        runner.model.set_attn_implementation("eager")
        try:
            eager = [_eager_logits(runner, prompt) for prompt in prompts]
        finally:
            runner.model.set_attn_implementation(NAME)
    difference = max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in zip(paged, eager, strict=True))
    limit = TOLERANCE[runner.dtype]
    if not difference <= limit:
        raise UnsupportedAttention(
            f"{type(runner.model).__name__}: paged and eager logits differ by {difference:.1e} and the limit in "
            f"{runner.dtype} is {limit:.0e}: this architecture does something in its attention that the kernels do not"
        )
    return difference


@contextmanager
def _narrowed(model: Any) -> Iterator[None]:
    """Cut the sliding windows that the model's layers pass to their attention, and those that its masks are made by."""
    parts: list[Any] = [part for module in model.modules() for part in (module, getattr(module, "config", None))]
    wide = {
        id(part): (part, window)
        for part in parts
        if isinstance(window := getattr(part, "sliding_window", None), int) and window > NARROW
    }.values()
    try:
        for part, _ in wide:
            part.sliding_window = NARROW
        yield
    finally:
        for part, window in wide:
            part.sliding_window = window


def _eager_logits(runner: ModelRunner, prompt: list[int]) -> torch.Tensor:
    ids = torch.tensor([prompt], device=runner.device)
    logits: torch.Tensor = runner.model(input_ids=ids, use_cache=False, return_dict=True).logits[0, -1]
    return logits.float()


def _paged_logits(runner: ModelRunner, prompts: list[list[int]]) -> torch.Tensor:
    """The logits after each prompt, whose blocks lie in reverse order."""
    tables: list[list[int]] = []
    taken = 0
    for prompt in prompts:
        needed = -(-len(prompt) // BLOCK_SIZE)
        tables.append(list(range(taken, taken + needed))[::-1])
        taken += needed
    wholes = [_Part(prompt, blocks, 0, len(prompt)) for prompt, blocks in zip(prompts, tables, strict=True)]
    prefills = [_Part(part.prompt, part.blocks, 0, part.end - 1) for part in wholes if part.end > 1]
    runner.forward(_inputs(prefills, runner.device))
    return runner.forward(_inputs([_Part(w.prompt, w.blocks, w.end - 1, w.end) for w in wholes], runner.device))


def _inputs(parts: list[_Part], device: torch.device) -> StepInputs:
    counts = [part.end - part.start for part in parts]
    query_start = torch.tensor([0, *counts]).cumsum(0)
    positions = [range(part.start, part.end) for part in parts]
    slots = [
        part.blocks[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
        for part, run in zip(parts, positions, strict=True)
        for position in run
    ]
    width = max(len(part.blocks) for part in parts)
    tables = [part.blocks + [0] * (width - len(part.blocks)) for part in parts]
    contexts = [part.end for part in parts]
    batch = PagedBatch(
        query_start=query_start.int().to(device),
        context_len=torch.tensor(contexts, dtype=torch.int32, device=device),
        block_table=torch.tensor(tables, dtype=torch.int32, device=device),
        block_size=torch.full((len(parts),), BLOCK_SIZE, dtype=torch.int32, device=device),
        slot_base=torch.zeros(len(parts), dtype=torch.int64, device=device),
        slot_mapping=torch.tensor(slots, dtype=torch.int64, device=device),
        max_query_len=max(counts),
        max_context_len=max(contexts),
    )
    return StepInputs(
        input_ids=torch.tensor(
            [[token for part in parts for token in part.prompt[part.start : part.end]]], device=device
        ),
        position_ids=torch.tensor([[position for run in positions for position in run]], device=device),
        sample_rows=(query_start[1:] - 1).to(device),
        batch=batch,
    )
