"""Small seeded models of the architectures that the engine promises, with every ratio of query heads to KV heads."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 199
POSITIONS = 512
HEADS = {1: (4, 4), 3: (6, 2), 8: (8, 1)}
KINDS = {
    "llama": LlamaConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
    "mistral": MistralConfig,
    "gemma": GemmaConfig,
    "gemma2": Gemma2Config,
    "gemma3": Gemma3TextConfig,
}
ARCHITECTURES = [
    *((name, ratio) for name in ("llama", "qwen2", "mistral") for ratio in HEADS),
    ("opt", 1),
    ("gpt2", 1),
    ("qwen3", 3),
    ("gemma", 8),
    ("gemma2", 3),
    ("gemma3", 3),
]
WINDOW = 24  # tokens; neither a multiple of 16 nor as long as the tests' contexts
# Gemma scales its embeddings and normalises what attention adds to them: with wide random weights, or a tied head, only
# the token given last would count.
ALTERNATING = {
    "initializer_range": 0.1,
    "query_pre_attn_scalar": 1,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
    "tie_word_embeddings": False,
}
WINDOWED: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": WINDOW},
    "gemma2": {**ALTERNATING, "attn_logit_softcapping": 5.0},  # low enough to bend most scores of these weights
    "gemma3": ALTERNATING,
}


def build(name: str, ratio: int, seed: int = 0, **changes: Any) -> Any:
    """A two-layer model in float32. Its weights are wide enough that near ties are rare. ``changes`` replace fields of
    its configuration."""
    heads, kv_heads = HEADS[ratio]
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": heads * 16,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "max_position_embeddings": POSITIONS,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if name == "opt":
        config: Any = OPTConfig(**shape, ffn_dim=96, word_embed_proj_dim=heads * 16, init_std=0.3, dropout=0.0)
    elif name == "gpt2":
        shape |= {"initializer_range": 0.3, "scale_attn_by_inverse_layer_idx": True, **changes}
        config = GPT2Config(**shape)
    else:
        shape |= {"intermediate_size": 96, "num_key_value_heads": kv_heads, "head_dim": 16, "initializer_range": 0.3}
        if name in ("qwen2", "mistral", "llama"):
            del shape["head_dim"]  # hidden size / heads
        config = KINDS[name](**(shape | WINDOWED.get(name, {}) | changes))
    own = "eager" if name == "gemma2" else None  # older transformers took SDPA, which drops the soft cap
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=own).eval()
