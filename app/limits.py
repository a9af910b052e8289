"""Bounds on what clients send, checked in one place for the socket and the API.

Each check returns nothing and raises ``Invalid`` with the value, the limit and the way out. Lengths in tokens are the
engine's to check: only it has the tokenizer.
"""

from __future__ import annotations

from app.errors import Invalid
from engine.messages import Memory

MAX_BLOCK_SIZE = 256
MAX_PACE_MS = 60_000
MAX_PRIORITY = 2**31 - 1
MAX_SALT_CHARS = 256
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


def check_memory(memory: Memory, max_slots: int, max_cpu_slots: int) -> None:
    """A visitor's arena: block size 1 to 256, at least one block, at most ``max_slots`` slots in all, and at most
    ``max_cpu_slots`` to swap to. What does not go together is the engine's to say."""
    size = memory.block_size
    check_whole("params.block_size", size, 1, MAX_BLOCK_SIZE, "Try 4, 8, 16 or 32.")
    check_whole("params.num_blocks", memory.num_blocks, 1, max_slots, "Ask for fewer blocks, at least one.")
    _check_slots("params.num_blocks", size, memory.num_blocks, max_slots, "an arena has")
    check_whole(
        "params.cpu_blocks", memory.cpu_blocks, 0, max_cpu_slots, "Ask for fewer blocks to swap to, or for none."
    )
    _check_slots("params.cpu_blocks", size, memory.cpu_blocks, max_cpu_slots, "an arena may swap to")
    check_whole("params.max_len", memory.max_len, 0, max_slots, "0 takes the longest sequence that may be.")
    check_whole(
        "params.prefill_chunk", memory.prefill_chunk, -1, MAX_TOKEN_ID, "0 takes what fits into a step, -1 never cuts."
    )


def _check_slots(field: str, block_size: int, blocks: int, most: int, whose: str) -> None:
    if block_size * blocks > most:
        raise Invalid(
            "arena_too_large",
            field,
            f"{blocks} blocks of {block_size} tokens are {block_size * blocks} slots; {whose} at most {most}. "
            f"With this block size ask for at most {most // block_size} blocks.",
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
        check_token_id(f"{field}[{index}]", token)


def check_token_id(field: str, token: int) -> None:
    """A number that some vocabulary could have."""
    check_whole(field, token, 0, MAX_TOKEN_ID, "Send ids of the model's own vocabulary.")


def check_priority(priority: int) -> None:
    """The least goes first."""
    check_whole("priority", priority, -MAX_PRIORITY, MAX_PRIORITY, "0 is everybody's; the least goes first.")


def check_salt(salt: str) -> None:
    """Any short text; empty for none."""
    if len(salt) > MAX_SALT_CHARS:
        raise Invalid(
            "out_of_range",
            "cache_salt",
            f"cache_salt has {len(salt)} characters; it may have {MAX_SALT_CHARS}. Send a shorter one, such as a digest.",
        )
    check_characters("cache_salt", salt)
