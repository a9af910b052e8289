"""How a request gives up its memory, and how it gets it back (paper section 4.5)."""

from __future__ import annotations

from itertools import takewhile

from engine.events import Preempted
from engine.memory.memory_manager import Emit, MemoryManager
from engine.sequence import Request, Status

MODES = ("auto", "recompute", "swap")


def choose(mode: str, request: Request, manager: MemoryManager) -> str:
    """``auto`` swaps groups and recomputes single sequences, as the paper does. Where the CPU pool has no room for a
    request it is recomputed whatever was chosen."""
    wanted = mode if mode != "auto" else "swap" if len(request.live) > 1 else "recompute"
    return "swap" if wanted == "swap" and manager.can_swap_out(request) else "recompute"


def preempt(request: Request, mode: str, manager: MemoryManager, emit: Emit) -> None:
    """Take a running request's memory, all its sequences together. Its status tells what it waits for."""
    emit(Preempted(request.number, [sequence.number for sequence in request.live], mode))
    if mode == "swap":
        request.status = Status.SWAPPED
        manager.swap_out(request)
        return
    request.status = Status.WAITING
    tokens = [sequence.tokens for sequence in request.live]
    # The last token of a group's sequences is run by all together, so at most the one before it is computed for all.
    request.trunk = min(common_prefix(tokens), len(tokens[0]) - (len(tokens) > 1))
    for sequence in request.live:
        manager.free(sequence)


def common_prefix(tokens: list[list[int]]) -> int:
    """How many tokens all of the lists begin with: what is computed once when a group is recomputed."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*tokens, strict=False)))
