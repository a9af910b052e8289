"""Record a trace from an engine of its own: prompts in a memory, or the story that the page plays where no server answers.

    python -m engine.record '{"path": "growing.jsonl", "story": "growing"}'

What happens is the model's and the memory's doing. ``paged record`` is the way in for people.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import msgspec

from engine import trace
from engine.commands import Commands
from engine.config import EngineConfig, Unusable
from engine.engine import Engine
from engine.events import ArenaState, Partition, Snapshot, StepCompleted
from engine.messages import (
    AnyCommand,
    AnyReply,
    Failed,
    Memory,
    OpenArena,
    Resume,
    Sampling,
    SnapshotTaken,
    Stepped,
    Submit,
    TakeSnapshot,
)
from engine.model.model_loader import Loaded, load
from engine.submission import Limits

ARENA = "recording"
GROWING = Memory(block_size=4, num_blocks=48)
JOINS_AFTER = 6
SECOND = ("Virtual memory was invented because", 24)


class Recording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to record into ``path``. ``story``: ``prompts`` are all submitted before the first step, with ``sampling``, to
    ``memory``; or ``growing``, which has its own. ``steps``: stop after so many, 0 when all requests have ended."""

    path: str
    config: EngineConfig = EngineConfig()
    story: Literal["prompts", "growing"] = "prompts"
    memory: Memory = GROWING
    prompts: list[str] = []
    sampling: Sampling = Sampling()
    label: str = ""
    steps: int = 0


class Untellable(Exception):
    """The engine refuses a part of the story; the message says which and why."""


class Stage:
    """An engine with one arena, whose envelopes go to ``writer``."""

    def __init__(self, loaded: Loaded, recording: Recording, writer: trace.Writer) -> None:
        config, info = recording.config, loaded.info
        limits = Limits(info.max_model_len, config.max_sequences, eos=loaded.eos)
        self.engine = Engine(loaded.runner, loaded.vocabulary, limits, config.token_budget, config.seed, verify=True)
        self.steps = 0
        self._most = recording.steps or sys.maxsize
        self._writer = writer
        self._commands = Commands(self.engine, self._hear)
        self._closing: Snapshot | None = None

    def do(self, command: AnyCommand) -> None:
        """Raises Untellable where the engine refuses."""
        self._commands.carry_out(command)

    def run(self, most: int = sys.maxsize) -> None:
        """So many steps, or fewer if nothing is left to do or the recording is long enough."""
        end = min(self.steps + most, self._most)
        while self.steps < end and self.engine.next_due() is not None:
            for place in self.engine.step():
                self._commands.tell(place)

    def closing(self) -> Snapshot:
        self.do(TakeSnapshot(0, ARENA))
        if self._closing is None:
            raise Untellable("the engine gave no closing snapshot")
        return self._closing

    def _hear(self, reply: AnyReply) -> None:
        if isinstance(reply, Stepped):
            self.steps += sum(isinstance(event, StepCompleted) for event in reply.step.events)
            self._writer.add(reply.step)
        elif isinstance(reply, SnapshotTaken):
            self._closing = reply.snapshot
        elif isinstance(reply, Failed):
            raise Untellable(reply.message)


def growing(stage: Stage) -> None:
    """The opening scene; then the first request grows, and a second one joins it."""
    stage.do(OpenArena(0, ARENA, GROWING, scene="growing"))
    stage.run()
    stage.do(Resume(0, ARENA))
    stage.run(most=JOINS_AFTER)
    text, max_tokens = SECOND
    stage.do(Submit(0, ARENA, text, Sampling(max_tokens=max_tokens, ignore_eos=True), "page"))
    stage.run()


def prompts(stage: Stage, recording: Recording) -> None:
    """All at once, and then until the last has ended."""
    stage.do(OpenArena(0, ARENA, recording.memory))
    for prompt in recording.prompts:
        stage.do(Submit(0, ARENA, prompt, recording.sampling, "page"))
    stage.run()


def opening(memory: Memory) -> Snapshot:
    """An empty memory, before anything is said of it."""
    free = Partition(0, 0, 0, 0, 0, memory.slots)
    state = ArenaState(
        memory.manager,
        memory.block_size,
        memory.num_blocks,
        0,
        False,
        [],
        [],
        [],
        free,
        num_cpu_blocks=memory.cpu_blocks,
    )
    return Snapshot(ARENA, 0, 0, 0.0, state)


def record(loaded: Loaded, recording: Recording) -> int:
    """Write the trace; returns the number of its steps. Raises Untellable, and TraceError where it cannot be written."""
    told = recording.story == "growing"
    memory = GROWING if told else recording.memory
    label = recording.label or ("Growing a sequence" if told else recording.prompts[0])
    header = trace.Header(label, loaded.info, trace.today())
    with trace.Writer(Path(recording.path), header, opening(memory)) as writer:
        stage = Stage(loaded, recording, writer)
        if told:
            growing(stage)
        else:
            prompts(stage, recording)
        writer.close(stage.closing())
    return stage.steps


def fitted(recording: Recording) -> EngineConfig:
    """The configuration with caches as large as the memory, and no larger."""
    memory = GROWING if recording.story == "growing" else recording.memory
    slots = memory.cpu_blocks * memory.block_size
    return msgspec.structs.replace(recording.config, kv_slots=memory.slots, cpu_kv_slots=slots)


def main() -> None:
    try:
        recording = msgspec.json.decode(sys.argv[1], type=Recording)
        if recording.story == "prompts" and not recording.prompts:
            raise Untellable("there is nothing to record: give a prompt, or name the story growing")
        loaded = load(fitted(recording), lambda stage, progress: print(f"{stage} ...", file=sys.stderr, flush=True))
        steps = record(loaded, recording)
    except (IndexError, msgspec.DecodeError) as error:
        sys.exit(f"usage: python -m engine.record JSON, as engine.record.Recording has it ({error})")
    except (Untellable, Unusable, ValueError) as error:
        sys.exit(str(error))
    print(f"{recording.path}: {steps} steps, {Path(recording.path).stat().st_size} bytes")


if __name__ == "__main__":
    main()
