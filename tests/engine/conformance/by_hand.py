"""Drive paged memory by hand: fork, append and free, as the paper's section 5.2 has them, without a scheduler."""

from __future__ import annotations

from typing import Any

from engine.events import AnyEvent
from engine.memory.block_table import BlockTable
from engine.memory.paged_manager import PagedManager
from engine.messages import Memory, Sampling
from engine.sequence import Request, Sequence


class Hand:
    """The sequences of one request in ``manager``, whose books are verified after every call. ``log``: the events."""

    def __init__(self, num_blocks: int, block_size: int, cpu_blocks: int = 0, bytes_per_slot: int = 0) -> None:
        self.log: list[AnyEvent] = []
        memory = Memory(block_size, num_blocks, cpu_blocks=cpu_blocks)
        self.manager = PagedManager(memory, self.log.append, bytes_per_slot)
        self.request = Request(0, 1, Sampling(), "page", seed=0, max_tokens=1000, branched=True)

    @property
    def free_blocks(self) -> int:
        return self.manager.num_free

    @property
    def refs(self) -> list[int]:
        return self.manager.pool.refs

    def sequence(self, length: int) -> Sequence:
        """A sequence of ``length`` tokens, all of them computed."""
        sequence = self._new([])
        self.append(length, sequence)
        return sequence

    def fork(self, parent: Sequence) -> Sequence:
        child = self._new(list(parent.tokens))
        self.manager.fork(parent, child)
        self._verify()
        return child

    def append(self, count: int, *sequences: Sequence) -> list[AnyEvent]:
        """A step in which each of ``sequences`` writes ``count`` more tokens. Returns its events."""
        told = len(self.log)
        for sequence in sequences:
            sequence.tokens += [100 * sequence.number + at for at in range(count)]
        self.manager.grow([(sequence, sequence.computed + count) for sequence in sequences])
        self.manager.take_moves()
        for sequence in sequences:
            self.manager.written(sequence, count, ["?"] * count)
        self._verify()
        return self.log[told:]

    def branch(self, forks: list[Sequence], dropped: list[Sequence]) -> list[AnyEvent]:
        """A step of beam search: a child for each of ``forks``, and the end of ``dropped``. Returns its events."""
        told = len(self.log)
        pairs = [(parent, self._new(list(parent.tokens))) for parent in forks]
        for sequence in dropped:
            sequence.finish = "dropped"
        self.manager.branch(pairs, dropped)
        self._verify()
        return self.log[told:]

    def free(self, sequence: Sequence) -> None:
        sequence.finish = "length"
        self.manager.free(sequence)
        self._verify()

    def events(self, kind: type[AnyEvent]) -> list[Any]:
        return [event for event in self.log if isinstance(event, kind)]

    def _new(self, tokens: list[int]) -> Sequence:
        sequences = self.request.sequences
        sequence = Sequence(len(sequences), self.request, tokens, BlockTable(self.manager.block_size))
        sequences.append(sequence)
        return sequence

    def _verify(self) -> None:
        self.manager.verify(self.request.sequences)
