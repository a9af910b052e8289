"""Greedy output equals ``transformers.generate`` token by token in float32, however memory is run."""

from __future__ import annotations

import copy
import itertools
import random
from typing import Any

import pytest

from engine.events import Preempted, PrefixHit, SwappedIn
from tests.engine.runs import Judge, Run
from tests.engine.tiny_configs import ARCHITECTURES, VOCABULARY, build

LENGTHS = (1, 2, 4, 5, 15, 16, 17, 31, 33, 47)
OUTPUTS = 18


def prompts(seed: int, lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(3, VOCABULARY) for _ in range(length)] for length in lengths]


FIRST = dict(reversed(ARCHITECTURES))  # one ratio of each, for the fast tests


@pytest.mark.parametrize(
    ("name", "ratio"),
    [pytest.param(*one, marks=() if FIRST[one[0]] == one[1] else pytest.mark.slow) for one in ARCHITECTURES],
)
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


def test_requests_that_join_midway_change_no_token():
    model = build("qwen2", 3)
    judge = Judge(copy.deepcopy(model))
    run = Run(model)
    run.open("a", num_blocks=100, block_size=4)
    asked = prompts(9)
    for prompt in asked:
        run.submit("a", prompt, max_tokens=OUTPUTS, ignore_eos=True)
        run.step()
    run.drain()
    for prompt, answer in zip(asked, run.outputs("a"), strict=True):
        judge.check(prompt, answer)
    judge.verdict()


@pytest.mark.parametrize("manager", ["orca_max", "orca_pow2", "orca_oracle", "static_batch"])
def test_contiguous_memory_changes_no_token(manager):
    model = build("llama", 3)
    judge = Judge(copy.deepcopy(model))
    run = Run(model)
    run.open("a", num_blocks=50, block_size=8, manager=manager, max_len=80)
    asked = prompts(4)
    for prompt in asked:
        run.submit("a", prompt, max_tokens=OUTPUTS, ignore_eos=True)
    run.drain()
    for prompt, answer in zip(asked, run.outputs("a"), strict=True):
        judge.check(prompt, answer)
    judge.verdict()


SIZE = 4
BATCHES = {1: 3, 8: 8, 20: 20}  # sequences at once, and prompts
CACHES = ("no cache", "cold", "warm")
CHUNKS = {"chunk 1": 1, "chunk 7": 7, "chunk of a block": SIZE, "chunks unlimited": 0}
MEMORIES = ("ample", "recompute", "swap")
CELLS = list(itertools.product(BATCHES, CACHES, CHUNKS, MEMORIES))
FAST = CELLS[:: len(CELLS) // 9 + 1]  # a few of every kind; all of them run among the slow tests
MATRIX_OUTPUTS = 9
WIDEST = 16


@pytest.fixture(scope="module")
def matrix() -> tuple[Any, Judge, list[list[int]], list[list[int]]]:
    """A model, its judge, prompts of which some begin alike, and the judge's answers."""
    model = build("llama", 3)
    judge = Judge(copy.deepcopy(model))
    asked = prompts(6, (13, 22, 17, 5, 9, 30, 1, 26, 12, 19, 8, 33, 16, 24, 4, 11, 28, 15, 7, 21))
    for at in (2, 5, 11):
        asked[at][:13] = asked[0]
    return model, judge, asked, [judge.generate(prompt, MATRIX_OUTPUTS) for prompt in asked]


@pytest.mark.parametrize(
    ("batch", "cache", "chunk", "memory"),
    [
        pytest.param(*cell, marks=() if cell in FAST else pytest.mark.slow, id=", ".join(map(str, cell)))
        for cell in CELLS
    ],
)
def test_no_cell_of_the_matrix_changes_a_token(matrix, batch, cache, chunk, memory):
    model, judge, asked, expected = matrix
    asked, expected = asked[: BATCHES[batch]], expected[: BATCHES[batch]]
    check_cell(model, judge, asked, expected, batch, cache, CHUNKS[chunk], memory, SIZE)


def check_cell(
    model: Any,
    judge: Judge,
    asked: list[list[int]],
    expected: list[list[int]],
    batch: int,
    cache: str,
    chunk: int,
    memory: str,
    size: int,
    vocabulary: Any = None,
) -> None:
    """Run ``asked`` in one arena as the cell says, and compare with the judge's answers."""
    outputs = len(expected[0])
    needs = [-(-(len(prompt) + outputs) // size) for prompt in asked]
    # Requests that run alone, or grow slowly, press nobody out of memory: something more urgent then does.
    disturbed = memory != "ample" and (batch == 1 or chunk == 1)
    ample = sum(needs) + max(needs) + 1
    blocks = ample if memory == "ample" else max(max(needs) + 2, sum(sorted(needs)[-batch:]) * 6 // 10)
    run = Run(
        model, vocabulary, slots=(ample + 8) * size, cpu_slots=ample * size, max_sequences=batch + WIDEST * disturbed
    )
    options = {"prefix_cache": cache != "no cache", "prefill_chunk": chunk, "preemption": memory}
    options |= {"preemption": "auto"} if memory == "ample" else {}
    run.open("a", blocks, size, cpu_blocks=ample if memory == "swap" else 0, **options)
    if cache == "warm":
        for prompt in asked:
            run.submit("a", prompt, max_tokens=1)
            run.drain()
    first = run.engine.places["a"].arena._arrived
    for prompt in asked:
        run.submit("a", prompt, max_tokens=outputs, ignore_eos=True)
        if disturbed and (batch == 1 or prompt is asked[-1]):
            disturb(run, blocks, size)
    run.drain()
    states = run.engine.places["a"].arena.requests
    answers = [
        request.sequences[0].outputs for number, request in states.items() if number >= first and not request.priority
    ]
    modes = {event.mode for event in run.events(Preempted)}
    assert modes == ({memory} if memory != "ample" else set())
    assert bool(run.events(SwappedIn)) == (memory == "swap")
    if cache == "warm" and memory == "ample":
        assert run.events(PrefixHit)
    judge.positions = judge.ties = 0
    for prompt, answer, reference in zip(asked, answers, expected, strict=True):
        assert len(answer) == outputs
        if answer != reference:
            judge.check(prompt, answer)
    judge.positions = sum(map(len, answers))
    judge.verdict()


def disturb(run: Run, blocks: int, size: int) -> None:
    """Let something run until it decodes, then a more urgent group grow until it needs (nearly) all of the memory."""
    arena = run.engine.places["a"].arena
    while not any(sequence.outputs for request in arena.scheduler.running for sequence in request.live):
        run.step()
    width = min(range(2, max(2, min(WIDEST, blocks // 2)) + 1), key=lambda width: (blocks % width, -width))
    outputs = blocks // width * size
    run.submit("a", [5], max_tokens=outputs, n=width, temperature=1.0, ignore_eos=True, priority=-1)
    run.drain()
