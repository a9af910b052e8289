"""Drive an arena without a model: the test says which token each sequence samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from engine.arena import Arena
from engine.decoding.sampling import Picked
from engine.events import AnyEvent, Step, StepTimes
from engine.log import EventLog
from engine.memory.memory_manager import Moves
from engine.messages import Memory, Sampling
from engine.reducer import Reducer
from engine.scheduler import Chunk
from engine.submission import Limits

Token = Callable[[Chunk], int] | int


class Letters:
    """A vocabulary that shows token 7 as "<7>" and needs no tokenizer."""

    def token_text(self, token: int) -> str:
        return f"<{token}>"

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % 100 for letter in text]

    def check(self, tokens: list[int]) -> None:
        pass

    def text(self, tokens: list[int]) -> str:
        return "".join(self.texts(tokens))

    def texts(self, tokens: list[int]) -> list[str]:
        return [self.token_text(token) for token in tokens]


class Rig:
    """An arena and an independent reducer that must agree with it after every envelope, and whose books are verified.

    ``options`` are fields of ``Memory`` and of ``Limits``; streams need a real ``vocabulary``. ``slots`` and ``cpu_slots``
    stand for the tensors: the token that each slot holds, moved and written as the plans say; what a sequence reads there
    must be its own tokens.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        max_model_len: int = 10_000,
        budget: int = 10_000,
        vocabulary: Any = None,
        **options: Any,
    ) -> None:
        vocabulary = vocabulary or Letters()
        known = {field: options.pop(field) for field in Memory.__struct_fields__ if field in options}
        memory = Memory(block_size, num_blocks, **known)
        self.arena = Arena(EventLog("rig", 0, 0.0), memory, vocabulary, Limits(max_model_len, **options), seed=0)
        self.budget = budget
        self.steps: list[Step] = []
        self.moves: list[Moves] = []
        self.slots: dict[int, int] = {}
        self.cpu_slots: dict[int, int] = {}
        snapshot = self.arena.snapshot(0.0)
        self.reducer = Reducer(msgspec.convert(msgspec.to_builtins(snapshot), type(snapshot)))

    def submit(self, prompt: list[int] | int, max_tokens: int = 16, **sampling: Any) -> int:
        """Queue a prompt (a count stands for that many tokens) and return the request's number."""
        tokens = list(range(prompt)) if isinstance(prompt, int) else prompt
        options = {
            name: sampling.pop(name) for name in ("stream", "echo", "priority", "cache_salt") if name in sampling
        }
        number = self.arena.submit(tokens, Sampling(max_tokens=max_tokens, **sampling), "page", **options).number
        self.settle()
        return number

    def abort(self, number: int) -> None:
        self.arena.abort(number, "test")
        self.settle()

    def step(self, token: Token = 1) -> list[Chunk]:
        """Plan, pretend to run the model, commit. Returns the chunks that ran.

        ``token``: what each sequence samples; sample ``i`` of a prompt that several samples share gets ``token + i``. Beams
        get as many candidates as they ask for, ``token`` upwards, each a little less likely.
        """
        chunks = self.arena.plan(self.budget).chunks
        if chunks:
            self._move()
            for chunk in chunks:
                self._write(chunk)
            picks = [self._pick(chunk, token) for chunk in chunks if chunk.sample]
            self.arena.commit(chunks, picks, StepTimes(0, 0, 0))
        self.settle()
        return chunks

    def run(self, limit: int = 10_000, token: Token = 1) -> None:
        while self.arena.scheduler.has_work:
            limit -= 1
            if limit < 0:
                raise RuntimeError("the scheduler makes no progress")
            self.step(token)

    def settle(self) -> None:
        """Close the envelope; engine and reducer must now be of one mind."""
        self.arena.verify()
        envelope = self.arena.envelope(0.0)
        if envelope is None:
            return
        envelope = msgspec.msgpack.decode(msgspec.msgpack.encode(envelope), type=Step)
        self.steps.append(envelope)
        self.reducer.apply(envelope)
        expected, got = msgspec.to_builtins(self.arena.state()), msgspec.to_builtins(self.reducer.state())
        if expected != got:
            raise AssertionError(f"engine: {expected}\nreducer: {got}")

    def events(self, kind: type[AnyEvent]) -> list[Any]:
        return [event for step in self.steps for event in step.events if isinstance(event, kind)]

    def last(self, kind: type[AnyEvent]) -> list[Any]:
        """Those of the last envelope."""
        return [event for event in self.steps[-1].events if isinstance(event, kind)]

    def running(self) -> list[int]:
        return [request.number for request in self.arena.scheduler.running]

    def waiting(self) -> list[int]:
        return [request.number for request in self.arena.scheduler.waiting]

    def swapped(self) -> list[int]:
        return [request.number for request in self.arena.scheduler.swapped]

    def outputs(self, number: int) -> list[int]:
        return self.arena.requests[number].sequences[0].outputs

    def tables(self, number: int) -> list[list[int]]:
        """The tables of a request's sequences."""
        return [self.arena.manager.table(sequence) for sequence in self.arena.requests[number].sequences]

    @property
    def pool(self) -> Any:
        manager: Any = self.arena.manager
        return manager.pool

    @property
    def free(self) -> int:
        return self.arena.manager.num_free

    def _pick(self, chunk: Chunk, token: Token) -> Picked:
        row = self.arena.decoding.row(chunk.sequence)
        first = token(chunk) if callable(token) else token
        if row.candidates:
            return Picked(candidates=[(first + i, -0.1 * (i + 1)) for i in range(row.candidates)])
        offset = 0 if chunk.sequence.request.branched else 1
        return Picked(tokens=[(first + offset * i, -0.5) for i in range(len(row.samples))])

    def _move(self) -> None:
        moves = self.arena.manager.take_moves()
        self.moves.append(moves)
        for source, target, count in moves.out:
            self.cpu_slots.update({target + i: self.slots[source + i] for i in range(count)})
        for source, target, count in moves.back:
            self.slots.update({target + i: self.cpu_slots[source + i] for i in range(count)})
        sources = {source + i for source, _, count in moves.copies for i in range(count)}
        targets = [target + i for _, target, count in moves.copies for i in range(count)]
        if len(set(targets)) != len(targets) or sources & set(targets):
            raise AssertionError(f"copies overwrite each other: {moves.copies}")
        for source, target, count in moves.copies:
            self.slots.update({target + i: self.slots[source + i] for i in range(count)})

    def _write(self, chunk: Chunk) -> None:
        sequence, table = chunk.sequence, chunk.sequence.table
        written: set[int] = set()
        for position in range(chunk.start + chunk.count):
            block, slot = table.locate(position)
            at = table.offset + block * table.block_size + slot
            if position >= chunk.start:
                if at in written:
                    raise AssertionError(f"slot {at} is written twice in a step")
                written.add(at)
                self.slots[at] = sequence.tokens[position]
            elif self.slots.get(at) != sequence.tokens[position]:
                raise AssertionError(f"sequence {sequence.number} reads {self.slots.get(at)} at {position}")
