"""Beam search (paper section 4.4), with the rules of transformers: which beams go on, and which texts are kept.

A step looks at every continuation of every running beam. Of the ``width`` best ones those that end become hypotheses;
the ``width`` best that do not end run on. A hypothesis scores its summed log probabilities, divided by its length to the
power of ``length_penalty``, and the ``width`` best hypotheses are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

EARLY_STOPPING = ("false", "true", "never")

Child = tuple[int, int, float]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text that has ended: running beam ``parent``, as it was before the step, and then ``token``.

    ``number`` counts them in the order of their ending and names this one for good. ``token`` is None where the beam was cut
    short by ``close``. ``length``: generated tokens. ``stopped``: by a stop token, else by its length.
    """

    number: int
    parent: int
    token: int | None
    score: float
    length: int
    stopped: bool


@dataclass(frozen=True, slots=True)
class BeamStep:
    """What a step changed.

    ``children``: (parent, token, summed log probability) of the beams that run from now on, best first; their place in the
    list is their index in the next step. A parent may have several children or none. ``finished``: hypotheses that are new;
    ``dropped``: earlier ones that better ones drove out. When ``done`` nothing runs any more and children is empty.
    """

    children: list[Child] = field(default_factory=list)
    finished: list[Hypothesis] = field(default_factory=list)
    dropped: list[Hypothesis] = field(default_factory=list)
    done: bool = False


class BeamSearch:
    """One search. It begins with a single running beam, the prompt.

    Args:
        width: beams that run and hypotheses that are kept.
        stop_ids: tokens that end a text; the text keeps them.
        length_penalty: above 0 it favours long texts, since log probabilities are negative.
        early_stopping: when to stop with ``width`` hypotheses at hand. ``"true"``: at once. ``"false"``: when the best
            running beam, were it to end now, would be no better than the worst hypothesis. ``"never"``: when it would be no
            better either if it lost no probability from now on and ended at the length that favours it most.
        max_new_tokens: length at which every beam ends.

    Raises ValueError where a value is out of its range.
    """

    def __init__(
        self, width: int, stop_ids: frozenset[int], length_penalty: float, early_stopping: str, max_new_tokens: int
    ) -> None:
        if width < 1:
            raise ValueError(f"width is {width}, the least is 1")
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {max_new_tokens}, the least is 1")
        if early_stopping not in EARLY_STOPPING:
            raise ValueError(f"early_stopping is {early_stopping!r}: choose one of {', '.join(EARLY_STOPPING)}")
        self.width = width
        self.done = False
        self._stop_ids = stop_ids
        self._penalty = length_penalty
        self._early = early_stopping
        self._most = max_new_tokens
        self._length = 0
        self._running = [0.0]
        self._kept: list[Hypothesis] = []
        self._ended = 0

    @property
    def running(self) -> list[float]:
        """Summed log probability of each running beam."""
        return list(self._running)

    @property
    def candidates(self) -> int:
        """How many continuations of each beam ``advance`` needs, so that ``width`` are left when all stop tokens are out.

        transformers takes (stop ids + 1) x width of all beams together; what it then chooses is always among these.
        """
        return self.width + len(self._stop_ids)

    def advance(self, candidates: list[list[tuple[int, float]]]) -> BeamStep:
        """One step, from the best (token, log probability) of each running beam.

        Raises ValueError when the lists are not one for each running beam.
        """
        if len(candidates) != len(self._running):
            raise ValueError(f"{len(candidates)} lists of candidates came for {len(self._running)} running beams")
        self._length += 1
        ranked = [
            (parent, token, score + logprob)
            for parent, (score, found) in enumerate(zip(self._running, candidates, strict=True))
            for token, logprob in found
        ]
        ranked.sort(key=lambda child: (-child[2], child[0], child[1]))
        last = self._length == self._most
        ending = [child for child in ranked[: self.width] if last or child[1] in self._stop_ids]
        children = [] if last else [child for child in ranked if child[1] not in self._stop_ids][: self.width]
        finished, dropped = self._keep([self._hypothesis(*child) for child in ending])
        self._running = [score for _, _, score in children]
        if self._is_done():
            self._running, children, self.done = [], [], True
        return BeamStep(children, finished, dropped, self.done)

    def close(self) -> BeamStep:
        """End the search before its time, where memory has no room for another token: running beams end as they are."""
        ending = [self._hypothesis(parent, None, score) for parent, score in enumerate(self._running) if self._length]
        finished, dropped = self._keep(ending)
        self._running, self.done = [], True
        return BeamStep([], finished, dropped, True)

    def results(self, count: int) -> list[Hypothesis]:
        """The ``count`` best hypotheses so far, best first; fewer where fewer have ended."""
        return self._kept[:count]

    def _hypothesis(self, parent: int, token: int | None, score: float) -> Hypothesis:
        number = self._ended
        self._ended += 1
        value = self._divide(score, self._length)
        return Hypothesis(number, parent, token, value, self._length, token in self._stop_ids)

    def _divide(self, score: float, length: int) -> float:
        return score / float(length**self._penalty)

    def _keep(self, new: list[Hypothesis]) -> tuple[list[Hypothesis], list[Hypothesis]]:
        """Which of the new hypotheses are kept, and which of the old ones are not any more. The older wins a tie."""
        old = self._kept
        self._kept = sorted(old + new, key=lambda hypothesis: -hypothesis.score)[: self.width]
        return [one for one in new if one in self._kept], [one for one in old if one not in self._kept]

    def _is_done(self) -> bool:
        if not self._running:
            return True
        if len(self._kept) < self.width:
            return False
        if self._early == "true":
            return True
        # Log probabilities add nothing, so only its length can make a beam better: the longer the better, above penalty 0.
        length = self._most if self._early == "never" and self._penalty > 0 else self._length
        return self._divide(self._running[0], length) <= self._kept[-1].score
