"""The runner's cache, its moves, and what it asks the backend for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.model import attention_hook
from engine.model.attention_hook import UnsupportedAttention
from engine.model.attention_probe import LayerAttention
from engine.model.model_runner import ModelRunner
from kernels.dispatch import select_backend
from tests.engine.tiny_configs import build


def runner_of(name="llama", slots=32, cpu_slots=16, model=None, **ways) -> ModelRunner:
    model = model or build(name, 3)
    attention_hook.register()
    model.set_attn_implementation(attention_hook.NAME)
    return ModelRunner(model, replace(select_backend(model.device, model.dtype), **ways), slots, cpu_slots)


def test_one_cache_holds_all_layers():
    runner = runner_of()
    assert runner.cache.shape == (4, 32, 2, 16)
    assert runner.host.shape == (4, 16, 2, 16)
    assert runner.bytes_per_token == 4 * 2 * 16 * 4
    for layer in range(2):
        assert runner.keys[layer].data_ptr() == runner.cache[2 * layer].data_ptr()
        assert runner.values[layer].data_ptr() == runner.cache[2 * layer + 1].data_ptr()
        assert runner.keys[layer].is_contiguous()


def test_layers_say_what_they_ask_for():
    assert runner_of("gemma2").layers == [LayerAttention(6, 2, 16, 24), LayerAttention(6, 2, 16, 0)]
    assert runner_of("qwen3").layers == [LayerAttention(6, 2, 16, 0)] * 2


def test_no_host_cache_without_slots():
    runner = ModelRunner(runner_of().model, runner_of().backend, slots=8)
    assert runner.host.numel() == 0


def test_blocks_are_copied_swapped_out_and_back_bit_for_bit():
    runner = runner_of()
    runner.cache.copy_(torch.randn(runner.cache.shape))
    before = runner.cache.clone()
    runner.copy([(0, 8, 4), (0, 12, 4), (5, 30, 1)])
    for source, destination, count in ((0, 8, 4), (0, 12, 4), (5, 30, 1)):
        moved = runner.cache[:, destination : destination + count]
        assert torch.equal(moved, before[:, source : source + count])
    assert torch.equal(runner.cache[:, :8], before[:, :8])
    runner.swap_out([(0, 12, 4), (4, 0, 4)])
    runner.cache.zero_()
    runner.swap_in([(12, 20, 4), (0, 16, 4)])
    assert torch.equal(runner.cache[:, 20:24], before[:, 0:4])
    assert torch.equal(runner.cache[:, 16:20], before[:, 4:8])
    assert not runner.cache[:, :16].any()


def test_each_kind_of_move_is_one_call_for_all_layers():
    calls = []
    runner = runner_of(
        copy_blocks=lambda cache, moves: calls.append(("copy", cache.shape[0], moves.tolist())),
        swap_blocks=lambda source, destination, moves: calls.append(
            (len(source[0]), len(destination[0]), moves.tolist())
        ),
    )
    runner.copy([])
    runner.swap_in([])
    runner.swap_out([])
    assert calls == []
    runner.copy([(0, 4, 2), (8, 12, 4)])
    runner.swap_out([(0, 1, 2)])
    runner.swap_in([(1, 9, 2)])
    assert calls == [("copy", 4, [[0, 4, 2], [8, 12, 4]]), (32, 16, [[0, 1, 2]]), (16, 32, [[1, 9, 2]])]


def test_moves_that_lead_out_of_a_cache():
    runner = runner_of()
    with pytest.raises(IndexError, match="slots 0 to 15"):
        runner.swap_out([(0, 14, 4)])
    with pytest.raises(IndexError, match="slots 0 to 31"):
        runner.copy([(0, 30, 4)])


def test_a_step_that_skips_a_layer_is_noticed():
    from engine.model.exactness import compare

    runner = runner_of()
    runner.model.model.layers[1].self_attn.forward = lambda hidden_states, **more: (
        torch.zeros_like(hidden_states),
        None,
    )
    with pytest.raises(UnsupportedAttention, match=r"called the paged attention \[1, 0\] times in its layers"):
        compare(runner)


def test_attention_outside_a_step():
    runner = runner_of()
    with pytest.raises(UnsupportedAttention, match="outside a step of the engine"):
        runner.model(torch.tensor([[1, 2]]))
