"""Time of a step outside the model's forward pass: scheduling, building tensors, sampling, booking, encoding events.

    python -m tests.bench.step_overhead [BATCH]

Prints the median over the steps of one run in which BATCH requests (8) decode together.
"""

from __future__ import annotations

import statistics
import sys
import time

from engine.commands import Commands
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import StepCompleted
from engine.messages import AnyReply, Memory, OpenArena, Sampling, Stepped, Submit
from engine.model.model_loader import load
from engine.submission import Limits
from engine.wire import encode

OUTPUTS = 60


def main() -> None:
    batch = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    loaded = load(EngineConfig(dtype="float32"), lambda stage, progress: None)
    engine = Engine(loaded.runner, loaded.vocabulary, Limits(2048, eos=loaded.eos), token_budget=512, seed=0)
    forward: list[float] = []

    def send(reply: AnyReply) -> None:
        encode(reply)
        if isinstance(reply, Stepped):
            forward.extend(
                e.ms.forward for e in reply.step.events if isinstance(e, StepCompleted) and e.tokens == batch
            )

    commands = Commands(engine, send)
    commands.carry_out(OpenArena(1, "bench", Memory(16, 256)))
    for number in range(batch):
        prompt = f"{number}. The operating system keeps each process on its own"
        commands.carry_out(
            Submit(2, "bench", prompt, Sampling(max_tokens=OUTPUTS, ignore_eos=True), "api", stream=True)
        )
    whole: list[float] = []
    while engine.next_due() is not None:
        before, started = len(forward), time.perf_counter()
        for place in engine.step():
            commands.tell(place)
        if len(forward) > before:
            whole.append((time.perf_counter() - started) * 1000)
    outside = [total - inside for total, inside in zip(whole, forward, strict=True)]
    inside, rest = statistics.median(forward), statistics.median(outside)
    share = rest / (inside + rest)
    print(
        f"batch {batch}, {len(whole)} steps: forward {inside:.2f} ms, outside {rest:.2f} ms = {share:.1%} of the step"
    )


if __name__ == "__main__":
    main()
