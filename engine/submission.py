"""What can never run here is refused when it is submitted, with the numbers that say why."""

from __future__ import annotations

from dataclasses import dataclass

from engine.decoding.sampling import check
from engine.memory.memory_manager import MemoryManager
from engine.sequence import Request


class Refused(Exception):
    """A request that cannot be taken. ``code`` and ``field`` are for programs, the message is for people."""

    def __init__(self, code: str, field: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_model_len``: tokens of one sequence, prompt and output. ``max_sequences``: running at once. ``max_waiting``:
    requests. ``eos``: tokens that end a text. ``vocabulary``: its size, 0 if tokens are not to be checked."""

    max_model_len: int
    max_sequences: int = 32
    max_waiting: int = 256
    eos: frozenset[int] = frozenset()
    vocabulary: int = 0


def check_request(request: Request, manager: MemoryManager, limits: Limits, waiting: int) -> None:
    """Raises Refused for a request that could never be served, whatever else happens in its arena.

    ``request.sequences`` holds the prompt; ``waiting`` requests stand in the queue already.
    """
    prompt = request.prompt_tokens
    if not prompt:
        raise Refused("empty_prompt", "prompt", "the prompt has 0 tokens and the least is 1: write something")
    wrong = check(request.sampling, limits.vocabulary or None)
    if wrong:
        raise Refused("invalid_value", *wrong)
    limit = limits.max_model_len
    if prompt >= limit:
        raise Refused(
            "prompt_too_long",
            "prompt",
            f"the prompt has {prompt} tokens and the model's limit is {limit} for prompt and answer together: "
            f"shorten it to at most {limit - 1} tokens",
        )
    if request.width > limits.max_sequences:
        field = "best_of" if request.sampling.best_of else "n"
        raise Refused(
            "too_many_sequences",
            field,
            f"{field} is {request.width} and at most {limits.max_sequences} sequences run at once here: ask for fewer",
        )
    longest = manager.longest(request)
    if longest is not None and prompt >= longest:
        raise Refused(
            "prompt_too_long",
            "prompt",
            f"the prompt has {prompt} tokens and {manager.name} gives a request {longest} slots for prompt and answer "
            f"together: shorten it to at most {longest - 1} tokens",
        )
    never = manager.why_never(request)
    if never:
        raise Refused("prompt_too_long", "prompt", never)
    if waiting >= limits.max_waiting:
        raise Refused(
            "queue_full",
            "prompt",
            f"{waiting} requests wait in this memory and the limit is {limits.max_waiting}: try again when some have ended",
        )
