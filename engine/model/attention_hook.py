"""Where paged attention enters a Hugging Face decoder: transformers' attention interface, under the name ``paged``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from engine.config import Unusable
from kernels.batch import PagedBatch
from kernels.dispatch import AttentionBackend

NAME = "paged"

# Keywords that models pass and that change nothing here: no dropout at inference, positions and caches are our own, and
# what else the model returns is not read.
HARMLESS = frozenset(
    {"dropout", "position_ids", "cache_position", "use_cache", "output_attentions", "output_router_logits"}
)


class UnsupportedAttention(Unusable):
    """The model's attention asks for something that the kernels do not do; its output would be wrong."""


class Attention(Protocol):
    """Who answers a layer's call.

    query: [t, heads, head dim]; key, value: [t, KV heads, head dim]; ``window`` and ``softcap`` are 0 where the layer has
    none. Returns [t, heads, head dim].
    """

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor: ...


@dataclass(slots=True)
class Step:
    """What one forward pass needs beside its inputs, for all layers. ``calls`` counts how often each layer came by."""

    batch: PagedBatch
    backend: AttentionBackend
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    calls: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.calls = [0] * len(self.keys)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor:
        """Store this step's keys and values, then attend over block tables."""
        keys, values = self.keys[layer], self.values[layer]
        self.backend.store_kv(key, value, keys, values, self.batch.slot_mapping)
        self.calls[layer] += 1
        return self.backend.paged_attention(query, keys, values, self.batch, scale, window, softcap)


# Some models do not hand extra keywords of the forward call down to their attention, so the step lies beside the call.
# One forward pass runs at a time in a process.
_current: Attention | None = None


@contextmanager
def answered_by(attention: Attention) -> Iterator[None]:
    """Make ``attention`` the one that is called while the model's forward pass runs."""
    global _current
    _current = attention
    try:
        yield
    finally:
        _current = None


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **extra: Any,
) -> tuple[torch.Tensor, None]:
    """A layer's attention, as transformers calls it.

    Args:
        query: [1, heads, t, head dim]; key, value: [1, KV heads, t, head dim].
        attention_mask: None, since ``PagedBatch`` says who sees what.
        scaling: factor on the scores; ``head_dim ** -0.5`` where the model gives none.
        sliding_window: a token sees itself and those before it, this many in all; None in a layer of full attention.
        softcap: scores are bent to lie within +-softcap; None where they are not.
        is_causal: False where a token would see those after it too; if None, the module says so.

    Returns:
        [1, t, heads, head dim] and no weights. Raises UnsupportedAttention for what would change the result.
    """
    if _current is None:
        raise UnsupportedAttention("paged attention was called outside a step of the engine: run the model through it")
    unknown = sorted(name for name, given in extra.items() if given is not None and name not in HARMLESS)
    if unknown:
        raise UnsupportedAttention(f"the model's attention passes {', '.join(unknown)}, which the kernels do not know")
    if attention_mask is not None:
        raise UnsupportedAttention("the model's attention brings a mask of its own, which the kernels do not know")
    if not (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        raise UnsupportedAttention("the model's attention looks ahead: only causal attention can be paged")
    if sliding_window is not None and sliding_window < 1:
        raise UnsupportedAttention(f"a sliding window of {sliding_window} tokens hides everything: give it at least 1")
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise UnsupportedAttention("the model's attention does not say in which layer it is, so its keys have no place")
    output = _current.attend(
        layer,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        query.shape[-1] ** -0.5 if scaling is None else scaling,
        sliding_window or 0,
        softcap or 0.0,
    )
    return output.unsqueeze(0), None


def register() -> None:
    """Make ``attn_implementation="paged"`` known to transformers, with no mask of its own."""
    AttentionInterface.register(NAME, paged_attention)
    AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)
