"""A private memory with a scheduler and a log of its own; all arenas share one flat cache and one forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.block_table import BlockTable
from engine.events import (
    ArenaState,
    Partition,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    RequestRefused,
    RequestState,
    SequenceState,
    Snapshot,
    Step,
    StepCompleted,
    StepTimes,
    TokenGenerated,
)
from engine.log import EventLog
from engine.messages import Output, Sampling
from engine.paged_manager import PagedManager
from engine.sampling import check
from engine.scheduler import Chunk, Plan, Scheduler
from engine.sequence import Request, Sequence, Status
from engine.text import TextStream, Vocabulary

KEPT_ENDED = 64


class Refused(Exception):
    """A request that cannot be taken. ``code`` and ``field`` are for programs, the message is for people."""

    def __init__(self, code: str, field: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_model_len``: tokens of one sequence, prompt and output. ``eos``: tokens that end a text."""

    max_model_len: int
    max_sequences: int = 32
    max_waiting: int = 256
    eos: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Shape:
    num_blocks: int
    block_size: int


class Arena:
    """``shape`` blocks that begin at slot ``base`` of the flat cache.

    Events gather in ``log``, one envelope a step; what streamed requests say leaves by ``take_outputs``.
    """

    def __init__(
        self, log: EventLog, base: int, shape: Shape, vocabulary: Vocabulary, limits: Limits, seed: int
    ) -> None:
        self.log = log
        self.base = base
        self.shape = shape
        self.paused = False
        self.requests: dict[int, Request] = {}
        self.manager = PagedManager(shape.num_blocks, shape.block_size, log.emit)
        self.scheduler = Scheduler(self.manager, limits.max_sequences, log.emit)
        self._vocabulary = vocabulary
        self._limits = limits
        self._seed = seed
        self._outputs: list[Output] = []
        self._streams: dict[int, TextStream] = {}
        self._arrived = 0
        self._steps = 0

    def submit(self, prompt: list[int], sampling: Sampling, source: str, stream: bool = False) -> Request:
        """Queue a request. Raises Refused, leaving a ``request_refused`` event, where it can never run here."""
        try:
            self._check(prompt, sampling)
        except Refused as refused:
            self.log.emit(RequestRefused(str(refused), source))
            raise
        number = self._arrived
        self._arrived += 1
        seed = sampling.seed if sampling.seed is not None else (self._seed << 20) + number
        request = Request(number, len(prompt), sampling, source, seed, stream)
        sequence = Sequence(number, request, list(prompt), BlockTable(self.shape.block_size))
        request.sequences.append(sequence)
        self.requests[number] = request
        if stream or sampling.stop:
            self._streams[number] = TextStream(self._vocabulary, sampling.stop)
        self.scheduler.add(sequence)
        self.log.emit(RequestArrived(number, len(prompt), sampling.max_tokens, source))
        return request

    def abort(self, number: int, reason: str) -> None:
        """End a request at once and free its memory; unknown and ended ones are left alone."""
        request = self.requests.get(number)
        if request is None or request.status in (Status.FINISHED, Status.ABORTED):
            return
        request.status, request.reason = Status.ABORTED, reason
        self.log.emit(RequestAborted(number, reason))
        self._end(request, "abort")

    def plan(self, budget: int) -> Plan:
        """The next step. Sequences that no memory can help end here, with reason ``capacity``."""
        plan = self.scheduler.schedule(budget)
        while plan.starved is not None:
            self._finish(plan.starved.request, "capacity")
            plan = self.scheduler.schedule(budget)
        return plan

    def commit(self, chunks: list[Chunk], sampled: list[tuple[int, float]], times: StepTimes) -> None:
        """Book what the forward pass did. ``sampled``: (token, log probability) for each chunk that samples, in order."""
        for chunk in chunks:
            tokens = chunk.sequence.tokens[chunk.start : chunk.start + chunk.count]
            self.manager.written(chunk.sequence, chunk.count, self._vocabulary.texts(tokens))
        ended: list[tuple[Request, str]] = []
        for chunk, (token, logprob) in zip((c for c in chunks if c.sample), sampled, strict=True):
            sequence = chunk.sequence
            sequence.tokens.append(token)
            self.log.emit(TokenGenerated(sequence.number, token, self._vocabulary.token_text(token), logprob))
            reason = self._speak(sequence, token)
            if reason:
                ended.append((sequence.request, reason))
        for request, reason in ended:
            self._finish(request, reason)
        self._steps += 1
        self.log.emit(
            StepCompleted(
                step=self._steps,
                batch=len(chunks),
                tokens=sum(chunk.count for chunk in chunks),
                waiting=len(self.scheduler.waiting),
                ms=times,
                partition=self._divide(),
            )
        )

    def sequences(self) -> Iterator[Sequence]:
        """All sequences still known, ended ones included (they hold nothing)."""
        return (sequence for request in self.requests.values() for sequence in request.sequences)

    def take_outputs(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs

    def envelope(self, now: float) -> Step | None:
        return self.log.envelope(now, self.paused, self._divide)

    def snapshot(self, now: float) -> Snapshot:
        """The state after the last envelope. Call it only when no event is left in the log."""
        return self.log.snapshot(now, self.state())

    def state(self) -> ArenaState:
        requests = sorted(self.requests.values(), key=lambda request: request.number)
        return ArenaState(
            manager=self.manager.name,
            block_size=self.shape.block_size,
            num_blocks=self.shape.num_blocks,
            step=self._steps,
            paused=self.paused,
            requests=[
                RequestState(
                    request=request.number,
                    status=request.status.value,
                    prompt_tokens=request.prompt_tokens,
                    max_tokens=request.sampling.max_tokens,
                    source=request.source,
                    sequences=[sequence.number for sequence in request.sequences] if request.admitted else [],
                    reason=request.reason,
                )
                for request in requests
            ],
            sequences=[
                SequenceState(
                    sequence=sequence.number,
                    request=request.number,
                    table=list(sequence.table.blocks),
                    outputs=sequence.outputs,
                    texts=self._vocabulary.texts(sequence.outputs),
                )
                for request in requests
                if request.admitted
                for sequence in request.sequences
            ],
            blocks=self.manager.blocks(),
            partition=self._divide(),
        )

    def verify(self) -> None:
        """Raises IntegrityError when the books of memory contradict each other."""
        self.manager.verify(self.sequences())

    def _divide(self) -> Partition:
        return self.manager.partition(self.sequences(), self.scheduler.head_starved)

    def _check(self, prompt: list[int], sampling: Sampling) -> None:
        if not prompt:
            raise Refused("empty_prompt", "prompt", "the prompt has 0 tokens and the least is 1: write something")
        wrong = check(sampling)
        if wrong:
            raise Refused("invalid_value", *wrong)
        limit = self._limits.max_model_len
        if len(prompt) >= limit:
            raise Refused(
                "prompt_too_long",
                "prompt",
                f"the prompt has {len(prompt)} tokens and the model's limit is {limit} for prompt and answer together: "
                f"shorten it to at most {limit - 1} tokens",
            )
        never = self.manager.why_never(len(prompt))
        if never:
            raise Refused("prompt_too_long", "prompt", never)
        if len(self.scheduler.waiting) >= self._limits.max_waiting:
            raise Refused(
                "queue_full",
                "prompt",
                f"{len(self.scheduler.waiting)} requests wait in this memory and the limit is {self._limits.max_waiting}: "
                f"try again when some have ended",
            )

    def _speak(self, sequence: Sequence, token: int) -> str | None:
        """Pass a token's text on, and tell whether the sequence ends with it and why."""
        request = sequence.request
        sampling = request.sampling
        stream = self._streams.get(request.number)
        text = stream.push(token) if stream else ""
        if request.stream:
            self._outputs.append(Output(self.log.arena, request.number, text, [token]))
        if token in sampling.stop_token_ids or (token in self._limits.eos and not sampling.ignore_eos):
            return "stop"
        if stream and stream.stopped:
            return "stop"
        if len(sequence.outputs) >= sampling.max_tokens or len(sequence.tokens) >= self._limits.max_model_len:
            return "length"
        return None

    def _finish(self, request: Request, reason: str) -> None:
        request.status, request.reason = Status.FINISHED, reason
        self.log.emit(RequestFinished(request.number, reason, len(request.sequences[0].outputs)))
        self._end(request, reason)

    def _end(self, request: Request, finish: str) -> None:
        for sequence in request.sequences:
            self.scheduler.remove(sequence)
        stream = self._streams.pop(request.number, None)
        if request.stream:
            self._outputs.append(Output(self.log.arena, request.number, stream.flush() if stream else "", [], finish))
        ended = [number for number, other in self.requests.items() if other.status in (Status.FINISHED, Status.ABORTED)]
        for number in ended[:-KEPT_ENDED]:
            del self.requests[number]
