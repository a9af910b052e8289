"""How much a flood in one arena slows the tokens of another: 100 queued prompts of 1,000 tokens against one decode.

    python -m tests.bench.fairness [TOKENS]

Prints tokens per second of a single request alone, beside the flood, and alone again, in one run. The design allows the
flood to halve them.
"""

from __future__ import annotations

import sys
import time

from engine.commands import Commands
from engine.config import EngineConfig
from engine.engine import Engine
from engine.messages import Memory, OpenArena, Sampling, Submit
from engine.model.model_loader import load
from engine.submission import Limits

PROMPTS, LENGTH = 100, 1000


def main() -> None:
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    loaded = load(EngineConfig(dtype="float32"), lambda stage, progress: None)
    engine = Engine(loaded.runner, loaded.vocabulary, Limits(2048, eos=loaded.eos), token_budget=512, seed=0)
    commands = Commands(engine, lambda reply: None)
    commands.carry_out(OpenArena(1, "mine", Memory(16, 64)))
    commands.carry_out(OpenArena(1, "flood", Memory(16, 512)))
    mine = engine.places["mine"].arena

    def rate() -> float:
        sampling = Sampling(max_tokens=tokens, ignore_eos=True)
        commands.carry_out(Submit(2, "mine", "The operating system keeps each process", sampling, "api"))
        started = time.perf_counter()
        while mine.scheduler.has_work:
            for place in engine.step():
                commands.tell(place)
        return tokens / (time.perf_counter() - started)

    before = rate()
    for number in range(PROMPTS):
        prompt = [100 + number] * LENGTH
        commands.carry_out(Submit(2, "flood", prompt, Sampling(max_tokens=64, ignore_eos=True), "api"))
    beside = rate()
    left = len(engine.places["flood"].arena.scheduler.waiting)
    for number in list(engine.places["flood"].arena.requests):
        engine.places["flood"].arena.abort(number, "measured")
    after = rate()
    print(f"alone {before:.2f} and {after:.2f} tokens/s, beside the flood {beside:.2f} ({left} prompts still waiting)")
    print(f"slowed {(before + after) / 2 / beside:.2f} times")


if __name__ == "__main__":
    main()
