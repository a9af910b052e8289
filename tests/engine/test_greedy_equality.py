"""Greedy output equals ``transformers.generate`` token by token in float32."""

from __future__ import annotations

import copy
import random

import pytest

from engine.events import Preempted
from tests.engine.runs import Judge, Run
from tests.engine.tiny_configs import ARCHITECTURES, VOCABULARY, build

LENGTHS = (1, 2, 4, 5, 15, 16, 17, 31, 33, 47)
OUTPUTS = 18


def prompts(seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(3, VOCABULARY) for _ in range(length)] for length in LENGTHS]


@pytest.mark.parametrize(("name", "ratio"), ARCHITECTURES)
def test_every_architecture_ratio_and_block_size(name, ratio):
    """All block sizes run at once, in four arenas that share each forward pass."""
    model = build(name, ratio)
    judge = Judge(copy.deepcopy(model))
    run = Run(model)
    sizes = (1, 4, 16, 32)
    asked = prompts(ratio)
    for size in sizes:
        run.open(f"bs{size}", num_blocks=960 // size, block_size=size)
        for prompt in asked:
            run.submit(f"bs{size}", prompt, max_tokens=OUTPUTS, ignore_eos=True)
    run.drain()
    answers = [run.outputs(f"bs{size}") for size in sizes]
    for prompt, answer in zip(asked, answers[0], strict=True):
        assert len(answer) == OUTPUTS
        judge.check(prompt, answer)
    for other in answers[1:]:
        for prompt, answer, first in zip(asked, other, answers[0], strict=True):
            if answer != first:
                judge.check(prompt, answer)
    judge.verdict()


@pytest.mark.parametrize(
    "budget", [pytest.param(1, marks=pytest.mark.slow), pytest.param(7, marks=pytest.mark.slow), 16, 512]
)
@pytest.mark.parametrize("blocks", [200, 18], ids=["ample", "recompute"])
def test_chunks_and_preemption_change_no_token(budget, blocks):
    model = build("llama", 3)
    judge = Judge(copy.deepcopy(model))
    run = Run(model, budget=budget)
    run.engine.limits = run.engine.limits.__class__(2048, max_sequences=min(4, budget))
    run.open("a", num_blocks=blocks, block_size=4)
    asked = [prompt for prompt in prompts(5) if len(prompt) < 40]
    for prompt in asked:
        run.submit("a", prompt, max_tokens=OUTPUTS, ignore_eos=True)
    run.drain()
    preempted = [event for step in run.steps for event in step.events if isinstance(event, Preempted)]
    assert bool(preempted) == (blocks == 18 and budget > 1)
    for prompt, answer in zip(asked, run.outputs("a"), strict=True):
        judge.check(prompt, answer)
    judge.verdict()


def test_requests_that_join_midway_change_no_token():
    model = build("qwen2", 3)
    judge = Judge(copy.deepcopy(model))
    run = Run(model)
    run.open("a", num_blocks=100, block_size=4)
    asked = prompts(9)
    for prompt in asked:
        run.submit("a", prompt, max_tokens=OUTPUTS, ignore_eos=True)
        for place in run.engine.step():
            run.commands.tell(place)
    run.drain()
    for prompt, answer in zip(asked, run.outputs("a"), strict=True):
        judge.check(prompt, answer)
    judge.verdict()
