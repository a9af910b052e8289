"""Any history of arrivals, steps, forks, branches, ends and aborts keeps the books of contiguous memory right."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.memory.buddy_allocator import NoRegion
from engine.memory.region_manager import RESERVATIONS
from engine.sequence import Request
from tests.engine.memory.region_rig import RegionRig


class Histories(RuleBasedStateMachine):
    """``RegionRig`` compares manager, events and written slots after every call; here is the order of service, who may be
    admitted, and how many regions there must be."""

    @initialize(name=st.sampled_from(sorted(RESERVATIONS)), capacity=st.integers(60, 300), max_len=st.integers(8, 24))
    def begin(self, name, capacity, max_len):
        self.rig = RegionRig(name, capacity, max_len)
        self.static = name == "static_batch"
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        # Static batching: all members of this batch, ended ones too, and whether it has run.
        self.batch: list[Request] = []
        self.ran = False

    @rule(
        prompt=st.integers(1, 9),
        outputs=st.integers(1, 9).map(lambda outputs: 2 * outputs),
        n=st.integers(1, 4),
        beam=st.booleans(),
        known=st.booleans(),
    )
    def arrive(self, prompt, outputs, n, beam, known):
        rig = self.rig
        request = rig.request(prompt, outputs, n=n, beam=beam, known=known)
        if rig.manager.why_never(request) is None:
            self.waiting.append(request)
        else:
            assert prompt > rig.manager.max_len or not rig.manager.fits(request, 0)

    @precondition(lambda self: self.running or self.waiting)
    @rule(data=st.data(), cut=st.integers(0, 5), group=st.booleans())
    def step(self, data, cut, group):
        """Admit; let some of the running requests compute what is pending, or a chunk of a prompt; let siblings fork."""
        self._admit()
        for request in data.draw(st.lists(st.sampled_from(self.running), min_size=1, unique=True)):
            leader = request.live[0]
            chunk = cut if 0 < cut < leader.pending and len(request.live) == 1 else 0
            self._run(request, chunk)
            if group and request in self.running and len(request.sequences) == 1 and leader.pending == 1:
                for _ in range(request.width - 1):
                    self.rig.fork(leader)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fork(self, data):
        request = data.draw(st.sampled_from(self.running))
        parent = data.draw(st.sampled_from(request.live))
        due = {source for source, _ in self.rig.manager.copies.values()}
        regions = [state for state in self.rig.manager.blocks() if state.request == request.number]
        spare = [state.block for state in regions if state.refs == 0 and state.block not in due]
        if spare:
            child = self.rig.fork(parent)
            assert self.rig.manager.table(child)[0] in spare
        else:
            with pytest.raises(NoRegion):
                self.rig.fork(parent)
            request.sequences.pop()
            self.rig.sequences.pop()
            self.rig.check()

    @precondition(lambda self: any(request.sampling.beam_search for request in self.running))
    @rule(data=st.data())
    def branch(self, data):
        """A step of beam search, after the forward pass of all the beams."""
        request = data.draw(st.sampled_from([r for r in self.running if r.sampling.beam_search]))
        self._run(request)
        if request not in self.running:
            return
        beams = request.live
        dropped = data.draw(st.lists(st.sampled_from(beams), max_size=len(beams) - 1, unique=True))
        kept = [beam for beam in beams if beam not in dropped]
        room = request.width - len(kept)
        parents = data.draw(st.lists(st.sampled_from(kept), max_size=room))
        self.rig.branch(parents, dropped)

    @precondition(lambda self: self.running or self.waiting)
    @rule(data=st.data(), abort=st.booleans())
    def cut_short(self, data, abort):
        """One sequence ends before its time, or a whole request is aborted, perhaps while it waits."""
        request = data.draw(st.sampled_from(self.running + self.waiting))
        if request in self.waiting:
            self.waiting.remove(request)
            self.rig.end(request)
        elif abort:
            self._end(request)
        else:
            self._finish(data.draw(st.sampled_from(request.live)))

    @invariant()
    def a_requests_regions_are_reserved_as_long_as_it_runs(self):
        if hasattr(self, "rig"):
            holding = self.batch if self.static else self.running
            expected = sorted(request.number for request in holding for _ in range(request.width))
            assert sorted(state.request for state in self.rig.manager.blocks()) == expected

    def teardown(self):
        if not hasattr(self, "rig"):
            return
        while self.running or self.waiting:
            self._admit()
            self._run(self.running[0])
        assert self.rig.manager.buddies.gaps() == dict(self.rig.manager.buddies.roots)
        assert self.rig.parts() == (0, 0, 0, 0, 0, self.rig.manager.capacity)
        assert not any(sequence.table.blocks for sequence in self.rig.sequences)

    def _admit(self):
        """First come, first served, as far as there is room."""
        while self.waiting:
            request = self.waiting[0]
            fits = self.rig.manager.fits(request, 0)
            assert fits or self.batch, "what was not refused at submission finds no room in an empty memory"
            admitted = self.rig.try_admit(request)
            assert admitted == (fits and not (self.static and self.ran))
            if not admitted:
                return
            self.running.append(self.waiting.pop(0))
            self.batch.append(request)

    def _run(self, request, chunk=0):
        """A forward pass of all its sequences; those that have all their tokens end."""
        self.rig.forward(*request.live, count=chunk)
        self.ran = True
        for sequence in request.live:
            if len(sequence.outputs) == request.max_tokens:
                self._finish(sequence)

    def _finish(self, sequence):
        self.rig.finish(sequence)
        if not sequence.request.live:
            self._end(sequence.request)

    def _end(self, request):
        self.rig.end(request)
        self.running.remove(request)
        if not self.running:
            self.batch, self.ran = [], False


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
