"""Milliseconds of one call, without what it costs to launch it where that can be left out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Call = Callable[[], Any]


@dataclass(frozen=True)
class Setting:
    """Where the check runs. ``quick``: the smallest sizes, to see that the script works; its figures mean nothing."""

    device: torch.device
    quick: bool = False

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def repeats(self) -> int:
        return 2 if self.quick else 20


def milliseconds(call: Call, setting: Setting) -> float:
    """Median time of ``call``. On a GPU ten calls are captured in a CUDA graph, so that the time is the GPU's alone."""
    if not setting.is_gpu:
        call()
        return statistics.median(_wall(call) for _ in range(setting.repeats))
    inner = 10
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            call()
    graph.replay()
    times = []
    for _ in range(setting.repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / inner)
    return statistics.median(times)


def launch_microseconds(call: Call, setting: Setting) -> float:
    """Time that the CPU spends on one call (on a GPU: to launch it, while the GPU catches up in the background)."""
    call()
    times = []
    for _ in range(setting.repeats):
        synchronize(setting)
        times.append(_wall(call) * 1e3)
    return statistics.median(times)


def transfer_milliseconds(call: Call, setting: Setting) -> float:
    """Median time of ``call`` and of the GPU's work for it, its launch included: for what a graph cannot hold."""

    def whole() -> None:
        call()
        synchronize(setting)

    whole()
    return statistics.median(_wall(whole) for _ in range(setting.repeats))


def synchronize(setting: Setting) -> None:
    if setting.is_gpu:
        torch.cuda.synchronize(setting.device)


def _wall(call: Call) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3
