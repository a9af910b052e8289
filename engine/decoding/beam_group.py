"""Beam search of one request on its sequences: each running beam has a block table, hypotheses are tokens only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.decoding.beam_search import BeamSearch, BeamStep, Hypothesis
from engine.sequence import Request, Sequence

NewSequence = Callable[[Sequence], Sequence]
"""A further sequence of the same request, with the tokens that its parent has."""


@dataclass(slots=True)
class Branching:
    """What a step does to the sequences. ``forks``: (parent, child) that share blocks; ``ended``: new hypotheses as (parent,
    child, last token, or None: the parent as it is); ``chosen``: (parent, sequence, token) that run on; ``dropped``:
    sequences that the search goes on without."""

    forks: list[tuple[Sequence, Sequence]] = field(default_factory=list)
    ended: list[tuple[Sequence, Sequence, int | None]] = field(default_factory=list)
    chosen: list[tuple[Sequence, Sequence, int]] = field(default_factory=list)
    dropped: list[Sequence] = field(default_factory=list)


class BeamGroup:
    """Maps running beams and hypotheses of a ``BeamSearch`` to sequences (paper section 4.4, Figure 9)."""

    def __init__(self, request: Request, stop_ids: frozenset[int]) -> None:
        sampling = request.sampling
        self.search = BeamSearch(
            request.width, stop_ids, sampling.length_penalty, sampling.early_stopping, request.max_tokens
        )
        self.running = list(request.sequences)
        self._hypotheses: dict[int, Sequence] = {}

    def advance(self, candidates: dict[Sequence, list[tuple[int, float]]], new: NewSequence) -> Branching:
        """One step from each running beam's candidates (token, log probability)."""
        return self._apply(self.search.advance([candidates[sequence] for sequence in self.running]), new)

    def close(self, new: NewSequence) -> Branching:
        """End where no memory is left for another token."""
        return self._apply(self.search.close(), new)

    def answers(self, count: int) -> list[tuple[Sequence, Hypothesis]]:
        """The best hypotheses, best first."""
        return [(self._hypotheses[found.number], found) for found in self.search.results(count)]

    def _apply(self, step: BeamStep, new: NewSequence) -> Branching:
        result = Branching()
        parents = self.running
        for found in step.finished:
            parent = parents[found.parent]
            child = new(parent)
            self._hypotheses[found.number] = child
            result.ended.append((parent, child, found.token))
        self.running = []
        going_on: set[Sequence] = set()
        for at, token, _ in step.children:
            # A parent's first child keeps its table; the others fork from it.
            child = parents[at] if parents[at] not in going_on else new(parents[at])
            if child is parents[at]:
                going_on.add(child)
            else:
                result.forks.append((parents[at], child))
            self.running.append(child)
            result.chosen.append((parents[at], child, token))
        result.dropped = [parent for parent in parents if parent not in going_on]
        result.dropped += [self._hypotheses.pop(found.number) for found in step.dropped]
        return result
