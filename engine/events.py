"""The one vocabulary: every change of memory, as a typed event (paper sections 4.2 to 4.5).

Within a step events come in this order: preempted with what it lets go of, swapped_out; swapped_in; request_admitted with
prefix_hit or region_reserved; block_allocated, block_shared and the block_released of copy-on-write; block_copied;
slots_written (after the forward pass) and block_cached; sequence_forked with block_shared, token_generated,
sequence_finished, request_finished, block_released and block_freed; step_completed. What happens between two steps (a
request arriving, an abort) travels in an envelope of its own, but for the requests of an opening scene: they arrive behind
the step_completed that they waited for. A reducer applies event by event; the invariants of memory hold at the end of each
envelope.

Requests and sequences are numbered from 0 within their arena; blocks too; slots within their block. Where memory is
contiguous a *block* is a whole region, and its number is the slot it begins at.
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
    go before anyone looks, ``scene`` for the one that is left; ``prefix`` is a registered prefix. ``width``: sequences
    that the request may have at once (samples, or beams if ``beam``). Of the waiting the least ``priority`` goes first.
    """

    request: int
    prompt_tokens: int
    max_tokens: int
    source: str
    width: int = 1
    beam: bool = False
    priority: int = 0


class RequestAdmitted(Event, frozen=True, tag_field="type", tag=_snake):
    """The scheduler lets the request run; its sequences exist from here on. ``sequences``: those it has: one at first,
    those that were preempted when it comes back."""

    request: int
    sequences: list[int]


class RequestRefused(Event, frozen=True, tag_field="type", tag=_snake):
    """The request can never run here; ``reason`` names the value, the limit and the way out. It gets no number."""

    reason: str
    source: str


class SequenceForked(Event, frozen=True, tag_field="type", tag=_snake):
    """``sequence`` begins with the outputs that ``parent`` has (section 5.2). Its blocks follow as ``block_shared``, or,
    where memory is contiguous, as a region and a copy; a finished hypothesis of beam search has none."""

    sequence: int
    parent: int


class SequenceFinished(Event, frozen=True, tag_field="type", tag=_snake):
    """A sequence ends. ``reason`` as for a request; or ``dropped``: beam search goes on without it and it is forgotten."""

    sequence: int
    reason: str
    output_tokens: int


class RequestFinished(Event, frozen=True, tag_field="type", tag=_snake):
    """``reason``: ``stop`` (end token or stop string), ``length`` (max_tokens or the model's length), ``capacity`` (alone
    and without room), ``registered`` (a prefix that keeps its blocks). ``output_tokens``: of all its sequences."""

    request: int
    reason: str
    output_tokens: int


class RequestAborted(Event, frozen=True, tag_field="type", tag=_snake):
    """The client gave up, or the arena was reset."""

    request: int
    reason: str


class BlockAllocated(Event, frozen=True, tag_field="type", tag=_snake):
    """A free block becomes logical block ``logical`` of ``sequence``, with reference count 1 (section 4.3).

    Where the table has that logical block already it is replaced: copy-on-write, and the ``block_released`` of the old
    one follows. Where memory is contiguous, a reserved region is given to the sequence.
    """

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


class PrefixHit(Event, frozen=True, tag_field="type", tag=_snake):
    """As ``block_shared``, for a block that the prefix cache found under ``hash``; it may have been free."""

    block: int
    sequence: int
    logical: int
    refs: int
    hash: str


class BlockReleased(Event, frozen=True, tag_field="type", tag=_snake):
    """``sequence`` lets go of ``block``; ``refs`` is the count after."""

    block: int
    sequence: int
    refs: int


class BlockFreed(Event, frozen=True, tag_field="type", tag=_snake):
    """Nobody refers to the block any more: it is on the free list. One that has a hash keeps what it holds until it is
    evicted."""

    block: int


class BlockCopied(Event, frozen=True, tag_field="type", tag=_snake):
    """The first ``count`` slots of ``source`` now lie in each of ``destinations`` too: copy-on-write, one event for each
    source and step (sections 4.4 and 5.1)."""

    source: int
    destinations: list[int]
    count: int


class BlockCached(Event, frozen=True, tag_field="type", tag=_snake):
    """Full blocks of ``request`` entered the prefix cache: ``hashes[i]`` is that of ``blocks[i]``, ``parent`` that of the
    logical block before the first ("" if there is none), ``tokens`` those of all the blocks."""

    request: int
    blocks: list[int]
    hashes: list[str]
    parent: str
    tokens: list[int]


class BlockEvicted(Event, frozen=True, tag_field="type", tag=_snake):
    """A free block loses what the prefix cache kept in it, since it is needed, or since the cache is emptied."""

    block: int
    hash: str


class RegionReserved(Event, frozen=True, tag_field="type", tag=_snake):
    """The slots from ``start`` on now belong to ``request``: ``size`` as the buddy allocator rounds, ``needed`` before."""

    request: int
    start: int
    size: int
    needed: int


class RegionFreed(Event, frozen=True, tag_field="type", tag=_snake):
    """The region goes back to the allocator."""

    request: int
    start: int
    size: int


class ReservationFailed(Event, frozen=True, tag_field="type", tag=_snake):
    """The head of the queue finds no region: ``needed`` slots in each of ``regions``, ``largest_gap`` the longest region
    that could be had, ``unallocated`` slots in all. Said once, until it changes."""

    request: int
    needed: int
    regions: int
    largest_gap: int
    unallocated: int


class Preempted(Event, frozen=True, tag_field="type", tag=_snake):
    """A running request loses its memory, all its sequences together, and waits again. ``mode``: ``recompute`` or
    ``swap`` (section 4.5)."""

    request: int
    sequences: list[int]
    mode: str


class SwappedOut(Event, frozen=True, tag_field="type", tag=_snake):
    """What ``request`` holds was copied to the CPU pool: ``pairs`` of (block, CPU block), each shared block once. The
    ``block_released`` of every sequence follow. ``bytes``: keys and values moved."""

    request: int
    pairs: list[tuple[int, int]]
    bytes: int


class SwappedIn(Event, frozen=True, tag_field="type", tag=_snake):
    """The way back: ``pairs`` of (CPU block, block), after the ``block_allocated`` and ``block_shared`` that make the
    tables; the CPU blocks are free again."""

    request: int
    pairs: list[tuple[int, int]]
    bytes: int


class TokenGenerated(Event, frozen=True, tag_field="type", tag=_snake):
    """A token was sampled. Its key and value are written by the next step that runs the sequence."""

    sequence: int
    token: int
    text: str
    logprob: float


class Partition(msgspec.Struct, frozen=True):
    """An arena's capacity in slots: ``token_states + held + reserved + internal + external + free`` is the capacity.

    ``held`` are slots owned and not written whose future is not known; where a request's length is known beforehand
    they are counted as ``reserved`` (will be written) and ``internal`` (never will be) instead. ``external``: what a
    buddy allocator adds to a reservation, and all unallocated slots while the head of the queue finds no room.
    ``cached``: the part of the unallocated slots whose content the prefix cache keeps; it is no term of the sum.
    """

    token_states: int
    held: int
    reserved: int
    internal: int
    external: int
    free: int
    cached: int = 0


class StepTimes(msgspec.Struct, frozen=True):
    """Milliseconds of a step by phase; the only part of a log that differs from run to run."""

    schedule: float
    forward: float
    sample: float


class StepCompleted(Event, frozen=True, tag_field="type", tag=_snake):
    """The end of a step: ``batch`` sequences ran with ``tokens`` query rows in all. ``waiting`` and ``swapped``:
    requests."""

    step: int
    batch: int
    tokens: int
    waiting: int
    swapped: int
    ms: StepTimes
    partition: Partition


AnyEvent = (
    RequestArrived
    | RequestAdmitted
    | RequestRefused
    | SequenceForked
    | SequenceFinished
    | RequestFinished
    | RequestAborted
    | BlockAllocated
    | SlotsWritten
    | BlockShared
    | PrefixHit
    | BlockReleased
    | BlockFreed
    | BlockCopied
    | BlockCached
    | BlockEvicted
    | RegionReserved
    | RegionFreed
    | ReservationFailed
    | Preempted
    | SwappedOut
    | SwappedIn
    | TokenGenerated
    | StepCompleted
)


class RequestState(msgspec.Struct):
    """``status``: waiting, running, swapped, finished, aborted. ``sequences``: by number."""

    request: int
    status: str
    prompt_tokens: int
    max_tokens: int
    source: str
    sequences: list[int]
    reason: str = ""
    width: int = 1
    beam: bool = False
    priority: int = 0


class SequenceState(msgspec.Struct):
    """``table``: physical block of each logical block; ``cpu_table``: CPU blocks while swapped out. ``outputs`` and
    ``texts``: sampled tokens, in order. ``finish``: why it ended, if it has."""

    sequence: int
    request: int
    table: list[int]
    outputs: list[int]
    texts: list[str]
    finish: str = ""
    cpu_table: list[int] = []


class BlockState(msgspec.Struct):
    """A block in use, or one that the prefix cache keeps. ``tokens`` and ``texts``: what its written slots hold, from slot
    0 on. ``hash``: "" if the cache does not know it. ``size`` and ``needed`` are those of a region, and ``request`` is the
    one it belongs to; 0, 0 and -1 for a block of paged memory."""

    block: int
    refs: int
    tokens: list[int]
    texts: list[str]
    hash: str = ""
    size: int = 0
    needed: int = 0
    request: int = -1


class ArenaState(msgspec.Struct):
    """The true state of an arena at the end of an envelope; a reducer of events must arrive at the same.

    Requests, sequences and blocks are sorted by number. Blocks that are free and hold nothing do not appear.
    ``cpu_blocks``: those of the CPU pool that are in use. Of the finished and aborted requests the last 64 by number (and
    their sequences) are kept, and those that still hold memory.
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
    num_cpu_blocks: int = 0
    cpu_blocks: list[BlockState] = []


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
