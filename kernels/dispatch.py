"""Which attention runs here: picked by device and dtype, or by name, and said in the log."""

from __future__ import annotations

import importlib.util
import logging
import os
from dataclasses import dataclass
from typing import Protocol

import torch

from kernels.batch import PagedBatch

log = logging.getLogger(__name__)

CHOICES = ("auto", "triton", "cpu", "reference")
TRITON_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class StoreKV(Protocol):
    """See ``kernels.reference.store_kv``."""

    def __call__(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None: ...


class PagedAttention(Protocol):
    """See ``kernels.reference.paged_attention``."""

    def __call__(
        self,
        query: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        batch: PagedBatch,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
    ) -> torch.Tensor: ...


class CopyBlocks(Protocol):
    """See ``kernels.reference.copy_blocks``."""

    def __call__(self, cache: torch.Tensor, moves: torch.Tensor) -> None: ...


class SwapBlocks(Protocol):
    """See ``kernels.reference.swap_blocks``."""

    def __call__(self, source: torch.Tensor, destination: torch.Tensor, moves: torch.Tensor) -> None: ...


class WarmUp(Protocol):
    """Compile or load whatever calls of this shape need, before the first request waits for it."""

    def __call__(self, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None: ...


@dataclass(frozen=True, slots=True)
class AttentionBackend:
    """One way to store keys and values, to attend to them and to move blocks of them. ``description`` is a phrase for
    people."""

    name: str
    description: str
    store_kv: StoreKV
    paged_attention: PagedAttention
    copy_blocks: CopyBlocks
    swap_blocks: SwapBlocks
    warm_up: WarmUp


def select_backend(device: torch.device, dtype: torch.dtype, requested: str = "auto") -> AttentionBackend:
    """The attention for a cache of ``dtype`` on ``device``.

    ``auto`` takes Triton on CUDA and the native path on a CPU, or, where that is impossible, the reference.

    Raises:
        ValueError: an unknown name, or a backend that cannot run there; the message says what can.
    """
    if requested not in CHOICES:
        raise ValueError(f"unknown attention backend {requested!r}: choose one of {', '.join(CHOICES)}")
    name, why = _auto(device, dtype) if requested == "auto" else (requested, "it was asked for by name")
    if name == "triton":
        backend = _triton(device)
    elif name == "cpu":
        backend = _cpu(device)
    else:
        backend = _reference()
    log.info("attention: %s (%s) for %s on %s, because %s", backend.name, backend.description, dtype, device, why)
    return backend


def _auto(device: torch.device, dtype: torch.dtype) -> tuple[str, str]:
    if device.type == "cuda":
        if not _has_triton():
            return "reference", "the device is CUDA, but Triton is not installed"
        if dtype not in TRITON_DTYPES:
            return "reference", "the Triton kernels take float32, float16 and bfloat16"
        return "triton", "the device is CUDA"
    if device.type == "cpu":
        from kernels import cpu_paged

        if cpu_paged.is_native(dtype):
            return "cpu", "the device is a CPU"
        return "reference", "the native CPU path needs Numba, and takes float32 and bfloat16"
    return "reference", f"there are no kernels for {device.type}"


def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _triton(device: torch.device) -> AttentionBackend:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not _has_triton():
        raise ValueError("attention backend 'triton' needs the package triton (Linux): pip install triton, or use auto")
    if device.type != "cuda" and not interpreted:
        raise ValueError(
            f"attention backend 'triton' runs on CUDA, not on {device.type}: use auto, or set TRITON_INTERPRET=1 to "
            "run it, slowly, in Triton's interpreter"
        )
    from kernels import triton_cache, triton_paged

    return AttentionBackend(
        name="triton",
        description="Triton kernels in the interpreter" if interpreted else "Triton kernels",
        store_kv=triton_cache.store_kv,
        paged_attention=triton_paged.paged_attention,
        copy_blocks=triton_cache.copy_blocks,
        swap_blocks=triton_cache.swap_blocks,
        warm_up=triton_paged.warm_up,
    )


def _cpu(device: torch.device) -> AttentionBackend:
    from kernels import cpu_cache, cpu_paged

    if device.type != "cpu":
        raise ValueError(f"attention backend 'cpu' runs on a CPU, not on {device.type}: use auto or reference")
    return AttentionBackend(
        name="cpu",
        description="native CPU kernels",
        store_kv=cpu_cache.store_kv,
        paged_attention=cpu_paged.paged_attention,
        copy_blocks=cpu_cache.copy_blocks,
        swap_blocks=cpu_cache.swap_blocks,
        warm_up=cpu_paged.warm_up,
    )


def _reference() -> AttentionBackend:
    from kernels import reference

    return AttentionBackend(
        name="reference",
        description="plain PyTorch, slow",
        store_kv=reference.store_kv,
        paged_attention=reference.paged_attention,
        copy_blocks=reference.copy_blocks,
        swap_blocks=reference.swap_blocks,
        warm_up=reference.warm_up,
    )
