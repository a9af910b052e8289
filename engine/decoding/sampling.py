"""From logits to tokens. A row's tokens depend on its own logits and settings alone, never on the batch around it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from engine.decoding.beam_search import EARLY_STOPPING
from engine.decoding.logits import applies, best, process
from engine.messages import Sampling

MAX_LOGPROBS = 20

Scored = tuple[int, float]


def uniform(seed: int, sample: int, position: int) -> float:
    """A number in [0, 1) that is a pure function of its arguments: the counter-based generator Philox.

    Being stateless it survives preemption: a token that is sampled again after recomputation is the same token.
    ``seed`` is taken modulo 2**64.
    """
    generator = np.random.Philox(key=seed % 2**64, counter=[0, 0, sample, position])
    return float(np.random.Generator(generator).random())


def check(sampling: Sampling, vocabulary: int | None = None) -> tuple[str, str] | None:
    """The first field that is out of its range and why, or None. With ``vocabulary``, its size, tokens are checked too."""
    return next(((name, why) for name, holds, why in _rules(sampling, vocabulary) if not holds), None)


def _rules(s: Sampling, vocabulary: int | None) -> Iterator[tuple[str, bool, str]]:
    """(field, whether it holds, what is wrong if not). The comparisons are put so that nan never holds."""
    yield "max_tokens", s.max_tokens >= 1, f"max_tokens is {s.max_tokens}, the least is 1"
    yield (
        "min_tokens",
        0 <= s.min_tokens <= s.max_tokens,
        f"min_tokens is {s.min_tokens}: choose 0 to max_tokens, which is {s.max_tokens}",
    )
    for name, least, most, off in (
        ("temperature", 0, 100, "0 is greedy"),
        ("min_p", 0, 1, "0 is off"),
        ("repetition_penalty", 0.01, 100, "1 is off"),
        ("presence_penalty", -2, 2, "0 is off"),
        ("frequency_penalty", -2, 2, "0 is off"),
        ("length_penalty", -10, 10, "0 is off"),
    ):
        value = getattr(s, name)
        yield name, least <= value <= most, f"{name} is {value}: choose {least} to {most}; {off}"
    yield "top_p", 0 < s.top_p <= 1, f"top_p is {s.top_p}: choose a share above 0 and at most 1"
    yield "top_k", s.top_k >= 0, f"top_k is {s.top_k}: choose 0 (off) or a count of at least 1"
    known = "0 or more" if vocabulary is None else f"0 to {vocabulary - 1}"
    for token in (*s.logit_bias, *s.stop_token_ids):
        name = "logit_bias" if token in s.logit_bias else "stop_token_ids"
        exists = token >= 0 and (vocabulary is None or token < vocabulary)
        yield name, exists, f"{name} names token {token}, which does not exist: choose {known}"
    for token, bias in s.logit_bias.items():
        yield "logit_bias", -100 <= bias <= 100, f"logit_bias of token {token} is {bias}: choose -100 to 100"
    yield "stop", all(s.stop), "a stop string is empty and would end every text at once: leave it out"
    yield "n", s.n >= 1, f"n is {s.n}, the least is 1"
    enough = s.best_of == 0 or s.best_of >= s.n
    yield "best_of", enough, f"best_of is {s.best_of}: choose 0 (as many as n) or at least n, which is {s.n}"
    told = s.logprobs is None or 0 <= s.logprobs <= MAX_LOGPROBS
    yield "logprobs", told, f"logprobs is {s.logprobs}: choose 0 to {MAX_LOGPROBS}, or none"
    choices = ", ".join(EARLY_STOPPING)
    early = s.early_stopping in EARLY_STOPPING
    yield "early_stopping", early, f"early_stopping is {s.early_stopping!r}: choose one of {choices}"
    for name, default in () if s.beam_search else (("length_penalty", 1.0), ("early_stopping", "false")):
        value = getattr(s, name)
        yield name, value == default, f"{name} is {value!r} and is for beam search only: leave it out or ask for beams"
    if s.beam_search:
        for name, idle in (("temperature", 0), ("top_p", 1), ("top_k", 0), ("min_p", 0)):
            value = getattr(s, name)
            yield (
                name,
                value == idle,
                f"{name} is {value} and beam search draws nothing: choose {idle} or no beam search",
            )
        yield (
            "stop",
            not s.stop,
            "beam search ends at tokens, not at stop strings: choose stop_token_ids or no beam search",
        )


@dataclass(frozen=True, slots=True)
class Row:
    """What to pick from one row of logits.

    ``samples``: sample indices, one token is picked for each (paper section 4.4: a group whose prompt was just computed has
    one row for all its samples). ``position``: of the token to come, which with the seed and the sample index decides the
    draw. ``prompt`` and ``outputs``: the tokens so far. ``stop_ids``: what ``min_tokens`` holds back. ``candidates``: how
    many tokens a beam asks for.
    """

    sampling: Sampling
    seed: int
    samples: tuple[int, ...]
    position: int
    prompt: list[int]
    outputs: list[int]
    stop_ids: frozenset[int] = frozenset()
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class Picked:
    """What one row gave, as (token, log probability).

    ``tokens``: one for each sample. ``top``: the ``logprobs`` best ones, best first. Both with the log probability that the
    model gives, at temperature 1 and before any setting. ``candidates``: a beam's best continuations, best first, with their
    scores: log probabilities that bias, penalties and ``min_tokens`` then change, as transformers does it in beam search
    (its sampling changes the logits). Continuations of probability 0 are left out.
    """

    tokens: list[Scored] = field(default_factory=list)
    top: list[Scored] = field(default_factory=list)
    candidates: list[Scored] = field(default_factory=list)


def pick(logits: torch.Tensor, rows: list[Row]) -> list[Picked]:
    """Choose tokens for ``rows`` from ``logits``, float32 [rows, vocabulary]."""
    # log_softmax treats each row alike in any batch; logsumexp does not: its last bits change with the number of rows.
    logprobs = torch.log_softmax(logits, dim=-1)
    best_tokens = logits.argmax(dim=-1).tolist() if any(_is_plain(row) for row in rows) else []
    chosen = [
        best_tokens[at : at + 1] * len(row.samples) if _is_plain(row) else _choose(logits[at], row)
        for at, row in enumerate(rows)
    ]
    where = [at for at, tokens in enumerate(chosen) for _ in tokens]
    flat = [token for tokens in chosen for token in tokens]
    scores = iter(_at(logprobs, where, flat))
    return [
        Picked(
            tokens=[(token, next(scores)) for token in tokens],
            top=_pairs(logprobs[at], row.sampling.logprobs or 0),
            candidates=_candidates(logprobs[at], row),
        )
        for at, (row, tokens) in enumerate(zip(rows, chosen, strict=True))
    ]


def prompt_logprobs(logits: torch.Tensor, targets: list[int], count: int) -> list[tuple[float, list[Scored]]]:
    """How likely the model held a text that was given.

    Args:
        logits: float32 [tokens, vocabulary], row i computed from the text up to and with token i.
        targets: the token that follows each row.
        count: how many of the likeliest tokens to tell.

    Returns:
        For each row the target's log probability and the ``count`` likeliest (token, log probability), best first.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    scores = _at(logprobs, list(range(len(targets))), targets)
    return [(score, _pairs(row, count)) for score, row in zip(scores, logprobs, strict=True)]


def _is_plain(row: Row) -> bool:
    return row.sampling.temperature == 0 and not applies(row.sampling, row.outputs)


def _choose(logits: torch.Tensor, row: Row) -> list[int]:
    """A token for each sample of a row that is more than an argmax."""
    if not row.samples:
        return []
    scores = _processed(logits, row)
    if row.sampling.temperature == 0:
        return [int(scores.argmax())] * len(row.samples)
    return _draw(scores, row)


def _draw(scores: torch.Tensor, row: Row) -> list[int]:
    """Inverse transform sampling over the tokens that temperature, top-k, top-p and min-p leave, in this order.

    Of equally likely tokens each filter leaves all or none, so that no order among them matters.
    """
    settings = row.sampling
    tokens = None
    if 0 < settings.top_k < len(scores):
        # The temperature changes no order, so the few that top-k leaves are found first.
        least = scores.topk(settings.top_k, sorted=False).values.min()
        tokens = torch.nonzero(~(scores < least)).flatten()
        scores = scores[tokens]
    # From the best one down and in float64, so that the smallest temperature is greedy and not an overflow.
    weights = ((scores - scores.max()).double() / settings.temperature).exp()
    # Weights are relative to the best token's, as min-p is.
    lightest = max(settings.min_p, _lightest_of_nucleus(weights, settings.top_p) if settings.top_p < 1 else 0)
    if lightest:
        weights = torch.where(weights < lightest, 0.0, weights)
    mass = weights.cumsum(dim=-1)
    whole = float(mass[-1])
    # Uniforms end at 1 - 2**-53, so each product is below the whole and the token found has a weight of its own.
    targets = [uniform(row.seed, sample, row.position) * whole for sample in row.samples]
    found = torch.searchsorted(mass, torch.tensor(targets, dtype=mass.dtype, device=mass.device), right=True)
    found = found.clamp(max=len(mass) - 1)
    return (found if tokens is None else tokens[found]).tolist()


def _lightest_of_nucleus(weights: torch.Tensor, share: float) -> float:
    """Weight of the last token in the nucleus, the shortest head whose mass reaches ``share``: it crosses the border."""
    whole = float(weights.sum())
    # Whatever is lighter weighs, all together, less than may be left out: the nucleus is among the rest.
    heavy = weights[~(weights < (1 - share) * whole / len(weights))]
    # numpy sorts values alone and ten times as fast as torch, which sorts their places too.
    ordered = np.sort(heavy.cpu().numpy())[::-1]
    crossing = int(np.searchsorted(ordered.cumsum(), share * whole))
    return float(ordered[min(crossing, len(ordered) - 1)])


def _candidates(logprobs: torch.Tensor, row: Row) -> list[Scored]:
    if not row.candidates:
        return []
    return [(token, score) for token, score in _pairs(_processed(logprobs, row), row.candidates) if score > -math.inf]


def _processed(scores: torch.Tensor, row: Row) -> torch.Tensor:
    if not applies(row.sampling, row.outputs):
        return scores
    return process(scores, row.sampling, row.prompt, row.outputs, row.stop_ids)


def _pairs(scores: torch.Tensor, count: int) -> list[Scored]:
    if not count:
        return []
    ordered, tokens = best(scores, count)
    return list(zip(tokens.tolist(), ordered.tolist(), strict=True))


def _at(scores: torch.Tensor, rows: list[int], tokens: list[int]) -> list[float]:
    index = torch.tensor([rows, tokens], dtype=torch.long, device=scores.device)
    return scores[index[0], index[1]].tolist()
