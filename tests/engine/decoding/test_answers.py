"""What the clients of streamed requests read: text cut at its end, reasons, ranked answers, and exactly one last word."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from engine.decoding.sampling import Picked
from engine.decoding.text import Vocabulary
from engine.events import Preempted, TokenGenerated
from engine.messages import Echo, Output
from engine.model.tiny_model import build
from engine.scheduler import Chunk
from tests.engine.conformance.rigs import busy
from tests.engine.harness import Rig, Token

END = 256


@cache
def vocabulary() -> Vocabulary:
    """One token for each byte, and the end token."""
    return Vocabulary(build(0)[1])


class Told(Rig):
    """A rig whose samples say ``texts``, one each ("$" is the end token), and think of their tokens as ``scores`` say."""

    def __init__(self, *texts: str, scores: tuple[float, ...] = (), **options: Any) -> None:
        options = {"num_blocks": 40, "block_size": 4} | options
        super().__init__(vocabulary=vocabulary(), eos=frozenset([END]), **options)
        self.texts = [[END if letter == "$" else vocabulary().encode(letter)[0] for letter in text] for text in texts]
        self.scores = scores or (-0.5,) * len(texts)
        self.heard: list[Any] = []

    def ask(self, prompt: str = "ask", max_tokens: int = 20, **sampling: Any) -> int:
        return self.submit(vocabulary().encode(prompt), max_tokens, stream=True, **sampling)

    def settle(self) -> None:
        super().settle()
        self.heard += self.arena.take_outputs()

    def outputs_of(self, number: int) -> list[Output]:
        return [message for message in self.heard if isinstance(message, Output) and message.request == number]

    def text(self, number: int, index: int = 0) -> str:
        return "".join(output.text for output in self.outputs_of(number) if output.index == index)

    def ends(self, number: int) -> list[tuple[int, str | None, int | str | None, bool]]:
        """(index, finish, stop reason, last) of each end, in order."""
        told = self.outputs_of(number)
        return [(one.index, one.finish, one.stop_reason, one.last) for one in told if one.finish]

    def _pick(self, chunk: Chunk, token: Token) -> Picked:
        row = self.arena.decoding.row(chunk.sequence)
        if row.candidates or not self.texts:
            return super()._pick(chunk, token)
        at = len(row.outputs)
        return Picked(tokens=[(self.texts[sample][at], self.scores[sample]) for sample in row.samples])


def token_id(letter: str) -> int:
    return vocabulary().encode(letter)[0]


def test_text_comes_as_it_is_sampled():
    rig = Told("hello")
    number = rig.ask(max_tokens=5)
    rig.run()
    assert [(one.text, one.tokens) for one in rig.outputs_of(number)] == [
        *((letter, [token_id(letter)]) for letter in "hello"),
        ("", []),
    ]
    assert rig.ends(number) == [(0, "length", None, True)]


def test_the_end_token_is_told_and_leaves_no_text():
    rig = Told("hi$")
    number = rig.ask()
    rig.run()
    assert rig.text(number) == "hi"
    assert rig.outputs_of(number)[-2].tokens == [END]
    assert rig.ends(number) == [(0, "stop", None, True)]


def test_a_stop_id_is_the_reason_and_leaves_no_text():
    rig = Told("one.two")
    number = rig.ask(stop_token_ids=[token_id(".")])
    rig.run()
    assert rig.text(number) == "one"
    assert rig.ends(number) == [(0, "stop", token_id("."), True)]


def test_a_stop_string_is_the_reason_and_cuts_the_text_before_it():
    rig = Told("one. two")
    number = rig.ask(stop=["zzz", ". "])
    rig.run()
    assert rig.text(number) == "one"
    assert rig.ends(number) == [(0, "stop", ". ", True)]
    assert len(rig.outputs(number)) == len("one. ")


def test_what_was_held_back_for_a_stop_string_is_told_at_the_end():
    rig = Told("an en")
    number = rig.ask(max_tokens=5, stop=["end"])
    rig.run()
    assert rig.text(number) == "an en"
    assert rig.ends(number) == [(0, "length", None, True)]


@pytest.mark.parametrize(("least", "text"), [(2, "a"), (3, "a.b"), (4, "a.b")])
def test_before_min_tokens_a_stop_id_is_a_token_like_any_other(least, text):
    rig = Told("a.b.c")
    number = rig.ask(min_tokens=least, stop_token_ids=[token_id(".")])
    rig.run()
    assert rig.text(number) == text
    assert rig.ends(number) == [(0, "stop", token_id("."), True)]


@pytest.mark.parametrize(("least", "text"), [(0, "a"), (2, "a"), (3, "a.b"), (4, "a.b"), (5, "a.b.c")])
def test_before_min_tokens_a_stop_string_does_not_stop(least, text):
    rig = Told("a.b.c")
    number = rig.ask(max_tokens=5, min_tokens=least, stop=["."])
    rig.run()
    assert rig.text(number) == text
    assert rig.ends(number) == [(0, "length", None, True) if least == 5 else (0, "stop", ".", True)]


def test_samples_end_one_by_one_and_the_last_of_them_ends_the_request():
    rig = Told("one$", "two four", "x$")
    number = rig.ask(n=3, stop=[" f"])
    rig.run()
    assert [rig.text(number, index) for index in range(3)] == ["one", "two", "x"]
    assert rig.ends(number) == [(2, "stop", None, False), (0, "stop", None, False), (1, "stop", " f", True)]


def test_the_likeliest_of_best_of_are_answered_best_first_and_only_at_the_end():
    rig = Told("worst$", "second.", "best$", "cut off", scores=(-3.0, -1.0, -0.5, -2.0))
    number = rig.ask(n=2, best_of=4, max_tokens=7, stop=["."])
    while rig.running() or rig.waiting():
        assert rig.outputs_of(number) == []
        rig.step()
    assert [one.text for one in rig.outputs_of(number)] == ["best", "second"]
    assert rig.ends(number) == [(0, "stop", None, False), (1, "stop", ".", True)]
    assert rig.outputs_of(number)[0].tokens == rig.texts[2]


def test_beams_are_answered_best_first():
    rig = Told()
    number = rig.ask(n=2, best_of=3, beam_search=True, max_tokens=3)
    # Candidates are ``token`` upwards, each less likely by 0.1.
    rig.run(token=token_id("a"))
    assert [one.text for one in rig.outputs_of(number)] == ["aaa", "aab"]
    assert rig.ends(number) == [(0, "length", None, False), (1, "length", None, True)]


def test_the_prompt_is_echoed_once_before_the_first_output():
    rig = Told("x$", "yz$")
    number = rig.ask("the prompt", n=2, echo=True)
    rig.run()
    assert rig.heard[0] == Echo("rig", number, "the prompt")
    assert [type(message) for message in rig.heard].count(Echo) == 1


def test_a_request_that_outgrows_memory_says_so():
    rig = Told("a" * 50, num_blocks=4)
    number = rig.ask("ask", max_tokens=50)
    rig.run()
    assert rig.text(number) == "a" * 14
    assert rig.ends(number) == [(0, "capacity", None, True)]


@pytest.mark.parametrize("kind", [{"n": 2, "best_of": 3}, {"n": 2, "beam_search": True}])
def test_ranked_answers_cut_by_capacity_or_abort_say_so(kind):
    said = ("abcdefgh" * 9,) * 3
    rig = Told(*said, num_blocks=6)
    number = rig.ask(max_tokens=70, **kind)
    rig.run(token=token_id("a"))
    assert [(index, finish, last) for index, finish, _, last in rig.ends(number)] == [
        (0, "capacity", False),
        (1, "capacity", True),
    ]
    rig = Told(*said)
    number = rig.ask(max_tokens=70, **kind)
    for _ in range(5):
        rig.step(token_id("a"))
    rig.abort(number)
    assert rig.ends(number) == [(0, "abort", None, True)]


def test_an_abort_ends_every_sample_that_goes_on():
    rig = Told("abcdefgh", "x$", "abcdefgh")
    number = rig.ask(n=3)
    for _ in range(3):
        rig.step()
    rig.abort(number)
    assert rig.ends(number) == [(1, "stop", None, False), (0, "abort", None, False), (2, "abort", None, True)]


def test_what_is_computed_again_is_not_told_again():
    rig = Told("abcdefghijklmnop", num_blocks=8)
    rig.ask(max_tokens=16)
    victim = rig.ask(max_tokens=16)
    rig.run()
    assert [event.request for event in rig.events(Preempted)] == [victim]
    assert rig.text(victim) == "abcdefghijklmnop"
    assert len([event for event in rig.events(TokenGenerated) if event.sequence == 1]) == 16


def test_the_last_output_counts_the_cached_tokens_of_the_prompt():
    rig = Told("abc", prefix_cache=True)
    first = rig.ask("shared part", max_tokens=1)
    rig.run()
    second = rig.ask("shared parts", max_tokens=3)
    rig.run()
    assert [rig.outputs_of(number)[-1].cached_tokens for number in (first, second)] == [0, 8]
    assert [output.cached_tokens for output in rig.outputs_of(second)[:-1]] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_every_streamed_request_has_exactly_one_last_word(seed):
    rig = Told(num_blocks=14, cpu_blocks=(0, 12)[seed % 2], prefix_cache=True)
    busy(rig, seed, stream=True)
    last = [message.request for message in rig.heard if isinstance(message, Output) and message.last]
    assert Counter(last) == Counter(range(18))
    for number in range(18):
        assert rig.outputs_of(number)[-1].last
