"""Bounds on what clients send, checked in one place for the socket and the API.

Each check returns nothing and raises ``Invalid`` with the value, the limit and the way out. Lengths in tokens are the
engine's to check: only it has the tokenizer.
"""

from __future__ import annotations

from app.errors import Invalid
from engine.messages import Sampling

MAX_BLOCK_SIZE = 256
MAX_PACE_MS = 60_000
MAX_STOPS = 4
MAX_STOP_CHARS = 256
MAX_TEMPERATURE = 2.0
MAX_SEED = 2**63 - 1
MAX_OUTPUT = 1_000_000
MAX_TOKEN_ID = 2**31 - 1
MAX_SHOWN = 40


def show(value: object) -> str:
    """``value`` as Python writes it, cut to a length that fits into a sentence."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or lists in lists without end
        return f"a very large {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def check_whole(field: str, value: int, low: int, high: int, way_out: str) -> None:
    """``low <= value <= high``, or ``Invalid`` with ``out_of_range``."""
    if not low <= value <= high:
        raise Invalid(
            "out_of_range", field, f"{field} is {show(value)}; it must lie between {low} and {high}. {way_out}"
        )


def check_number(field: str, value: float, low: float, high: float, way_out: str) -> None:
    """As ``check_whole`` for a finite real number, written as an integer perhaps, of any size."""
    if not low <= value <= high:  # nor is NaN
        shown = f"{value:g}" if isinstance(value, float) else show(value)
        raise Invalid("out_of_range", field, f"{field} is {shown}; it must lie between {low:g} and {high:g}. {way_out}")


def check_geometry(block_size: int, num_blocks: int, max_slots: int, prefix: str = "params.") -> None:
    """A visitor's arena: block size 1 to 256, at least one block, at most ``max_slots`` slots in all."""
    check_whole(f"{prefix}block_size", block_size, 1, MAX_BLOCK_SIZE, "Try 4, 8, 16 or 32.")
    check_whole(f"{prefix}num_blocks", num_blocks, 1, max_slots, "Ask for fewer blocks, at least one.")
    if block_size * num_blocks > max_slots:
        raise Invalid(
            "arena_too_large",
            f"{prefix}num_blocks",
            f"{num_blocks} blocks of {block_size} tokens are {block_size * num_blocks} slots; an arena has at most "
            f"{max_slots}. With this block size ask for at most {max_slots // block_size} blocks.",
        )


def check_pace(pace_ms: float, field: str = "params.pace_ms") -> None:
    """Milliseconds between steps: 0 (none) to a minute."""
    check_number(field, pace_ms, 0, MAX_PACE_MS, "0 runs as fast as the engine can; pause stops an arena.")


def check_text(field: str, text: str, max_chars: int) -> None:
    """A prompt in text: not blank, at most ``max_chars`` characters, all of them characters."""
    if not text.strip():
        raise Invalid("empty_prompt", field, f"{field} is empty: send at least one character that is not a space.")
    if len(text) > max_chars:
        raise Invalid(
            "prompt_too_long",
            field,
            f"{field} has {len(text)} characters; the limit is {max_chars}. Shorten it by {len(text) - max_chars}.",
        )
    check_characters(field, text)


def check_characters(field: str, text: str) -> None:
    """No half of a surrogate pair: JSON can write one, but no UTF-8 text can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(
            "invalid_text",
            field,
            f"{field} has half of a surrogate pair, U+{ord(text[error.start]):04X}, at character {error.start}; only "
            "whole characters can be written. Send the pair or leave the half out.",
        ) from None


def check_token_ids(field: str, ids: list[int], max_ids: int) -> None:
    """A prompt in token ids; whether the vocabulary has them is the engine's to say."""
    if not 1 <= len(ids) <= max_ids:
        raise Invalid(
            "prompt_too_long" if ids else "empty_prompt",
            field,
            f"{field} has {len(ids)} tokens; it must have 1 to {max_ids}. Send a text or token ids.",
        )
    for index, token in enumerate(ids):
        check_whole(f"{field}[{index}]", token, 0, MAX_TOKEN_ID, "Send ids of the model's own vocabulary.")


def check_sampling(sampling: Sampling, prefix: str = "") -> None:
    """Ranges of everything in ``Sampling``; whether the outputs fit is the engine's to say."""
    check_whole(f"{prefix}max_tokens", sampling.max_tokens, 1, MAX_OUTPUT, "Ask for at least one token.")
    check_number(
        f"{prefix}temperature", sampling.temperature, 0, MAX_TEMPERATURE, "0 is greedy, 1 samples as the model says."
    )
    check_number(f"{prefix}top_p", sampling.top_p, 0, 1, "1 keeps every token.")
    if sampling.top_p == 0:
        raise Invalid(
            "out_of_range",
            f"{prefix}top_p",
            f"{prefix}top_p is 0; it must be above 0 and at most 1. For greedy decoding set temperature to 0.",
        )
    check_whole(f"{prefix}top_k", sampling.top_k, 0, MAX_OUTPUT, "0 keeps every token.")
    if sampling.seed is not None:
        check_whole(f"{prefix}seed", sampling.seed, 0, MAX_SEED, "Leave it out to have one drawn.")
    if len(sampling.stop) > MAX_STOPS:
        raise Invalid(
            "too_many_stops",
            f"{prefix}stop",
            f"{prefix}stop lists {len(sampling.stop)} strings; the limit is {MAX_STOPS}. Keep the most telling ones.",
        )
    for stop in sampling.stop:
        if not 1 <= len(stop) <= MAX_STOP_CHARS:
            raise Invalid(
                "out_of_range",
                f"{prefix}stop",
                f"a string in {prefix}stop has {len(stop)} characters; it must have 1 to {MAX_STOP_CHARS}. "
                "Leave out empty ones and shorten long ones.",
            )
        check_characters(f"{prefix}stop", stop)
