"""Sequence groups on a real model: beam search as transformers searches, samples that no neighbour changes, swapped bits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from engine.events import BlockCopied, Preempted, SwappedIn
from engine.sequence import Sequence
from tests.engine.runs import Run
from tests.engine.test_greedy_equality import prompts
from tests.engine.tiny_configs import build

EOS = 9
MEMORIES = {
    "ample": {"num_blocks": 200},
    "swap": {"num_blocks": 24, "cpu_blocks": 100, "preemption": "auto"},
    "recompute": {"num_blocks": 24, "preemption": "recompute"},
    "no prefix is computed twice": {"num_blocks": 200, "prefix_cache": True},
    "chunks of 3": {"num_blocks": 200, "prefill_chunk": 3},
}


@pytest.fixture(scope="module")
def model() -> Any:
    return build("llama", 3)


def listen(run: Run) -> dict[int, list[list[int]]]:
    """The answers of each request, best first, as they are told."""
    answers: dict[int, list[list[int]]] = {}

    def rank(best: list[Sequence]) -> None:
        answers[best[0].request.number] = [sequence.outputs for sequence in best]

    run.engine.places["a"].arena.answers.rank = rank
    return answers


@torch.inference_mode()
def search(model: Any, prompt: list[int], width: int, outputs: int, **rules: Any) -> list[list[int]]:
    """What transformers finds, best first, without padding."""
    found = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=outputs,
        do_sample=False,
        eos_token_id=EOS,
        pad_token_id=0,
        **rules,
    )
    rows = [row[len(prompt) :].tolist() for row in found]
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]


@pytest.mark.parametrize("memory", MEMORIES)
def test_beam_search_equals_transformers_however_memory_is_run(model, memory):
    reference = copy.deepcopy(model)
    reference.set_attn_implementation("eager")
    run = Run(model, eos=[EOS], cpu_slots=400)
    run.open("a", block_size=4, **MEMORIES[memory])
    answers = listen(run)
    asked = [prompt for prompt in prompts(3) if len(prompt) < 34]
    rules = [{"length_penalty": p, "early_stopping": e} for p in (0.0, 1.0, 2.0) for e in (False, True, "never")]
    for prompt, rule in zip(asked, rules, strict=False):
        early = str(rule["early_stopping"]).lower()
        options = {"length_penalty": rule["length_penalty"], "early_stopping": early}
        run.submit("a", prompt, max_tokens=9, n=4, beam_search=True, **options)
    run.drain()
    for number, (prompt, rule) in enumerate(zip(asked, rules, strict=False)):
        assert answers[number] == search(reference, prompt, 4, 9, **rule)
    assert run.events(BlockCopied)
    assert bool(run.events(Preempted)) == (memory in ("swap", "recompute"))
    assert bool(run.events(SwappedIn)) == (memory == "swap")


@pytest.mark.parametrize("memory", MEMORIES)
def test_samples_are_the_same_whatever_runs_beside_them(model, memory):
    def ask(run: Run) -> None:
        run.submit("a", list(range(30, 52)), max_tokens=12, n=4, temperature=1.0, seed=7, ignore_eos=True)

    def samples(run: Run) -> list[list[int]]:
        requests = run.engine.places["a"].arena.requests.values()
        return [sequence.outputs for sequence in next(r for r in requests if r.sampling.seed == 7).sequences]

    alone = Run(model)
    alone.open("a", num_blocks=100, block_size=16)
    ask(alone)
    alone.drain()
    crowd = Run(model, cpu_slots=400)
    crowd.open("a", block_size=4, **MEMORIES[memory])
    crowd.open("b", num_blocks=100, block_size=8)
    for prompt in prompts(5):
        crowd.submit("b", prompt, max_tokens=20, temperature=1.0, ignore_eos=True)
    crowd.submit("a", [3] * 5, max_tokens=16, n=2, temperature=1.0, ignore_eos=True)
    ask(crowd)
    crowd.drain()
    expected = samples(alone)
    assert len({tuple(outputs) for outputs in expected}) == 4
    assert samples(crowd) == expected
    assert bool(crowd.events(Preempted)) == (memory in ("swap", "recompute"))


def test_what_is_swapped_comes_back_bit_for_bit(model):
    run = Run(model, cpu_slots=400)
    runner = run.engine.runner
    kept: dict[int, torch.Tensor] = {}
    compared = 0
    out, back = runner.swap_out, runner.swap_in

    def swap_out(moves):
        for source, target, count in moves:
            kept.update({target + i: runner.cache[:, source + i].clone() for i in range(count)})
        out(moves)

    def swap_in(moves):
        nonlocal compared
        back(moves)
        for source, target, count in moves:
            for i in range(count):
                assert torch.equal(runner.cache[:, target + i], kept[source + i])
                compared += 1

    runner.swap_out, runner.swap_in = swap_out, swap_in
    run.open("a", block_size=4, **MEMORIES["swap"])
    for prompt in prompts(8)[:8]:
        run.submit("a", prompt, max_tokens=12, n=3, temperature=1.0, ignore_eos=True)
    run.drain()
    assert compared > 20
