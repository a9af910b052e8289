"""A request and the sequences that answer it, as the scheduler sees them: the paper's sequence group (section 4.5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.memory.block_table import BlockTable
from engine.messages import Sampling


class Status(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    FINISHED = "finished"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Sequence:
    """``tokens`` is the prompt and what was sampled since; ``computed`` of them have their keys and values in the cache.

    The last sampled token is never among the computed ones: its key and value are written by the step that runs it.
    ``sample`` numbers the sequences of a request for their random numbers. ``logprob`` sums up those of the outputs.
    ``finish``: why it ended, "" while it lives; ``stop_reason``: the stop string or the stop token that ended it.
    """

    number: int
    request: Request
    tokens: list[int]
    table: BlockTable
    computed: int = 0
    sample: int = 0
    logprob: float = 0.0
    finish: str = ""
    stop_reason: int | str | None = None

    @property
    def outputs(self) -> list[int]:
        return self.tokens[self.request.prompt_tokens :]

    @property
    def pending(self) -> int:
        """Tokens whose keys and values are still to be computed: 1 while decoding, more while prefilling."""
        return len(self.tokens) - self.computed

    @property
    def decodes(self) -> bool:
        """Whether it lives and all but its last sampled token is computed."""
        return not self.finish and bool(self.outputs) and self.pending == 1

    @property
    def final_slots(self) -> int | None:
        """Slots written when the sequence ends, if that is known beforehand (paper section 6.1, "Oracle")."""
        request = self.request
        sampling = request.sampling
        known = sampling.ignore_eos and not (sampling.stop or sampling.stop_token_ids or sampling.beam_search)
        return request.most_slots if known else None


@dataclass(slots=True, eq=False)
class Request:
    """A prompt and the ``width`` sequences that may answer it at once; they are scheduled and preempted together.

    ``max_tokens`` is the wish, cut to what the model's length leaves. ``trunk``: tokens from the start that its sequences
    share and that the first one computes for all; the others fork from it there. ``branched``: they have, so that none is
    still to come. ``seed`` is the sampling seed, drawn by the engine where none was given. ``admitted``: it has run, so its
    sequences are known outside. ``registers``: a prefix to be kept; nothing is sampled.
    """

    number: int
    prompt_tokens: int
    sampling: Sampling
    source: str
    seed: int
    max_tokens: int
    stream: bool = False
    echo: bool = False
    priority: int = 0
    cache_salt: str = ""
    status: Status = Status.WAITING
    admitted: bool = False
    reason: str = ""
    cached_tokens: int = 0
    trunk: int = 0
    branched: bool = False
    registers: bool = False
    sequences: list[Sequence] = field(default_factory=list)

    @property
    def width(self) -> int:
        return self.sampling.width

    @property
    def ranked(self) -> bool:
        """Whether its answers are known only at the end: the best of more sequences than were asked for."""
        return self.sampling.beam_search or self.width > self.sampling.n

    @property
    def live(self) -> list[Sequence]:
        """The sequences that go on, in the order of their numbers."""
        return [sequence for sequence in self.sequences if not sequence.finish]

    @property
    def reads_prompt_logits(self) -> bool:
        """Whether every token of the prompt must be run for its log probability, cached or not."""
        return self.echo and self.sampling.logprobs is not None

    @property
    def ended(self) -> bool:
        return self.status in (Status.FINISHED, Status.ABORTED)

    @property
    def most_slots(self) -> int:
        """Slots that one of its sequences writes at most: the last sampled token needs none."""
        return self.prompt_tokens + self.max_tokens - 1

    @property
    def key(self) -> tuple[int, int]:
        """The order of service: by priority, and first come, first served."""
        return self.priority, self.number
