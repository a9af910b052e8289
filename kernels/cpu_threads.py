"""Run one C function on several cores at once, on the threads that PyTorch already has.

OpenMP's idle threads spin for a while before they sleep. A second pool beside PyTorch's would find the cores taken by
spinning threads between any two operators, so on Linux the work goes to PyTorch's own OpenMP runtime through the
function that a compiled ``#pragma omp parallel`` calls. Elsewhere a small pool of Python threads does it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch

from kernels.cpu_compiled import Function

Parallel = Callable[[Function, int, int], None]


def _openmp_library() -> str | None:
    """Path of the OpenMP runtime that this process has loaded, PyTorch's own before any other."""
    maps = Path("/proc/self/maps")
    if not sys.platform.startswith("linux") or not maps.exists():
        return None
    lines = (line.split(maxsplit=5) for line in maps.read_text().splitlines())
    paths = {fields[5] for fields in lines if len(fields) == 6}
    runtimes = [p for p in paths if os.path.basename(p).startswith(("libgomp", "libiomp", "libomp"))]
    home = os.path.dirname(torch.__file__)
    return min(runtimes, key=lambda p: (not p.startswith(home), p), default=None)


@cache
def parallel() -> tuple[Parallel, str]:
    """``(run, description)``; ``run(function, argument, threads)`` calls the C function in that many threads at once,
    each with ``argument``, and returns when all have returned."""
    path = _openmp_library()
    if path is not None:
        try:
            region = ctypes.CDLL(path).GOMP_parallel  # (function, argument, threads, flags)
        except (OSError, AttributeError):
            pass
        else:
            region.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
            region.restype = None

            def run_openmp(function: Function, argument: int, threads: int) -> None:
                region(function.address, argument, threads, 0)

            return run_openmp, f"PyTorch's OpenMP threads ({os.path.basename(path)})"
    return run_pool, "a pool of Python threads"


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="attention")


def run_pool(function: Function, argument: int, threads: int) -> None:
    """``parallel`` without OpenMP."""
    others = [_pool().submit(function.call, argument) for _ in range(threads - 1)]
    function.call(argument)
    for other in others:
        other.result()
