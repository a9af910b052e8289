"""What a reducer knows of an arena, and what the envelope at hand still owes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.events import ArenaState, BlockState, RequestState, SequenceState

ENDED = ("finished", "aborted")


class Impossible(Exception):
    """This cannot follow from the state so far. Before it leaves the reducer, the message gets the envelope's number and
    the event, if it was one."""


@dataclass(slots=True)
class Envelope:
    """What has happened since the last envelope, as far as later events depend on it.

    ``replaced``: (sequence, old block) of copy-on-write, until the old block is released. ``uncopied``: new block to the
    old one whose content it is owed. ``copies``: (source, slots) so far, and their ``destinations``. ``unfreed``: blocks
    with no reference left that nobody has freed yet. ``leaving``: sequences that have released some of their blocks.
    ``dropped``: sequences that are forgotten at the end. ``bare``: sequences that got a token and hold no block. ``ran``:
    sequences that wrote slots, ``rows``: how many.
    """

    replaced: set[tuple[int, int]] = field(default_factory=set)
    uncopied: dict[int, int] = field(default_factory=dict)
    copies: set[tuple[int, int]] = field(default_factory=set)
    destinations: set[int] = field(default_factory=set)
    unfreed: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    bare: set[int] = field(default_factory=set)
    ran: set[int] = field(default_factory=set)
    rows: int = 0
    stepped: bool = False


class Books:
    """Requests, sequences and blocks by number. ``holders``: the sequences that refer to each block; ``hashes``: the block
    that the prefix cache keeps under each hash; ``prompts``: the tokens of each request's prompt seen in blocks so far."""

    def __init__(self, state: ArenaState) -> None:
        state = copy.deepcopy(state)
        self.manager = state.manager
        self.contiguous = state.manager != "paged"
        self.block_size = state.block_size
        self.num_blocks = state.num_blocks
        self.num_cpu_blocks = state.num_cpu_blocks
        self.steps = state.step
        self.requests = {request.request: request for request in state.requests}
        self.sequences = {sequence.sequence: sequence for sequence in state.sequences}
        self.blocks = {block.block: block for block in state.blocks}
        self.cpu_blocks = {block.block: block for block in state.cpu_blocks}
        self.hashes = {block.hash: block.block for block in state.blocks if block.hash}
        self.holders: dict[int, list[int]] = {block: [] for block in self.blocks}
        for sequence in state.sequences:
            for number in sequence.table:
                self.holders.setdefault(number, []).append(sequence.sequence)
        self.prompts: dict[int, list[int]] = {}
        self.next_request = max(self.requests, default=-1) + 1
        self.envelope = Envelope()

    @property
    def capacity(self) -> int:
        """Slots in all."""
        return self.num_blocks * self.block_size

    def request(self, number: int, *statuses: str) -> RequestState:
        """The request, which must have one of ``statuses`` if any are given."""
        request = self.requests.get(number)
        if request is None:
            raise Impossible(f"there is no request {number}")
        if statuses and request.status not in statuses:
            raise Impossible(f"request {number} is {request.status}, and must be {' or '.join(statuses)}")
        return request

    def sequence(self, number: int) -> SequenceState:
        sequence = self.sequences.get(number)
        if sequence is None:
            raise Impossible(f"there is no sequence {number}")
        return sequence

    def taker(self, number: int) -> SequenceState:
        """A sequence that may be given blocks now."""
        sequence = self.sequence(number)
        self.request(sequence.request, "running", "swapped")
        if sequence.finish:
            raise Impossible(f"sequence {number} has ended ({sequence.finish}) and takes no block")
        if number in self.envelope.leaving:
            raise Impossible(f"sequence {number} is letting go of its blocks and still has {sequence.table}")
        return sequence

    def block(self, number: int) -> BlockState:
        """A block that is in use or cached."""
        block = self.blocks.get(number)
        if block is None:
            raise Impossible(f"block {number} is free and holds nothing")
        return block

    def used(self, number: int) -> BlockState:
        block = self.block(number)
        if block.refs == 0:
            raise Impossible(f"block {number} is not in use: its count is 0")
        return block

    def room(self, block: BlockState) -> int:
        """Slots of a block that may be written."""
        return block.needed if self.contiguous else self.block_size

    def live(self, request: RequestState) -> list[int]:
        """Its sequences that go on, by number."""
        return [number for number in request.sequences if not self.sequences[number].finish]

    def lives(self, sequence: SequenceState) -> bool:
        return not sequence.finish and self.requests[sequence.request].status not in ENDED

    def keeps_memory(self, request: RequestState) -> bool:
        """Whether it may hold blocks though it, or the sequence that holds them, has ended: a registered prefix, or a
        member of a static batch."""
        return self.manager == "static_batch" or (request.status == "finished" and request.reason == "registered")

    def holds_memory(self, request: RequestState) -> bool:
        regions = (block.request == request.request for block in self.blocks.values()) if self.contiguous else ()
        return any(self.sequences[number].table for number in request.sequences) or any(regions)

    def contents(self, sequence: SequenceState) -> list[int]:
        """Tokens whose keys and values its blocks hold, in order."""
        return [token for number in sequence.table for token in self.blocks[number].tokens]

    def regions(self) -> Iterator[BlockState]:
        """The regions of contiguous memory, by their first slot."""
        return (self.blocks[start] for start in sorted(self.blocks))

    @property
    def unallocated(self) -> int:
        """Slots that belong to nobody."""
        if self.contiguous:
            return self.capacity - sum(block.size for block in self.blocks.values())
        return self.block_size * (self.num_blocks - sum(block.refs > 0 for block in self.blocks.values()))
