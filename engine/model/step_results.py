"""From the logits of a pass to what each arena is told: picked tokens, and log probabilities of prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from engine.decoding.decoding import Decoding
from engine.decoding.sampling import Picked, pick, prompt_logprobs
from engine.messages import TokenLogprob
from engine.model.step_inputs import Entry
from engine.scheduler import Chunk
from engine.sequence import Sequence


@dataclass(slots=True)
class Result:
    """An arena's part of a pass: its chunks, the picks of those that sample, in order, and prompts' tokens scored from a
    position on."""

    chunks: list[Chunk] = field(default_factory=list)
    picks: list[Picked] = field(default_factory=list)
    scored: list[tuple[Sequence, int, list[TokenLogprob]]] = field(default_factory=list)


def read(entries: list[Entry], logits: torch.Tensor, decoding: Callable[[str], Decoding]) -> dict[str, Result]:
    """Pick tokens for all arenas at once. ``logits``: float32 [rows that the entries want, vocabulary]."""
    results: dict[str, Result] = {}
    sampling: list[Entry] = []
    last_rows: list[int] = []
    row = 0
    for entry in entries:
        result = results.setdefault(entry.arena, Result())
        result.chunks.append(entry.chunk)
        if entry.every_row:
            first, scores = score(entry.chunk, logits[row : row + entry.rows], decoding(entry.arena))
            result.scored.append((entry.chunk.sequence, first, scores))
        row += entry.rows
        if entry.chunk.sample:
            sampling.append(entry)
            last_rows.append(row - 1)
    if sampling:
        chosen = logits if len(last_rows) == len(logits) else logits[torch.tensor(last_rows, device=logits.device)]
        rows = [decoding(entry.arena).row(entry.chunk.sequence) for entry in sampling]
        for entry, picked in zip(sampling, pick(chosen, rows), strict=True):
            results[entry.arena].picks.append(picked)
    return results


def score(chunk: Chunk, logits: torch.Tensor, decoding: Decoding) -> tuple[int, list[TokenLogprob]]:
    """Log probabilities of the prompt's tokens that follow the chunk's rows, and the position of the first; the very first
    token of a prompt, which nothing predicts, comes without."""
    sequence = chunk.sequence
    prompt = sequence.tokens[: sequence.request.prompt_tokens]
    targets = prompt[chunk.start + 1 : chunk.start + chunk.count + 1]
    text = decoding.vocabulary.token_text
    known = prompt_logprobs(logits[: len(targets)], targets, sequence.request.sampling.logprobs or 0)
    scores = [
        TokenLogprob(token, text(token), logprob, [(other, text(other), value) for other, value in top])
        for token, (logprob, top) in zip(targets, known, strict=True)
    ]
    if chunk.start == 0:
        return 0, [TokenLogprob(prompt[0], text(prompt[0]), None), *scores]
    return chunk.start + 1, scores
