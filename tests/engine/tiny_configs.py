"""Small seeded models of the architectures that the engine promises, with every ratio of query heads to KV heads."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, OPTConfig, Qwen2Config

VOCABULARY = 199
HEADS = {1: (4, 4), 3: (6, 2), 8: (8, 1)}
ARCHITECTURES = [(name, ratio) for name in ("llama", "qwen2", "mistral") for ratio in HEADS] + [("opt", 1)]


def build(name: str, ratio: int, seed: int = 0) -> Any:
    """A two-layer model in float32. Its weights are wide enough that near ties are rare."""
    heads, kv_heads = HEADS[ratio]
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": heads * 16,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if name == "opt":
        config: Any = OPTConfig(**shape, ffn_dim=96, word_embed_proj_dim=heads * 16, init_std=0.3, dropout=0.0)
    else:
        kind = {"llama": LlamaConfig, "qwen2": Qwen2Config, "mistral": MistralConfig}[name]
        config = kind(**shape, intermediate_size=96, num_key_value_heads=kv_heads, initializer_range=0.3)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
