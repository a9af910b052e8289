"""The CPU kernels, compiled by Numba. Import only through ``kernels.cpu_compiled``, which sets the place of the disk cache.

Each kernel is a C function of one argument, the address of an int64 array: counters, then addresses and sizes (the
names below). That makes a call from Python cost a few microseconds, and any thread can run it.

``attend`` is split-K attention (as in Flash-Decoding): the work is cut into items of one query row and ``CHUNK``
tokens that it sees, whatever the batch, so a row's result does not depend on its neighbours, on the number of threads
or on where its blocks lie. Threads draw items from a shared counter; whoever finishes a row's last item merges its
parts, in order. An item reads whole slots (all KV heads), each once for all the query heads of its groups. Tokens that
have left a row's sliding window are in none of its items, so they are neither looked up nor read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, cfunc, njit

from kernels.cpu_intrinsics import (
    FAST,
    OPTIONS,
    PRECISE,
    as_float64,
    copy_bytes,
    exp2,
    fetch_add,
    pointer,
    prefetch,
    tanh,
    widen,
)

AHEAD = 8  # tokens between the one worked on and the one whose row is being fetched: the processor cannot guess blocks
CHUNK = 128  # tokens of context in one item: small enough to share one short sequence between two cores

# Fields of the int64 array that ``attend`` works on: counters (0, 0 and -1 at the start), addresses, sizes.
NEXT_ITEM, NEXT_THREAD, BAD_SLOT = 0, 1, 2
ITEM_ROW, ROW_FIRST_ITEM, ROW_QUERY, ROW_SEQUENCE, ROW_FIRST_TOKEN, ROW_CONTEXT, ROW_DONE = range(3, 10)
TABLE, BLOCK_SIZE, SLOT_BASE = 10, 11, 12
QUERY, KEYS, VALUES, OUT = 13, 14, 15, 16
PART_PEAK, PART_SUM, PART_OUT, SCRATCH_QUERY, SCRATCH_SCORES, SCRATCH_SLOTS = range(17, 23)
ITEMS, ROWS, SEQUENCES, TABLE_WIDTH, QUERY_ROWS, SLOTS, HEADS, KV_HEADS, HEAD_DIM, THREADS = range(23, 33)
# Bits of float64 numbers. The query is multiplied by SCALE and, where CAP is not 0, a score becomes CAP * tanh(score);
# either way scores end up in units of log2(e), for exp2.
SCALE_BITS, CAP_BITS = 33, 34
SCRATCH_FIELDS = (PART_PEAK, PART_SUM, PART_OUT, SCRATCH_QUERY, SCRATCH_SCORES, SCRATCH_SLOTS)
ATTEND_FIELDS = 35

# Fields of the int64 array that ``store`` works on; BAD_SLOT as above.
STORE_MAPPING, STORE_KEY, STORE_VALUE, STORE_KEYS, STORE_VALUES = 3, 4, 5, 6, 7
STORE_ROWS, STORE_SLOTS, STORE_WIDTH = 8, 9, 10  # width: bytes of a row
STORE_FIELDS = 11

# Fields of the int64 array that ``move`` works on; NEXT_ITEM as above. An item is one move in one plane.
MOVE_LIST, MOVE_SOURCE, MOVE_DESTINATION = 3, 4, 5
MOVE_COUNT, MOVE_PLANES, MOVE_SOURCE_SLOTS, MOVE_DESTINATION_SLOTS, MOVE_WIDTH = 6, 7, 8, 9, 10
MOVE_FIELDS = 11


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def fill_slots(slots: Any, table: Any, block_size: int, slot_base: int, first: int, count: int, limit: int) -> Any:
    """Absolute slots of the tokens ``first`` to ``first + count``, by the block table. Returns -1, or a slot that lies
    outside the cache's ``limit`` slots."""
    block, offset = first // block_size, first % block_size
    done = 0
    while done < count:
        run = min(block_size - offset, count - done)
        slot = slot_base + np.int64(table[block]) * block_size + offset
        if slot < 0 or slot + run > limit:
            return slot if slot != -1 else np.int64(-2)
        for i in range(run):
            slots[done + i] = slot + i
        done += run
        block += 1
        offset = 0
    return np.int64(-1)


@njit(inline="always", **OPTIONS)  # type: ignore[untyped-decorator]
def fetch_ahead(cache: Any, slots: Any, first: int, count: int) -> None:
    """Prefetch the rows of the four tokens from ``first`` on."""
    bytes_of_row = cache.shape[1] * cache.shape[2] * cache.itemsize
    for j in range(first, min(first + 4, count)):
        for byte in range(0, bytes_of_row, 64):
            prefetch(cache, slots[j], byte)


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def score_tokens(query: Any, keys: Any, slots: Any, count: int, scores: Any) -> None:
    """scores[h, j] = query[h] . keys[slots[j], h's KV head]; four tokens at a time, each read once."""
    kv_heads, dim = keys.shape[1], keys.shape[2]
    group = query.shape[0] // kv_heads
    whole = count - count % 4
    for j in range(0, whole, 4):
        a, b, c, d = slots[j], slots[j + 1], slots[j + 2], slots[j + 3]
        fetch_ahead(keys, slots, j + AHEAD, count)
        for kv_head in range(kv_heads):
            for head in range(kv_head * group, kv_head * group + group):
                p, q, r, s = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
                for x in range(dim):
                    p += query[head, x] * widen(keys[a, kv_head, x])
                    q += query[head, x] * widen(keys[b, kv_head, x])
                    r += query[head, x] * widen(keys[c, kv_head, x])
                    s += query[head, x] * widen(keys[d, kv_head, x])
                scores[head, j], scores[head, j + 1], scores[head, j + 2], scores[head, j + 3] = p, q, r, s
    for j in range(whole, count):
        for kv_head in range(kv_heads):
            for head in range(kv_head * group, kv_head * group + group):
                p = np.float32(0.0)
                for x in range(dim):
                    p += query[head, x] * widen(keys[slots[j], kv_head, x])
                scores[head, j] = p


@njit(**PRECISE)  # type: ignore[untyped-decorator]
def cap_scores(scores: Any, count: int, cap: Any) -> None:
    """Keep each head's scores within +-cap: scores = cap * tanh(scores)."""
    for head in range(scores.shape[0]):
        for j in range(count):
            scores[head, j] = cap * tanh(scores[head, j])


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def softmax_parts(scores: Any, count: int, peaks: Any, sums: Any) -> None:
    """Turn each head's scores into weights relative to their peak; keep the peak and the sum of the weights."""
    for head in range(scores.shape[0]):
        peak = scores[head, 0]
        for j in range(1, count):
            peak = max(peak, scores[head, j])
        total = np.float32(0.0)
        for j in range(count):
            weight = exp2(scores[head, j] - peak)
            scores[head, j] = weight
            total += weight
        peaks[head] = peak
        sums[head] = total


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def weigh_values(scores: Any, values: Any, slots: Any, count: int, out: Any) -> None:
    """out[h] = sum over j of scores[h, j] * values[slots[j], h's KV head]; four tokens at a time, each read once."""
    kv_heads, dim = values.shape[1], values.shape[2]
    group = scores.shape[0] // kv_heads
    out[:, :] = np.float32(0.0)
    whole = count - count % 4
    for j in range(0, whole, 4):
        a, b, c, d = slots[j], slots[j + 1], slots[j + 2], slots[j + 3]
        fetch_ahead(values, slots, j + AHEAD, count)
        for kv_head in range(kv_heads):
            for head in range(kv_head * group, kv_head * group + group):
                p, q, r, s = scores[head, j], scores[head, j + 1], scores[head, j + 2], scores[head, j + 3]
                for x in range(dim):
                    out[head, x] += (p * widen(values[a, kv_head, x]) + q * widen(values[b, kv_head, x])) + (
                        r * widen(values[c, kv_head, x]) + s * widen(values[d, kv_head, x])
                    )
    for j in range(whole, count):
        for kv_head in range(kv_heads):
            for head in range(kv_head * group, kv_head * group + group):
                for x in range(dim):
                    out[head, x] += scores[head, j] * widen(values[slots[j], kv_head, x])


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def merge_parts(peaks: Any, sums: Any, parts: Any, out: Any) -> None:
    """Join a row's items: peaks, sums [items, heads] and parts [items, heads, head_dim] into out [heads, head_dim]."""
    items, heads, dim = parts.shape
    for head in range(heads):
        peak = peaks[0, head]
        for item in range(1, items):
            peak = max(peak, peaks[item, head])
        total = np.float32(0.0)
        out[head, :] = np.float32(0.0)
        for item in range(items):
            weight = exp2(peaks[item, head] - peak)
            total += weight * sums[item, head]
            for x in range(dim):
                out[head, x] += weight * parts[item, head, x]
        for x in range(dim):
            out[head, x] = out[head, x] / total


@njit(inline="always", **OPTIONS)  # type: ignore[untyped-decorator]
def attend_items(args: Any, keys: Any, values: Any) -> None:
    """Draw items from the shared counter until none is left."""
    rows, heads, dim = args[ROWS], args[HEADS], args[HEAD_DIM]
    items, sequences, threads = args[ITEMS], args[SEQUENCES], args[THREADS]
    item_row = carray(pointer(args[ITEM_ROW]), (items,), np.int32)
    first_item = carray(pointer(args[ROW_FIRST_ITEM]), (rows + 1,), np.int32)
    row_query = carray(pointer(args[ROW_QUERY]), (rows,), np.int32)
    row_sequence = carray(pointer(args[ROW_SEQUENCE]), (rows,), np.int32)
    row_first = carray(pointer(args[ROW_FIRST_TOKEN]), (rows,), np.int32)
    row_context = carray(pointer(args[ROW_CONTEXT]), (rows,), np.int32)
    row_done = carray(pointer(args[ROW_DONE]), (rows,), np.int64)
    table = carray(pointer(args[TABLE]), (sequences, args[TABLE_WIDTH]), np.int32)
    block_size = carray(pointer(args[BLOCK_SIZE]), (sequences,), np.int32)
    slot_base = carray(pointer(args[SLOT_BASE]), (sequences,), np.int64)
    query = carray(pointer(args[QUERY]), (args[QUERY_ROWS], heads, dim), np.float32)
    out = carray(pointer(args[OUT]), (args[QUERY_ROWS], heads, dim), np.float32)
    peaks = carray(pointer(args[PART_PEAK]), (items, heads), np.float32)
    sums = carray(pointer(args[PART_SUM]), (items, heads), np.float32)
    parts = carray(pointer(args[PART_OUT]), (items, heads, dim), np.float32)
    scale, cap = np.float32(as_float64(args[SCALE_BITS])), np.float32(as_float64(args[CAP_BITS]))

    thread = fetch_add(args, NEXT_THREAD)
    scaled = carray(pointer(args[SCRATCH_QUERY]), (threads, heads, dim), np.float32)[thread]
    scores = carray(pointer(args[SCRATCH_SCORES]), (threads, heads, CHUNK), np.float32)[thread]
    slots = carray(pointer(args[SCRATCH_SLOTS]), (threads, CHUNK), np.int64)[thread]

    item = fetch_add(args, NEXT_ITEM)
    while item < items:
        row = item_row[item]
        begin, end = first_item[row], first_item[row + 1]
        sequence, first = row_sequence[row], row_first[row] + (item - begin) * CHUNK
        count = min(CHUNK, row_context[row] - first)
        bad = fill_slots(slots, table[sequence], block_size[sequence], slot_base[sequence], first, count, args[SLOTS])
        if bad == -1:
            for head in range(heads):
                for x in range(dim):
                    scaled[head, x] = query[row_query[row], head, x] * scale
            score_tokens(scaled, keys, slots, count, scores)
            if cap > 0:
                cap_scores(scores, count, cap)
            softmax_parts(scores, count, peaks[item], sums[item])
            weigh_values(scores, values, slots, count, parts[item])
        else:
            args[BAD_SLOT] = bad
        if fetch_add(row_done, row) == end - begin - 1:
            row_done[row] = 0  # ready for the next layer
            merge_parts(peaks[begin:end], sums[begin:end], parts[begin:end], out[row_query[row]])
        item = fetch_add(args, NEXT_ITEM)


def attend_float32(address: Any) -> None:
    """Attention over float32 caches."""
    args = carray(address, (ATTEND_FIELDS,), np.int64)
    shape = (args[SLOTS], args[KV_HEADS], args[HEAD_DIM])
    attend_items(args, carray(pointer(args[KEYS]), shape, np.float32), carray(pointer(args[VALUES]), shape, np.float32))


def attend_bfloat16(address: Any) -> None:
    """Attention over bfloat16 caches; query and output are float32."""
    args = carray(address, (ATTEND_FIELDS,), np.int64)
    shape = (args[SLOTS], args[KV_HEADS], args[HEAD_DIM])
    attend_items(args, carray(pointer(args[KEYS]), shape, np.int16), carray(pointer(args[VALUES]), shape, np.int16))


def store(address: Any) -> None:
    """``store_kv`` for any dtype: rows are copied as bytes. Every slot is checked before the first write."""
    args = carray(address, (STORE_FIELDS,), np.int64)
    width = args[STORE_WIDTH]
    mapping = carray(pointer(args[STORE_MAPPING]), (args[STORE_ROWS],), np.int64)
    for row in range(args[STORE_ROWS]):
        if mapping[row] < -1 or mapping[row] >= args[STORE_SLOTS]:
            args[BAD_SLOT] = mapping[row]
            return
    for row in range(args[STORE_ROWS]):
        if mapping[row] >= 0:
            copy_bytes(args[STORE_KEYS] + mapping[row] * width, args[STORE_KEY] + row * width, width)
            copy_bytes(args[STORE_VALUES] + mapping[row] * width, args[STORE_VALUE] + row * width, width)


def move(address: Any) -> None:
    """``copy_blocks`` and ``swap_blocks`` for any dtype: runs of slots are copied as bytes, moves in any order."""
    args = carray(address, (MOVE_FIELDS,), np.int64)
    planes, count, width = args[MOVE_PLANES], args[MOVE_COUNT], args[MOVE_WIDTH]
    moves = carray(pointer(args[MOVE_LIST]), (count, 3), np.int64)
    item = fetch_add(args, NEXT_ITEM)
    while item < planes * count:
        plane, one = item // count, moves[item % count]
        source = args[MOVE_SOURCE] + (plane * args[MOVE_SOURCE_SLOTS] + one[0]) * width
        destination = args[MOVE_DESTINATION] + (plane * args[MOVE_DESTINATION_SLOTS] + one[1]) * width
        copy_bytes(destination, source, one[2] * width)
        item = fetch_add(args, NEXT_ITEM)


def compile_kernel(name: str) -> int:
    """Address of the kernel of that name as a C function: compiled, or loaded from disk."""
    function = {kernel.__name__: kernel for kernel in (attend_float32, attend_bfloat16, store, move)}[name]
    kernel = cfunc("void(voidptr)", cache=True, error_model="numpy", fastmath=FAST)(function)
    _alive.append(kernel)
    return int(kernel.address)


_alive: list[Any] = []  # the code lives as long as these
