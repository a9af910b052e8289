"""Every architecture's window and soft cap are used as transformers means them, and models load from folders."""

from __future__ import annotations

import pytest
import torch
from transformers.masking_utils import sliding_window_causal_mask_function

from engine.config import EngineConfig
from engine.model import exactness, model_loader, tiny_model
from kernels import cpu_paged, reference
from kernels.batch import PagedBatch
from tests.engine.runs import Judge, Run
from tests.engine.test_greedy_equality import OUTPUTS, prompts
from tests.engine.tiny_configs import POSITIONS, VOCABULARY, WINDOW, WINDOWED, build


def answers(model) -> list[list[int]]:
    run = Run(model)
    run.open("a", num_blocks=80, block_size=4)
    for prompt in prompts(2, (4, 47, 31)):
        run.submit("a", prompt, max_tokens=OUTPUTS, ignore_eos=True)
    run.drain()
    return run.outputs("a")


@pytest.mark.parametrize("name", WINDOWED)
def test_the_window_is_used(name):
    """Contexts of up to 65 tokens leave the window of 24; the same weights without it go on otherwise."""
    narrow = answers(build(name, 3))
    wide_model = build(name, 3, sliding_window=POSITIONS)
    judge = Judge(build(name, 3, sliding_window=POSITIONS))
    wide = answers(wide_model)
    for prompt, answer in zip(prompts(2, (4, 47, 31)), wide, strict=True):
        judge.check(prompt, answer)
    assert narrow[0] == wide[0]  # 22 tokens in all: they stay within it
    assert narrow[1] != wide[1]
    assert narrow[2] != wide[2]


def test_the_soft_cap_is_used():
    assert answers(build("gemma2", 3)) != answers(build("gemma2", 3, attn_logit_softcapping=None))


def test_two_rope_bases_are_used():
    same = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("sliding_attention", "full_attention")}
    assert answers(build("gemma3", 3)) != answers(build("gemma3", 3, rope_parameters=same))


@pytest.mark.parametrize("attend", [reference.paged_attention, cpu_paged.paged_attention])
@pytest.mark.parametrize("window", [1, 2, 17, 40, 41])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_a_row_sees_what_transformers_own_mask_shows(attend, window, rows):
    """Zero queries weigh what is seen equally, and token ``i``'s value is the ``i``-th unit vector."""
    tokens = 40
    values = torch.eye(tokens).unsqueeze(1)
    batch = PagedBatch(
        query_start=torch.tensor([0, rows], dtype=torch.int32),
        context_len=torch.tensor([tokens], dtype=torch.int32),
        block_table=torch.arange(tokens // 8, dtype=torch.int32)[None],
        block_size=torch.tensor([8], dtype=torch.int32),
        slot_base=torch.zeros(1, dtype=torch.int64),
        slot_mapping=torch.arange(tokens - rows, tokens),
        max_query_len=rows,
        max_context_len=tokens,
    )
    out = attend(torch.zeros(rows, 1, tokens), torch.ones_like(values), values, batch, 1.0, window)
    shows = sliding_window_causal_mask_function(window)
    place = torch.arange(tokens)
    mask = shows(0, 0, place[:, None], place[None, :])[tokens - rows :]
    assert torch.equal(out[:, 0] > 0, mask)


def folder_with(tmp_path, model):
    model.save_pretrained(tmp_path)
    tiny_model.build(0)[1].save_pretrained(tmp_path)
    return str(tmp_path)


def test_a_windowed_model_loads_and_may_outgrow_its_window(tmp_path):
    folder = folder_with(tmp_path, build("gemma3", 3, vocab_size=300))
    heard = []
    config = EngineConfig(model=folder, device="cpu", dtype="float32", kv_slots=512, cpu_kv_slots=64)
    loaded = model_loader.load(config, lambda stage, progress: heard.append(progress))
    assert loaded.info.architecture == "Gemma3ForCausalLM"
    assert loaded.info.max_model_len == POSITIONS
    assert loaded.info.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert [layer.window for layer in loaded.runner.layers] == [WINDOW, 0]
    assert loaded.runner.cache.shape == (4, 512, 2, 16)
    assert loaded.runner.host.shape == (4, 64, 2, 16)
    assert heard == sorted(heard)


def test_gpt2_loads_with_its_positions_as_the_longest_text(tmp_path):
    folder = folder_with(tmp_path, build("gpt2", 1, vocab_size=300, max_position_embeddings=77))
    loaded = model_loader.load(EngineConfig(model=folder, device="cpu", dtype="float32"), lambda stage, progress: None)
    assert (loaded.info.architecture, loaded.info.max_model_len) == ("GPT2LMHeadModel", 77)


def test_falcon_is_refused_when_its_weights_are_read(tmp_path):
    from transformers import FalconConfig, FalconForCausalLM

    config = FalconConfig(vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
    folder = folder_with(tmp_path, FalconForCausalLM(config))
    with pytest.raises(model_loader.ModelRefused, match="picks its attention from a list of its own"):
        model_loader.load(EngineConfig(model=folder, device="cpu"), lambda stage, progress: None)


@pytest.mark.slow
@pytest.mark.parametrize("name", WINDOWED)
def test_long_texts_over_many_windows(name):
    """Contexts of up to 400 tokens, prefilled in one chunk of gathered rows."""
    model = build(name, 3)
    judge = Judge(build(name, 3))
    run = Run(model)
    run.open("a", num_blocks=120, block_size=16)
    asked = prompts(3, (150, 300, 360))
    for prompt in asked:
        run.submit("a", prompt, max_tokens=40, ignore_eos=True)
    run.drain()
    for prompt, answer in zip(asked, run.outputs("a"), strict=True):
        judge.check(prompt, answer)
    judge.verdict()


def test_vocabulary_is_smaller_than_the_tokens_of_the_check():
    """The check at load draws its tokens from the model's own vocabulary."""
    run = Run(build("llama", 1))
    assert run.engine.runner.model.config.vocab_size == VOCABULARY
    assert exactness.compare(run.engine.runner) < 1e-5
