"""What the CPU kernels need and Numba does not offer: atomic counters, addresses, bits, a quick exponential and tanh."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

# NaN and infinity keep their meaning; only the order of sums and products may change.
FAST = {"reassoc", "contract", "nsz", "arcp"}
OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "nogil": True, "fastmath": FAST}
PRECISE: dict[str, Any] = {**OPTIONS, "fastmath": FAST - {"reassoc"}}  # for functions that rely on the order of sums


@intrinsic  # type: ignore[untyped-decorator]
def fetch_add(typing_context: Any, array: Any, index: Any) -> Any:
    """Add 1 to ``array[index]`` (int64) atomically and return the value before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = cgutils.gep_inbounds(builder, data, args[1])
        return builder.atomic_rmw("add", address, ir.Constant(ir.IntType(64), 1), "seq_cst")

    return types.int64(array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing_context: Any, address: Any) -> Any:
    """An int64 as the address that it is."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(typing_context: Any, destination: Any, source: Any, count: Any) -> Any:
    """Copy ``count`` bytes between two addresses; they must not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, source_of, size = args
        pointers = (builder.inttoptr(address, cgutils.voidptr_t) for address in (to, source_of))
        cgutils.raw_memcpy(builder, *pointers, size, 1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def as_float64(typing_context: Any, bits: Any) -> Any:
    """The float64 with these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def as_float32(typing_context: Any, bits: Any) -> Any:
    """The float32 with these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing_context: Any, array: Any, row: Any, byte: Any) -> Any:
    """Begin to load the cache line at this byte of ``array[row]``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = context.make_array(signature.args[0])(context, builder, args[0])
        row_stride = cgutils.unpack_tuple(builder, whole.strides)[0]
        offset = builder.add(builder.mul(args[1], row_stride), args[2])
        address = builder.gep(builder.bitcast(whole.data, cgutils.voidptr_t), [offset])
        int32 = ir.IntType(32)
        signature_of_prefetch = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, int32, int32, int32])
        function = cgutils.get_or_insert_function(builder.module, signature_of_prefetch, "llvm.prefetch")
        builder.call(function, [address, int32(0), int32(3), int32(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.none(array, types.int64, types.int64), generate


@njit(inline="always", **OPTIONS)  # type: ignore[untyped-decorator]
def exp2_less_1(f: Any) -> Any:
    """2 ** f - 1 for float32 f in [-0.5, 0.5], relative error under 3e-7: a Chebyshev fit of degree 6."""
    p = np.float32(1.54614447e-4)
    p = p * f + np.float32(1.34004282e-3)
    p = p * f + np.float32(9.61805668e-3)
    p = p * f + np.float32(5.55032723e-2)
    p = p * f + np.float32(2.40226509e-1)
    p = p * f + np.float32(6.93147207e-1)
    return p * f


@njit(inline="always", **OPTIONS)  # type: ignore[untyped-decorator]
def exp2(x: Any) -> Any:
    """2 ** x for float32 x <= 0, relative error under 3e-7; a form that vectorises. NaN stays NaN; -inf gives 0."""
    clamped = np.float32(-126.0) if x < np.float32(-126.0) else x
    whole = np.floor(clamped + np.float32(0.5))
    p = exp2_less_1(clamped - whole) + np.float32(1.0)
    power = p * as_float32(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))
    return np.float32(0.0) if x < np.float32(-126.0) else power


@njit(inline="always", **PRECISE)  # type: ignore[untyped-decorator]
def tanh(x: Any) -> Any:
    """tanh of a float32, relative error under 5e-7; a form that vectorises. NaN stays NaN.

    tanh x = -e / (e + 2) with e = exp(-2 |x|) - 1, which, unlike exp(-2 |x|), keeps its digits where x is small: most
    scores are small beside a soft cap. The caller must not let the compiler reorder sums (``PRECISE``).
    """
    y = np.float32(-2.8853900817779268) * abs(x)  # 2 * log2(e)
    y = np.float32(-60.0) if y < np.float32(-60.0) else y
    whole = np.floor(y + np.float32(0.5))
    power = as_float32(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))
    e = power * exp2_less_1(y - whole) + (power - np.float32(1.0))
    size = -e / (e + np.float32(2.0))
    return -size if x < np.float32(0.0) else size


def widen(element: Any) -> Any:
    """A float32 element as it is; a bfloat16 element, given as the int16 with its bits, as float32."""
    raise RuntimeError("widen exists in compiled code alone: call it from a function under numba.njit")


@overload(widen, inline="always", strict=False)  # type: ignore[untyped-decorator]
def _widen(element: Any) -> Any:
    if isinstance(element, types.Float):
        return lambda element: element
    return lambda element: as_float32(np.int32(element) << np.int32(16))
