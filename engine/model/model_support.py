"""What a model's configuration tells before a weight is read: whether it can be right here, and how long its texts get."""

from __future__ import annotations

from typing import Any

from engine.config import Unusable

PAGED_LAYERS = frozenset({"full_attention", "sliding_attention"})
PARTS_OF_A_LAYER = frozenset({"attn_config", "ffn_config"})  # some text models describe their layers in parts
POSITION_BOUNDS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")


class ModelRefused(Unusable):
    """This model cannot run here; the message says why and what to do."""


def check(config: Any, source: str) -> None:
    """Raise ModelRefused for a configuration whose model would answer wrongly or not at all."""
    reason = _reason(config)
    if reason is not None:
        raise ModelRefused(f"{source} {reason}")


def _reason(config: Any) -> str | None:
    if getattr(config, "is_encoder_decoder", False):
        return "is an encoder-decoder model: its cross-attention has no block table, use a decoder"
    models = sorted(set(getattr(config, "sub_configs", None) or {}) - PARTS_OF_A_LAYER)
    if models:
        return (
            f"is put together of several models ({', '.join(models)}), as multi-modal ones are: use a text model that stands "
            "alone"
        )
    if any(getattr(part, "alibi", False) for part in (config, getattr(config, "attn_config", None))):
        return (
            "tells positions by ALiBi, a bias on the scores that the kernels do not add: use a model with rotary or learned "
            "positions"
        )
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or []
    others = sorted(set(kinds) - PAGED_LAYERS)
    if others:
        return (
            f"has layers of {', '.join(others)}: only full and sliding attention keep keys and values that can be paged, "
            "use a model of these"
        )
    return None


def longest(text_config: Any, limit: int, slots: int) -> int:
    """Tokens a sequence may have: the model's positions, and the operator's ``limit`` if it is not 0. Where neither says
    anything, ``slots``, the size of the cache.

    LongRoPE changes all frequencies when one sequence of a batch outgrows the length that the model was first trained
    for, and with them those of its neighbours, so such a model is kept within that length.
    """
    positions = next((bound for name in POSITION_BOUNDS if (bound := getattr(text_config, name, None))), 0)
    return min((bound for bound in (limit, positions, _longrope_bound(text_config)) if bound), default=slots)


def _longrope_bound(text_config: Any) -> int:
    rope = getattr(text_config, "rope_parameters", None) or {}
    kinds = [rope, *(part for part in rope.values() if isinstance(part, dict))]  # one for all layers, or one each kind
    bounds = [kind["original_max_position_embeddings"] for kind in kinds if kind.get("rope_type") == "longrope"]
    return min(bounds, default=0)
