"""Any history of calls keeps the books of paged memory right, whatever a scheduler might ask of it."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.memory.block_table import BlockTable
from engine.memory.paged_manager import PagedManager
from engine.messages import Memory, Sampling
from engine.sequence import Request, Sequence
from tests.engine.conformance.ledger import Ledger


class Histories(RuleBasedStateMachine):
    """After every call: the audit of the manager, a ledger kept from the events alone, and slots that are really written,
    copied and swapped."""

    @initialize(
        blocks=st.integers(1, 16), size=st.integers(1, 6), cpu_blocks=st.sampled_from([0, 4, 20]), cache=st.booleans()
    )
    def begin(self, blocks, size, cpu_blocks, cache):
        self.numbers = 0
        self.log: list[Any] = []
        self.ledger = Ledger()
        self.manager = PagedManager(Memory(size, blocks, cpu_blocks=cpu_blocks, prefix_cache=cache), self.log.append)
        self.running: list[Request] = []
        self.swapped: list[Request] = []
        self.prefixes: list[Sequence] = []
        self.sequences: list[Sequence] = []
        self.slots: dict[int, int] = {}
        self.cpu_slots: dict[int, int] = {}

    @rule(kind=st.sampled_from([7, 8]), length=st.integers(1, 24), prefix=st.booleans())
    def admit(self, kind, length, prefix):
        sampling = Sampling(max_tokens=8)
        request = Request(self.numbers, length, sampling, "page", 0, 8, trunk=length, registers=prefix)
        sequence = self._sequence(request, [kind] * length)
        if self.manager.why_never(request) is None and self.manager.can_admit(request, 0):
            free, need = self.manager.num_free, self.manager.need([(sequence, length)])
            self.manager.admit(request)
            assert sequence.computed < length
            assert self.manager.num_free + self.manager.need([(sequence, length)]) >= free - need
            self.running.append(request)
            self.sequences.append(sequence)

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 9), chunk=st.integers(1, 9), token=st.sampled_from([1, 2]))
    def step(self, pick, chunk, token):
        """A chunk of a prompt, or a token of every sequence of a group; nothing if there is no room."""
        request = self.running[pick % len(self.running)]
        live = [sequence for sequence in request.live if sequence.pending]
        writes = [(sequence, sequence.computed + min(chunk, sequence.pending)) for sequence in live]
        free, need = self.manager.num_free, self.manager.need(writes)
        if need > free:
            return
        self.manager.grow(writes)
        assert self.manager.num_free == free - need
        self._move()
        for sequence, end in writes:
            self._write(sequence, end)
            if not sequence.pending and not request.registers:
                sequence.tokens.append(token + sequence.number % 2)
        if request.registers and not live[0].pending:
            self.running.remove(request)
            request.sequences[0].finish = "registered"
            self.manager.register_prefix(request.sequences[0])
            self.prefixes.append(request.sequences[0])

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 9), drop=st.booleans())
    def branch(self, pick, drop):
        """A sequence forks; as in beam search a sibling may be dropped in the same step."""
        request = self.running[pick % len(self.running)]
        parent, *others = [sequence for sequence in request.live if sequence.pending == 1] or [None]
        if parent is None or len(request.live) > 5 or request.registers:
            return
        child = self._sequence(request, parent.tokens)
        dropped = others[:1] if drop else []
        free = self.manager.num_free
        self.manager.branch([(parent, child)], dropped)
        assert child.table.blocks == parent.table.blocks
        assert self.manager.num_free >= free  # a fork takes no block
        self.sequences.append(child)
        for sequence in dropped:
            self._forget(sequence)

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 9))
    def swap_out(self, pick):
        request = self.running[pick % len(self.running)]
        if not self.manager.can_swap_out(request):
            return
        self.manager.swap_out(request)
        self._move()
        self.running.remove(request)
        self.swapped.append(request)

    @precondition(lambda self: self.swapped)
    @rule(pick=st.integers(0, 9))
    def swap_in(self, pick):
        request = self.swapped[pick % len(self.swapped)]
        if self.manager.swap_in_need(request) > self.manager.num_free:
            return
        self.manager.swap_in(request)
        self._move()
        self.swapped.remove(request)
        self.running.append(request)

    @precondition(lambda self: self.running or self.swapped)
    @rule(pick=st.integers(0, 9))
    def end(self, pick):
        requests = [*self.running, *self.swapped]
        self._end(requests[pick % len(requests)])

    @precondition(lambda self: self.prefixes)
    @rule()
    def unregister(self):
        self._forget(self.prefixes.pop())

    @rule()
    def reset_cache(self):
        assert self.manager.reset_cache() == (self.manager.num_free == self.manager.num_blocks)

    @invariant()
    def books(self):
        if not hasattr(self, "log"):
            return
        self.manager.verify(self.sequences)
        for event in self.log:
            self.ledger.apply(event)
        self.log.clear()
        pool = self.manager.pool
        assert {block: refs for block, refs in self.ledger.refs.items() if refs} == {
            block: pool.refs[block] for block in range(pool.num_blocks) if pool.refs[block]
        }
        assert all(self.ledger.table(sequence.number) == sequence.table.blocks for sequence in self.sequences)
        assert all(pool.lookup(bytes.fromhex(digest)) == block for digest, block in self.ledger.cache.items())

    def teardown(self):
        if not hasattr(self, "log"):
            return
        for request in [*self.running, *self.swapped]:
            self._end(request)
        for sequence in self.prefixes:
            self._forget(sequence)
        self.books()
        assert self.manager.num_free == self.manager.num_blocks

    def _sequence(self, request: Request, tokens: list[int]) -> Sequence:
        self.numbers += 1
        sequence = Sequence(self.numbers, request, list(tokens), BlockTable(self.manager.block_size))
        request.sequences.append(sequence)
        return sequence

    def _end(self, request: Request) -> None:
        for sequence in list(request.sequences):
            self._forget(sequence)
        self.manager.end(request)
        for queue in (self.running, self.swapped):
            if request in queue:
                queue.remove(request)

    def _forget(self, sequence: Sequence) -> None:
        self.manager.free(sequence)
        sequence.request.sequences.remove(sequence)
        self.sequences.remove(sequence)

    def _move(self) -> None:
        moves = self.manager.take_moves()
        for source, target, count in moves.out:
            self.cpu_slots.update({target + i: self.slots[source + i] for i in range(count)})
        for source, target, count in moves.back:
            self.slots.update({target + i: self.cpu_slots[source + i] for i in range(count)})
        for source, target, count in moves.copies:
            self.slots.update({target + i: self.slots[source + i] for i in range(count)})

    def _write(self, sequence: Sequence, end: int) -> None:
        for position in range(end):
            block, slot = sequence.table.locate(position)
            at = block * self.manager.block_size + slot
            if position >= sequence.computed:
                self.slots[at] = sequence.tokens[position]
            assert self.slots[at] == sequence.tokens[position]
        count = end - sequence.computed
        self.manager.written(sequence, count, [""] * count)


class TestHistories(Histories.TestCase):
    settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
