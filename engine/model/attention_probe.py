"""Before a cache is laid out: what does each layer of this model ask of its attention?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from engine.model.attention_hook import UnsupportedAttention, answered_by


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """The shapes of a layer's attention, and its sliding window (0: full attention)."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int

    @property
    def cache_row(self) -> tuple[int, int]:
        return self.kv_heads, self.head_dim


@dataclass(slots=True)
class _Probe:
    """Answers for one token, which sees itself alone: its attention is its value."""

    layers: dict[int, LayerAttention] = field(default_factory=dict)
    again: int | None = None

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
        heads, kv_heads, head_dim = query.shape[1], key.shape[1], key.shape[2]
        if value.shape != key.shape or query.shape[2] != head_dim or heads % kv_heads:
            raise UnsupportedAttention(
                f"layer {layer} has {heads} query heads of {query.shape[2]}, {kv_heads} key heads of {head_dim} and "
                f"{value.shape[1]} value heads of {value.shape[2]}: keys and values of one shape are needed"
            )
        if layer in self.layers:
            self.again = layer
        self.layers[layer] = LayerAttention(heads, kv_heads, head_dim, window)
        return value.repeat_interleave(heads // kv_heads, dim=1)


@torch.inference_mode()
def probe(model: Any) -> list[LayerAttention]:
    """What the layers of a model on the ``paged`` attention ask for, found by running one token through it.

    Raises UnsupportedAttention unless each layer calls the attention once and all keep keys and values of one shape.
    """
    name, count = type(model).__name__, int(model.config.get_text_config().num_hidden_layers)
    asked = _Probe()
    token = torch.zeros((1, 1), dtype=torch.int64, device=model.device)
    try:
        with answered_by(asked):
            model(input_ids=token, position_ids=token, use_cache=False, return_dict=True)
    except UnsupportedAttention as error:
        raise UnsupportedAttention(f"{name}: {error}") from error
    except Exception as error:  # whatever a model's own code raises, most often for want of the mask that it expects
        raise UnsupportedAttention(
            f"{name} does not run on the paged attention ({type(error).__name__}: {error}), so its memory cannot be paged"
        ) from error
    if not asked.layers:
        raise UnsupportedAttention(
            f"{name} goes round transformers' attention interface (it was never called), so its memory cannot be paged"
        )
    if asked.again is not None:
        raise UnsupportedAttention(
            f"{name} attends more than once in layer {asked.again}: a layer of the cache has room for one set of keys and "
            "values"
        )
    if sorted(asked.layers) != list(range(count)):
        raise UnsupportedAttention(
            f"{name} calls its attention in {len(asked.layers)} of {count} layers: what the others remember (a recurrent "
            "state, a convolution) has no blocks, so it cannot be paged"
        )
    layers = [asked.layers[layer] for layer in range(count)]
    rows = sorted({layer.cache_row for layer in layers})
    if len(rows) > 1:
        shapes = " and ".join(f"{kv_heads} x {head_dim}" for kv_heads, head_dim in rows)
        raise UnsupportedAttention(
            f"{name} keeps keys of different shapes in its layers (KV heads x head dim: {shapes}): a slot of the cache has "
            "one shape for all"
        )
    return layers
