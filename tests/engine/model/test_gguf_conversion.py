from __future__ import annotations

from collections import Counter
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.model import model_store
from engine.model.gguf_conversion import convert

WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "c", "Ġ", "ab", "Ġa"]
HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 64, 2, 1, 96, 2


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF of a two-layer Llama with the same mix of 4-bit, 8-bit and plain tensors as the default model."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["a b", "Ġ a"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['role'] + ':' + m['content'] }}{% endfor %}")

    def add(name: str, shape: tuple[int, ...], kind: Kind) -> None:
        values = random.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(name, values if kind is Kind.F32 else gguf.quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", (len(WORDS), HIDDEN), Kind.Q8_0)
    add("output_norm.weight", (HIDDEN,), Kind.F32)
    for layer in range(LAYERS):
        add(f"blk.{layer}.attn_norm.weight", (HIDDEN,), Kind.F32)
        add(f"blk.{layer}.ffn_norm.weight", (HIDDEN,), Kind.F32)
        add(f"blk.{layer}.attn_q.weight", (HIDDEN, HIDDEN), Kind.Q4_1)
        for name in ("attn_k", "attn_v"):
            add(f"blk.{layer}.{name}.weight", (HIDDEN // HEADS * KV_HEADS, HIDDEN), Kind.Q4_1)
        add(f"blk.{layer}.attn_output.weight", (HIDDEN, HIDDEN), Kind.Q4_1)
        for name in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{name}.weight", (INNER, HIDDEN), Kind.Q4_1)
        add(f"blk.{layer}.ffn_down.weight", (HIDDEN, INNER), Kind.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def expected(path: Path, heads: int, kv_heads: int) -> dict[str, torch.Tensor]:
    """What the file says, by name in transformers, dequantised without transformers."""
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    tensors = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type)))
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            rotary_heads = {"attn_q": heads, "attn_k": kv_heads}.get(parts[2])
            if rotary_heads:  # the file interleaves the two halves of each head that rotate together
                rows, columns = values.shape
                values = values.reshape(rotary_heads, rows // rotary_heads // 2, 2, columns).transpose(1, 2)
                values = values.reshape(rows, columns)
            name = f"model.layers.{parts[1]}.{names[parts[2]]}.weight"
        else:
            name = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[parts[0]]
        tensors[name] = values
    return tensors


def assert_same(saved: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert saved.keys() == wanted.keys()
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    assert [name for name, tensor in saved.items() if not torch.equal(tensor, wanted[name])] == []


def test_every_value_survives_and_the_folder_loads(tiny: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    convert(tiny, tmp_path, lambda stage, done: seen.append((stage, done)))
    wanted = expected(tiny, HEADS, KV_HEADS)
    assert_same(load_file(tmp_path / "model.safetensors"), wanted)

    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert (model.config.eos_token_id, model.generation_config.eos_token_id) == (2, 2)
    assert torch.equal(model.lm_head.weight, wanted["model.embed_tokens.weight"])
    with torch.no_grad():
        assert torch.isfinite(model(torch.tensor([[3, 4, 5]])).logits).all()

    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("abc ab").input_ids == [7, 5, 6, 7]
    assert tokenizer.decode([7, 5, 6, 7]) == "abc ab"
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False) == "user:a"


def test_progress_counts_every_tensor_and_never_falls(tiny: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    convert(tiny, tmp_path, lambda stage, done: seen.append((stage, done)))
    done = [progress for _, progress in seen]
    assert done == sorted(done)
    assert 0 <= done[0] <= done[-1] < 1
    counted = Counter(stage for stage, _ in seen)["dequantising the weights"]
    assert counted == 1 + 2 + 9 * LAYERS


@pytest.mark.slow
def test_the_default_model_is_what_its_label_says_and_equals_its_source() -> None:
    folder = model_store.ensure_default_model()
    source = model_store.find_gguf()
    values: Counter[str] = Counter()
    for tensor in gguf.GGUFReader(source).tensors:
        values[tensor.tensor_type.name] += int(tensor.n_elements)
    assert values == {"Q4_1": 106_168_320, "Q8_0": 28_311_552, "F32": 35_136}
    assert all(kind in model_store.PRECISION for kind in values)
    assert_same(load_file(folder / "model.safetensors"), expected(source, heads=9, kv_heads=3))
