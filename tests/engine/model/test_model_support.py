"""What cannot be right is refused with the reason: by the configuration, or by what the layers ask of their attention."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from engine.model import attention_hook, model_support
from engine.model.attention_hook import UnsupportedAttention
from engine.model.attention_probe import probe
from engine.model.model_support import ModelRefused
from tests.engine.tiny_configs import build

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("T5Config", {}, "is an encoder-decoder model: its cross-attention has no block table"),
        ("BartConfig", {}, "is an encoder-decoder model"),
        (
            "Gemma3Config",
            {},
            r"is put together of several models \(text_config, vision_config\), as multi-modal ones are",
        ),
        ("BltConfig", {}, r"is put together of several models \(decoder_config, .*\)"),
        ("MptConfig", {}, "tells positions by ALiBi"),
        ("FalconConfig", {"alibi": True}, "tells positions by ALiBi"),
        ("MambaConfig", {}, "has layers of linear_attention: only full and sliding attention"),
        ("JambaConfig", {}, "has layers of linear_attention"),
        ("Qwen3NextConfig", {}, "has layers of linear_attention"),
        ("Lfm2Config", {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}, "has layers of conv"),
        ("Llama4TextConfig", {}, "has layers of chunked_attention"),
    ],
)
def test_refused_by_configuration(kind, fields, reason):
    with pytest.raises(ModelRefused, match=f"^some/model ({reason})"):
        model_support.check(getattr(transformers, kind)(**fields), "some/model")


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral", "opt", "gpt2", "gemma", "gemma2", "gemma3"])
def test_what_runs_is_not_refused(name):
    model_support.check(build(name, 1).config, name)


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("BloomConfig", {}, "BloomForCausalLM goes round transformers' attention interface"),
        ("RwkvConfig", {"attention_hidden_size": 32}, "RwkvForCausalLM goes round transformers' attention interface"),
        ("BertConfig", {}, "the model's attention looks ahead: only causal attention can be paged"),
        (
            "GptOssConfig",
            {"num_key_value_heads": 1, "head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1},
            "the model's attention passes s_aux, which the kernels do not know",
        ),
        (
            "DeepseekV3Config",
            {
                "num_key_value_heads": 2,
                "n_routed_experts": 4,
                "n_group": 1,
                "topk_group": 1,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 16,
                "kv_lora_rank": 8,
                "q_lora_rank": 8,
                "qk_rope_head_dim": 8,
                "qk_nope_head_dim": 8,
                "v_head_dim": 8,
            },
            "2 query heads of 16, 2 key heads of 16 and 2 value heads of 8",
        ),
        (
            "Gemma4TextConfig",
            {
                "num_key_value_heads": 1,
                "head_dim": 16,
                "global_head_dim": 32,
                "hidden_size_per_layer_input": 8,
                "vocab_size_per_layer_input": 99,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            r"keys of different shapes in its layers \(KV heads x head dim: 1 x 16 and 1 x 32\)",
        ),
        ("DiffLlamaConfig", {"num_key_value_heads": 2}, "attends more than once in layer 1"),
        ("DogeConfig", {"num_key_value_heads": 1}, "brings a mask of its own"),
    ],
)
def test_refused_by_what_the_layers_ask_for(kind, fields, reason):
    if not hasattr(transformers, kind):
        pytest.skip(f"this transformers has no {kind}")
    attention_hook.register()
    config = getattr(transformers, kind)(**SMALL, **fields)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention_hook.NAME).eval()
    with pytest.raises(UnsupportedAttention, match=reason):
        probe(model)


def paged(model):
    attention_hook.register()
    model.set_attn_implementation(attention_hook.NAME)
    return model


def test_a_layer_without_attention_is_refused():
    model = paged(build("llama", 1))
    model.model.layers[0].self_attn.forward = lambda hidden_states, **more: (torch.zeros_like(hidden_states), None)
    with pytest.raises(UnsupportedAttention, match=r"calls its attention in 1 of 2 layers.*a recurrent state"):
        probe(model)


def test_what_a_models_own_code_raises_becomes_a_reason():
    model = paged(build("llama", 1))

    def broken(**more):
        raise TypeError("'NoneType' object is not subscriptable")

    model.model.layers[0].self_attn.forward = broken
    with pytest.raises(UnsupportedAttention, match=r"does not run on the paged attention \(TypeError: 'NoneType'"):
        probe(model)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sinks": torch.zeros(2), "s_aux": torch.zeros(2)}, "passes s_aux, sinks, which the kernels do not know"),
        ({"sliding_window": 0}, "a sliding window of 0 tokens hides everything"),
        ({"is_causal": False}, "looks ahead"),
        ({"attention_mask": torch.zeros(1, 1, 1, 1)}, "brings a mask of its own"),
        ({}, "does not say in which layer it is"),
    ],
)
def test_calls_that_the_hook_refuses(options, reason):
    with attention_hook.answered_by(None), pytest.raises(UnsupportedAttention, match="outside a step"):
        attention_hook.paged_attention(torch.nn.Linear(1, 1), *[torch.zeros(1, 1, 1, 16)] * 3, None)

    class Nobody:
        def attend(self, *call):
            raise RuntimeError("was called")

    options = {"attention_mask": None, **options}
    with attention_hook.answered_by(Nobody()), pytest.raises(UnsupportedAttention, match=reason):
        attention_hook.paged_attention(torch.nn.Linear(1, 1), *[torch.zeros(1, 1, 1, 16)] * 3, **options)


@pytest.mark.parametrize(
    ("config", "limit", "expected"),
    [
        (transformers.GPT2Config(n_positions=77), 0, 77),
        (transformers.OPTConfig(max_position_embeddings=100), 0, 100),
        (transformers.MistralConfig(max_position_embeddings=8192, sliding_window=128), 0, 8192),
        (transformers.LlamaConfig(max_position_embeddings=2048), 500, 500),
        (transformers.LlamaConfig(max_position_embeddings=2048), 5000, 2048),
        (transformers.PreTrainedConfig(), 0, 4096),
        (transformers.PreTrainedConfig(), 100, 100),
    ],
)
def test_longest_text(config, limit, expected):
    assert model_support.longest(config, limit, slots=4096) == expected


def test_longrope_keeps_to_the_length_where_neighbours_share_frequencies():
    config = transformers.Phi3Config(max_position_embeddings=131072, original_max_position_embeddings=4096)
    assert model_support.longest(config, 0, slots=16384) == 131072
    config.rope_parameters = {"rope_type": "longrope", "original_max_position_embeddings": 4096}
    assert model_support.longest(config, 0, slots=16384) == 4096
    config.rope_parameters = {"full_attention": config.rope_parameters, "sliding_attention": {"rope_type": "default"}}
    assert model_support.longest(config, 0, slots=16384) == 4096
