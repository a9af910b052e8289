"""A request and the sequence that answers it, as the scheduler sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.block_table import BlockTable
from engine.messages import Sampling


class Status(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Sequence:
    """``tokens`` is the prompt and what was sampled since; ``computed`` of them have their keys and values in the cache.

    The last sampled token is never among the computed ones: its key and value are written by the step that runs it.
    """

    number: int
    request: Request
    tokens: list[int]
    table: BlockTable
    computed: int = 0

    @property
    def outputs(self) -> list[int]:
        return self.tokens[self.request.prompt_tokens :]

    @property
    def pending(self) -> int:
        """Tokens whose keys and values are still to be computed: 1 while decoding, more while prefilling."""
        return len(self.tokens) - self.computed

    @property
    def final_slots(self) -> int | None:
        """Slots written when the sequence ends, if that is known beforehand (paper section 6.1, "Oracle")."""
        sampling = self.request.sampling
        return self.request.prompt_tokens + sampling.max_tokens - 1 if sampling.ignore_eos else None


@dataclass(slots=True, eq=False)
class Request:
    """``prompt_tokens`` counts the prompt; ``seed`` is the sampling seed, drawn by the engine where none was given."""

    number: int
    prompt_tokens: int
    sampling: Sampling
    source: str
    seed: int
    stream: bool = False
    status: Status = Status.WAITING
    admitted: bool = False
    reason: str = ""
    sequences: list[Sequence] = field(default_factory=list)
