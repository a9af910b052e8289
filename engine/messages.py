"""What the web process and the engine process say to each other, as msgpack over a socket pair.

The engine never trusts the order of the web's wishes beyond one arena, and answers each ``ref`` exactly once: with
``Done``, ``Submitted`` or ``Failed``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.events import Snapshot, Step


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to choose tokens and when to stop; ``engine.decoding.sampling.check`` has the ranges.

    ``temperature`` 0 is greedy. ``seed`` None: drawn by the engine. ``n`` samples are answered, the likeliest of
    ``best_of`` (0: as many as ``n``). ``logprobs``: None for none, k for those of the sampled and of the k likeliest tokens.
    ``beam_search``: ``best_of`` or ``n`` beams; ``length_penalty`` and ``early_stopping`` ("false", "true", "never") as in
    transformers.
    """

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
    logprobs: int | None = None
    beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: str = "false"

    @property
    def width(self) -> int:
        """Sequences that a request has at once: samples or beams."""
        return self.best_of or self.n


class ChatTurn(msgspec.Struct, frozen=True):
    role: str
    content: str


class Command(msgspec.Struct, frozen=True, tag_field="type"):
    """Web to engine. ``ref`` names the command in the answer."""

    ref: int


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an arena's memory is run. ``num_blocks * block_size`` slots in all, whatever the manager.

    ``manager``: ``paged``, ``orca_max``, ``orca_pow2``, ``orca_oracle`` or ``static_batch``. ``max_len``: slots that
    orca_max and static_batch reserve for a request (0: as many as the longest sequence may have). ``cpu_blocks``: size of
    the pool that requests are swapped to. ``prefix_cache``: reuse computed blocks of equal prefixes. ``preemption``:
    ``recompute``, ``swap``, or ``auto`` (swap for groups, recompute for single sequences, as the paper). ``prefill_chunk``:
    tokens of a prompt in one step at most, 0 as many as the budget allows, -1 never cut.
    """

    block_size: int
    num_blocks: int
    manager: str = "paged"
    max_len: int = 0
    cpu_blocks: int = 0
    prefix_cache: bool = False
    preemption: str = "auto"
    prefill_chunk: int = 0

    @property
    def slots(self) -> int:
        return self.block_size * self.num_blocks

    @property
    def cpu_slots(self) -> int:
        return self.block_size * self.cpu_blocks


class OpenArena(Command, frozen=True, tag="open_arena"):
    """Carve an arena out of the cache. ``scene``: ``empty``, or ``growing`` (a few real requests come and go first,
    then one more is prefilled and the arena pauses). ``pace_ms``: least time between two steps, 0 for none."""

    arena: str
    memory: Memory
    pace_ms: float = 0.0
    scene: str = "empty"
    epoch: int = 0


class CloseArena(Command, frozen=True, tag="close_arena"):
    arena: str
    reason: str = "closed"


class Submit(Command, frozen=True, tag="submit"):
    """``prompt``: text, token ids, or chat turns. ``stream``: send ``Output`` messages as tokens come. ``echo``: send
    ``Echo`` before the first of them. The least ``priority`` goes first. ``cache_salt``: whoever has another one shares
    no prefix with this request."""

    arena: str
    prompt: str | Sequence[int | ChatTurn]
    sampling: Sampling
    source: str
    stream: bool = False
    echo: bool = False
    priority: int = 0
    cache_salt: str = ""


class Fork(Command, frozen=True, tag="fork"):
    """Split a running sequence in two that share their blocks (paper section 5.2); answered by ``Done``."""

    arena: str
    sequence: int


class RegisterPrefix(Command, frozen=True, tag="register_prefix"):
    """Compute a prompt's blocks and keep them for every request that begins with it (paper section 4.4). Answered by
    ``Submitted``; its request finishes with reason ``registered`` and can be aborted to give the blocks back."""

    arena: str
    prompt: str | Sequence[int | ChatTurn]
    cache_salt: str = ""


class ResetCache(Command, frozen=True, tag="reset_cache"):
    """Empty the prefix cache. Fails with code ``cache_in_use`` while any block is in use."""

    arena: str


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
    """Abort everything and start over, with another memory if one is given."""

    arena: str
    memory: Memory | None = None
    scene: str = "empty"


class TakeSnapshot(Command, frozen=True, tag="take_snapshot"):
    """Answered by ``SnapshotTaken``, in order with the arena's steps."""

    arena: str


class Shutdown(Command, frozen=True, tag="shutdown"):
    pass


AnyCommand = (
    OpenArena
    | CloseArena
    | Submit
    | Fork
    | RegisterPrefix
    | ResetCache
    | Abort
    | Pause
    | Resume
    | RunStep
    | SetPace
    | Reset
    | TakeSnapshot
    | Shutdown
)


class ModelInfo(msgspec.Struct, frozen=True):
    """What is running, said in words that the page and ``/readyz`` show.

    ``label`` carries the honest remarks (weights dequantised from 4 bits; random weights). ``attention`` names the
    kernel that the dispatch picked. ``slots`` is the size of the flat cache, ``cpu_slots`` that of the one for swapping;
    ``kv_bytes_per_token`` counts all layers. ``max_sequences``: running at once in an arena.
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
    cpu_slots: int = 0
    max_sequences: int = 0


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


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token's log probability, of the distribution before any setting of ``Sampling``; ``top`` are the likeliest, best
    first, each as (token, text, log probability). None for the first token of a prompt, which nothing predicts."""

    token: int
    text: str
    logprob: float | None
    top: list[tuple[int, str, float]] = []


class Echo(msgspec.Struct, frozen=True, tag_field="type", tag="echo"):
    """The prompt of a streamed request that asked for it: its text and, with ``Sampling.logprobs``, each token's."""

    arena: str
    request: int
    text: str
    logprobs: list[TokenLogprob] = []


class Output(msgspec.Struct, frozen=True, tag_field="type", tag="output"):
    """New text of sample ``index`` of a streamed request (complete characters only), and the tokens it comes from.

    The last of a sample has ``finish``: stop, length, capacity, abort; with ``stop`` by a stop string or stop token,
    ``stop_reason`` is that. The last of the request has ``last``. ``logprobs`` has an entry for each token where they were
    asked for. Beam search, and ``best_of`` over ``n``, send one Output for each of the ``n`` answers, best first, at the
    end. ``cached_tokens``: of the prompt, found in the prefix cache or in a registered prefix.
    """

    arena: str
    request: int
    text: str
    tokens: list[int]
    index: int = 0
    finish: str | None = None
    stop_reason: int | str | None = None
    last: bool = False
    logprobs: list[TokenLogprob] = []
    cached_tokens: int = 0


class ArenaClosed(msgspec.Struct, frozen=True, tag_field="type", tag="arena_closed"):
    arena: str
    reason: str


AnyReply = Status | Done | Submitted | Failed | SnapshotTaken | Stepped | Echo | Output | ArenaClosed
