"""The default model on the real engine, judged by transformers on the same weights."""

from __future__ import annotations

import copy

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.decoding.text import Vocabulary
from engine.model.model_store import ensure_default_model
from tests.engine.runs import Judge, Run
from tests.engine.test_greedy_equality import check_cell

pytestmark = pytest.mark.slow
OUTPUTS = 16
PROMPTS = [
    "The operating system keeps each process on its own",
    "Virtual memory was invented because",
    "def fibonacci(n):\n",
    "Hello",
    "Once upon a time, in a small village by the sea,",
    "The capital of France is",
    "1, 2, 3, 4, 5, 6,",
    "Dear Sir or Madam,\n\nI am writing to",
    "In 1962 the Atlas computer at Manchester",
    "Water boils at",
    "The KV cache stores",
    "Q: What is a page table?\nA:",
    "Ein kurzer deutscher Satz:",
    "SELECT name FROM users WHERE",
    "The three laws of thermodynamics are",
    "She opened the door and",
    "A list of fruits: apple, banana,",
    "To be, or not to be, that is",
    "The quick brown fox jumps over the lazy dog. " * 6,
    "Memory fragmentation occurs when free memory is divided into many small pieces, and",
]


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(ensure_default_model(), dtype="float32").eval()


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(AutoTokenizer.from_pretrained(ensure_default_model()))


@pytest.fixture(scope="module")
def judge(model):
    """The reference keeps its own attention; ``Run`` changes that of the model it is given."""
    return Judge(copy.deepcopy(model))


@pytest.fixture(scope="module")
def expected(judge, vocabulary):
    return [judge.generate(vocabulary.encode(prompt), OUTPUTS) for prompt in PROMPTS]


@pytest.mark.parametrize("batch", [1, 8, 20])
def test_greedy_equals_transformers(model, vocabulary, judge, expected, batch):
    run = Run(model, vocabulary, slots=8192)
    run.open("a", num_blocks=512, block_size=16)
    for first in range(0, len(PROMPTS), batch):
        for prompt in PROMPTS[first : first + batch]:
            run.submit("a", prompt, max_tokens=OUTPUTS, ignore_eos=True)
        run.drain()
    answers = run.outputs("a")
    assert len(answers) == len(PROMPTS) == 20
    judge.positions = judge.ties = 0
    for prompt, answer, reference in zip(PROMPTS, answers, expected, strict=True):
        if answer != reference:
            judge.check(vocabulary.encode(prompt), answer)
    judge.positions = OUTPUTS * len(PROMPTS)
    judge.verdict()


TWELVE = [
    (1, "no cache", 0, "ample"),
    (1, "warm", 0, "recompute"),
    (1, "cold", 7, "swap"),
    (8, "no cache", 7, "swap"),
    (8, "cold", 4, "recompute"),
    (8, "warm", 1, "swap"),
    (8, "warm", 0, "ample"),
    (20, "no cache", 4, "recompute"),
    (20, "cold", 0, "swap"),
    (20, "cold", 7, "ample"),
    (20, "warm", 4, "swap"),
    (20, "warm", 0, "recompute"),
]
CELL_OUTPUTS = 8


@pytest.mark.parametrize(("batch", "cache", "chunk", "memory"), TWELVE)
def test_twelve_cells_of_the_matrix(model, vocabulary, judge, expected, batch, cache, chunk, memory):
    count = {1: 3, 8: 8, 20: 20}[batch]
    asked = [vocabulary.encode(prompt) for prompt in PROMPTS[:count]]
    answers = [answer[:CELL_OUTPUTS] for answer in expected[:count]]
    check_cell(model, judge, asked, answers, batch, cache, chunk, memory, size=4, vocabulary=vocabulary)
