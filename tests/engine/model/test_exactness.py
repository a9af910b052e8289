"""The check at load: it passes what is right, and no window, cap or scale can be lost unnoticed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.model import attention_hook, exactness
from engine.model.attention_hook import UnsupportedAttention
from engine.model.model_runner import ModelRunner
from kernels import cpu_paged
from kernels.dispatch import select_backend
from tests.engine.tiny_configs import ARCHITECTURES, build


def runner_of(model, **ways) -> ModelRunner:
    """``ways`` replace functions of the backend."""
    attention_hook.register()
    model.set_attn_implementation(attention_hook.NAME)
    return ModelRunner(model, replace(select_backend(model.device, model.dtype), **ways), slots=64)


@pytest.mark.parametrize(("name", "ratio"), ARCHITECTURES)
def test_every_architecture_passes(name, ratio):
    assert exactness.compare(runner_of(build(name, ratio))) < 1e-5


@pytest.mark.parametrize(("name", "ratio"), [("llama", 3), ("gemma2", 3), ("gpt2", 1)])
def test_bfloat16_passes(name, ratio):
    model = build(name, ratio)
    for parameter in model.parameters():
        parameter.data.mul_(0.5)  # rounding in weights as wide as the tests' would outweigh all else
    assert 0 < exactness.compare(runner_of(model.bfloat16())) < 5e-2


@pytest.mark.parametrize("name", ["mistral", "gemma2", "gemma3"])
@pytest.mark.parametrize("window", [24, 4096])
def test_a_lost_window_is_noticed_however_long_it_is(name, window):
    def windowless(query, keys, values, batch, scale, window=0, softcap=0.0):
        return cpu_paged.paged_attention(query, keys, values, batch, scale, 0, softcap)

    model = build(name, 3, sliding_window=window)
    with pytest.raises(UnsupportedAttention, match="paged and eager logits differ by"):
        exactness.compare(runner_of(model, paged_attention=windowless))
    assert exactness.compare(runner_of(model)) < 1e-5


def test_a_lost_cap_and_a_lost_scale_are_noticed():
    def uncapped(query, keys, values, batch, scale, window=0, softcap=0.0):
        return cpu_paged.paged_attention(query, keys, values, batch, scale, window)

    def unscaled(query, keys, values, batch, scale, window=0, softcap=0.0):
        return cpu_paged.paged_attention(query, keys, values, batch, query.shape[-1] ** -0.5, window, softcap)

    for wrong in (uncapped, unscaled):
        with pytest.raises(UnsupportedAttention, match="paged and eager logits differ by"):
            exactness.compare(runner_of(build("gemma2", 3), paged_attention=wrong))


@pytest.mark.parametrize("failing", [False, True])
def test_windows_are_as_wide_afterwards_as_before(failing):
    def nothing(query, *args):
        if failing:
            raise RuntimeError("no memory")
        return torch.zeros_like(query)

    runner = runner_of(build("gemma3", 3, sliding_window=300), paged_attention=nothing)
    with pytest.raises(RuntimeError if failing else UnsupportedAttention):
        exactness.compare(runner)
    windows = [layer.self_attn.sliding_window for layer in runner.model.model.layers]
    assert windows == [300, None]
    assert runner.model.config.sliding_window == 300
    assert runner.model.config._attn_implementation == attention_hook.NAME
