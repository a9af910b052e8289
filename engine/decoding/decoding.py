"""What the picked tokens do to the sequences of a request: they go on, fork, and end (paper sections 4.4 and 5.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.decoding.answers import Answers
from engine.decoding.beam_group import BeamGroup, Branching
from engine.decoding.sampling import Picked, Row
from engine.decoding.text import Vocabulary
from engine.events import SequenceFinished, SequenceForked, TokenGenerated
from engine.memory.memory_manager import Emit, MemoryManager
from engine.messages import TokenLogprob
from engine.sequence import Request, Sequence


@dataclass(frozen=True, slots=True)
class Decoding:
    """Applies picks to sequences. ``new`` makes a further sequence of a request, with what its parent has. ``beams``: the
    searches that are under way."""

    manager: MemoryManager
    answers: Answers
    vocabulary: Vocabulary
    eos: frozenset[int]
    emit: Emit
    new: Callable[[Sequence], Sequence]
    beams: dict[Request, BeamGroup] = field(default_factory=dict)

    def row(self, sequence: Sequence) -> Row:
        """What to pick for a sequence whose last known token is run in this step."""
        request = sequence.request
        if request.sampling.beam_search:
            if request not in self.beams:
                self.beams[request] = BeamGroup(request, self._stop_ids(request))
            samples: tuple[int, ...] = ()
        elif request.branched:
            samples = (sequence.sample,)
        else:
            samples = tuple(range(request.width))
        return Row(
            sampling=request.sampling,
            seed=request.seed,
            samples=samples,
            position=len(sequence.tokens),
            prompt=sequence.tokens[: request.prompt_tokens],
            outputs=sequence.outputs,
            stop_ids=self._stop_ids(request),
            candidates=self.beams[request].search.candidates if request in self.beams else 0,
        )

    def apply(self, request: Request, picks: dict[Sequence, Picked]) -> list[Sequence]:
        """Go on with the picks of all sequences of ``request`` that ran; returns those that have ended with it."""
        if request in self.beams:
            return self._beams(request, self.beams[request], picks)
        ended: list[Sequence] = []
        for sequence, picked in picks.items():
            siblings = [sequence]
            if not request.branched:
                siblings += self._branch(request, sequence)
            for sibling, (token, logprob) in zip(siblings, picked.tokens, strict=True):
                self._append(sibling, token, logprob, picked)
                if self._ends(sibling, token):
                    ended.append(sibling)
        return ended

    def close(self, request: Request, reason: str) -> list[Sequence]:
        """End all sequences where they are; returns those that the request now consists of and that end with it."""
        if request in self.beams:
            self._settle(request, self.beams[request].close(self.new), {}, reason)
            return []
        for sequence in request.live:
            sequence.finish = reason
        return [sequence for sequence in request.sequences if sequence.finish == reason]

    def ranking(self, request: Request) -> list[Sequence]:
        """The answers of a request whose sequences compete, best first: by the score of their hypotheses, or else by the
        mean log probability of their tokens."""
        count = request.sampling.n
        if request in self.beams:
            return [sequence for sequence, _ in self.beams[request].answers(count)]
        told = [sequence for sequence in request.sequences if sequence.outputs]
        return sorted(told, key=lambda sequence: -sequence.logprob / len(sequence.outputs))[:count]

    def forget(self, request: Request) -> None:
        """The request is over."""
        self.beams.pop(request, None)

    def _stop_ids(self, request: Request) -> frozenset[int]:
        sampling = request.sampling
        return frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else self.eos)

    def _branch(self, request: Request, leader: Sequence) -> list[Sequence]:
        """The prompt has been computed: the other samples fork from the first."""
        request.branched = True
        siblings: list[Sequence] = []
        for sample in range(1, request.width):
            child = self.new(leader)
            child.sample = sample
            self.emit(SequenceForked(child.number, leader.number))
            self.manager.fork(leader, child)
            siblings.append(child)
        return siblings

    def _append(self, sequence: Sequence, token: int, logprob: float, picked: Picked) -> None:
        sequence.tokens.append(token)
        sequence.logprob += logprob
        self.emit(TokenGenerated(sequence.number, token, self.vocabulary.token_text(token), logprob))
        sampling = sequence.request.sampling
        is_stop = token in self._stop_ids(sequence.request)
        may_stop = len(sequence.outputs) >= sampling.min_tokens
        score = None if sampling.logprobs is None else self._score(token, logprob, picked)
        stopped = self.answers.push(sequence, token, score, may_stop, silent=is_stop and may_stop)
        if stopped and not is_stop:
            sequence.stop_reason = stopped

    def _ends(self, sequence: Sequence, token: int) -> bool:
        request = sequence.request
        outputs = len(sequence.outputs)
        if outputs >= request.sampling.min_tokens and (token in self._stop_ids(request) or sequence.stop_reason):
            sequence.finish = "stop"
            if token in request.sampling.stop_token_ids:
                sequence.stop_reason = token
        elif outputs >= request.max_tokens:
            sequence.finish = "length"
        return bool(sequence.finish)

    def _score(self, token: int, logprob: float, picked: Picked) -> TokenLogprob:
        text = self.vocabulary.token_text
        return TokenLogprob(token, text(token), logprob, [(other, text(other), score) for other, score in picked.top])

    def _beams(self, request: Request, group: BeamGroup, picks: dict[Sequence, Picked]) -> list[Sequence]:
        request.branched = True
        candidates = {sequence: picked.candidates for sequence, picked in picks.items()}
        self._settle(request, group.advance(candidates, self.new), picks, "length")
        return []

    def _settle(self, request: Request, step: Branching, picks: dict[Sequence, Picked], cut: str) -> None:
        """Make the sequences what a step of beam search says. ``cut``: why hypotheses end that no stop token ended."""
        for parent, child in [*step.forks, *((parent, child) for parent, child, _ in step.ended)]:
            self.emit(SequenceForked(child.number, parent.number))
            self.answers.fork(parent, child)
        for sequence in step.dropped:
            self.drop(sequence)
        # Hypotheses have no memory, and some beams have theirs in the CPU pool.
        self.manager.branch(
            step.forks, [one for one in step.dropped if one.table.blocks or self.manager.cpu_table(one)]
        )
        for parent, child, token in step.ended:
            child.finish = cut
            if token is not None:
                self._append(child, token, dict(picks[parent].candidates)[token], picks[parent])
                if token in self._stop_ids(request):
                    child.finish = "stop"
                    child.stop_reason = token if token in request.sampling.stop_token_ids else None
            self.emit(SequenceFinished(child.number, child.finish, len(child.outputs)))
        for parent, child, token in step.chosen:
            self._append(child, token, dict(picks[parent].candidates)[token], picks[parent])

    def drop(self, sequence: Sequence) -> None:
        """A sequence that beam search goes on without, or a hypothesis that was beaten."""
        self.emit(SequenceFinished(sequence.number, "dropped", len(sequence.outputs)))
        sequence.finish = "dropped"
        sequence.request.sequences.remove(sequence)
        self.answers.forget(sequence)
