"""The other end of the pipe, for what a real engine does not do on demand: crash, flood, hang, refuse, answer late.

Run as ``python -m tests.app.fake_engine CONFIG``. It speaks the real wire, and generates words instead of tokens. What
it does beyond the ordinary is asked for by the text of a prompt:

- ``N words``: answers with that many words, then stops.
- ``forever``: a word every few milliseconds until it is aborted.
- ``crash``: dies at once with status 13.
- ``flood N``: N envelopes of ten kilobytes each at once.
- ``hang``: no answer, ever.

A model named ``broken`` fails to load; ``slow-load`` never gets past half.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time

import msgspec

from engine import wire
from engine.config import EngineConfig
from engine.events import ArenaState, Partition, RequestAborted, RequestArrived, RequestRefused, Snapshot, Step
from engine.messages import (
    Abort,
    AnyCommand,
    AnyReply,
    ArenaClosed,
    CloseArena,
    Done,
    Failed,
    ModelInfo,
    OpenArena,
    Output,
    Pause,
    Reset,
    Resume,
    Shutdown,
    SnapshotTaken,
    Status,
    Stepped,
    Submit,
    Submitted,
    TakeSnapshot,
)

SLOTS = 1024
MODEL = ModelInfo("fake-model", "no model at all", "None", "none", "float32", "none", 100, SLOTS, 1)


class FakeArena:
    def __init__(self, command: OpenArena) -> None:
        self.name = command.arena
        self.epoch = command.epoch
        self.block_size = command.block_size
        self.num_blocks = command.num_blocks
        self.seq = 0
        self.paused = False
        self.requests = 0

    def step(self, *events: object) -> Stepped:
        self.seq += 1
        free = Partition(0, 0, 0, 0, 0, self.block_size * self.num_blocks)
        return Stepped(Step(self.name, self.epoch, self.seq, float(self.seq), self.paused, free, list(events)))

    def snapshot(self) -> Snapshot:
        capacity = self.block_size * self.num_blocks
        partition = Partition(0, 0, 0, 0, 0, capacity)
        state = ArenaState("fake", self.block_size, self.num_blocks, self.seq, self.paused, [], [], [], partition)
        return Snapshot(self.name, self.epoch, self.seq, float(self.seq), state)


class FakeEngine:
    def __init__(self) -> None:
        self.arenas: dict[str, FakeArena] = {}
        self.endless: set[tuple[str, int]] = set()

    def send(self, reply: AnyReply) -> None:
        sys.stdout.buffer.write(wire.encode(reply))
        sys.stdout.buffer.flush()

    def run(self, model: str) -> None:
        self.send(Status("loading", "pretending", 0.5))
        if model == "broken":
            self.send(Status("failed", "there is no model named broken"))
            sys.exit(1)
        if model != "slow-load":
            self.send(Status("ready", "", 1.0, MODEL))
        inbox: queue.Queue[AnyCommand | None] = queue.Queue()
        threading.Thread(target=self.read, args=(inbox,), daemon=True).start()
        while True:
            try:
                command = inbox.get(timeout=0.005 if self.endless else None)
            except queue.Empty:
                for arena, request in self.endless:
                    self.send(Output(arena, request, "word ", [1]))
                continue
            if command is None or isinstance(command, Shutdown):
                return
            self.carry_out(command)

    @staticmethod
    def read(inbox: queue.Queue[AnyCommand | None]) -> None:
        while (body := wire.read_body(sys.stdin.buffer)) is not None:
            inbox.put(wire.decode_command(body))
        inbox.put(None)

    def carry_out(self, command: AnyCommand) -> None:
        if isinstance(command, OpenArena):
            used = sum(arena.block_size * arena.num_blocks for arena in self.arenas.values())
            if used + command.block_size * command.num_blocks > SLOTS:
                self.send(Failed(command.ref, "cache_full", "num_blocks", f"{used} of {SLOTS} slots are taken"))
                return
            self.arenas[command.arena] = FakeArena(command)
            self.send(Done(command.ref))
            return
        arena = self.arenas.get(command.arena)
        if arena is None:
            self.send(Failed(command.ref, "unknown_arena", "arena", "no such arena"))
            return
        match command:
            case Submit():
                self.submit(command, arena)
                return
            case TakeSnapshot():
                self.send(SnapshotTaken(command.ref, arena.snapshot()))
                return
            case Pause() | Resume():
                arena.paused = isinstance(command, Pause)
                self.send(Done(command.ref))
                self.send(arena.step())
            case Abort():
                self.endless.discard((arena.name, command.request))
                self.send(Done(command.ref))
                self.send(arena.step(RequestAborted(command.request, command.reason)))
                self.send(Output(arena.name, command.request, "", [], "abort"))
            case Reset():
                self.arenas[arena.name] = fresh = FakeArena(
                    OpenArena(0, arena.name, command.block_size, command.num_blocks, epoch=arena.epoch + 1)
                )
                self.send(Done(command.ref))
                self.send(fresh.step())
            case CloseArena():
                del self.arenas[arena.name]
                self.send(Done(command.ref))
                self.send(ArenaClosed(arena.name, command.reason))
            case _:
                self.send(Done(command.ref))

    def submit(self, command: Submit, arena: FakeArena) -> None:
        prompt = command.prompt
        first = prompt if isinstance(prompt, str) else prompt[-1]
        text = first if isinstance(first, str) else getattr(first, "content", "2 words")
        words = text.split()
        if words == ["crash"]:
            os._exit(13)
        if words == ["hang"]:
            time.sleep(3600)
        if words == ["too", "long"]:
            self.send(Failed(command.ref, "prompt_too_long", "prompt", "101 tokens, the limit is 100: shorten it"))
            self.send(arena.step(RequestRefused("101 tokens", command.source)))
            return
        number = arena.requests
        arena.requests += 1
        self.send(Submitted(command.ref, arena.name, number, len(words)))
        self.send(arena.step(RequestArrived(number, len(words), command.sampling.max_tokens, command.source)))
        if words[0] == "flood":
            for _ in range(int(words[1])):
                self.send(arena.step(RequestRefused("x" * 10_000, "page")))
        elif words == ["forever"]:
            self.endless.add((arena.name, number))
        elif command.stream:
            count = min(int(words[0]), command.sampling.max_tokens)
            for index in range(count):
                self.send(Output(arena.name, number, f"word{index} ", [index]))
            self.send(Output(arena.name, number, "", [], "stop" if count == int(words[0]) else "length"))


if __name__ == "__main__":
    FakeEngine().run(msgspec.json.decode(sys.argv[1], type=EngineConfig).model)
    os._exit(0)  # the reading thread holds the lock of stdin, which an ordinary exit would wait for
