"""The engine process: commands come in on standard input, replies go out on standard output, logs on standard error.

    python -m engine.process '{"model": "default", ...}'      (an EngineConfig as JSON)

It ends when its standard input closes, so it never outlives the server that started it.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import sys
import threading
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import msgspec

from engine.config import EngineConfig, Unusable
from engine.messages import AnyCommand, AnyReply, Shutdown, Status
from engine.wire import decode_command, encode, read_body

if TYPE_CHECKING:
    from engine.commands import Commands
    from engine.engine import Engine

log = logging.getLogger("engine")
INBOX_LIMIT = 1024
COMMANDS_PER_STEP = 64


class Pipe:
    """Frames of the two pipes. A thread reads commands, so that a long step never blocks the writer on the other side."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._inbox: queue.Queue[AnyCommand] = queue.Queue(INBOX_LIMIT)
        threading.Thread(target=self._read, daemon=True, name="commands").start()

    def send(self, reply: AnyReply) -> None:
        self._sink.write(encode(reply))
        self._sink.flush()

    def receive(self, timeout: float | None) -> AnyCommand:
        """The next command; waits up to ``timeout`` seconds (None: for ever), then raises queue.Empty."""
        return self._inbox.get(block=timeout != 0, timeout=timeout or None)

    def _read(self) -> None:
        while (body := read_body(self._source)) is not None:
            try:
                self._inbox.put(decode_command(body))
            except msgspec.DecodeError:
                log.exception("a command could not be read and is dropped")
        # The server is gone, so nobody waits for anything, a model that is loading included.
        leave(0)


def load_engine(pipe: Pipe, config: EngineConfig, verify: bool) -> tuple[Engine, Commands]:
    """Load the model, telling the server how far it is."""
    pipe.send(Status("loading", "starting PyTorch", 0.0))
    # Imports make objects that stay: looking for garbage among them costs a tenth of the start.
    gc.disable()
    # Imported here: it takes seconds, and the page should say so meanwhile.
    from engine.commands import Commands
    from engine.engine import Engine
    from engine.model.model_loader import load
    from engine.submission import Limits

    loaded = load(config, lambda stage, progress: pipe.send(Status("loading", stage, round(0.1 + 0.9 * progress, 3))))
    gc.freeze()
    gc.enable()
    limits = Limits(
        loaded.info.max_model_len,
        config.max_sequences,
        eos=loaded.eos,
        vocabulary=len(loaded.vocabulary.tokenizer),
    )
    engine = Engine(loaded.runner, loaded.vocabulary, limits, config.token_budget, config.seed, verify)
    log.info("ready: %s", loaded.info)
    pipe.send(Status("ready", "", 1.0, loaded.info))
    return engine, Commands(engine, pipe.send)


def serve(pipe: Pipe, engine: Engine, commands: Commands) -> None:
    """Carry out commands and run steps until told to stop."""
    while True:
        wait = engine.next_due()
        try:
            # At most so many between two steps: whoever floods the engine with commands must not stop it.
            for _ in range(COMMANDS_PER_STEP):
                command = pipe.receive(wait)
                if isinstance(command, Shutdown):
                    return
                commands.carry_out(command)
                wait = 0
        except queue.Empty:
            pass
        for place in engine.step():
            commands.tell(place)


def main() -> None:
    logging.basicConfig(
        level=os.environ.get("LOG_LEVEL", "INFO").upper(), format="%(name)s: %(message)s", stream=sys.stderr
    )
    # On a machine whose cores are all busy (a browser beside the engine is enough) a thread that spins at the end of each
    # small operation takes the time of the one it waits for: steps become five times slower. GNU's OpenMP reads this once.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    config = msgspec.json.decode(sys.argv[1] if len(sys.argv) > 1 else "{}", type=EngineConfig)
    # Whatever a library prints must not run into the frames: keep the pipe, and point standard output at the log.
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # A stream of its own: the interpreter closes sys.stdin when it ends, and would wait for the thread that reads it.
    pipe = Pipe(os.fdopen(os.dup(sys.stdin.fileno()), "rb"), sink)
    try:
        engine, commands = load_engine(pipe, config, verify=os.environ.get("PAGED_VERIFY") == "1")
    except Exception as error:
        # What cannot be loaded will not load the next time either; the server then leaves it alone.
        log.error("the engine stops: %s", error, exc_info=not isinstance(error, ValueError | Unusable))
        pipe.send(Status("failed", str(error)))
        leave(1)
    try:
        serve(pipe, engine, commands)
    except BrokenPipeError:
        log.info("the server is gone")
    except Exception:
        log.exception("the engine stops")
        leave(1)
    leave(0)


def leave(code: int) -> NoReturn:
    """End at once. The libraries' own farewells take seconds, and there is nothing left to lose."""
    sys.stderr.flush()
    logging.shutdown()
    os._exit(code)


if __name__ == "__main__":
    main()
