"""What the web process and the engine process say to each other, as msgpack over a socket pair.

The engine never trusts the order of the web's wishes beyond one arena, and answers each ``ref`` exactly once: with
``Done``, ``Submitted`` or ``Failed``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.events import Snapshot, Step


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to choose tokens and when to stop. ``temperature`` 0 is greedy. ``seed`` None: drawn by the engine."""

    max_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: list[str] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False


class ChatTurn(msgspec.Struct, frozen=True):
    role: str
    content: str


class Command(msgspec.Struct, frozen=True, tag_field="type"):
    """Web to engine. ``ref`` names the command in the answer."""

    ref: int


class OpenArena(Command, frozen=True, tag="open_arena"):
    """Carve an arena out of the cache. ``scene``: ``empty``, or ``growing`` (a few real requests come and go first,
    then one more is prefilled and the arena pauses). ``pace_ms``: least time between two steps, 0 for none."""

    arena: str
    block_size: int
    num_blocks: int
    pace_ms: float = 0.0
    scene: str = "empty"
    epoch: int = 0


class CloseArena(Command, frozen=True, tag="close_arena"):
    arena: str
    reason: str = "closed"


class Submit(Command, frozen=True, tag="submit"):
    """``prompt``: text, token ids, or chat turns. ``stream``: send ``Output`` messages as tokens come."""

    arena: str
    prompt: str | Sequence[int | ChatTurn]
    sampling: Sampling
    source: str
    stream: bool = False


class Abort(Command, frozen=True, tag="abort"):
    arena: str
    request: int
    reason: str = "aborted by the client"


class Pause(Command, frozen=True, tag="pause"):
    arena: str


class Resume(Command, frozen=True, tag="resume"):
    arena: str


class RunStep(Command, frozen=True, tag="step"):
    """One step of a paused arena."""

    arena: str


class SetPace(Command, frozen=True, tag="set_pace"):
    arena: str
    pace_ms: float


class Reset(Command, frozen=True, tag="reset"):
    """Abort everything and start over, with another block size or capacity if given (0 keeps the present one)."""

    arena: str
    block_size: int = 0
    num_blocks: int = 0
    scene: str = "empty"


class TakeSnapshot(Command, frozen=True, tag="take_snapshot"):
    """Answered by ``SnapshotTaken``, in order with the arena's steps."""

    arena: str


class Shutdown(Command, frozen=True, tag="shutdown"):
    pass


AnyCommand = (
    OpenArena | CloseArena | Submit | Abort | Pause | Resume | RunStep | SetPace | Reset | TakeSnapshot | Shutdown
)


class ModelInfo(msgspec.Struct, frozen=True):
    """What is running, said in words that the page and ``/readyz`` show.

    ``label`` carries the honest remarks (weights dequantised from 4 bits; random weights). ``attention`` names the
    kernel that the dispatch picked. ``slots`` is the size of the flat cache; ``kv_bytes_per_token`` counts all layers.
    """

    name: str
    label: str
    architecture: str
    device: str
    dtype: str
    attention: str
    max_model_len: int
    slots: int
    kv_bytes_per_token: int


class Status(msgspec.Struct, frozen=True, tag_field="type", tag="status"):
    """``state``: starting, loading, ready, failed. ``progress`` runs from 0 to 1 within ``loading``."""

    state: str
    stage: str = ""
    progress: float = 0.0
    model: ModelInfo | None = None


class Done(msgspec.Struct, frozen=True, tag_field="type", tag="done"):
    ref: int


class Submitted(msgspec.Struct, frozen=True, tag_field="type", tag="submitted"):
    ref: int
    arena: str
    request: int
    prompt_tokens: int


class Failed(msgspec.Struct, frozen=True, tag_field="type", tag="failed"):
    """``code`` is stable and machine-readable; ``message`` names the value, the limit and the way out."""

    ref: int
    code: str
    field: str
    message: str


class SnapshotTaken(msgspec.Struct, frozen=True, tag_field="type", tag="snapshot_taken"):
    ref: int
    snapshot: Snapshot


class Stepped(msgspec.Struct, frozen=True, tag_field="type", tag="stepped"):
    """One envelope of an arena's log, to be passed on."""

    step: Step


class Output(msgspec.Struct, frozen=True, tag_field="type", tag="output"):
    """New text of a streamed request (complete characters only). The last has ``finish``: stop, length, capacity, abort."""

    arena: str
    request: int
    text: str
    tokens: list[int]
    finish: str | None = None


class ArenaClosed(msgspec.Struct, frozen=True, tag_field="type", tag="arena_closed"):
    arena: str
    reason: str


AnyReply = Status | Done | Submitted | Failed | SnapshotTaken | Stepped | Output | ArenaClosed
