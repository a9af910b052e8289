"""From logits to tokens. A sample depends on its own logits, seed and position alone, never on the batch around it."""

from __future__ import annotations

import math

import numpy as np
import torch

from engine.messages import Sampling


def uniform(seed: int, sample: int, position: int) -> float:
    """A number in [0, 1) that is a pure function of its arguments: the counter-based generator Philox.

    Being stateless it survives preemption: a token that is sampled again after recomputation is the same token.
    ``seed`` is taken modulo 2**64.
    """
    generator = np.random.Philox(key=seed % 2**64, counter=[0, 0, sample, position])
    return float(np.random.Generator(generator).random())


def check(sampling: Sampling) -> tuple[str, str] | None:
    """The first field that is out of its range and why, or None."""
    if sampling.max_tokens < 1:
        return "max_tokens", f"max_tokens is {sampling.max_tokens}, the least is 1"
    if not (math.isfinite(sampling.temperature) and 0 <= sampling.temperature <= 100):
        return "temperature", f"temperature is {sampling.temperature}: choose 0 (greedy) to 100"
    if not 0 < sampling.top_p <= 1:
        return "top_p", f"top_p is {sampling.top_p}: choose a share above 0 and at most 1"
    if sampling.top_k < 0:
        return "top_k", f"top_k is {sampling.top_k}: choose 0 (off) or a count of at least 1"
    if any(not stop for stop in sampling.stop):
        return "stop", "a stop string is empty and would end every text at once: leave it out"
    return None


def sample(logits: torch.Tensor, choices: list[tuple[Sampling, int, int]]) -> list[tuple[int, float]]:
    """One token for each row.

    Args:
        logits: float32 [rows, vocabulary].
        choices: for each row its sampling settings, seed and position in the sequence.

    Returns:
        (token, log probability under temperature 1 of the unfiltered distribution) for each row.
    """
    normaliser = torch.logsumexp(logits, dim=-1)
    best = logits.argmax(dim=-1)
    tokens = [
        int(best[row]) if settings.temperature == 0 else _draw(logits[row], settings, seed, position)
        for row, (settings, seed, position) in enumerate(choices)
    ]
    picked = logits[torch.arange(len(tokens), device=logits.device), torch.tensor(tokens, device=logits.device)]
    return list(zip(tokens, (picked - normaliser).tolist(), strict=True))


def _draw(logits: torch.Tensor, settings: Sampling, seed: int, position: int) -> int:
    """Inverse transform sampling over the tokens that top-k and top-p leave, most likely first."""
    # From the best one down and in float64, so that the smallest temperature is greedy and not an overflow.
    scaled = (logits - logits.max()).double() / settings.temperature
    ordered, tokens = torch.sort(scaled, descending=True, stable=True)
    if settings.top_k:
        ordered = ordered[: settings.top_k]
    mass = torch.softmax(ordered, dim=-1).cumsum(dim=-1)
    # The nucleus is the shortest head whose mass reaches top_p; its last member is the one that crosses.
    kept = min(int(torch.searchsorted(mass, settings.top_p)) + 1, len(mass))
    target = uniform(seed, 0, position) * float(mass[kept - 1])
    index = int(torch.searchsorted(mass[:kept], target, right=True))
    return int(tokens[min(index, kept - 1)])
