"""Static batching, as FasterTransformer serves (paper section 6.1): a batch runs until its longest member has ended."""

from __future__ import annotations

from engine.memory.memory_manager import Emit
from engine.memory.region_manager import RegionManager
from engine.sequence import Request, Sequence


class StaticBatch(RegionManager):
    """Every sequence reserves ``max_len`` slots. Requests join until the batch has run its first forward pass; the next
    batch begins when all of this one have ended. Until then a finished member keeps its regions, internal waste now."""

    gathers = True

    def __init__(self, capacity: int, max_len: int, emit: Emit) -> None:
        super().__init__("static_batch", capacity, max_len, emit)
        self._members: set[Request] = set()
        self._closed = False

    def can_admit(self, request: Request, promised: int) -> bool:
        return not self._closed and super().can_admit(request, promised)

    def admit(self, request: Request) -> None:
        super().admit(request)
        self._members.add(request)

    def written(self, sequence: Sequence, count: int, texts: list[str]) -> None:
        super().written(sequence, count, texts)
        self._closed = True

    def free(self, sequence: Sequence) -> None:
        """The sequence is of no use any more, and its table stays until the batch ends."""
        if sequence in self.given:
            self.given[sequence].spent = True

    def end(self, request: Request) -> None:
        """The last member to end takes the whole batch with it."""
        if request not in self._members:
            return
        self._members.remove(request)
        for region in self.regions[request]:
            region.spent = True
        if not self._members:
            self._closed = False
            for ended in list(self.regions):
                super().end(ended)
