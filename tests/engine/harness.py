"""Drive an arena without a model: the test says which token each sequence samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from engine.arena import Arena, Limits, Shape
from engine.events import AnyEvent, Step, StepTimes
from engine.log import EventLog
from engine.messages import Sampling
from engine.scheduler import Chunk
from tests.reducer import Reducer


class Letters:
    """A vocabulary that shows token 7 as "<7>" and needs no tokenizer."""

    def token_text(self, token: int) -> str:
        return f"<{token}>"

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % 100 for letter in text]

    def check(self, tokens: list[int]) -> None:
        pass

    def texts(self, tokens: list[int]) -> list[str]:
        return [self.token_text(token) for token in tokens]


class Rig:
    """An arena and an independent reducer that must agree with it after every envelope, and whose books are verified."""

    def __init__(
        self, num_blocks: int, block_size: int, max_model_len: int = 10_000, budget: int = 10_000, **limits: Any
    ) -> None:
        vocabulary: Any = Letters()
        self.arena = Arena(
            EventLog("rig", 0, 0.0),
            0,
            Shape(num_blocks, block_size),
            vocabulary,
            Limits(max_model_len, **limits),
            seed=0,
        )
        self.budget = budget
        self.steps: list[Step] = []
        self.reducer = Reducer(
            msgspec.convert(msgspec.to_builtins(self.arena.snapshot(0.0)), type(self.arena.snapshot(0.0)))
        )

    def submit(self, prompt: list[int] | int, max_tokens: int = 16, **sampling: Any) -> int:
        """Queue a prompt (a count stands for that many tokens) and return the request's number."""
        tokens = list(range(prompt)) if isinstance(prompt, int) else prompt
        number = self.arena.submit(tokens, Sampling(max_tokens=max_tokens, **sampling), "page").number
        self.settle()
        return number

    def abort(self, number: int) -> None:
        self.arena.abort(number, "test")
        self.settle()

    def step(self, token: Callable[[Chunk], int] | int = 1) -> list[Chunk]:
        """Plan, pretend to run the model, commit. Returns the chunks that ran."""
        chunks = self.arena.plan(self.budget).chunks
        if chunks:
            picked = [(token(c) if callable(token) else token, 0.0) for c in chunks if c.sample]
            self.arena.commit(chunks, picked, StepTimes(0, 0, 0))
        self.settle()
        return chunks

    def run(self, limit: int = 10_000) -> None:
        while self.arena.scheduler.has_work:
            limit -= 1
            if limit < 0:
                raise RuntimeError("the scheduler makes no progress")
            self.step()

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

    def running(self) -> list[int]:
        return [sequence.number for sequence in self.arena.scheduler.running]

    def waiting(self) -> list[int]:
        return [sequence.number for sequence in self.arena.scheduler.waiting]

    def outputs(self, number: int) -> list[int]:
        return self.arena.requests[number].sequences[0].outputs

    @property
    def free(self) -> int:
        return self.arena.manager.pool.num_free
