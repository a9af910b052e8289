import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.decoding.sampling import Row, check, pick, prompt_logprobs, uniform
from engine.messages import Sampling

FOUR = [0.0, 1.0, 2.0, -1.0]


def row(sampling, position=0, seed=0, samples=(0,), prompt=(), outputs=(), stop_ids=(), candidates=0):
    return Row(sampling, seed, samples, position, list(prompt), list(outputs), frozenset(stop_ids), candidates)


def draw(logits, sampling, count=1, **more):
    """The tokens of ``count`` samples."""
    [picked] = pick(torch.tensor([logits]), [row(sampling, samples=tuple(range(count)), **more)])
    return [token for token, _ in picked.tokens]


def processed(logits, sampling, **more):
    """What bias and penalties make of the log probabilities, token by token."""
    [picked] = pick(torch.tensor([logits]), [row(sampling, samples=(), candidates=len(logits), **more)])
    scores = dict(picked.candidates)
    return [scores.get(token, -math.inf) for token in range(len(logits))]


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 3


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
    [picked] = pick(torch.tensor([[1.0, 3.0, 2.0]]), [row(Sampling(), samples=(0, 1))])
    score = float(torch.log_softmax(torch.tensor([1.0, 3.0, 2.0]), 0)[1])
    assert picked.tokens == [(1, score), (1, score)]
    assert (picked.top, picked.candidates) == ([], [])


def test_frequencies_follow_the_distribution():
    tokens = draw(FOUR, Sampling(temperature=0.7), 4000, seed=11)
    for token, share in enumerate(torch.softmax(torch.tensor(FOUR) / 0.7, 0).tolist()):
        assert tokens.count(token) / 4000 == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        (Sampling(temperature=1.0, top_k=1), {2}),
        (Sampling(temperature=5.0, top_k=2), {2, 1}),
        (Sampling(temperature=5.0, top_k=4), {2, 1, 0, 3}),
        (Sampling(temperature=1.0, top_p=1e-6), {2}),
        # shares .644 .237 .087 .032: the second is the one that crosses .7
        (Sampling(temperature=1.0, top_p=0.7), {2, 1}),
        (Sampling(temperature=1.0, top_p=0.9), {2, 1, 0}),
        # of the best two the shares are .731 .269
        (Sampling(temperature=1.0, top_p=0.7, top_k=2), {2}),
        # relative to the best: 1 .368 .135 .050
        (Sampling(temperature=1.0, min_p=0.1), {2, 1, 0}),
        (Sampling(temperature=1.0, min_p=0.5), {2}),
        (Sampling(temperature=2.0, min_p=0.5), {2, 1}),
        (Sampling(temperature=1.0, min_p=1.0), {2}),
        (Sampling(temperature=1.0), {2, 1, 0, 3}),
    ],
)
def test_filters_keep_the_head_of_the_distribution(sampling, allowed):
    assert set(draw(FOUR, sampling, 600, seed=3)) == allowed


@pytest.mark.parametrize("sampling", [Sampling(temperature=1.0, top_k=1), Sampling(temperature=1.0, top_p=0.4)])
def test_equally_likely_tokens_stay_or_go_together(sampling):
    assert set(draw([2.0, 2.0, 1.0], sampling, 200)) == {0, 1}


def test_draws_are_those_of_transformers_distribution():
    logits = noise(30, 300)
    for seed in range(30):
        choose = torch.Generator().manual_seed(seed)
        temperature, top_p, min_p = (torch.rand(3, generator=choose) * torch.tensor([2.0, 1.0, 0.2])).tolist()
        top_k = int(torch.randint(1, 60, (), generator=choose)) * (seed % 2)
        warpers = LogitsProcessorList(
            [
                TemperatureLogitsWarper(temperature),
                TopKLogitsWarper(top_k or 300),
                TopPLogitsWarper(top_p),
                MinPLogitsWarper(min_p),
            ]
        )
        mass = torch.softmax(warpers(None, logits[seed : seed + 1].double()), -1)[0].cumsum(0)
        sampling = Sampling(temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k)
        tokens = draw(logits[seed].tolist(), sampling, 50, seed=seed)
        uniforms = torch.tensor([uniform(seed, sample, 0) for sample in range(50)], dtype=torch.float64)
        assert tokens == torch.searchsorted(mass, uniforms, right=True).tolist()


@pytest.mark.parametrize("temperature", [1e-3, 1e-38, 1e-300, 5e-324])
def test_the_smallest_temperature_is_greedy(temperature):
    assert draw([1.0, 3.0, -1e4, 2.0], Sampling(temperature=temperature), 50) == [1] * 50


def test_a_forbidden_token_is_not_drawn_at_the_edge(monkeypatch):
    monkeypatch.setattr("engine.decoding.sampling.uniform", lambda *_: 1 - 2**-53)
    sampling = Sampling(temperature=1.0, min_tokens=1)
    assert draw([0.3, 0.1, 0.2, 9.0], sampling, stop_ids=[3]) == [2]
    monkeypatch.setattr("engine.decoding.sampling.uniform", lambda *_: 0.0)
    assert draw([9.0, 0.1, 0.2, 0.3], sampling, stop_ids=[0]) == [1]


def test_one_row_gives_each_sample_the_token_of_its_own():
    sampling = Sampling(temperature=1.0, n=8)
    logits = noise(1, 500) / 3
    [together] = pick(logits, [row(sampling, 9, 5, samples=tuple(range(8)))])
    alone = [pick(logits, [row(sampling, 9, 5, samples=(sample,))])[0].tokens[0] for sample in range(8)]
    assert together.tokens == alone
    assert len(set(alone)) > 4


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    top_p=st.sampled_from([1.0, 0.9]),
    top_k=st.sampled_from([0, 5]),
    min_p=st.sampled_from([0.0, 0.05]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    logit_bias=st.sampled_from([{}, {3: 4.0}]),
    min_tokens=st.sampled_from([0, 9]),
    logprobs=st.sampled_from([None, 0, 4]),
)


def assert_independent(vocabulary, choices, alone):
    # Halves, as 16-bit models give them, tie often.
    logits = noise(len(choices), vocabulary).half().float()
    rows = [
        row(sampling, at, at, samples=(0, 1), prompt=[1, 2], outputs=[at, 4], stop_ids=[9], candidates=candidates)
        for at, (sampling, candidates) in enumerate(choices)
    ]
    together = pick(logits, rows)
    for at in alone:
        assert pick(logits[at : at + 1], rows[at : at + 1]) == together[at : at + 1]
    assert pick(logits[1:4], rows[1:4]) == together[1:4]


@settings(max_examples=15, deadline=None)
@given(choices=st.lists(st.tuples(SAMPLINGS, st.sampled_from([0, 7])), min_size=1, max_size=6))
def test_a_row_does_not_depend_on_the_rows_around_it(choices):
    assert_independent(100, choices, range(len(choices)))


def test_a_long_row_does_not_depend_on_how_many_there_are():
    # Above 32768 numbers torch divides one row among its threads, and with few rows it does so otherwise than with many.
    few = [(Sampling(), 3), (Sampling(temperature=1.0), 0), (Sampling(temperature=1.0, top_p=0.9, logprobs=2), 0)]
    assert_independent(40000, few + [(Sampling(), 0)] * 30, range(4))


def test_bias_repetition_and_least_length_are_those_of_transformers():
    prompt, outputs = [1, 2, 2, 40], [7, 1, 8]
    sampling = Sampling(logit_bias={2: 5.5, 9: -3.0}, repetition_penalty=1.7, min_tokens=4)
    logits = noise(1, 50)
    chain = LogitsProcessorList(
        [
            SequenceBiasLogitsProcessor({(2,): 5.5, (9,): -3.0}),
            RepetitionPenaltyLogitsProcessor(1.7),
            MinNewTokensLengthLogitsProcessor(len(prompt), 4, [11, 12]),
        ]
    )
    ids = torch.tensor([prompt + outputs])
    expected = chain(ids, torch.log_softmax(logits, -1))[0].tolist()
    more = {"prompt": prompt, "outputs": outputs, "stop_ids": [11, 12]}
    assert processed(logits[0].tolist(), sampling, **more) == expected
    # Sampling changes the logits themselves, positive ones among them.
    [picked] = pick(logits, [row(sampling, **more)])
    assert picked.tokens[0][0] == int(chain(ids, logits).argmax())
    [drawn] = draw(
        logits[0].tolist(), Sampling(temperature=1.0, repetition_penalty=1.7), prompt=prompt, outputs=outputs
    )
    mass = torch.softmax(RepetitionPenaltyLogitsProcessor(1.7)(ids, logits).double(), -1)[0].cumsum(0)
    assert drawn == int(torch.searchsorted(mass, uniform(0, 0, 0), right=True))


def test_presence_and_frequency_are_subtracted_for_outputs_alone():
    sampling = Sampling(presence_penalty=0.5, frequency_penalty=0.25)
    plain = processed(FOUR, Sampling())
    changed = processed(FOUR, sampling, prompt=[0, 0, 3], outputs=[2, 1, 2, 2])
    assert [a - b for a, b in zip(plain, changed, strict=True)] == pytest.approx([0, 0.75, 1.25, 0], abs=1e-6)
    assert processed(FOUR, sampling, prompt=[0, 0, 3]) == plain


def test_the_least_number_of_tokens_holds_stop_tokens_back():
    for sampling in (Sampling(min_tokens=2), Sampling(min_tokens=2, logit_bias={3: 0.5})):
        chosen = [draw(FOUR, sampling, outputs=[0] * length, stop_ids=[2, 1]) for length in range(4)]
        assert chosen == [[0], [0], [2], [2]]
    # With nothing else to choose the best one it is.
    assert draw(FOUR, sampling, stop_ids=range(4)) == [2]


def test_tokens_that_do_not_exist_change_nothing():
    sampling = Sampling(logit_bias={-1: 9.0, 4: 9.0}, repetition_penalty=2.0, frequency_penalty=1.0, min_tokens=9)
    odd = {"prompt": [4, -1], "outputs": [70], "stop_ids": [4, -2]}
    assert processed(FOUR, sampling, **odd) == processed(FOUR, Sampling())


def test_log_probabilities_are_told_as_the_model_gave_them():
    logits = torch.tensor([[1.0, 2.0, 0.0, 2.0, 1.0]])
    scores = torch.log_softmax(logits, -1)[0].tolist()
    sampling = Sampling(temperature=2.0, logprobs=4, logit_bias={2: 100.0}, repetition_penalty=2.0)
    [picked] = pick(logits, [row(sampling, prompt=[1])])
    assert picked.tokens == [(2, scores[2])]
    # Of equals the lower token comes first.
    assert picked.top == [(1, scores[1]), (3, scores[3]), (0, scores[0]), (4, scores[4])]
    assert pick(logits, [row(Sampling(logprobs=0))])[0].top == []


def test_prompt_log_probabilities():
    logits = noise(3, 20)
    scores = torch.log_softmax(logits, -1)
    told = prompt_logprobs(logits, [4, 19, 0], 2)
    assert [score for score, _ in told] == [float(scores[0, 4]), float(scores[1, 19]), float(scores[2, 0])]
    for at, (_, top) in enumerate(told):
        values, tokens = scores[at].topk(2)
        assert top == list(zip(tokens.tolist(), values.tolist(), strict=True))
    assert prompt_logprobs(logits[:1], [4], 0) == [(float(scores[0, 4]), [])]
    assert prompt_logprobs(logits[:0], [], 3) == []


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_k=3, top_p=0.5, min_p=0.1)])
def test_a_row_of_nans_harms_nobody(sampling):
    logits = torch.stack([torch.full((10,), math.nan), noise(10)])
    broken, sound = pick(logits, [row(sampling, candidates=3)] * 2)
    assert sound == pick(logits[1:], [row(sampling, candidates=3)])[0]
    assert 0 <= broken.tokens[0][0] < 10


def test_logits_of_inference_mode_are_left_as_they_are():
    with torch.inference_mode():
        logits = noise(2, 10)
    before = logits.clone()
    pick(logits, [row(Sampling(temperature=1.0, repetition_penalty=2.0, top_p=0.5, min_tokens=3), prompt=[1])] * 2)
    assert torch.equal(logits, before)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0, the least is 1"),
        ({"min_tokens": -1}, "min_tokens is -1: choose 0 to max_tokens, which is 64"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens is 9: choose 0 to max_tokens, which is 8"),
        ({"temperature": -0.1}, "temperature is -0.1: choose 0 to 100; 0 is greedy"),
        ({"temperature": math.inf}, "temperature is inf: choose 0 to 100; 0 is greedy"),
        ({"top_p": 0.0}, "top_p is 0.0: choose a share above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p is 1.1: choose a share above 0 and at most 1"),
        ({"top_k": -1}, "top_k is -1: choose 0 (off) or a count of at least 1"),
        ({"min_p": 1.5}, "min_p is 1.5: choose 0 to 1; 0 is off"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0: choose 0.01 to 100; 1 is off"),
        ({"presence_penalty": 2.1}, "presence_penalty is 2.1: choose -2 to 2; 0 is off"),
        ({"frequency_penalty": -2.1}, "frequency_penalty is -2.1: choose -2 to 2; 0 is off"),
        ({"logit_bias": {5: 101.0}}, "logit_bias of token 5 is 101.0: choose -100 to 100"),
        ({"logit_bias": {50: 1.0}}, "logit_bias names token 50, which does not exist: choose 0 to 49"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias names token -1, which does not exist: choose 0 to 49"),
        ({"stop": ["a", ""]}, "a stop string is empty and would end every text at once: leave it out"),
        ({"stop_token_ids": [50]}, "stop_token_ids names token 50, which does not exist: choose 0 to 49"),
        ({"n": 0}, "n is 0, the least is 1"),
        ({"best_of": 2, "n": 3}, "best_of is 2: choose 0 (as many as n) or at least n, which is 3"),
        ({"best_of": -1}, "best_of is -1: choose 0 (as many as n) or at least n, which is 1"),
        ({"logprobs": 21}, "logprobs is 21: choose 0 to 20, or none"),
        ({"logprobs": -1}, "logprobs is -1: choose 0 to 20, or none"),
        ({"length_penalty": 11.0}, "length_penalty is 11.0: choose -10 to 10; 0 is off"),
        ({"early_stopping": "maybe"}, "early_stopping is 'maybe': choose one of false, true, never"),
        (
            {"temperature": 0.5, "beam_search": True},
            "temperature is 0.5 and beam search draws nothing: choose 0 or no beam search",
        ),
        ({"top_p": 0.5, "beam_search": True}, "top_p is 0.5 and beam search draws nothing: choose 1 or no beam search"),
        ({"top_k": 5, "beam_search": True}, "top_k is 5 and beam search draws nothing: choose 0 or no beam search"),
        ({"min_p": 0.5, "beam_search": True}, "min_p is 0.5 and beam search draws nothing: choose 0 or no beam search"),
        (
            {"stop": ["a"], "beam_search": True},
            "beam search ends at tokens, not at stop strings: choose stop_token_ids or no beam search",
        ),
    ],
)
def test_values_out_of_range_are_named(fields, message):
    assert check(Sampling(**fields), vocabulary=50) == (next(iter(fields)), message)


@pytest.mark.parametrize(
    "field",
    [
        "temperature",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "length_penalty",
    ],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused(field, value):
    assert check(Sampling(**{field: value}))[0] == field
    assert check(Sampling(logit_bias={0: value}))[0] == "logit_bias"


def test_the_ends_of_the_ranges_are_good():
    low = Sampling(
        max_tokens=1,
        temperature=0.0,
        top_p=5e-324,
        repetition_penalty=0.01,
        presence_penalty=-2.0,
    )
    high = Sampling(
        max_tokens=5,
        min_tokens=5,
        temperature=100.0,
        top_k=10**9,
        min_p=1.0,
        repetition_penalty=100.0,
        frequency_penalty=2.0,
        logit_bias={0: -100.0, 49: 100.0},
        stop=["x"],
        stop_token_ids=[0, 49],
        n=4,
        best_of=4,
        logprobs=20,
    )
    beams = Sampling(n=2, best_of=4, beam_search=True, early_stopping="true", length_penalty=-10.0, stop_token_ids=[3])
    other = Sampling(n=1, beam_search=True, early_stopping="never", length_penalty=10.0, repetition_penalty=1.2)
    assert [check(one, 50) for one in (Sampling(), low, high, beams, other)] == [None] * 5
    lone = check(Sampling(length_penalty=2.0)), check(Sampling(early_stopping="true"))
    assert [wrong and wrong[0] for wrong in lone] == ["length_penalty", "early_stopping"]
    assert check(Sampling(logit_bias={10**9: 1.0}, stop_token_ids=[10**9])) is None
