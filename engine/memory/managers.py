"""The memory managers by name."""

from __future__ import annotations

from engine.memory.memory_manager import Emit, MemoryManager
from engine.memory.paged_manager import MAX_BLOCK_SIZE, PagedManager
from engine.memory.region_manager import RegionManager
from engine.memory.static_batch import StaticBatch
from engine.messages import Memory
from engine.preemption import MODES

NAMES = ("paged", "orca_max", "orca_pow2", "orca_oracle", "static_batch")


def check(memory: Memory) -> None:
    """Raises ValueError for a memory that cannot be, with the value, the limit and the way out."""
    if memory.manager not in NAMES:
        raise ValueError(f"manager {memory.manager!r} does not exist: choose one of {', '.join(NAMES)}")
    if memory.num_blocks < 1 or not 1 <= memory.block_size <= MAX_BLOCK_SIZE:
        raise ValueError(
            f"{memory.num_blocks} blocks of {memory.block_size} slots cannot be: choose at least 1 block, and a block size "
            f"from 1 to {MAX_BLOCK_SIZE}"
        )
    if memory.preemption not in MODES:
        raise ValueError(f"preemption {memory.preemption!r} does not exist: choose one of {', '.join(MODES)}")
    if memory.prefill_chunk < -1:
        raise ValueError(
            f"prefill_chunk is {memory.prefill_chunk}: choose tokens, 0 for the budget, or -1 for never cut"
        )
    if memory.cpu_blocks < 0 or memory.max_len < 0:
        raise ValueError(f"cpu_blocks is {memory.cpu_blocks} and max_len {memory.max_len}: neither can be below 0")
    if memory.manager != "paged" and (memory.cpu_blocks or memory.prefix_cache):
        raise ValueError(f"{memory.manager} neither swaps nor shares prefixes: leave cpu_blocks and prefix_cache out")


def build(memory: Memory, max_model_len: int, emit: Emit, bytes_per_slot: int) -> MemoryManager:
    """The manager of ``memory``; ``max_model_len``: longest sequence, which the reservations by maximum take."""
    check(memory)
    if memory.manager == "paged":
        return PagedManager(memory, emit, bytes_per_slot)
    max_len = min(memory.max_len or max_model_len, max_model_len)
    if memory.manager == "static_batch":
        return StaticBatch(memory.slots, max_len, emit)
    return RegionManager(memory.manager, memory.slots, max_len, emit)
