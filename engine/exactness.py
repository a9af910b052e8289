"""At load: does paged attention give this model the logits that its own attention gives?"""

from __future__ import annotations

import torch

from engine import step_inputs
from engine.attention_hook import NAME, UnsupportedAttention
from engine.block_table import BlockTable
from engine.messages import Sampling
from engine.model_runner import ModelRunner
from engine.scheduler import Chunk
from engine.sequence import Request, Sequence

LENGTHS = (1, 6, 18)
BLOCK_SIZE = 4
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


@torch.inference_mode()
def compare(runner: ModelRunner) -> float:
    """Largest difference of the logits of a packed batch of short and long sequences, relative to the largest logit.

    Prefills all but the last token of each and then decodes it, so both ways through the kernels are taken. Uses the
    first slots of the cache. Raises UnsupportedAttention above the tolerance of the model's dtype.
    """
    vocabulary = runner.model.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, vocabulary, (length,), generator=generator).tolist() for length in LENGTHS]
    paged = _paged_logits(runner, prompts)
    runner.model.set_attn_implementation("eager")
    try:
        eager = [runner.model(torch.tensor([prompt], device=runner.device)).logits[0, -1].float() for prompt in prompts]
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


def _paged_logits(runner: ModelRunner, prompts: list[list[int]]) -> torch.Tensor:
    sequences: list[Sequence] = []
    taken = 0
    for number, prompt in enumerate(prompts):
        table = BlockTable(BLOCK_SIZE)
        needed = table.missing(len(prompt))
        table.blocks = list(range(taken, taken + needed))[::-1]
        taken += needed
        sequences.append(Sequence(number, Request(number, len(prompt), Sampling(), "check", 0), prompt, table))
    prefill = [Chunk(sequence, 0, len(sequence.tokens) - 1) for sequence in sequences if len(sequence.tokens) > 1]
    decode = [Chunk(sequence, len(sequence.tokens) - 1, 1) for sequence in sequences]
    logits = torch.empty(0)
    for chunks in (prefill, decode):
        entries = [step_inputs.Entry(chunk, 0) for chunk in chunks]
        logits = runner.forward(step_inputs.build(entries, runner.device))
    return logits
