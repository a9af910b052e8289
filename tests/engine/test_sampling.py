import copy

import pytest
import torch

from engine.messages import Sampling
from engine.sampling import sample, uniform
from tests.engine.runs import Run
from tests.engine.tiny_configs import build


def draw(logits, settings, seed=0, position=0):
    return sample(torch.tensor([logits]), [(settings, seed, position)])[0]


def test_the_uniform_is_a_pure_function_of_its_counter():
    values = [uniform(seed, index, position) for seed in range(3) for index in range(3) for position in range(200)]
    assert values == [
        uniform(seed, index, position) for seed in range(3) for index in range(3) for position in range(200)
    ]
    assert len(set(values)) == len(values)
    assert all(0 <= value < 1 for value in values)
    assert sum(values) / len(values) == pytest.approx(0.5, abs=0.02)
    assert uniform(-1, 0, 0) == uniform(2**64 - 1, 0, 0)


def test_greedy_takes_the_best_and_reports_its_log_probability():
    token, logprob = draw([1.0, 3.0, 2.0], Sampling(temperature=0))
    assert token == 1
    assert logprob == pytest.approx(float(torch.log_softmax(torch.tensor([1.0, 3.0, 2.0]), 0)[1]))


def test_frequencies_follow_the_distribution():
    logits = [0.0, 1.0, 2.0, -1.0]
    rows = torch.tensor([logits] * 4000)
    settings = Sampling(temperature=0.7)
    tokens = [token for token, _ in sample(rows, [(settings, 11, position) for position in range(4000)])]
    expected = torch.softmax(torch.tensor(logits) / 0.7, 0)
    for token, share in enumerate(expected.tolist()):
        assert tokens.count(token) / 4000 == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        (Sampling(temperature=1.0, top_k=1), {2}),
        (Sampling(temperature=5.0, top_k=2), {2, 1}),
        (Sampling(temperature=1.0, top_p=1e-6), {2}),
        # shares .644 .237 .087 .032: the second is the one that crosses .7
        (Sampling(temperature=1.0, top_p=0.7), {2, 1}),
        (Sampling(temperature=1.0, top_p=0.9), {2, 1, 0}),
        (Sampling(temperature=1.0), {2, 1, 0, 3}),
    ],
)
def test_top_k_and_top_p_keep_the_head_of_the_distribution(settings, allowed):
    rows = torch.tensor([[0.0, 1.0, 2.0, -1.0]] * 600)
    assert {token for token, _ in sample(rows, [(settings, 3, position) for position in range(600)])} == allowed


def test_a_seed_gives_the_same_text_whatever_the_batch_around_it():
    model = build("llama", 3)
    settings = {"max_tokens": 20, "temperature": 0.9, "top_p": 0.95, "seed": 1234, "ignore_eos": True}
    alone = Run(copy.deepcopy(model))
    alone.open("a", num_blocks=64, block_size=4)
    alone.submit("a", [5, 6, 7], **settings)
    alone.drain()
    crowd = Run(copy.deepcopy(model))
    crowd.open("a", num_blocks=24, block_size=4)
    for length in (9, 3, 14):
        crowd.submit("a", list(range(length)), max_tokens=20, temperature=1.0, ignore_eos=True)
    crowd.submit("a", [5, 6, 7], **settings)
    crowd.drain()
    assert crowd.outputs("a")[3] == alone.outputs("a")[0]
    assert len(set(alone.outputs("a")[0])) > 3


def test_other_seeds_give_other_texts():
    run = Run(build("llama", 3))
    run.open("a", num_blocks=64, block_size=4)
    for seed in (1, 2, 1):
        run.submit("a", [5, 6, 7], max_tokens=20, temperature=1.0, seed=seed, ignore_eos=True)
    run.drain()
    first, second, again = run.outputs("a")
    assert first == again != second


@pytest.mark.parametrize("temperature", [1e-3, 1e-38, 1e-300, 5e-324])
def test_the_smallest_temperature_is_greedy(temperature):
    settings = Sampling(temperature=temperature)
    assert [draw([1.0, 3.0, -1e4, 2.0], settings, position=position)[0] for position in range(50)] == [1] * 50
