"""The one vocabulary: every change of memory, as a typed event (paper sections 4.2 to 4.5).

Within a step events come in this order: preempted, admitted, block_allocated, slots_written (after the forward pass),
token_generated, finished, block_released and block_freed, step_completed. What happens between two steps (a request
arriving, an abort) travels in an envelope of its own. A reducer applies event by event; the invariants of memory hold
at the end of each envelope.

Requests and sequences are numbered from 0 within their arena; blocks too; slots within their block.
"""

from __future__ import annotations

import msgspec

VERSION = 1


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


class Event(msgspec.Struct, frozen=True, tag_field="type", tag=_snake):
    """Base of all events; ``type`` on the wire is the class name in snake case."""


class RequestArrived(Event, frozen=True, tag_field="type", tag=_snake):
    """A request has passed the checks at submission and waits.

    ``source`` tells who asked: ``page``, ``api``, or the arena's own opening scene: ``earlier`` for those that come and
    go before anyone looks, ``scene`` for the one that is left.
    """

    request: int
    prompt_tokens: int
    max_tokens: int
    source: str


class RequestAdmitted(Event, frozen=True, tag_field="type", tag=_snake):
    """The scheduler lets the request run; its sequences exist from here on."""

    request: int
    sequences: list[int]


class RequestRefused(Event, frozen=True, tag_field="type", tag=_snake):
    """The request can never run here; ``reason`` names the value, the limit and the way out. It gets no number."""

    reason: str
    source: str


class RequestFinished(Event, frozen=True, tag_field="type", tag=_snake):
    """``reason``: ``stop`` (end token or stop string), ``length`` (max_tokens or the model's length), ``capacity``."""

    request: int
    reason: str
    output_tokens: int


class RequestAborted(Event, frozen=True, tag_field="type", tag=_snake):
    """The client gave up, or the arena was reset."""

    request: int
    reason: str


class BlockAllocated(Event, frozen=True, tag_field="type", tag=_snake):
    """A free block becomes logical block ``logical`` of ``sequence``, with reference count 1 (section 4.3)."""

    block: int
    sequence: int
    logical: int


class SlotsWritten(Event, frozen=True, tag_field="type", tag=_snake):
    """Keys and values of ``count`` tokens now lie in ``block`` from slot ``first`` on."""

    block: int
    first: int
    count: int
    tokens: list[int]
    texts: list[str]


class BlockShared(Event, frozen=True, tag_field="type", tag=_snake):
    """``sequence`` refers to ``block`` too, as its logical block ``logical``; ``refs`` is the count after (section 4.4)."""

    block: int
    sequence: int
    logical: int
    refs: int


class BlockReleased(Event, frozen=True, tag_field="type", tag=_snake):
    """``sequence`` lets go of ``block``; ``refs`` is the count after."""

    block: int
    sequence: int
    refs: int


class BlockFreed(Event, frozen=True, tag_field="type", tag=_snake):
    """Nobody refers to the block any more: it is on the free list."""

    block: int


class Preempted(Event, frozen=True, tag_field="type", tag=_snake):
    """``sequence`` loses its blocks and waits again; ``mode`` is ``recompute`` (section 4.5)."""

    sequence: int
    mode: str


class TokenGenerated(Event, frozen=True, tag_field="type", tag=_snake):
    """A token was sampled. Its key and value are written by the next step that runs the sequence."""

    sequence: int
    token: int
    text: str
    logprob: float


class Partition(msgspec.Struct, frozen=True):
    """An arena's capacity in slots: ``token_states + held + reserved + internal + external + free`` is the capacity.

    ``held`` are slots owned and not written whose future is not known; where a request's length is known beforehand
    they are counted as ``reserved`` (will be written) and ``internal`` (never will be) instead.
    """

    token_states: int
    held: int
    reserved: int
    internal: int
    external: int
    free: int


class StepTimes(msgspec.Struct, frozen=True):
    """Milliseconds of a step by phase; the only part of a log that differs from run to run."""

    schedule: float
    forward: float
    sample: float


class StepCompleted(Event, frozen=True, tag_field="type", tag=_snake):
    """The end of a step: ``batch`` sequences ran with ``tokens`` query rows in all."""

    step: int
    batch: int
    tokens: int
    waiting: int
    ms: StepTimes
    partition: Partition


AnyEvent = (
    RequestArrived
    | RequestAdmitted
    | RequestRefused
    | RequestFinished
    | RequestAborted
    | BlockAllocated
    | SlotsWritten
    | BlockShared
    | BlockReleased
    | BlockFreed
    | Preempted
    | TokenGenerated
    | StepCompleted
)


class RequestState(msgspec.Struct):
    """``status``: waiting, running, finished, aborted."""

    request: int
    status: str
    prompt_tokens: int
    max_tokens: int
    source: str
    sequences: list[int]
    reason: str = ""


class SequenceState(msgspec.Struct):
    """``table``: physical block of each logical block. ``outputs`` and ``texts``: sampled tokens, in order."""

    sequence: int
    request: int
    table: list[int]
    outputs: list[int]
    texts: list[str]


class BlockState(msgspec.Struct):
    """A block in use. ``tokens`` and ``texts``: what its written slots hold, from slot 0 on."""

    block: int
    refs: int
    tokens: list[int]
    texts: list[str]


class ArenaState(msgspec.Struct):
    """The true state of an arena at the end of an envelope; a reducer of events must arrive at the same.

    Requests, sequences and blocks are sorted by number. Blocks that are free do not appear. At most the last 64
    finished or aborted requests by number (and their sequences) are kept.
    """

    manager: str
    block_size: int
    num_blocks: int
    step: int
    paused: bool
    requests: list[RequestState]
    sequences: list[SequenceState]
    blocks: list[BlockState]
    partition: Partition


class Snapshot(msgspec.Struct, tag_field="kind", tag="snapshot"):
    """State after envelope ``seq``; the deltas that follow begin at ``seq + 1``."""

    arena: str
    epoch: int
    seq: int
    t: float
    state: ArenaState
    v: int = VERSION


class Step(msgspec.Struct, tag_field="kind", tag="step"):
    """What happened in one step, or between two. ``t``: milliseconds since the arena opened. ``paused`` and
    ``partition`` are as of its end.
    """

    arena: str
    epoch: int
    seq: int
    t: float
    paused: bool
    partition: Partition
    events: list[AnyEvent]
    v: int = VERSION
