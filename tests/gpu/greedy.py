"""Greedy output of tiny models, run by the whole engine here, against transformers on the CPU: float32, token by token."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from engine.events import SwappedIn
from tests.engine.runs import Judge, Run
from tests.engine.test_greedy_equality import prompts
from tests.engine.tiny_configs import ARCHITECTURES, build
from tests.gpu.timing import Setting

OUTPUTS = 18
# How each arena's memory is run; all share every forward pass. The third must swap, the last reserves regions.
MEMORIES = {
    "blocks of 4": {"num_blocks": 250, "block_size": 4},
    "blocks of 16": {"num_blocks": 60, "block_size": 16},
    "swapping": {"num_blocks": 18, "block_size": 4, "cpu_blocks": 250, "preemption": "swap"},
    "regions": {"num_blocks": 50, "block_size": 8, "manager": "orca_max", "max_len": 80},
}


def equality(setting: Setting) -> Iterator[str]:
    """Lines of a table. Raises AssertionError for a wrong token, or too many near ties."""
    yield "model      heads per KV head   prompts x memories   tokens   near ties   swapped in"
    for name, ratio in ARCHITECTURES[1:2] if setting.quick else ARCHITECTURES:
        model = build(name, ratio)
        judge = Judge(copy.deepcopy(model))
        run = Run(model.to(setting.device), cpu_slots=1024)
        if setting.is_gpu and run.engine.runner.backend.name != "triton":
            raise AssertionError(f"attention is {run.engine.runner.backend.name}, and it should be triton")
        asked = [prompt for prompt in prompts(ratio) if not setting.quick or len(prompt) in (15, 17, 33)]
        for arena, memory in MEMORIES.items():
            run.open(arena, **memory)
            for prompt in asked:
                run.submit(arena, prompt, max_tokens=OUTPUTS, ignore_eos=True)
        run.drain()
        first: dict[int, list[int]] = {}
        for arena in MEMORIES:
            for i, (prompt, answer) in enumerate(zip(asked, run.outputs(arena), strict=True)):
                if len(answer) != OUTPUTS:
                    raise AssertionError(f"{arena}: {len(answer)} tokens, and {OUTPUTS} were asked for")
                if first.setdefault(i, answer) is answer or answer != first[i]:
                    judge.check(prompt, answer)
        judge.verdict()
        swapped = len(run.events(SwappedIn))
        if not swapped:
            raise AssertionError("nothing was swapped: the arena that should have been short of memory was not")
        yield (
            f"{name:10} {ratio:17} {len(asked):11} x {len(MEMORIES):6} {judge.positions:8} {judge.ties:11} {swapped:12}"
        )
