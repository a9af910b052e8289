"""What events alone say of paged memory: references, tables and the cache. A third opinion beside the engine and its
reducer, short enough to be checked by eye."""

from __future__ import annotations

from collections import Counter, defaultdict

from engine import events as ev


class Ledger:
    """``cache``: the block of each hash. ``filled``: written slots of a block since it was allocated."""

    def __init__(self) -> None:
        self.refs: Counter[int] = Counter()
        self.tables: dict[int, dict[int, int]] = defaultdict(dict)
        self.cache: dict[str, int] = {}
        self.filled: Counter[int] = Counter()

    def table(self, sequence: int) -> list[int]:
        return [block for _, block in sorted(self.tables[sequence].items())]

    def apply(self, event: ev.AnyEvent) -> None:
        match event:
            case ev.BlockAllocated():
                assert self.refs[event.block] == 0
                assert event.block not in self.cache.values()
                self.refs[event.block], self.filled[event.block] = 1, 0
                self.tables[event.sequence][event.logical] = event.block
            case ev.BlockShared() | ev.PrefixHit():
                self.refs[event.block] += 1
                self.tables[event.sequence][event.logical] = event.block
                if isinstance(event, ev.PrefixHit):
                    assert self.cache[event.hash] == event.block
            case ev.BlockReleased():
                self.refs[event.block] -= 1
                table = self.tables[event.sequence]
                # Where it was copied on write, another block stands in its place already.
                for logical in [one for one, block in table.items() if block == event.block]:
                    del table[logical]
            case ev.BlockCopied():
                for block in event.destinations:
                    self.filled[block] = event.count
            case ev.SwappedIn():
                for _, block in event.pairs:
                    self.filled[block] = -1  # what comes back is not said slot by slot
            case ev.SlotsWritten():
                self._written(event)
            case ev.BlockCached():
                for block, digest in zip(event.blocks, event.hashes, strict=True):
                    assert digest not in self.cache
                    self.cache[digest] = block
            case ev.BlockEvicted():
                assert self.refs[event.block] == 0
                assert self.cache.pop(event.hash) == event.block

    def _written(self, event: ev.SlotsWritten) -> None:
        """H7: what is written belongs to one sequence alone and not to the cache, and no slot is written twice."""
        assert self.refs[event.block] == 1
        assert event.block not in self.cache.values()
        if self.filled[event.block] >= 0:
            assert event.first == self.filled[event.block]
        self.filled[event.block] = event.first + event.count
