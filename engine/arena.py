"""A private memory with a scheduler and a log of its own; all arenas share one flat cache and one forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.arena_state import describe
from engine.decoding.answers import Answers
from engine.decoding.decoding import Decoding
from engine.decoding.sampling import Picked
from engine.decoding.text import Vocabulary
from engine.events import (
    ArenaState,
    Partition,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    RequestRefused,
    SequenceFinished,
    SequenceForked,
    Snapshot,
    Step,
    StepCompleted,
    StepTimes,
)
from engine.log import EventLog
from engine.memory.block_table import BlockTable
from engine.memory.managers import build
from engine.memory.paged_manager import PagedManager
from engine.messages import Echo, Memory, Output, Sampling, TokenLogprob
from engine.scheduler import Chunk, Plan, Scheduler
from engine.sequence import Request, Sequence, Status
from engine.submission import Limits, Refused, check_request

KEPT_ENDED = 64


class Arena:
    """A ``memory`` of its own. Events gather in ``log``, one envelope a step; what streamed requests say leaves by
    ``take_outputs``. ``bytes_per_slot``: keys and values of one token.
    """

    def __init__(
        self, log: EventLog, memory: Memory, vocabulary: Vocabulary, limits: Limits, seed: int, bytes_per_slot: int = 0
    ) -> None:
        self.log = log
        self.memory = memory
        self.steps = 0
        self.paused = False
        self.requests: dict[int, Request] = {}
        self.manager = build(memory, limits.max_model_len, log.emit, bytes_per_slot)
        self.scheduler = Scheduler(
            self.manager, limits.max_sequences, log.emit, memory.preemption, memory.prefill_chunk
        )
        self.answers = Answers(log.arena, vocabulary)
        self.vocabulary = vocabulary
        self.decoding = Decoding(self.manager, self.answers, vocabulary, limits.eos, log.emit, self._sibling)
        self._limits = limits
        self._seed = seed
        self._arrived = 0
        self._sequences = 0

    def submit(
        self,
        prompt: list[int],
        sampling: Sampling,
        source: str,
        stream: bool = False,
        echo: bool = False,
        priority: int = 0,
        cache_salt: str = "",
    ) -> Request:
        """Queue a request. Raises Refused, leaving a ``request_refused`` event, where it can never run here."""
        seed = sampling.seed if sampling.seed is not None else (self._seed << 20) + self._arrived
        return self._take(
            Request(
                number=self._arrived,
                prompt_tokens=len(prompt),
                sampling=sampling,
                source=source,
                seed=seed,
                max_tokens=sampling.max_tokens,
                stream=stream,
                echo=echo,
                priority=priority,
                cache_salt=cache_salt,
            ),
            prompt,
        )

    def register_prefix(self, prompt: list[int], cache_salt: str = "") -> Request:
        """Queue a prompt whose blocks are kept for requests that begin with it. Raises Refused as ``submit`` does."""
        if not isinstance(self.manager, PagedManager):
            name = self.manager.name
            raise Refused("unsupported", "manager", f"{name} shares no memory: register prefixes where it is paged")
        request = Request(
            number=self._arrived,
            prompt_tokens=len(prompt),
            sampling=Sampling(max_tokens=1),
            source="prefix",
            seed=0,
            max_tokens=1,
            stream=True,
            cache_salt=cache_salt,
            registers=True,
        )
        return self._take(request, prompt)

    def fork(self, number: int) -> Sequence:
        """Split a running sequence in two. Raises Refused where that cannot be."""
        sequence = next((one for one in self.sequences() if one.number == number), None)
        if sequence is None or sequence.request.status is not Status.RUNNING or not sequence.decodes:
            raise Refused("not_running", "sequence", f"sequence {number} does not decode now: fork one that does")
        request = sequence.request
        if request.ranked or request.source == "api" or not isinstance(self.manager, PagedManager):
            raise Refused(
                "unsupported",
                "sequence",
                "only samples in paged memory can be forked by hand, and only where no client of the API waits for a certain "
                "number of answers: fork one that was submitted in the arena",
            )
        if sum(len(other.live) for other in self.scheduler.running) >= self._limits.max_sequences:
            most = self._limits.max_sequences
            raise Refused(
                "too_many_sequences", "sequence", f"{most} sequences run, which is the limit: wait for one to end"
            )
        request.branched = True
        child = self._sibling(sequence)
        child.sample = max(other.sample for other in request.sequences) + 1
        self.log.emit(SequenceForked(child.number, number))
        self.answers.fork(sequence, child)
        self.manager.fork(sequence, child)
        return child

    def abort(self, number: int, reason: str) -> None:
        """End a request at once, all its sequences, and free its memory; a registered prefix gives its blocks back.
        Unknown and ended ones are left alone."""
        request = self.requests.get(number)
        if request is None:
            return
        if request.registers and request.status is Status.FINISHED:
            self._release(request)
        if request.ended:
            return
        request.status, request.reason = Status.ABORTED, reason
        self.log.emit(RequestAborted(number, reason))
        live = request.live
        if request.ranked:
            self.answers.end_without(request, "abort")
        else:
            for sequence in live:
                self.answers.end(sequence, "abort", last=sequence is live[-1])
        self._release(request)

    def plan(self, budget: int) -> Plan:
        """The next step. Requests that no memory can help end here, with reason ``capacity``."""
        plan = self.scheduler.schedule(budget)
        while plan.starved is not None:
            request = plan.starved
            self._finish(request, self.decoding.close(request, "capacity"), "capacity")
            plan = self.scheduler.schedule(budget)
        return plan

    def reads(self, chunk: Chunk) -> bool:
        """Whether the chunk's rows tell log probabilities of the prompt that are still to be told."""
        request = chunk.sequence.request
        end = min(chunk.start + chunk.count + 1, request.prompt_tokens)
        return request.reads_prompt_logits and self.answers.scored(request) < end

    def commit(
        self,
        chunks: list[Chunk],
        picks: list[Picked],
        times: StepTimes,
        scored: Iterable[tuple[Sequence, int, list[TokenLogprob]]] = (),
    ) -> None:
        """Book what the forward pass did.

        ``picks``: for each chunk that samples, in order. ``scored``: log probabilities of a prompt's tokens from a position
        on.
        """
        for chunk in chunks:
            tokens = chunk.sequence.tokens[chunk.start : chunk.start + chunk.count]
            self.manager.written(chunk.sequence, chunk.count, self.vocabulary.texts(tokens))
        for sequence, first, scores in scored:
            self.answers.score_prompt(sequence, first, scores)
        ran = dict.fromkeys(chunk.sequence.request for chunk in chunks)
        picked: dict[Request, dict[Sequence, Picked]] = {request: {} for request in ran}
        for chunk, pick in zip((chunk for chunk in chunks if chunk.sample), picks, strict=True):
            picked[chunk.sequence.request][chunk.sequence] = pick
        ended: dict[Request, list[Sequence]] = {}
        for request in ran:
            self.scheduler.fork_due(request)
            if picked[request]:
                self.answers.tell_prompt(request)
                ended[request] = self.decoding.apply(request, picked[request])
            elif request.registers and not request.live[0].pending:
                self._register(request)
        for request, sequences in ended.items():
            self._end(request, sequences)
        self.steps += 1
        self.log.emit(
            StepCompleted(
                step=self.steps,
                batch=len(chunks),
                tokens=sum(chunk.count for chunk in chunks),
                waiting=len(self.scheduler.waiting),
                swapped=len(self.scheduler.swapped),
                ms=times,
                partition=self.partition(),
            )
        )

    def sequences(self) -> Iterator[Sequence]:
        """All sequences still known; most that have ended hold nothing."""
        return (sequence for request in self.requests.values() for sequence in request.sequences)

    def take_outputs(self) -> list[Output | Echo]:
        return self.answers.take()

    def envelope(self, now: float) -> Step | None:
        return self.log.envelope(now, self.paused, self.partition)

    def snapshot(self, now: float) -> Snapshot:
        """The state after the last envelope. Call it only when no event is left in the log."""
        return self.log.snapshot(now, self.state())

    def state(self) -> ArenaState:
        return describe(
            self.requests.values(),
            self.memory,
            self.manager,
            self.vocabulary,
            self.partition(),
            step=self.steps,
            paused=self.paused,
        )

    def partition(self) -> Partition:
        # Of the many that have ended only those that still hold memory count.
        holding = (sequence for sequence in self.sequences() if sequence.table.blocks)
        return self.manager.partition(holding, self.scheduler.head_starved)

    def verify(self) -> None:
        """Raises IntegrityError when the books of memory contradict each other."""
        self.manager.verify(self.sequences())

    def _take(self, request: Request, prompt: list[int]) -> Request:
        table = BlockTable(self.memory.block_size)
        request.sequences.append(Sequence(self._sequences, request, list(prompt), table))
        request.trunk = len(prompt)
        try:
            check_request(request, self.manager, self._limits, len(self.scheduler.waiting))
        except Refused as refused:
            self.log.emit(RequestRefused(str(refused), request.source))
            raise
        longest = self.manager.longest(request) or self._limits.max_model_len
        request.max_tokens = min(request.max_tokens, min(longest, self._limits.max_model_len) - len(prompt))
        self._arrived += 1
        self._sequences += 1
        self.requests[request.number] = request
        self.scheduler.add(request)
        self.log.emit(
            RequestArrived(
                request=request.number,
                prompt_tokens=len(prompt),
                max_tokens=request.sampling.max_tokens,
                source=request.source,
                width=request.width,
                beam=request.sampling.beam_search,
                priority=request.priority,
            )
        )
        return request

    def _sibling(self, parent: Sequence) -> Sequence:
        """A further sequence of the parent's request, with its tokens and without memory."""
        table = BlockTable(self.memory.block_size)
        child = Sequence(self._sequences, parent.request, list(parent.tokens), table, logprob=parent.logprob)
        self._sequences += 1
        parent.request.sequences.append(child)
        return child

    def _end(self, request: Request, sequences: list[Sequence]) -> None:
        """Some sequences have ended, and the request with the last of them (in beam search: when the search is done)."""
        if not request.live:
            reasons = {sequence.finish for sequence in request.sequences}
            self._finish(request, sequences, "stop" if "stop" in reasons else "length")
            return
        for sequence in sequences:
            self.log.emit(SequenceFinished(sequence.number, sequence.finish, len(sequence.outputs)))
            if not request.ranked:
                self.answers.end(sequence, sequence.finish, last=False)
        for sequence in sequences:
            self.manager.free(sequence)

    def _finish(self, request: Request, sequences: list[Sequence], reason: str) -> None:
        """The request has ended with ``sequences``, whose end has not been told yet. One that never ran (registered prefixes
        leave it no room) has none that are known."""
        for sequence in sequences if request.admitted else ():
            self.log.emit(SequenceFinished(sequence.number, sequence.finish, len(sequence.outputs)))
        best = self.decoding.ranking(request) if request.ranked else []
        if request.sampling.beam_search and request.admitted:
            for sequence in [one for one in request.sequences if one not in best]:
                self.decoding.drop(sequence)
        if best:
            self.answers.rank(best)
        elif request.ranked:
            self.answers.end_without(request, reason)
        else:
            for sequence in sequences:
                self.answers.end(sequence, sequence.finish, last=sequence is sequences[-1])
        request.status, request.reason = Status.FINISHED, reason
        outputs = sum(len(sequence.outputs) for sequence in request.sequences)
        self.log.emit(RequestFinished(request.number, reason, outputs))
        self._release(request)

    def _register(self, request: Request) -> None:
        """A prefix has been computed: its sequence ends and keeps its blocks."""
        [leader] = request.sequences
        leader.finish = request.reason = "registered"
        request.status = Status.FINISHED
        self.log.emit(SequenceFinished(leader.number, "registered", 0))
        self.log.emit(RequestFinished(request.number, "registered", 0))
        self.answers.end(leader, "registered", last=True)
        self.scheduler.remove(request)
        if isinstance(self.manager, PagedManager):
            self.manager.register_prefix(leader)

    def _release(self, request: Request) -> None:
        self.scheduler.remove(request)
        for sequence in request.sequences:
            self.answers.forget(sequence)
            self.manager.free(sequence)
        self.decoding.forget(request)
        self.manager.end(request)
        ended = [number for number, other in self.requests.items() if other.ended]
        for number in ended[:-KEPT_ENDED]:
            if not self.manager.holds(self.requests[number]):
                del self.requests[number]
