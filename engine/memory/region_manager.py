"""Contiguous memory, reserved before a request runs: the Orca baselines (paper sections 3.1 and 6.1).

A region is a block whose number is the slot that it begins at; a sequence's table is that one block. A request reserves
one region for each sequence that it may have, all or none, and keeps them until it is over, as Orca serves and frees
requests whole: the region of a finished sample is internal waste until its siblings have ended too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.events import (
    BlockAllocated,
    BlockCopied,
    BlockReleased,
    BlockState,
    Partition,
    RegionFreed,
    RegionReserved,
    ReservationFailed,
    SlotsWritten,
)
from engine.memory import region_audit
from engine.memory.block_contents import BlockContents
from engine.memory.buddy_allocator import BuddyAllocator, NoRegion
from engine.memory.memory_manager import Emit, Moves, Write
from engine.memory.region import Region
from engine.sequence import Request, Sequence


def _maximum(request: Request, max_len: int) -> int:
    return max_len


def _power_of_two(request: Request, max_len: int) -> int:
    return min(request.prompt_tokens + BuddyAllocator.rounded(request.max_tokens), max_len)


def _true_length(request: Request, max_len: int) -> int:
    return min(request.most_slots, max_len)


RESERVATIONS: dict[str, Callable[[Request, int], int]] = {
    "orca_max": _maximum,
    "orca_pow2": _power_of_two,
    "orca_oracle": _true_length,
    "static_batch": _maximum,
}
"""Slots that a manager reserves for a sequence: the most it may have; its prompt and the next power of two of its output;
those that it will really write (``max_tokens`` being its true length where ``ignore_eos`` is set)."""


class RegionManager:
    """``capacity`` slots under a buddy allocator; ``name`` chooses how much a sequence reserves, ``max_len`` at most.

    Nothing is allocated after admission, so nothing is ever preempted. ``regions`` are those of each request, ``given``
    those that sequences have. ``copies``: from a region's start to the start it is filled from and how many slots, before
    the next forward pass.
    """

    gathers = False

    def __init__(self, name: str, capacity: int, max_len: int, emit: Emit) -> None:
        if name not in RESERVATIONS:
            raise ValueError(f"{name!r} reserves no regions: choose one of {', '.join(RESERVATIONS)}")
        if max_len < 1:
            raise ValueError(f"max_len is {max_len} slots, the least is 1")
        self.name = name
        self.max_len = max_len
        self.buddies = BuddyAllocator(capacity)
        self.contents = BlockContents()
        self.regions: dict[Request, list[Region]] = {}
        self.given: dict[Sequence, Region] = {}
        self.copies: dict[int, tuple[int, int]] = {}
        self._emit = emit
        self._failed: ReservationFailed | None = None

    @property
    def capacity(self) -> int:
        return self.buddies.capacity

    @property
    def num_free(self) -> int:
        return 0

    def needed(self, request: Request) -> int:
        """Slots that each sequence of the request reserves, before the buddy allocator rounds."""
        return RESERVATIONS[self.name](request, self.max_len)

    def longest(self, request: Request) -> int:
        """One more than the slots of the longest region: the last sampled token needs none."""
        return self.max_len + 1

    def why_never(self, request: Request) -> str | None:
        if request.prompt_tokens > self.max_len:
            return (
                f"a prompt of {request.prompt_tokens} tokens exceeds the {self.max_len} slots that {self.name} reserves for "
                f"a sequence at most: shorten it to {self.max_len} tokens, or use a larger max_len"
            )
        needed = self.needed(request)
        fitting = self.buddies.at_most(needed)
        if request.width <= fitting:
            return None
        less = "a smaller max_len" if RESERVATIONS[self.name] is _maximum else "a shorter prompt or smaller max_tokens"
        return (
            f"{self.name} reserves {request.width} x {needed} slots for this request, rounded to {request.width} regions of "
            f"{self.buddies.rounded(needed)}, and this memory of {self.capacity} slots holds {fitting} of them (its longest "
            f"region is {self.buddies.roots[0][1]} slots): use {less}{', fewer sequences' if request.width > 1 else ''} or "
            f"a larger memory"
        )

    def fits(self, request: Request, promised: int) -> bool:
        return self.buddies.available(self.needed(request)) >= request.width

    def can_admit(self, request: Request, promised: int) -> bool:
        if self.fits(request, promised):
            return True
        failed = ReservationFailed(
            request=request.number,
            needed=self.needed(request),
            regions=request.width,
            largest_gap=self.buddies.largest_gap,
            unallocated=self.buddies.unallocated,
        )
        if failed != self._failed:
            self._failed = failed
            self._emit(failed)
        return False

    def admit(self, request: Request) -> None:
        """Reserve ``width`` regions and give the first to the first sequence. Raises NoRegion, with nothing changed."""
        needed = self.needed(request)
        if not self.fits(request, 0):
            raise NoRegion(
                f"request {request.number} needs {request.width} regions for {needed} slots and "
                f"{self.buddies.available(needed)} can be had: wait until another request ends"
            )
        regions = [Region(*self.buddies.allocate(needed), needed, request) for _ in range(request.width)]
        self.regions[request] = regions
        for region in regions:
            self.contents.start(region.start)
            self._emit(RegionReserved(request.number, region.start, region.size, needed))
        self._give(regions[0], request.live[0])

    def need(self, writes: list[Write]) -> int:
        return 0

    def grow(self, writes: list[Write]) -> None:
        """The room is there. Raises ValueError where a sequence would outgrow what was reserved for it."""
        for sequence, slots in writes:
            region = self.given[sequence]
            if slots > region.needed:
                raise ValueError(
                    f"sequence {sequence.number} asks for {slots} slots and {region.needed} are reserved for it: cut its "
                    f"max_tokens at submission"
                )

    def take_moves(self) -> Moves:
        by_source: dict[tuple[int, int], list[int]] = {}
        for destination, origin in self.copies.items():
            by_source.setdefault(origin, []).append(destination)
        self.copies = {}
        moves = Moves()
        for (source, count), destinations in by_source.items():
            self._emit(BlockCopied(source, destinations, count))
            for destination in destinations:
                self.contents.copy(destination, self.contents, source, count)
                moves.copies.append((source, destination, count))
        return moves

    def written(self, sequence: Sequence, count: int, texts: list[str]) -> None:
        start, first = self.given[sequence].start, sequence.computed
        tokens = sequence.tokens[first : first + count]
        self.contents.write(start, tokens, texts)
        self._emit(SlotsWritten(start, first, count, tokens, texts))
        sequence.computed = sequence.table.slots = first + count

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Give ``child`` a spare region of the request, to be filled by ``take_moves`` before anything runs. Raises
        NoRegion, with nothing changed, if there is none."""
        request = parent.request
        # A region that others are still to be filled from is not given away before that.
        busy = {source for source, _ in self.copies.values()}
        regions = self.regions[request]
        spare = next((region for region in regions if region.sequence is None and region.start not in busy), None)
        if spare is None:
            raise NoRegion(
                f"request {request.number} reserved {len(regions)} regions and none is to spare for a fork: all are reserved "
                f"at admission, so ask for more sequences when submitting"
            )
        source = self.given[parent].start
        self._give(spare, child)
        child.computed = child.table.slots = parent.computed
        if parent.computed:
            self.copies[spare.start] = self.copies.get(source, (source, parent.computed))

    def branch(self, forks: list[tuple[Sequence, Sequence]], dropped: list[Sequence]) -> None:
        for sequence in dropped:
            self._release(sequence, spent=False)
        for parent, child in forks:
            self.fork(parent, child)

    def free(self, sequence: Sequence) -> None:
        """The region stays the request's until ``end``; only beam search will give it to another sequence."""
        self._release(sequence, spent=not sequence.request.sampling.beam_search)

    def end(self, request: Request) -> None:
        for region in self.regions.pop(request, ()):
            if region.sequence:
                self._release(region.sequence, spent=True)
            self.buddies.free(region.start)
            self.contents.clear(region.start)
            self._emit(RegionFreed(request.number, region.start, region.size))

    def holds(self, request: Request) -> bool:
        return request in self.regions

    def can_swap_out(self, request: Request) -> bool:
        return False

    def swap_out(self, request: Request) -> None:
        raise ValueError(f"{self.name} never swaps: ask can_swap_out first")

    def swap_in_need(self, request: Request) -> int:
        return 0

    def swap_in(self, request: Request) -> None:
        raise ValueError(f"{self.name} never swaps: request {request.number} has nothing in the CPU pool")

    def table(self, sequence: Sequence) -> list[int]:
        return [self.given[sequence].start] if sequence in self.given else []

    def cpu_table(self, sequence: Sequence) -> list[int]:
        return []

    def blocks(self) -> list[BlockState]:
        """A region that nobody has (``refs`` 0) still shows what was last written into it."""
        found: list[BlockState] = []
        for region in (region for regions in self.regions.values() for region in regions):
            state = self.contents.state(region.start, 1 if region.sequence else 0)
            state.size, state.needed, state.request = region.size, region.needed, region.request.number
            found.append(state)
        return sorted(found, key=lambda state: state.block)

    def cpu_blocks(self) -> list[BlockState]:
        return []

    def partition(self, living: Iterable[Sequence], starved: bool) -> Partition:
        return region_audit.partition(self, list(living), starved)

    def verify(self, living: Iterable[Sequence]) -> None:
        region_audit.verify(self, list(living))

    def _give(self, region: Region, sequence: Sequence) -> None:
        region.sequence, region.spent = sequence, False
        self.given[sequence] = region
        self.contents.start(region.start)
        table = sequence.table
        table.block_size, table.blocks, table.offset = region.size, [0], region.start
        self._emit(BlockAllocated(region.start, sequence.number, 0))

    def _release(self, sequence: Sequence, spent: bool) -> None:
        sequence.computed = 0
        region = self.given.pop(sequence, None)
        if region is None:
            return
        region.sequence, region.spent = None, spent
        self.copies.pop(region.start, None)
        table = sequence.table
        table.blocks, table.offset, table.slots = [], 0, 0
        self._emit(BlockReleased(region.start, sequence.number, 0))
