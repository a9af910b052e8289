"""An independent reading of the events: from a snapshot and envelopes to the arena's state.

It imports nothing of the engine but the vocabulary, so that agreeing with the engine proves something. Events that
contradict the state so far are rejected.
"""

from __future__ import annotations

from engine import events as ev

ENDED_KEPT = 64


class Impossible(Exception):
    """This event cannot follow from the state so far."""


class Reducer:
    def __init__(self, snapshot: ev.Snapshot) -> None:
        state = snapshot.state
        self.seq = snapshot.seq
        self.epoch = snapshot.epoch
        self.manager = state.manager
        self.block_size = state.block_size
        self.num_blocks = state.num_blocks
        self.steps = state.step
        self.paused = state.paused
        self.partition = state.partition
        self.requests = {r.request: r for r in state.requests}
        self.sequences = {s.sequence: s for s in state.sequences}
        self.blocks = {b.block: b for b in state.blocks}

    def apply(self, step: ev.Step) -> None:
        if step.epoch != self.epoch or step.seq != self.seq + 1:
            raise Impossible(f"envelope {step.epoch}/{step.seq} after {self.epoch}/{self.seq}")
        self.seq = step.seq
        for event in step.events:
            getattr(self, "_" + type(event).__name__)(event)
        self.paused = step.paused
        self.partition = step.partition
        self._divides(step.partition)
        self._forget()
        self.check()

    def state(self) -> ev.ArenaState:
        return ev.ArenaState(
            manager=self.manager,
            block_size=self.block_size,
            num_blocks=self.num_blocks,
            step=self.steps,
            paused=self.paused,
            requests=[self.requests[n] for n in sorted(self.requests)],
            sequences=[self.sequences[n] for n in sorted(self.sequences)],
            blocks=[self.blocks[n] for n in sorted(self.blocks)],
            partition=self.partition,
        )

    def check(self) -> None:
        """The invariants that hold at the end of every envelope."""
        tables = [block for sequence in self.sequences.values() for block in sequence.table]
        for number, block in self.blocks.items():
            if block.refs != tables.count(number):
                raise Impossible(f"block {number}: count {block.refs}, in tables {tables.count(number)} times")
        if set(tables) != set(self.blocks):
            raise Impossible(f"tables name {set(tables)}, in use are {set(self.blocks)}")

    def _RequestArrived(self, e: ev.RequestArrived) -> None:
        if e.request in self.requests:
            raise Impossible(f"request {e.request} arrives twice")
        self.requests[e.request] = ev.RequestState(e.request, "waiting", e.prompt_tokens, e.max_tokens, e.source, [])

    def _RequestAdmitted(self, e: ev.RequestAdmitted) -> None:
        request = self._request(e.request, "waiting")
        request.status = "running"
        request.sequences = e.sequences
        for number in e.sequences:
            self.sequences.setdefault(number, ev.SequenceState(number, e.request, [], [], []))

    def _RequestRefused(self, e: ev.RequestRefused) -> None:
        pass

    def _RequestFinished(self, e: ev.RequestFinished) -> None:
        request = self._request(e.request, "running", "waiting")
        request.status, request.reason = "finished", e.reason
        outputs = sum(len(self.sequences[n].outputs) for n in request.sequences)
        if outputs != e.output_tokens:
            raise Impossible(f"request {e.request} ends with {e.output_tokens} tokens, {outputs} were generated")

    def _RequestAborted(self, e: ev.RequestAborted) -> None:
        request = self._request(e.request, "running", "waiting")
        request.status, request.reason = "aborted", e.reason

    def _BlockAllocated(self, e: ev.BlockAllocated) -> None:
        if not 0 <= e.block < self.num_blocks:
            raise Impossible(f"block {e.block} of {self.num_blocks}")
        if e.block in self.blocks:
            raise Impossible(f"block {e.block} is in use and allocated again")
        table = self.sequences[e.sequence].table
        if e.logical != len(table):
            raise Impossible(f"logical block {e.logical} added to a table of {len(table)}")
        table.append(e.block)
        self.blocks[e.block] = ev.BlockState(e.block, 1, [], [])

    def _SlotsWritten(self, e: ev.SlotsWritten) -> None:
        block = self.blocks[e.block]
        if block.refs != 1:
            raise Impossible(f"block {e.block} is written while its count is {block.refs}")
        if e.first != len(block.tokens) or not e.count == len(e.tokens) == len(e.texts):
            raise Impossible(f"slots {e.first}+{e.count} of block {e.block}, which has {len(block.tokens)} written")
        if e.first + e.count > self.block_size:
            raise Impossible(f"slots {e.first}+{e.count} reach past the {self.block_size} of block {e.block}")
        block.tokens += e.tokens
        block.texts += e.texts

    def _BlockShared(self, e: ev.BlockShared) -> None:
        block = self.blocks[e.block]
        block.refs += 1
        self.sequences[e.sequence].table.append(e.block)
        if (block.refs, e.logical) != (e.refs, len(self.sequences[e.sequence].table) - 1):
            raise Impossible(f"{e} does not fit")

    def _BlockReleased(self, e: ev.BlockReleased) -> None:
        block = self.blocks[e.block]
        block.refs -= 1
        self.sequences[e.sequence].table.remove(e.block)
        if block.refs != e.refs:
            raise Impossible(f"block {e.block} has {block.refs} references left, the event says {e.refs}")

    def _BlockFreed(self, e: ev.BlockFreed) -> None:
        if self.blocks.pop(e.block).refs != 0:
            raise Impossible(f"block {e.block} is freed while somebody refers to it")

    def _Preempted(self, e: ev.Preempted) -> None:
        self._request(self.sequences[e.sequence].request, "running").status = "waiting"

    def _TokenGenerated(self, e: ev.TokenGenerated) -> None:
        sequence = self.sequences[e.sequence]
        sequence.outputs.append(e.token)
        sequence.texts.append(e.text)

    def _StepCompleted(self, e: ev.StepCompleted) -> None:
        if e.step != self.steps + 1:
            raise Impossible(f"step {e.step} after {self.steps}")
        self.steps = e.step
        self._divides(e.partition)

    def _divides(self, p: ev.Partition) -> None:
        parts = (p.token_states, p.held, p.reserved, p.internal, p.external, p.free)
        if min(parts) < 0 or sum(parts) != self.num_blocks * self.block_size:
            raise Impossible(f"{p} does not divide {self.num_blocks * self.block_size} slots")
        written = sum(len(block.tokens) for block in self.blocks.values())
        unowned = (self.num_blocks - len(self.blocks)) * self.block_size
        if p.token_states != written or p.free + p.external != unowned:
            raise Impossible(f"{p}: {written} slots are written and {unowned} belong to nobody")

    def _request(self, number: int, *status: str) -> ev.RequestState:
        request = self.requests[number]
        if request.status not in status:
            raise Impossible(f"request {number} is {request.status}, not {status}")
        return request

    def _forget(self) -> None:
        ended = sorted(n for n, r in self.requests.items() if r.status in ("finished", "aborted"))
        for number in ended[:-ENDED_KEPT]:
            for sequence in self.requests.pop(number).sequences:
                del self.sequences[sequence]
