"""The true state of an arena, as a snapshot tells it."""

from __future__ import annotations

from collections.abc import Iterable

from engine.decoding.text import Vocabulary
from engine.events import ArenaState, Partition, RequestState, SequenceState
from engine.memory.memory_manager import MemoryManager
from engine.messages import Memory
from engine.sequence import Request, Sequence


def describe(
    requests: Iterable[Request],
    memory: Memory,
    manager: MemoryManager,
    vocabulary: Vocabulary,
    partition: Partition,
    step: int,
    paused: bool,
) -> ArenaState:
    """Everything that events tell, as it is now."""
    requests = sorted(requests, key=lambda request: request.number)
    known = [sequence for request in requests if request.admitted for sequence in request.sequences]
    return ArenaState(
        manager=manager.name,
        block_size=memory.block_size,
        num_blocks=memory.num_blocks,
        step=step,
        paused=paused,
        requests=[_request(request) for request in requests],
        sequences=[_sequence(one, manager, vocabulary) for one in sorted(known, key=lambda one: one.number)],
        blocks=manager.blocks(),
        partition=partition,
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


def _sequence(sequence: Sequence, manager: MemoryManager, vocabulary: Vocabulary) -> SequenceState:
    return SequenceState(
        sequence=sequence.number,
        request=sequence.request.number,
        table=manager.table(sequence),
        outputs=sequence.outputs,
        texts=vocabulary.texts(sequence.outputs),
        finish=sequence.finish,
        cpu_table=manager.cpu_table(sequence),
    )
