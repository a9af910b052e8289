"""What a kernel is told about one step: which query rows belong to which sequence, and where its keys lie."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """One step's mixed batch of prefill chunks and single-token decodes (paper section 4.3).

    The cache is flat: slot ``s`` holds one token's keys and values. An arena owns the slots from ``slot_base`` on, and
    its physical block ``b`` of ``block_size`` tokens begins at slot ``slot_base + b * block_size``. Block size and base
    are given for each sequence, so arenas with different block sizes share one launch. So does a sequence in a contiguous
    region, as systems before paging kept it (paper section 3): the region is one block, as large as the region.

    All tensors lie on the cache's device. ``n`` sequences, ``t`` query rows in all.

    Attributes:
        query_start: int32 [n + 1]; sequence ``i`` owns the query rows ``query_start[i]:query_start[i + 1]``.
        context_len: int32 [n]; tokens sequence ``i`` attends to, this step's rows included. Query row ``j`` of ``m``
            (from 0) sees the first ``context_len[i] - m + j + 1`` tokens.
        block_table: int32 [n, max_blocks]; physical block of each logical block. Entries past
            ``ceil(context_len / block_size)`` are never read.
        block_size: int32 [n]; tokens per block.
        slot_base: int64 [n]; first slot of the sequence's arena.
        slot_mapping: int64 [t]; the absolute slot that each row's key and value are written to.
        max_query_len: the longest run of query rows of one sequence.
        max_context_len: the largest entry of ``context_len``.
    """

    query_start: torch.Tensor
    context_len: torch.Tensor
    block_table: torch.Tensor
    block_size: torch.Tensor
    slot_base: torch.Tensor
    slot_mapping: torch.Tensor
    max_query_len: int
    max_context_len: int
