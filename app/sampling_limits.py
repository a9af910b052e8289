"""Bounds on how a client may have tokens chosen: what costs the server something, and every range.

As in ``limits`` each check raises ``Invalid`` with the value, the limit and the way out. What does not go together (beam
search and top-p), and which tokens there are, is the engine's to say.
"""

from __future__ import annotations

from app.errors import Invalid
from app.limits import check_characters, check_number, check_token_id, check_whole
from engine.messages import Sampling

MAX_BIASES = 300
MAX_LOGPROBS = 20
MAX_OUTPUT = 1_000_000
MAX_SEED = 2**63 - 1
MAX_STOPS = 4
MAX_STOP_CHARS = 256
MAX_STOP_TOKENS = 64

# Field, least, most, the way out.
NUMBERS: tuple[tuple[str, float, float, str], ...] = (
    ("temperature", 0, 2, "0 is greedy, 1 samples as the model says."),
    ("top_p", 0, 1, "1 keeps every token."),
    ("min_p", 0, 1, "0 keeps every token."),
    ("repetition_penalty", 0.01, 100, "1 is none; above it repeating gets harder."),
    ("presence_penalty", -2, 2, "0 is none."),
    ("frequency_penalty", -2, 2, "0 is none."),
    ("length_penalty", -10, 10, "1 divides a beam's score by its length."),
)


def check_sampling(sampling: Sampling, max_samples: int) -> None:
    """Everything in ``Sampling`` but its logprobs. ``max_samples``: sequences that one prompt may have at once."""
    check_whole("max_tokens", sampling.max_tokens, 1, MAX_OUTPUT, "Ask for at least one token.")
    check_whole("min_tokens", sampling.min_tokens, 0, sampling.max_tokens, "It cannot be above max_tokens.")
    for field, low, high, way_out in NUMBERS:
        check_number(field, getattr(sampling, field), low, high, way_out)
    if sampling.top_p == 0:
        raise Invalid(
            "out_of_range",
            "top_p",
            "top_p is 0; it must be above 0 and at most 1. For greedy decoding set temperature to 0.",
        )
    check_whole("top_k", sampling.top_k, 0, MAX_OUTPUT, "0 keeps every token.")
    if sampling.seed is not None:
        check_whole("seed", sampling.seed, 0, MAX_SEED, "Leave it out to have one drawn.")
    _check_width(sampling, max_samples)
    _check_bias(sampling.logit_bias)
    _check_stops(sampling)


def check_logprobs(field: str, count: int) -> None:
    """How many of the likeliest tokens are told for each token; 0 for the sampled one alone."""
    check_whole(field, count, 0, MAX_LOGPROBS, "Ask for fewer of the likeliest tokens.")


def _check_width(sampling: Sampling, max_samples: int) -> None:
    check_whole("n", sampling.n, 1, max_samples, "Ask for fewer answers, or send the request again for more.")
    if sampling.best_of:
        what = "beams" if sampling.beam_search else "samples, of which the n best are answered"
        check_whole("best_of", sampling.best_of, sampling.n, max_samples, f"It is the number of {what}.")


def _check_bias(bias: dict[int, float]) -> None:
    if len(bias) > MAX_BIASES:
        raise Invalid(
            "too_many_biases",
            "logit_bias",
            f"logit_bias names {len(bias)} tokens; the limit is {MAX_BIASES}. Keep those that matter most.",
        )
    for token, value in bias.items():
        check_token_id("logit_bias", token)
        check_number("logit_bias", value, -100, 100, f"It is that of token {token}; -100 forbids a token.")


def _check_stops(sampling: Sampling) -> None:
    for field, stops, most in (
        ("stop", sampling.stop, MAX_STOPS),
        ("stop_token_ids", sampling.stop_token_ids, MAX_STOP_TOKENS),
    ):
        if len(stops) > most:
            raise Invalid(
                "too_many_stops",
                field,
                f"{field} lists {len(stops)} of them; the limit is {most}. Keep the most telling ones.",
            )
    for token in sampling.stop_token_ids:
        check_token_id("stop_token_ids", token)
    for stop in sampling.stop:
        if not 1 <= len(stop) <= MAX_STOP_CHARS:
            raise Invalid(
                "out_of_range",
                "stop",
                f"a string in stop has {len(stop)} characters; it must have 1 to {MAX_STOP_CHARS}. "
                "Leave out empty ones and shorten long ones.",
            )
        check_characters("stop", stop)
