"""The engine as the server starts it: a process with two pipes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from engine.config import EngineConfig
from engine.messages import (
    AnyCommand,
    AnyReply,
    Memory,
    OpenArena,
    Output,
    Sampling,
    Shutdown,
    Status,
    Stepped,
    Submit,
    Submitted,
)
from engine.wire import decode_reply, encode, frame_length, read_body

pytestmark = pytest.mark.slow  # each starts an interpreter, PyTorch and all


class Peer:
    """The other end of the pipes."""

    def __init__(self, config: EngineConfig) -> None:
        arguments = [sys.executable, "-m", "engine.process", msgspec.json.encode(config).decode()]
        self.process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def send(self, *commands: AnyCommand) -> None:
        self.process.stdin.write(b"".join(encode(command) for command in commands))
        self.process.stdin.flush()

    def hear(self) -> Iterator[AnyReply]:
        while (body := read_body(self.process.stdout)) is not None:
            yield decode_reply(body)

    def until(self, kind: type) -> list[AnyReply]:
        heard = []
        for reply in self.hear():
            heard.append(reply)
            if isinstance(reply, kind):
                return heard
        raise AssertionError(f"the engine ended before a {kind.__name__}: {heard}")

    def ready(self) -> list[Status]:
        heard = []
        for reply in self.hear():
            heard.append(reply)
            if reply.state in ("ready", "failed"):
                break
        return heard

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def peer():
    started = []

    def start(**settings):
        one = Peer(EngineConfig(**{"model": "tiny", "device": "cpu", "kv_slots": 1024} | settings))
        started.append(one)
        return one

    yield start
    for one in started:
        one.end()


def story(one: Peer) -> list[bytes]:
    """Two requests in one arena; the log without its times."""
    one.ready()
    one.send(
        OpenArena(1, "a", Memory(4, 40)),
        Submit(2, "a", "hello there", Sampling(max_tokens=12, temperature=0.8, ignore_eos=True), "page", stream=True),
        Submit(3, "a", "and another", Sampling(max_tokens=9, temperature=0.8, ignore_eos=True), "page"),
    )
    log = []
    for reply in one.hear():
        if isinstance(reply, Output) and reply.finish is not None:
            return log
        if isinstance(reply, Stepped):
            for event in msgspec.to_builtins(reply.step.events):
                event.pop("ms", None)
                log.append(msgspec.json.encode(event))
    raise AssertionError("the engine ended early")


def test_it_loads_and_says_how_far_it_is(peer):
    heard = peer().ready()
    assert [status.state for status in heard[:-1]] == ["loading"] * (len(heard) - 1)
    progress = [status.progress for status in heard]
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    model = heard[-1].model
    assert (model.name, model.dtype, model.slots) == ("tiny-random-llama", "float32", 1024)
    assert "random" in model.label
    assert model.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4


def test_the_same_seed_gives_the_same_log(peer):
    assert story(peer(seed=3)) == story(peer(seed=3)) != story(peer(seed=4))


def test_a_closed_pipe_and_a_shutdown_end_it(peer):
    one = peer()
    one.ready()
    one.process.stdin.close()
    assert one.process.wait(20) == 0
    other = peer()
    other.ready()
    other.send(Shutdown(1))
    assert other.process.wait(20) == 0


def test_commands_sent_while_it_loads_are_answered_when_it_is_ready(peer):
    one = peer()
    one.send(OpenArena(1, "a", Memory(4, 8)), Submit(2, "a", "hi", Sampling(max_tokens=2), "page"))
    heard = one.until(Submitted)
    assert heard[-1] == Submitted(2, "a", 0, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "/nowhere/at/all"}, "the model '/nowhere/at/all' could not be loaded"),
        ({"device": "tpu"}, "DEVICE is 'tpu': choose auto, cpu or cuda"),
        ({"dtype": "int3"}, "DTYPE is 'int3': choose auto, float32 or bfloat16"),
        ({"attention": "magic"}, "'magic'"),
    ],
)
def test_what_cannot_be_loaded_is_said_and_ends_it(peer, settings, message):
    one = peer(**settings)
    last = one.ready()[-1]
    assert last.state == "failed"
    assert message in last.stage
    assert one.process.wait(20) == 1


def test_bfloat16_runs_and_is_reported(peer):
    one = peer(dtype="bfloat16")
    assert one.ready()[-1].model.dtype == "bfloat16"
    one.send(OpenArena(1, "a", Memory(4, 16)), Submit(2, "a", "hello", Sampling(max_tokens=4), "page", stream=True))
    while not (isinstance(last := one.until(Output)[-1], Output) and last.finish):
        pass
    assert last.finish == "length"


def test_a_bad_frame_is_refused():
    with pytest.raises(ValueError, match="exceeds the limit of 67108864"):
        frame_length((2**31).to_bytes(4, "big"))
