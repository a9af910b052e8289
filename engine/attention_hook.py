"""Where paged attention enters a Hugging Face decoder: transformers' attention interface, under the name ``paged``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from engine.config import Unusable
from kernels.batch import PagedBatch
from kernels.dispatch import AttentionBackend

NAME = "paged"

# Keywords that models pass and that change nothing here: no dropout at inference, positions and caches are our own.
HARMLESS = frozenset({"dropout", "position_ids", "cache_position", "use_cache", "is_causal", "output_attentions"})


class UnsupportedAttention(Unusable):
    """The model's attention asks for something that the kernels do not do; its output would be wrong."""


@dataclass(slots=True)
class Step:
    """What one forward pass needs beside its inputs, for all layers. ``calls`` counts the layers that came by."""

    batch: PagedBatch
    backend: AttentionBackend
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    calls: int = 0


# Some models do not hand extra keywords of the forward call down to their attention, so the step lies beside the call.
# One forward pass runs at a time in a process.
_current: Step | None = None


@contextmanager
def step_of(step: Step) -> Iterator[Step]:
    """Make ``step`` the one that attention reads while the model's forward pass runs."""
    global _current
    _current = step
    try:
        yield step
    finally:
        _current = None


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **extra: Any,
) -> tuple[torch.Tensor, None]:
    """Store this step's keys and values, then attend over block tables.

    Args:
        query: [1, heads, t, head dim]; key, value: [1, KV heads, t, head dim].
        attention_mask: None, since ``PagedBatch`` says who sees what.
        scaling: factor on the scores; ``head_dim ** -0.5`` where the model gives none.

    Returns:
        [1, t, heads, head dim] and no weights. Raises UnsupportedAttention for keywords that would change the result.
    """
    step = _current
    if step is None:
        raise UnsupportedAttention("paged attention was called outside a step of the engine: run the model through it")
    _refuse_unknown(extra, step.batch.max_context_len)
    layer: int = module.layer_idx  # type: ignore[assignment]
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    step.backend.store_kv(
        key[0].transpose(0, 1), value[0].transpose(0, 1), step.keys[layer], step.values[layer], step.batch.slot_mapping
    )
    rows = query[0].transpose(0, 1)
    output = step.backend.paged_attention(rows, step.keys[layer], step.values[layer], step.batch, scale)
    step.calls += 1
    return output.unsqueeze(0), None


def _refuse_unknown(extra: dict[str, Any], longest: int) -> None:
    for name, value in extra.items():
        if value is None or name in HARMLESS:
            continue
        if name == "sliding_window":
            if longest > value:
                raise UnsupportedAttention(
                    f"a context of {longest} tokens exceeds the model's sliding window of {value}: keep it within"
                )
        else:
            raise UnsupportedAttention(f"the model's attention passes {name}, which the kernels do not know")


def register() -> None:
    """Make ``attn_implementation="paged"`` known to transformers, with no mask of its own."""
    AttentionInterface.register(NAME, paged_attention)
    AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)
