"""The true state of an arena, as a snapshot tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.events import ArenaState, RequestState, SequenceState
from engine.sequence import Request, Sequence

if TYPE_CHECKING:
    from engine.arena import Arena


def describe(arena: Arena) -> ArenaState:
    """Everything that events tell, as it is now."""
    memory, manager = arena.memory, arena.manager
    requests = sorted(arena.requests.values(), key=lambda request: request.number)
    known = [sequence for request in requests if request.admitted for sequence in request.sequences]
    return ArenaState(
        manager=manager.name,
        block_size=memory.block_size,
        num_blocks=memory.num_blocks,
        step=arena.steps,
        paused=arena.paused,
        requests=[_request(request) for request in requests],
        sequences=[_sequence(arena, sequence) for sequence in sorted(known, key=lambda one: one.number)],
        blocks=manager.blocks(),
        partition=arena.partition(),
        num_cpu_blocks=memory.cpu_blocks,
        cpu_blocks=manager.cpu_blocks(),
    )


def _request(request: Request) -> RequestState:
    return RequestState(
        request=request.number,
        status=request.status.value,
        prompt_tokens=request.prompt_tokens,
        max_tokens=request.sampling.max_tokens,
        source=request.source,
        sequences=[sequence.number for sequence in request.sequences] if request.admitted else [],
        reason=request.reason,
        width=request.width,
        beam=request.sampling.beam_search,
        priority=request.priority,
    )


def _sequence(arena: Arena, sequence: Sequence) -> SequenceState:
    return SequenceState(
        sequence=sequence.number,
        request=sequence.request.number,
        table=arena.manager.table(sequence),
        outputs=sequence.outputs,
        texts=arena.vocabulary.texts(sequence.outputs),
        finish=sequence.finish,
        cpu_table=arena.manager.cpu_table(sequence),
    )
