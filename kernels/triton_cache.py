"""The cache's writes, copies and swaps as Triton kernels; ``kernels.dispatch`` imports this only where they are wanted."""

import torch
import triton
import triton.language as tl

from kernels.checks import check_moves, check_same_rows

PIECE_BYTES = 8192  # what one program moves of one plane: 64 bytes for each of its 128 threads
WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


# Triton's compiler looks up the names in annotations: only constexpr parameters can carry one.
@triton.jit  # type: ignore[untyped-decorator]
def store_kv_kernel(  # type: ignore[no-untyped-def]
    key,
    value,
    key_cache,
    value_cache,
    slot_mapping,
    num_slots,
    key_stride_row,
    key_stride_head,
    value_stride_row,
    value_stride_head,
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    PADDED_WIDTH: tl.constexpr,
) -> None:
    """One program copies one token's row: all KV heads, WIDTH = kv_heads * HEAD_DIM elements."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + row)
    element = tl.arange(0, PADDED_WIDTH)
    head, x = element // HEAD_DIM, element % HEAD_DIM
    keep = (element < WIDTH) & (slot >= 0) & (slot < num_slots)
    target = slot * WIDTH + element
    k = tl.load(key + row * key_stride_row + head * key_stride_head + x, mask=keep, other=0.0)
    v = tl.load(value + row * value_stride_row + head * value_stride_head + x, mask=keep, other=0.0)
    tl.store(key_cache + target, k, mask=keep)
    tl.store(value_cache + target, v, mask=keep)


@triton.jit  # type: ignore[untyped-decorator]
def move_slots_kernel(  # type: ignore[no-untyped-def]
    source,
    destination,
    pieces,
    source_stride_plane,
    destination_stride_plane,
    WIDTH: tl.constexpr,
    PADDED_PIECE: tl.constexpr,
) -> None:
    """Grid: (piece, plane). A piece is a run of slots of at most PADDED_PIECE elements: its first source slot, first
    destination slot and number of slots. A plane is the keys or the values of one layer."""
    piece = pieces + tl.program_id(0).to(tl.int64) * 3
    plane = tl.program_id(1).to(tl.int64)
    element = tl.arange(0, PADDED_PIECE)
    real = element < tl.load(piece + 2) * WIDTH
    read_from = source + plane * source_stride_plane + tl.load(piece) * WIDTH
    write_to = destination + plane * destination_stride_plane + tl.load(piece + 1) * WIDTH
    tl.store(write_to + element, tl.load(read_from + element, mask=real), mask=real)


# False in Triton's interpreter: that was decided when the kernels were decorated.
COMPILED = isinstance(move_slots_kernel, triton.JITFunction)


def store_kv(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write each row's key and value to its slot; see ``kernels.reference.store_kv``.

    A slot outside the cache is skipped as -1 is: to report it, the GPU would have to be waited for.
    """
    rows, kv_heads, head_dim = key.shape
    if not rows:
        return
    key, value = dense_rows(key), dense_rows(value)
    width = kv_heads * head_dim
    store_kv_kernel[(rows,)](
        key,
        value,
        key_cache,
        value_cache,
        slot_mapping,
        key_cache.shape[0],
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        HEAD_DIM=head_dim,
        WIDTH=width,
        PADDED_WIDTH=triton.next_power_of_2(width),
    )


def dense_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The kernels take any stride between rows and heads, but not within a head."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def copy_blocks(cache: torch.Tensor, moves: torch.Tensor) -> None:
    """Copy runs of slots within a cache, all layers in one launch; see ``kernels.reference.copy_blocks``."""
    check_moves(moves, cache.shape[1], cache.shape[1], same_cache=True)
    _move(cache, cache, moves)


def swap_blocks(source: torch.Tensor, destination: torch.Tensor, moves: torch.Tensor) -> None:
    """Copy runs of slots from one cache to another in one launch; see ``kernels.reference.swap_blocks``.

    One of them may lie in the CPU's memory if that is pinned: the GPU reads and writes pinned memory itself, slot by
    slot over the bus, so nothing is staged, and what follows on the stream sees the moved blocks. The CPU sees them
    after ``torch.cuda.synchronize()``.

    Raises ValueError, besides, for a cache in memory that is not pinned.
    """
    check_same_rows(source, destination)
    check_moves(moves, source.shape[1], destination.shape[1])
    _move(source, destination, moves)


def _move(source: torch.Tensor, destination: torch.Tensor, moves: torch.Tensor) -> None:
    if not moves.shape[0] or not source.shape[0]:
        return
    device = _launch_device(source, destination)
    width = source.shape[2] * source.shape[3]
    longest = max(1, PIECE_BYTES // (width * source.element_size()))  # slots in a piece
    pieces = _pieces(moves, longest).to(device)
    # Bits are moved, not numbers: any dtype will do, and a NaN keeps its payload.
    word = WORDS[source.element_size()]
    move_slots_kernel[(pieces.shape[0], source.shape[0])](
        _dense_planes(source).view(word),
        _dense_planes(destination).view(word),
        pieces,
        source.stride(0),
        destination.stride(0),
        WIDTH=width,
        PADDED_PIECE=triton.next_power_of_2(width * longest),
    )


def _launch_device(source: torch.Tensor, destination: torch.Tensor) -> torch.device:
    """The GPU that moves the slots (in the interpreter the CPU)."""
    if not COMPILED:
        return source.device
    for cache in (source, destination):
        if cache.device.type != "cuda" and not cache.is_pinned():
            raise ValueError(
                f"the GPU cannot reach a cache on {cache.device} that is not pinned: allocate it with pin_memory=True"
            )
    return source.device if source.device.type == "cuda" else destination.device


def _dense_planes(cache: torch.Tensor) -> torch.Tensor:
    if not cache[0].is_contiguous():
        raise ValueError(f"the slots of a cache must lie side by side, but its strides are {cache.stride()}")
    return cache


def _pieces(moves: torch.Tensor, longest: int) -> torch.Tensor:
    """Cut the moves into runs of at most ``longest`` slots: int64 [pieces, 3]."""
    moves = moves.cpu()
    parts = (moves[:, 2] + longest - 1) // longest
    cut = moves.repeat_interleave(parts, dim=0)
    done = (torch.arange(cut.shape[0]) - (parts.cumsum(0) - parts).repeat_interleave(parts)) * longest
    cut[:, :2] += done[:, None]
    cut[:, 2] = (cut[:, 2] - done).clamp(max=longest)
    return cut
