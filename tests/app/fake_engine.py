"""The other end of the pipe, for what a real engine does not do on demand: crash, flood, hang, refuse, answer late.

Run as ``python -m tests.app.fake_engine CONFIG``. It speaks the real wire, and generates words instead of tokens. What
it does beyond the ordinary is asked for by the text of a prompt:

- ``N words``: answers with that many words, then stops; anything else with one.
- ``show``: answers with the command as JSON; ``show memory``: with the memory of the arena.
- ``forever``: a word every few milliseconds until it is aborted.
- ``no room``: ends at capacity at once.
- ``too long``: is refused.
- ``crash``: dies at once with status 13.
- ``flood N``: N envelopes of ten kilobytes each at once.
- ``hang``: no answer, ever.

Word ``k`` of sample 0 is ``wordk``, of sample ``i`` ``wordk.i``; its token is ``k``, its log probability ``-k - i / 8``,
and the likeliest tokens beside it are ``other1``, ``other2``, ... A prompt that was there before, under the same salt, is
cached but for its last word. A model named ``broken`` fails to load; ``slow-load`` never gets past half.
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
from engine.events import (
    ArenaState,
    Partition,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    RequestRefused,
    SequenceForked,
    Snapshot,
    Step,
)
from engine.messages import (
    Abort,
    AnyCommand,
    AnyReply,
    ArenaClosed,
    ChatTurn,
    CloseArena,
    Done,
    Echo,
    Failed,
    Fork,
    ModelInfo,
    OpenArena,
    Output,
    Pause,
    RegisterPrefix,
    Reset,
    ResetCache,
    Resume,
    Sampling,
    Shutdown,
    SnapshotTaken,
    Status,
    Stepped,
    Submit,
    Submitted,
    TakeSnapshot,
    TokenLogprob,
)

SLOTS = 1024
CPU_SLOTS = 512
MODEL = ModelInfo("fake-model", "no model at all", "None", "none", "float32", "none", 100, SLOTS, 1, CPU_SLOTS, 32)


class FakeArena:
    def __init__(self, command: OpenArena) -> None:
        self.name = command.arena
        self.epoch = command.epoch
        self.memory = command.memory
        self.seq = 0
        self.paused = False
        self.requests = 0
        self.sequences = 0
        self.prefixes: set[int] = set()
        self.seen: set[tuple[str, str]] = set()
        self.free = Partition(0, 0, 0, 0, 0, self.memory.slots)

    def step(self, *events: object) -> Stepped:
        self.seq += 1
        return Stepped(Step(self.name, self.epoch, self.seq, float(self.seq), self.paused, self.free, list(events)))

    def snapshot(self) -> Snapshot:
        memory = self.memory
        state = ArenaState(
            memory.manager,
            memory.block_size,
            memory.num_blocks,
            self.seq,
            self.paused,
            [],
            [],
            [],
            self.free,
            memory.cpu_blocks,
        )
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
            self.open(command)
            return
        arena = self.arenas.get(command.arena)
        if arena is None:
            self.send(Failed(command.ref, "unknown_arena", "arena", "no such arena"))
            return
        match command:
            case Submit() | RegisterPrefix():
                self.submit(command, arena)
                return
            case TakeSnapshot():
                self.send(SnapshotTaken(command.ref, arena.snapshot()))
                return
            case Pause() | Resume():
                arena.paused = isinstance(command, Pause)
                self.send(Done(command.ref))
                self.send(arena.step())
            case Fork():
                self.send(Done(command.ref))
                arena.sequences += 1
                self.send(arena.step(SequenceForked(arena.sequences, command.sequence)))
            case ResetCache():
                if arena.prefixes:
                    self.send(Failed(command.ref, "cache_in_use", "", "a prefix is in use: give it up first"))
                    return
                arena.seen.clear()
                self.send(Done(command.ref))
            case Abort():
                running = (arena.name, command.request) in self.endless
                self.endless.discard((arena.name, command.request))
                arena.prefixes.discard(command.request)
                self.send(Done(command.ref))
                self.send(arena.step(RequestAborted(command.request, command.reason)))
                if running:
                    self.send(Output(arena.name, command.request, "", [], finish="abort", last=True))
            case Reset():
                self.arenas[arena.name] = fresh = FakeArena(
                    OpenArena(0, arena.name, command.memory or arena.memory, epoch=arena.epoch + 1)
                )
                self.send(Done(command.ref))
                self.send(fresh.step())
            case CloseArena():
                del self.arenas[arena.name]
                self.send(Done(command.ref))
                self.send(ArenaClosed(arena.name, command.reason))
            case _:
                self.send(Done(command.ref))

    def open(self, command: OpenArena) -> None:
        memories = [arena.memory for arena in self.arenas.values()] + [command.memory]
        if sum(memory.slots for memory in memories) > SLOTS:
            self.send(Failed(command.ref, "cache_full", "num_blocks", f"{SLOTS} slots are not enough"))
        elif sum(memory.cpu_slots for memory in memories) > CPU_SLOTS:
            self.send(Failed(command.ref, "cache_full", "cpu_blocks", f"{CPU_SLOTS} slots are not enough"))
        else:
            self.arenas[command.arena] = FakeArena(command)
            self.send(Done(command.ref))

    def submit(self, command: Submit | RegisterPrefix, arena: FakeArena) -> None:
        text = _text(command.prompt)
        words = text.split()
        prefix = isinstance(command, RegisterPrefix)
        source = "prefix" if prefix else command.source
        if words == ["crash"]:
            os._exit(13)
        if words == ["hang"]:
            time.sleep(3600)
        if words == ["too", "long"]:
            self.send(Failed(command.ref, "prompt_too_long", "prompt", "101 tokens, the limit is 100: shorten it"))
            self.send(arena.step(RequestRefused("101 tokens", source)))
            return
        sampling = Sampling(max_tokens=1) if prefix else command.sampling
        number = arena.requests
        arena.requests += 1
        self.send(Submitted(command.ref, arena.name, number, len(words)))
        priority = 0 if prefix else command.priority
        arrived = RequestArrived(
            number, len(words), sampling.max_tokens, source, sampling.width, sampling.beam_search, priority
        )
        self.send(arena.step(arrived))
        known = (text, command.cache_salt) in arena.seen
        arena.seen.add((text, command.cache_salt))
        if words[0] == "flood":
            for _ in range(int(words[1])):
                self.send(arena.step(RequestRefused("x" * 10_000, "page")))
        elif words == ["forever"]:
            self.endless.add((arena.name, number))
        elif words == ["no", "room"]:
            self.end(arena, number, "capacity")
        elif prefix:
            arena.prefixes.add(number)
            self.end(arena, number, "registered")
        elif command.stream:
            self.write(command, arena, number, words, len(words) - 1 if known else 0)

    def end(self, arena: FakeArena, number: int, reason: str) -> None:
        self.send(arena.step(RequestFinished(number, reason, 0)))
        self.send(Output(arena.name, number, "", [], finish=reason, last=True))

    def write(self, command: Submit, arena: FakeArena, number: int, words: list[str], cached: int) -> None:
        if command.echo:
            entries = [_logprob(command.sampling, token, f"{word} ") for token, word in enumerate(words)]
            entries[0] = entries[0] and msgspec.structs.replace(entries[0], logprob=None, top=[])
            self.send(Echo(arena.name, number, " ".join(words) + " ", [entry for entry in entries if entry]))
        if words[0] == "show":
            shown = arena.memory if words[1:] else command
            self.send(Output(arena.name, number, msgspec.json.encode(shown).decode(), [1], finish="stop", last=True))
            return
        sampling = command.sampling
        count = int(words[0]) if words[0].isdigit() else 1
        samples = [_sample(sampling, index, count) for index in range(sampling.n)]
        at_the_end = sampling.beam_search or sampling.width > sampling.n
        outputs = _whole(samples) if at_the_end else _interleaved(samples)
        for place, output in enumerate(outputs):
            last = place == len(outputs) - 1
            self.send(
                msgspec.structs.replace(output, arena=arena.name, request=number, last=last, cached_tokens=cached)
            )


def _text(prompt: object) -> str:
    if isinstance(prompt, str):
        return prompt
    last = prompt[-1]  # type: ignore[index]
    return last.content if isinstance(last, ChatTurn) else "2 words"


def _logprob(sampling: Sampling, token: int, text: str, index: int = 0) -> TokenLogprob | None:
    if sampling.logprobs is None:
        return None
    top = [(100 + place, f"other{place} ", -place / 4) for place in range(1, sampling.logprobs + 1)]
    return TokenLogprob(token, text, -token - index / 8, top)


def _sample(sampling: Sampling, index: int, count: int) -> list[Output]:
    """Sample ``index``, word by word, its end last."""
    outputs = []
    finish, stop_reason = "length", None
    for token in range(sampling.max_tokens):
        word = f"word{token}" if index == 0 else f"word{token}.{index}"
        if token == count:
            finish = "stop"
            break
        if word in sampling.stop or token in sampling.stop_token_ids:
            finish, stop_reason = "stop", word if word in sampling.stop else token
            break
        entry = _logprob(sampling, token, f"{word} ", index)
        outputs.append(Output("", 0, f"{word} ", [token], index, logprobs=[entry] if entry else []))
    return [*outputs, Output("", 0, "", [], index, finish, stop_reason)]


def _interleaved(samples: list[list[Output]]) -> list[Output]:
    longest = max(map(len, samples))
    return [sample[place] for place in range(longest) for sample in samples if place < len(sample)]


def _whole(samples: list[list[Output]]) -> list[Output]:
    return [
        msgspec.structs.replace(
            sample[-1],
            text="".join(output.text for output in sample),
            tokens=[token for output in sample for token in output.tokens],
            logprobs=[entry for output in sample for entry in output.logprobs],
        )
        for sample in samples
    ]


if __name__ == "__main__":
    FakeEngine().run(msgspec.json.decode(sys.argv[1], type=EngineConfig).model)
    os._exit(0)  # the reading thread holds the lock of stdin, which an ordinary exit would wait for
