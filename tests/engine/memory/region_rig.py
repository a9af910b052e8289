"""Drive a manager of contiguous memory by hand: no scheduler, no model, but slots that are really written and copied."""

from __future__ import annotations

from typing import Any

import msgspec

from engine import events as ev
from engine.memory.block_table import BlockTable
from engine.memory.region_manager import RegionManager
from engine.memory.static_batch import StaticBatch
from engine.messages import Sampling
from engine.sequence import Request, Sequence


class Ledger:
    """What the events alone say of memory."""

    def __init__(self) -> None:
        self.regions: dict[int, ev.BlockState] = {}
        self.tables: dict[int, list[int]] = {}

    def apply(self, event: ev.AnyEvent) -> None:
        match event:
            case ev.RegionReserved():
                assert event.start not in self.regions
                self.regions[event.start] = ev.BlockState(
                    event.start, 0, [], [], size=event.size, needed=event.needed, request=event.request
                )
            case ev.BlockAllocated():
                region = self.regions[event.block]
                assert (region.refs, event.logical) == (0, 0)
                region.refs, region.tokens, region.texts = 1, [], []
                assert not self.tables.get(event.sequence)
                self.tables[event.sequence] = [event.block]
            case ev.SlotsWritten():
                region = self.regions[event.block]
                assert (region.refs, event.first) == (1, len(region.tokens))
                assert event.count == len(event.tokens) == len(event.texts)
                region.tokens += event.tokens
                region.texts += event.texts
                assert len(region.tokens) <= region.needed
            case ev.BlockCopied():
                source = self.regions[event.source]
                assert len(source.tokens) >= event.count > 0
                for number in event.destinations:
                    region = self.regions[number]
                    assert (region.refs, region.tokens) == (1, [])
                    region.tokens, region.texts = source.tokens[: event.count], source.texts[: event.count]
            case ev.BlockReleased():
                assert (self.regions[event.block].refs, event.refs) == (1, 0)
                self.regions[event.block].refs = 0
                self.tables[event.sequence].remove(event.block)
            case ev.RegionFreed():
                region = self.regions.pop(event.start)
                assert (region.refs, region.size, region.request) == (0, event.size, event.request)
            case ev.ReservationFailed():
                pass
            case _:
                raise AssertionError(f"{event} says nothing of regions")


class RegionRig:
    """A manager whose books are verified after every call: with each other, with what the events say, and with slots
    that are written and copied as its tables and moves tell."""

    def __init__(self, name: str, capacity: int, max_len: int) -> None:
        self.log: list[Any] = []
        self.manager: RegionManager = (
            StaticBatch(capacity, max_len, self.log.append)
            if name == "static_batch"
            else RegionManager(name, capacity, max_len, self.log.append)
        )
        self.requests: list[Request] = []
        self.sequences: list[Sequence] = []
        self.ended: list[Request] = []
        self._ledger = Ledger()
        self._seen = 0
        self._memory: list[int | None] = [None] * capacity

    def request(self, prompt: int, outputs: int, n: int = 1, beam: bool = False, known: bool = True) -> Request:
        """A request that waits; its prompt is ``prompt`` tokens of its own."""
        sampling = Sampling(max_tokens=outputs, n=n, beam_search=beam, ignore_eos=known)
        number = len(self.requests)
        request = Request(number, prompt, sampling, "page", 0, outputs)
        request.max_tokens = min(outputs, self.manager.longest(request) - prompt)
        self.requests.append(request)
        self._sequence(request, [1000 * number + position for position in range(prompt)])
        return request

    def admit(self, *args: int, **kwargs: Any) -> Request:
        """A request that is admitted at once."""
        request = self.request(*args, **kwargs)
        assert self.try_admit(request)
        return request

    def try_admit(self, request: Request) -> bool:
        admitted = self.manager.can_admit(request, 0)
        if admitted:
            self.manager.admit(request)
        self.check()
        return admitted

    def forward(self, *sequences: Sequence, count: int = 0) -> None:
        """One step: the pending tokens of these sequences (or ``count``) are computed, the last of all yields another."""
        writes = [(sequence, sequence.computed + (count or sequence.pending)) for sequence in sequences]
        assert self.manager.need(writes) == 0
        self.manager.grow(writes)
        self._move()
        self.check()
        for sequence, slots in writes:
            for position in range(sequence.computed, slots):
                self._memory[self._place(sequence, position)] = sequence.tokens[position]
            texts = [str(token) for token in sequence.tokens[sequence.computed : slots]]
            self.manager.written(sequence, slots - sequence.computed, texts)
            if not sequence.pending:
                sequence.tokens.append(len(self.log))
        self.check()

    def fork(self, parent: Sequence) -> Sequence:
        child = self._sequence(parent.request, list(parent.tokens))
        self.manager.fork(parent, child)
        self.check()
        return child

    def branch(self, parents: list[Sequence], dropped: list[Sequence]) -> list[Sequence]:
        """Beam search: the children of ``parents``, in their order, while ``dropped`` end."""
        forks = [(parent, self._sequence(parent.request, list(parent.tokens))) for parent in parents]
        for sequence in dropped:
            sequence.finish = "dropped"
        self.manager.branch(forks, dropped)
        self.check()
        return [child for _, child in forks]

    def finish(self, sequence: Sequence) -> None:
        """One sample ends; its request goes on."""
        sequence.finish = "length"
        self.manager.free(sequence)
        self.check()

    def end(self, request: Request) -> None:
        """The request is over, by itself or by an abort."""
        for sequence in request.sequences:
            sequence.finish = sequence.finish or "length"
            self.manager.free(sequence)
        self.manager.end(request)
        self.ended.append(request)
        self.check()

    def parts(self, starved: bool = False) -> tuple[int, int, int, int, int, int]:
        """Token states, held, reserved, internal, external, free."""
        parts = msgspec.structs.astuple(self.manager.partition(self.sequences, starved))
        assert min(parts) >= 0
        assert sum(parts) == self.manager.capacity
        return parts[:6]

    def events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.log if isinstance(event, kind)]

    def check(self) -> None:
        self.manager.verify(self.sequences)
        for event in self.log[self._seen :]:
            self._ledger.apply(event)
        self._seen = len(self.log)
        assert self.manager.blocks() == [self._ledger.regions[start] for start in sorted(self._ledger.regions)]
        for sequence in self.sequences:
            assert self.manager.table(sequence) == self._ledger.tables.get(sequence.number, [])
            if sequence.table.blocks and sequence.table.offset not in self.manager.copies:
                places = [self._place(sequence, position) for position in range(sequence.computed)]
                assert [self._memory[place] for place in places] == sequence.tokens[: sequence.computed]
        for starved in (False, True):
            self.parts(starved)

    def _move(self) -> None:
        told = len(self.log)
        moves = self.manager.take_moves()
        copied = [(e.source, destination, e.count) for e in self.log[told:] for destination in e.destinations]
        assert (moves.out, moves.back, moves.copies) == ([], [], copied)
        # All at once, as one launch may do it: no slot is both read and written.
        assert not {source for source, _, _ in copied} & {destination for _, destination, _ in copied}
        for source, destination, count in copied:
            self._memory[destination : destination + count] = self._memory[source : source + count]

    def _place(self, sequence: Sequence, position: int) -> int:
        block, slot = sequence.table.locate(position)
        return sequence.table.offset + block * sequence.table.block_size + slot

    def _sequence(self, request: Request, tokens: list[int]) -> Sequence:
        sequence = Sequence(len(self.sequences), request, tokens, BlockTable(16), sample=len(request.sequences))
        self.sequences.append(sequence)
        request.sequences.append(sequence)
        return sequence
