"""Beam search against transformers' own on small models, and on tables of random candidates."""

import itertools
import math
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding.beam_search import EARLY_STOPPING, BeamSearch, BeamStep, Hypothesis
from engine.decoding.sampling import Row, pick
from engine.messages import Sampling
from tests.engine.tiny_configs import VOCABULARY, build

PROMPTS = ([5, 6, 7], [90], [3, 3, 150, 12, 8, 44, 3])
PAD = VOCABULARY - 1
# The lower, the flatter the distribution, and the more often beams overtake each other.
SHARPNESS = (1.0, 0.3, 0.1)


@dataclass
class Text:
    tokens: list[int]
    score: float
    stopped: bool


@pytest.fixture(autouse=True)
def one_thread():
    """Small models take longer with more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def model(sharpness: float) -> Any:
    built = build("llama", 3)
    built.lm_head.weight.data *= sharpness
    return built


@cache
def logits_after(sharpness: float, tokens: tuple[int, ...]) -> torch.Tensor:
    """float32 [vocabulary]."""
    with torch.inference_mode():
        return model(sharpness)(torch.tensor([tokens]), use_cache=False, logits_to_keep=1).logits[0, -1]


def search(sharpness: float, prompt: list[int], stop_ids: frozenset[int], sampling: Sampling) -> list[Text]:
    """As an engine drives it: running beams and kept texts are all that it knows."""
    beams = BeamSearch(sampling.width, stop_ids, sampling.length_penalty, sampling.early_stopping, sampling.max_tokens)
    running: list[list[int]] = [[]]
    texts: dict[int, list[int]] = {}
    while not beams.done:
        rows = [
            Row(sampling, 0, (), len(prompt) + len(beam), prompt, beam, stop_ids, beams.candidates) for beam in running
        ]
        logits = torch.stack([logits_after(sharpness, (*prompt, *beam)) for beam in running])
        step = beams.advance([picked.candidates for picked in pick(logits, rows)])
        for found in step.finished:
            assert found.token is not None
            texts[found.number] = [*running[found.parent], found.token]
        for beaten in step.dropped:
            del texts[beaten.number]
        running = [[*running[parent], token] for parent, token, _ in step.children]
    return [Text(texts[best.number], best.score, best.stopped) for best in beams.results(sampling.n)]


def reference(
    sharpness: float, prompt: list[int], stop_ids: frozenset[int], sampling: Sampling
) -> tuple[list[list[int]], list[float]]:
    """Outputs, padded, and scores of transformers' ``generate``."""
    known = model(sharpness)
    answer = known.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        # ``generate`` takes one beam for greedy search; its beam search itself knows one beam, too.
        custom_generate=type(known)._beam_search,
        do_sample=False,
        num_beams=sampling.width,
        num_return_sequences=sampling.n,
        max_new_tokens=sampling.max_tokens,
        min_new_tokens=sampling.min_tokens or None,
        repetition_penalty=sampling.repetition_penalty,
        length_penalty=sampling.length_penalty,
        early_stopping={"false": False, "true": True, "never": "never"}[sampling.early_stopping],
        eos_token_id=sorted(stop_ids) or None,
        pad_token_id=PAD,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return answer.sequences[:, len(prompt) :].tolist(), answer.sequences_scores.tolist()


def compare(sharpness: float, prompt: list[int], stop_ids: frozenset[int], sampling: Sampling) -> list[Text]:
    found = search(sharpness, prompt, stop_ids, sampling)
    padded, scores = reference(sharpness, prompt, stop_ids, sampling)
    longest = max(len(text.tokens) for text in found)
    assert [text.tokens + [PAD] * (longest - len(text.tokens)) for text in found] == padded
    assert [text.score for text in found] == pytest.approx(scores, rel=1e-4)
    assert [text.stopped for text in found] == [text.tokens[-1] in stop_ids for text in found]
    return found


@cache
def reached(sharpness: float, prompt: tuple[int, ...]) -> list[int]:
    """Tokens that beams reach when nothing stops them, so that some of them may stop others."""
    free = search(sharpness, list(prompt), frozenset(), Sampling(max_tokens=8, n=6, beam_search=True))
    return sorted({token for text in free for token in text.tokens} - {PAD})


def case(choose: random.Random) -> tuple[float, list[int], frozenset[int], Sampling]:
    sharpness, prompt = choose.choice(SHARPNESS), choose.choice(PROMPTS)
    tokens = reached(sharpness, tuple(prompt))
    stop_ids = frozenset(choose.sample(tokens, min(len(tokens), choose.choice([0, 1, 2, 3, 6]))))
    width, most = choose.choice([1, 2, 3, 4, 6]), choose.randint(1, 12)
    sampling = Sampling(
        beam_search=True,
        n=choose.randint(1, width),
        best_of=width,
        max_tokens=most,
        min_tokens=choose.choice([0, 0, choose.randint(0, most)]),
        repetition_penalty=choose.choice([1.0, 1.0, 1.3, 0.8]),
        length_penalty=choose.choice([-1.0, 0.0, 0.5, 1.0, 2.0]),
        early_stopping=choose.choice(EARLY_STOPPING),
    )
    return sharpness, prompt, stop_ids, sampling


@pytest.mark.parametrize(("early", "penalty"), list(itertools.product(EARLY_STOPPING, [-1.0, 0.0, 0.5, 1.0, 2.0])))
def test_texts_and_scores_are_those_of_transformers(early, penalty):
    at = EARLY_STOPPING.index(early) + int(2 * penalty)
    width = (1, 2, 3, 4, 6)[at % 5]
    prompt = PROMPTS[at % 3]
    stop_ids = frozenset(reached(0.3, tuple(prompt))[: 2 + at % 3])
    sampling = Sampling(
        beam_search=True, n=width, best_of=width, max_tokens=10, length_penalty=penalty, early_stopping=early
    )
    compare(0.3, prompt, stop_ids, sampling)


def test_random_settings_against_transformers():
    choose = random.Random(4)
    texts = [text for _ in range(8) for text in compare(*case(choose))]
    assert {text.stopped for text in texts} == {True, False}


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_random_settings_against_transformers():
    choose = random.Random(5)
    texts = [text for _ in range(500) for text in compare(*case(choose))]
    assert sum(text.stopped for text in texts) > 100


def test_a_step_by_hand():
    beams = BeamSearch(2, frozenset({9}), 1.0, "false", 3)
    assert (beams.candidates, beams.running) == (3, [0.0])
    # The third best ends as well and comes too late: only the two best may.
    step = beams.advance([[(4, -1.0), (5, -2.0), (9, -3.0), (6, -4.0)]])
    assert step == BeamStep([(0, 4, -1.0), (0, 5, -2.0)])
    step = beams.advance([[(9, -1.0), (4, -3.0), (5, -4.0)], [(9, -0.5), (7, -0.5), (4, -9.0)]])
    # In order: 4 9 with -2, then 5 7 and 5 9 with -2.5 each, of which the lower token is first.
    assert step == BeamStep([(1, 7, -2.5), (0, 4, -4.0)], [Hypothesis(0, 0, 9, -1.0, 2, True)])
    step = beams.advance([[(9, -0.05), (1, -2.0), (2, -3.0)], [(1, -0.1), (9, -1.0), (2, -2.0)]])
    assert step.children == []
    assert [(found.parent, found.token, found.length, found.stopped) for found in step.finished] == [(0, 9, 3, True)]
    assert step.finished[0].score == pytest.approx(-2.55 / 3)
    assert (step.dropped, step.done, beams.done, beams.running) == ([], True, True, [])
    assert beams.results(5) == [step.finished[0], Hypothesis(0, 0, 9, -1.0, 2, True)]
    assert beams.results(1) == [step.finished[0]]


def test_a_better_hypothesis_drives_the_worst_out():
    beams = BeamSearch(2, frozenset({9}), 2.0, "never", 8)
    beams.advance([[(1, -1.0), (9, -1.5), (2, -2.0)]])
    beams.advance([[(1, -0.1), (9, -0.2), (2, -5.0)], [(1, -5.0), (2, -6.0), (9, -7.0)]])
    assert [found.number for found in beams.results(2)] == [1, 0]
    step = beams.advance([[(9, -0.1), (1, -0.2), (2, -5.0)], [(1, -5.0), (2, -6.0), (9, -7.0)]])
    assert [found.number for found in step.finished] == [2]
    assert step.dropped == [Hypothesis(0, 0, 9, -1.5, 1, True)]


@pytest.mark.parametrize(
    ("early", "penalty", "most", "done"),
    [
        ("false", 1.0, 8, True),
        ("true", 1.0, 8, True),
        # With so many tokens the beam would score -1.5 / 8, -1.5 / 3, -1.5 / 2, and the hypothesis has -0.5.
        ("never", 1.0, 8, False),
        ("never", 1.0, 3, True),
        ("never", 1.0, 2, True),
        ("never", 0.0, 8, True),
        ("never", -1.0, 8, True),
    ],
)
def test_when_a_search_stops(early, penalty, most, done):
    beams = BeamSearch(1, frozenset({9}), penalty, early, most)
    assert beams.advance([[(9, -0.5), (1, -1.5)]]).done == done


@pytest.mark.parametrize("early", ["false", "never"])
def test_a_penalty_below_0_counts_the_present_length(early):
    beams = BeamSearch(2, frozenset({9}), -1.0, early, 8)
    beams.advance([[(1, -1.0), (9, -1.5), (2, -2.0)]])
    step = beams.advance([[(3, -1.0), (9, -3.0), (4, -9.0)], [(3, -9.0)]])
    # The worst hypothesis has -4 * 2; the best beam has -2 * 2 now, and would have -2 * 8 at the end.
    assert [found.score for found in beams.results(2)] == [-1.5, -8.0]
    assert not step.done


def test_of_equal_hypotheses_the_older_is_kept():
    beams = BeamSearch(1, frozenset({9}), 1.0, "never", 8)
    assert [found.score for found in beams.advance([[(9, -1.0), (1, -1.5)]]).finished] == [-1.0]
    step = beams.advance([[(9, -0.5), (1, -0.6)]])
    assert (step.finished, step.dropped, [found.number for found in beams.results(1)]) == ([], [], [0])


def test_closing_ends_the_running_beams_as_they_are():
    beams = BeamSearch(2, frozenset({9}), 1.0, "never", 8)
    beams.advance([[(1, -1.0), (9, -1.5), (2, -2.0)]])
    step = beams.close()
    assert step == BeamStep([], [Hypothesis(1, 0, None, -1.0, 1, False)], [], True)
    assert beams.results(2) == [Hypothesis(1, 0, None, -1.0, 1, False), Hypothesis(0, 0, 9, -1.5, 1, True)]
    unstarted = BeamSearch(2, frozenset(), 1.0, "false", 8)
    assert unstarted.close() == BeamStep(done=True)
    assert unstarted.results(2) == []


def test_a_search_with_nothing_to_choose_from_ends():
    beams = BeamSearch(3, frozenset(), 1.0, "false", 8)
    assert [token for _, token, _ in beams.advance([[(7, -1.0)]]).children] == [7]
    assert beams.advance([[]]) == BeamStep(done=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 0}, "width is 0, the least is 1"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0, the least is 1"),
        ({"early_stopping": "True"}, "early_stopping is 'True': choose one of false, true, never"),
    ],
)
def test_values_that_cannot_be_are_refused(changes, message):
    good: dict[str, Any] = {"width": 2, "stop_ids": frozenset(), "length_penalty": 1.0, "max_new_tokens": 4}
    with pytest.raises(ValueError, match=message):
        BeamSearch(**({"early_stopping": "false"} | good | changes))


def test_every_running_beam_brings_candidates():
    beams = BeamSearch(2, frozenset(), 1.0, "false", 4)
    beams.advance([[(1, -1.0), (2, -2.0)]])
    with pytest.raises(ValueError, match="1 lists of candidates came for 2 running beams"):
        beams.advance([[(1, -1.0), (2, -2.0)]])


@settings(max_examples=50, deadline=None)
@given(
    width=st.integers(1, 5),
    stop_ids=st.frozensets(st.integers(0, 11), max_size=3),
    penalty=st.sampled_from([-2.0, 0.0, 1.0, 3.0]),
    early=st.sampled_from(EARLY_STOPPING),
    most=st.integers(1, 6),
    data=st.data(),
)
def test_the_books_of_a_search(width, stop_ids, penalty, early, most, data):
    beams = BeamSearch(width, stop_ids, penalty, early, most)
    logprobs = st.floats(-9, 0).map(lambda value: round(value, 1))
    running: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    kept: dict[int, tuple[int, ...]] = {}
    for steps in itertools.count(1):
        tables = [data.draw(st.lists(logprobs, min_size=12, max_size=12)) for _ in running]
        best = [sorted(enumerate(table), key=lambda pair: -pair[1])[: beams.candidates] for table in tables]
        step = beams.advance(best)
        for found in step.finished:
            text, score = running[found.parent]
            kept[found.number] = (*text, found.token)
            assert found.length == steps == len(kept[found.number])
            assert found.stopped == (found.token in stop_ids)
            assert found.stopped or steps == most
            total = score + tables[found.parent][found.token]
            assert math.isclose(found.score, total / steps**penalty, abs_tol=1e-9)
        for beaten in step.dropped:
            del kept[beaten.number]
        scores = [score for _, _, score in step.children]
        assert scores == sorted(scores, reverse=True) == beams.running
        for parent, token, score in step.children:
            assert token not in stop_ids
            assert math.isclose(score, running[parent][1] + tables[parent][token], abs_tol=1e-9)
        # No continuation that was left out is better than one that runs on.
        everything = sorted(
            (
                score + table[token]
                for (_, score), table in zip(running, tables, strict=True)
                for token in range(12)
                if token not in stop_ids
            ),
            reverse=True,
        )
        if not step.done:
            assert scores == pytest.approx(everything[:width])
        running = [((*running[parent][0], token), score) for parent, token, score in step.children]
        assert len(set(running)) == len(running) <= width
        results = beams.results(width)
        assert {found.number for found in results} == set(kept)
        assert len(set(kept.values())) == len(kept) <= width
        assert [found.score for found in results] == sorted((found.score for found in results), reverse=True)
        assert step.done == beams.done == (not running)
        if step.done:
            break
    assert steps <= most
    assert len(kept) == width or most == 1
