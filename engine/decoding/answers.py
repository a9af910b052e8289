"""What the clients of streamed requests read: text as it comes, or the best answers at the end."""

from __future__ import annotations

from engine.decoding.text import TextStream, Vocabulary
from engine.messages import Echo, Output, TokenLogprob
from engine.sequence import Request, Sequence


class Answers:
    """The outputs of one arena's requests. The text of a sequence that nobody reads is followed all the same where a stop
    string may end it."""

    def __init__(self, arena: str, vocabulary: Vocabulary) -> None:
        self._arena = arena
        self._vocabulary = vocabulary
        self._messages: list[Output | Echo] = []
        self._streams: dict[Sequence, TextStream] = {}
        self._scores: dict[Sequence, list[TokenLogprob]] = {}
        self._prompts: dict[Request, list[TokenLogprob]] = {}

    def take(self) -> list[Output | Echo]:
        """What there is to send; empty after the call."""
        messages, self._messages = self._messages, []
        return messages

    def score_prompt(self, sequence: Sequence, first: int, scores: list[TokenLogprob]) -> None:
        """Log probabilities of a prompt's tokens from position ``first`` on; what is known (it was recomputed) stays."""
        known = self._prompts.setdefault(sequence.request, [])
        known += scores[max(0, len(known) - first) :]

    def scored(self, request: Request) -> int:
        """How many tokens of the prompt have been told of."""
        return len(self._prompts.get(request, ()))

    def tell_prompt(self, request: Request) -> None:
        """Send the prompt before the first output, once."""
        if request.echo and request.stream and not request.branched and not request.live[0].outputs:
            prompt = request.live[0].tokens[: request.prompt_tokens]
            scores = self._prompts.pop(request, [])
            self._messages.append(Echo(self._arena, request.number, self._vocabulary.text(prompt), scores))

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """``child`` has said what ``parent`` has said."""
        if parent in self._scores:
            self._scores[child] = list(self._scores[parent])
        if parent in self._streams:
            stream = self._streams[child] = self._stream(child)
            for token in child.outputs:
                stream.push(token, may_stop=False)

    def push(self, sequence: Sequence, token: int, score: TokenLogprob | None, may_stop: bool, silent: bool) -> str:
        """A sampled token; ``silent``: its text is left out. Returns the stop string that it completes, or nothing."""
        request = sequence.request
        if score is not None:
            self._scores.setdefault(sequence, []).append(score)
        if not (request.stream or request.sampling.stop):
            return ""
        if sequence not in self._streams:
            self._streams[sequence] = self._stream(sequence)
        stream = self._streams[sequence]
        text = "" if silent else stream.push(token, may_stop)
        if request.stream and not request.ranked:
            self._send(sequence, sequence.sample, text, [token], [] if score is None else [score])
        return stream.stopped

    def end(self, sequence: Sequence, finish: str, last: bool) -> None:
        """A sequence has ended, and if ``last`` its request too."""
        stream = self._streams.pop(sequence, None)
        self._scores.pop(sequence, None)
        if sequence.request.stream:
            self._send(sequence, sequence.sample, stream.flush() if stream else "", [], [], finish, last)

    def rank(self, best: list[Sequence]) -> None:
        """A request whose sequences compete has ended: its answers, best first."""
        for index, sequence in enumerate(best):
            if sequence.request.stream:
                scores = self._scores.get(sequence, [])
                last = index == len(best) - 1
                self._send(sequence, index, self._whole_text(sequence), sequence.outputs, scores, sequence.finish, last)

    def end_without(self, request: Request, finish: str) -> None:
        """A request whose sequences compete has ended and has no answer."""
        if request.stream:
            self._messages.append(Output(self._arena, request.number, "", [], finish=finish, last=True))

    def forget(self, sequence: Sequence) -> None:
        """Nobody will ask for the sequence again."""
        self._streams.pop(sequence, None)
        self._scores.pop(sequence, None)
        self._prompts.pop(sequence.request, None)

    def _send(
        self,
        sequence: Sequence,
        index: int,
        text: str,
        tokens: list[int],
        logprobs: list[TokenLogprob],
        finish: str | None = None,
        last: bool = False,
    ) -> None:
        request = sequence.request
        self._messages.append(
            Output(
                self._arena,
                request.number,
                text,
                tokens,
                index=index,
                finish=finish,
                stop_reason=sequence.stop_reason if finish else None,
                last=last,
                logprobs=logprobs,
                cached_tokens=request.cached_tokens if last else 0,
            )
        )

    def _stream(self, sequence: Sequence) -> TextStream:
        return TextStream(self._vocabulary, sequence.request.sampling.stop)

    def _whole_text(self, sequence: Sequence) -> str:
        tokens = sequence.outputs
        if sequence.finish == "stop" and not isinstance(sequence.stop_reason, str):
            tokens = tokens[:-1]  # the stop token itself
        stream = self._stream(sequence)
        least = sequence.request.sampling.min_tokens
        return "".join(stream.push(token, at >= least) for at, token in enumerate(tokens, 1)) + stream.flush()
