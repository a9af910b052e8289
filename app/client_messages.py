"""What a browser may say on the socket: one JSON object per text frame, told apart by ``type``.

Each message carries ``ref``, a number of the client's own that the answer repeats.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

import msgspec

from app.errors import Invalid

MAX_REF = 2**53 - 1  # the largest whole number that every JSON reader keeps exact
MAX_NAME = 80
"""Characters of a client's own word that an answer repeats."""
Ref = Annotated[int, msgspec.Meta(ge=0, le=MAX_REF)]


Manager = Literal["paged", "orca_max", "orca_pow2", "orca_oracle", "static_batch"]
Preemption = Literal["auto", "recompute", "swap"]


class OpenParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shape of a new arena; ``pace_ms`` is the least time between two steps. The others are those of
    ``engine.messages.Memory``."""

    block_size: int = 4
    num_blocks: int = 48
    pace_ms: float = 250.0
    manager: Manager = "paged"
    max_len: int = 0
    cpu_blocks: int = 0
    prefix_cache: bool = False
    preemption: Preemption = "auto"
    prefill_chunk: int = 0


class ResetParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as the arena has it."""

    block_size: int | None = None
    num_blocks: int | None = None
    manager: Manager | None = None
    max_len: int | None = None
    cpu_blocks: int | None = None
    prefix_cache: bool | None = None
    preemption: Preemption | None = None
    prefill_chunk: int | None = None


class SetParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pace_ms: float


class ClientMessage(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """Base of all client messages."""

    ref: Ref


class Open(ClientMessage, frozen=True, tag="open"):
    """A new arena; or, with ``drive_secret`` or ``view_id``, one that exists, from envelope ``since`` on."""

    scene: Literal["growing", "empty"] = "growing"
    params: OpenParams = OpenParams()
    drive_secret: str | None = None
    view_id: str | None = None
    epoch: int | None = None
    since: int | None = None


class Ping(ClientMessage, frozen=True, tag="ping"):
    """Is anybody there? Answered by ``pong``: a browser cannot send a websocket's own pings."""


class ArenaMessage(ClientMessage, frozen=True):
    """Base of the messages that drive an arena; they need a socket that opened it with the secret."""

    arena: str


class Submit(ArenaMessage, frozen=True, tag="submit"):
    """A prompt, greedy unless told otherwise. The fields after ``cache_salt`` are those of ``engine.messages.Sampling``,
    the others those of ``engine.messages.Submit``."""

    prompt: str
    priority: int = 0
    cache_salt: str = ""
    max_tokens: int = 64
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    stop: list[str] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    n: int = 1
    best_of: int = 0
    beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: Literal["false", "true", "never"] = "false"


class Fork(ArenaMessage, frozen=True, tag="fork"):
    """Split a running sequence in two that share their blocks."""

    sequence: int


class RegisterPrefix(ArenaMessage, frozen=True, tag="register_prefix"):
    """Compute a prompt's blocks and keep them for all that begin with it, until its request is aborted."""

    prompt: str
    cache_salt: str = ""


class ResetCache(ArenaMessage, frozen=True, tag="reset_cache"):
    """Empty the prefix cache."""


class Abort(ArenaMessage, frozen=True, tag="abort"):
    request: int


class Pause(ArenaMessage, frozen=True, tag="pause"):
    pass


class Resume(ArenaMessage, frozen=True, tag="resume"):
    pass


class RunStep(ArenaMessage, frozen=True, tag="step"):
    pass


class Close(ArenaMessage, frozen=True, tag="close"):
    pass


class Reset(ArenaMessage, frozen=True, tag="reset"):
    scene: Literal["growing", "empty"] = "empty"
    params: ResetParams = ResetParams()


class Set(ArenaMessage, frozen=True, tag="set"):
    params: SetParams


AnyClientMessage = (
    Ping | Open | Submit | Fork | RegisterPrefix | ResetCache | Abort | Pause | Resume | RunStep | Close | Reset | Set
)

TYPES = (
    "open",
    "submit",
    "fork",
    "register_prefix",
    "reset_cache",
    "abort",
    "pause",
    "resume",
    "step",
    "reset",
    "close",
    "set",
    "ping",
)

_anything = msgspec.json.Decoder()


class Misfit(msgspec.Struct, frozen=True):
    """A message that could not be read, with as much of its address as could, for the answer."""

    problem: Invalid
    ref: int | None = None
    arena: str | None = None


def decode(text: str) -> AnyClientMessage | Misfit:
    """One frame of text taken apart. Never raises: a bad message comes back as a ``Misfit``."""
    problem = None
    try:
        raw: Any = _anything.decode(text)
    except (ValueError, RecursionError) as error:
        problem = Invalid("bad_json", "", f"the message is not JSON ({error}); send one JSON object per frame.")
        raw = _leniently(text)
    if problem is None and not isinstance(raw, dict):
        problem = Invalid("bad_json", "", f"the message is {_show(raw)}; send one JSON object per frame.")
    if not isinstance(raw, dict):
        raw = {}
    ref, arena, kind = raw.get("ref"), raw.get("arena"), raw.get("type")
    ref = ref if isinstance(ref, int) and not isinstance(ref, bool) and 0 <= ref <= MAX_REF else None
    arena = arena if isinstance(arena, str) and arena.isascii() else None
    if problem is not None:
        return Misfit(problem, ref, arena)
    if kind not in TYPES:
        problem = Invalid("unknown_type", "type", f"type is {_show(kind)}; it must be one of {', '.join(TYPES)}.")
        return Misfit(problem, ref, arena)
    try:
        # From what was read above and not from the text again: where a name is there twice, both readings must agree.
        message: AnyClientMessage = msgspec.convert(raw, AnyClientMessage, str_keys=True)
        return message
    except (ValueError, OverflowError) as error:
        return Misfit(_explain(error, raw), ref, arena)


def _leniently(text: str) -> Any:
    """What Python's reader, which minds less, can make of it; for the address of the answer alone."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _explain(error: Exception, raw: dict[str, Any]) -> Invalid:
    """msgspec's complaint with the field in our notation and the offending value."""
    what, is_key, field = str(error), None, ""
    placed = re.fullmatch(r"(.*) - at `(key` in `)?\$\.?(.*)`", what, re.DOTALL)
    if placed:
        what, is_key, field = placed[1], placed[2], placed[3].removesuffix("[...]")
    named = re.search(r"field `(.*)`", what, re.DOTALL)
    if named:
        name = named[1] if len(named[1]) <= MAX_NAME else named[1][:MAX_NAME] + "..."
        what = what.replace(named[1], name)
        field = f"{field}.{name}" if field else name
        code = "missing_field" if "required" in what else "unknown_field"
        way_out = "Add it." if code == "missing_field" else "Leave it out or correct its name."
        return Invalid(code, field, f"{what}. {way_out}")
    value: Any = raw
    for part in re.findall(r"\w+", field):
        if isinstance(value, list) and part.isdigit():
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
    return Invalid("wrong_type", field, f"{field} is {_show(value)}: {what}{' as each key' if is_key else ''}.")


def _show(value: object) -> str:
    """``value`` as JSON, cut to a length that fits into a sentence."""
    try:
        text = json.dumps(value)
    except (ValueError, TypeError, RecursionError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 40 else text[:40] + "..."
