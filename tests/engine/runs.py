"""Run prompts through a whole engine, and judge the answers by transformers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import torch

from engine.commands import Commands
from engine.engine import Engine
from engine.events import AnyEvent, ArenaState, Partition, Snapshot, Step
from engine.messages import (
    AnyReply,
    Failed,
    Memory,
    OpenArena,
    Output,
    Sampling,
    SnapshotTaken,
    Stepped,
    Submit,
    TakeSnapshot,
)
from engine.model import attention_hook
from engine.model.model_runner import ModelRunner
from engine.reducer import Reducer
from engine.submission import Limits
from kernels.dispatch import select_backend
from tests.engine.harness import Letters

NEAR_TIE = 1e-3
MOST_TIES = 0.005


class Run:
    """An engine over ``model`` that verifies its books at every step, whose events an independent reducer follows."""

    def __init__(
        self,
        model: Any,
        vocabulary: Any = None,
        slots: int = 4096,
        budget: int = 512,
        eos: Iterable[int] = (),
        seed: int = 0,
        cpu_slots: int = 0,
        max_sequences: int = 32,
    ) -> None:
        attention_hook.register()
        model.set_attn_implementation(attention_hook.NAME)
        runner = ModelRunner(model, select_backend(model.device, model.dtype), slots, cpu_slots)
        limits = Limits(2048, max_sequences=max_sequences, eos=frozenset(eos))
        self.engine = Engine(runner, vocabulary or Letters(), limits, budget, seed, verify=True, clock=lambda: self.now)
        self.commands = Commands(self.engine, self._hear)
        self.replies: list[AnyReply] = []
        self.steps: list[Step] = []
        self.reducers: dict[str, Reducer] = {}
        self._ref = 0
        self.now = 0.0

    def _hear(self, reply: AnyReply) -> None:
        self.replies.append(reply)
        if isinstance(reply, Stepped):
            step = msgspec.msgpack.decode(msgspec.msgpack.encode(reply.step), type=Step)
            self.steps.append(step)
            self.reducers[step.arena].apply(step)
            self.compare(step.arena)

    def compare(self, arena: str) -> None:
        expected = msgspec.to_builtins(self.engine.places[arena].arena.state())
        got = msgspec.to_builtins(self.reducers[arena].state())
        if expected != got:
            raise AssertionError(f"engine: {expected}\nreducer: {got}")

    def do(self, command: type, **fields: Any) -> AnyReply:
        """Carry out a command and return its answer."""
        self._ref += 1
        self.commands.carry_out(command(ref=self._ref, **fields))
        return next(reply for reply in self.replies if getattr(reply, "ref", None) == self._ref)

    def open(self, arena: str, num_blocks: int, block_size: int, **more: Any) -> None:
        """``more``: fields of ``Memory`` and of ``OpenArena``."""
        options = {field: more.pop(field) for field in Memory.__struct_fields__ if field in more}
        reply = self.do(OpenArena, arena=arena, memory=Memory(block_size, num_blocks, **options), **more)
        if isinstance(reply, Failed):
            raise AssertionError(reply.message)
        taken = self.do(TakeSnapshot, arena=arena)
        if isinstance(taken, SnapshotTaken):
            self.reducers[arena] = Reducer(taken.snapshot)

    def expect(self, arena: str, num_blocks: int, block_size: int) -> None:
        """Follow an arena from before it opens: its scene speaks at once."""
        free = Partition(0, 0, 0, 0, 0, num_blocks * block_size)
        empty = ArenaState("paged", block_size, num_blocks, 0, False, [], [], [], free)
        self.reducers[arena] = Reducer(Snapshot(arena, 0, 0, 0.0, empty))

    def submit(self, arena: str, prompt: Any, **sampling: Any) -> AnyReply:
        """``sampling``: fields of ``Sampling`` and of ``Submit``."""
        options = {field: sampling.pop(field) for field in Submit.__struct_fields__ if field in sampling}
        options.setdefault("stream", sampling.get("stop") is not None)
        return self.do(Submit, arena=arena, prompt=prompt, sampling=Sampling(**sampling), source="page", **options)

    def step(self) -> None:
        for place in self.engine.step():
            self.commands.tell(place)

    def drain(self) -> None:
        while self.engine.next_due() == 0:
            self.step()

    def events(self, kind: type[AnyEvent]) -> list[Any]:
        return [event for step in self.steps for event in step.events if isinstance(event, kind)]

    def outputs(self, arena: str) -> list[list[int]]:
        state = self.engine.places[arena].arena.state()
        return [sequence.outputs for sequence in state.sequences]

    def text(self, arena: str, request: int) -> str:
        return "".join(
            r.text for r in self.replies if isinstance(r, Output) and (r.arena, r.request) == (arena, request)
        )


class Judge:
    """Compares answers with ``transformers.generate`` token by token (greedy, float32).

    Where the reference's own two best logits lie closer than ``NEAR_TIE`` either of them is right; from there on the
    reference goes on with the engine's token. Such ties are counted.
    """

    def __init__(self, model: Any, eos: int | None = None) -> None:
        self.model = model
        self.eos = eos
        self.positions = self.ties = 0

    @torch.inference_mode()
    def check(self, prompt: list[int], answer: list[int]) -> None:
        self.positions += len(answer)
        known = list(prompt)
        rest = answer
        while rest:
            expected = self.generate(known, len(rest))
            same = next(
                (i for i, pair in enumerate(zip(rest, expected, strict=False)) if pair[0] != pair[1]), len(rest)
            )
            known += rest[:same]
            rest = rest[same:]
            if rest:
                best = self.model(torch.tensor([known])).logits[0, -1].topk(2)
                gap = float(best.values[0] - best.values[1])
                if gap > NEAR_TIE or rest[0] not in best.indices.tolist():
                    raise AssertionError(
                        f"after {len(known) - len(prompt)} tokens the engine says {rest[0]}, transformers {best.indices[0]} "
                        f"(its two best logits are {gap:.2e} apart)"
                    )
                self.ties += 1
                known.append(rest[0])
                rest = rest[1:]

    def generate(self, prompt: list[int], count: int) -> list[int]:
        ids = torch.tensor([prompt])
        output = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            min_new_tokens=count if self.eos is None else None,
            do_sample=False,
            use_cache=True,
            eos_token_id=self.eos,
            pad_token_id=0,
        )
        return output[0, len(prompt) :].tolist()

    def verdict(self) -> None:
        if self.ties > MOST_TIES * self.positions:
            raise AssertionError(f"{self.ties} near ties in {self.positions} positions: at most {MOST_TIES:.1%} may be")
