"""What settings do to one row of scores before a token is chosen, and the best tokens of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch

from engine.messages import Sampling


def applies(sampling: Sampling, outputs: list[int]) -> bool:
    """Whether ``process`` would change anything."""
    return bool(
        sampling.logit_bias
        or sampling.repetition_penalty != 1
        or sampling.presence_penalty
        or sampling.frequency_penalty
        or len(outputs) < sampling.min_tokens
    )


def process(
    scores: torch.Tensor, sampling: Sampling, prompt: list[int], outputs: list[int], stop_ids: frozenset[int]
) -> torch.Tensor:
    """Bias, then penalties, then the least number of tokens. ``scores`` stays as it is.

    Args:
        scores: float32 [vocabulary], logits or log probabilities.
        prompt, outputs: the tokens so far. The repetition penalty counts both, once each, and divides a positive score and
            multiplies a negative one, as in transformers. The presence and frequency penalties count outputs alone and are
            subtracted, as in OpenAI's API.
        stop_ids: cannot be chosen before ``min_tokens`` outputs, unless the vocabulary has nothing else.

    Tokens that the vocabulary does not have are left out.
    """
    scores = scores.clone()
    size = len(scores)
    if sampling.logit_bias:
        biased = _known(sampling.logit_bias, size)
        scores[_index(biased, scores)] += _values([sampling.logit_bias[token] for token in biased], scores)
    if sampling.repetition_penalty != 1:
        seen = _index(_known({*prompt, *outputs}, size), scores)
        old = scores[seen]
        scores[seen] = torch.where(old < 0, old * sampling.repetition_penalty, old / sampling.repetition_penalty)
    if sampling.presence_penalty or sampling.frequency_penalty:
        counts = Counter(outputs)
        chosen = _known(counts, size)
        penalties = [sampling.presence_penalty + sampling.frequency_penalty * counts[token] for token in chosen]
        scores[_index(chosen, scores)] -= _values(penalties, scores)
    if len(outputs) < sampling.min_tokens:
        stops = _known(stop_ids, size)
        if len(stops) < size:
            scores[_index(stops, scores)] = -torch.inf
    return scores


def best(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``count`` (at least 1) best of ``scores`` [vocabulary], best first, and their tokens; of equals the lower first.

    ``topk`` alone promises no order among equals, and 16-bit logits have many.
    """
    least = scores.topk(min(count, len(scores)), sorted=False).values.min()
    tokens = torch.nonzero(~(scores < least)).flatten()
    ordered, order = torch.sort(scores[tokens], descending=True, stable=True)
    return ordered[:count], tokens[order[:count]]


def _known(tokens: Iterable[int], size: int) -> list[int]:
    return [token for token in tokens if 0 <= token < size]


def _index(tokens: list[int], scores: torch.Tensor) -> torch.Tensor:
    return torch.tensor(tokens, dtype=torch.long, device=scores.device)


def _values(values: list[float], scores: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=scores.dtype, device=scores.device)
