"""Record a figure's trace from the running engine: what the page plays where no server answers.

    python -m engine.record growing static/recordings/growing.jsonl

The story is fixed, what happens in it is the model's and the memory's doing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine import trace
from engine.arena import Limits
from engine.commands import Commands
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import ArenaState, Partition, Snapshot, Step
from engine.messages import AnyReply, Failed, OpenArena, Resume, Sampling, Stepped, Submit
from engine.model_loader import Loaded, load

BLOCKS, BLOCK_SIZE = 48, 4
JOINS_AFTER = 6
SECOND = ("Virtual memory was invented because", 24)


def growing(loaded: Loaded) -> tuple[Snapshot, list[Step]]:
    """The opening scene; then the first request grows, and a second one joins it."""
    limits = Limits(loaded.info.max_model_len, eos=loaded.eos)
    engine = Engine(loaded.runner, loaded.vocabulary, limits, token_budget=512, seed=0, verify=True)
    steps: list[Step] = []

    def hear(reply: AnyReply) -> None:
        if isinstance(reply, Stepped):
            steps.append(reply.step)
        elif isinstance(reply, Failed):
            raise RuntimeError(f"the story cannot be told: {reply.message}")

    def run(most: int) -> None:
        while most and engine.next_due() is not None:
            most -= 1
            for place in engine.step():
                commands.tell(place)

    commands = Commands(engine, hear)
    commands.carry_out(OpenArena(1, "growing", BLOCK_SIZE, BLOCKS, scene="growing"))
    run(most=1000)
    commands.carry_out(Resume(2, "growing"))
    run(most=JOINS_AFTER)
    text, max_tokens = SECOND
    commands.carry_out(Submit(3, "growing", text, Sampling(max_tokens=max_tokens, ignore_eos=True), "page"))
    run(most=1000)
    free = Partition(0, 0, 0, 0, 0, BLOCKS * BLOCK_SIZE)
    empty = ArenaState("paged", BLOCK_SIZE, BLOCKS, 0, False, [], [], [], free)
    return Snapshot("growing", 0, 0, 0.0, empty), steps


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] != "growing":
        sys.exit(f"usage: python -m engine.record growing FILE   (given: {' '.join(sys.argv[1:]) or 'nothing'})")
    loaded = load(EngineConfig(dtype="float32"), lambda stage, progress: None)
    snapshot, steps = growing(loaded)
    trace.write(Path(sys.argv[2]), "Growing a sequence", loaded.info, snapshot, steps)


if __name__ == "__main__":
    main()
