"""Requests of the OpenAI-compatible API.

Nothing is ignored in silence. A parameter that this server does not have may be sent with the value that means "not used"
(``suffix: ""``, ``tools: []``); any other value is refused by name. Parameters that never change a text (``user``,
``metadata``, ...) are taken and have no effect here either. What OpenAI does not have is named as vLLM names it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from app import limits, sampling_limits
from app.errors import Invalid
from app.limits import show
from engine.messages import ChatTurn, Sampling

HARMLESS = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})

# Parameters that are not there, with the values that ask for nothing.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "audio": (None,),
    "function_call": (None, "none"),
    "functions": (None, []),
    "include_stop_str_in_output": (None, False),
    "modalities": (None, ["text"]),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "prompt_logprobs": (None,),
    "reasoning_effort": (None, "none"),
    "response_format": (None, {"type": "text"}),
    "skip_special_tokens": (None, True),
    "spaces_between_special_tokens": (None, True),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "truncate_prompt_tokens": (None,),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}

MAX_TOKEN_DIGITS = 10
Number = StrictFloat | StrictInt


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_usage: StrictBool = False
    include_obfuscation: StrictBool = False


class Generate(BaseModel):
    """What both kinds of completions share. ``None`` is OpenAI's default everywhere."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: StrictStr
    max_tokens: StrictInt | None = None
    temperature: Number | None = Field(None, description="0 is greedy; 1, the default, samples as the model says.")
    top_p: Number | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    logit_bias: dict[StrictStr, Number] | None = None
    seed: StrictInt | None = None
    stop: StrictStr | list[StrictStr] | None = None
    n: StrictInt | None = Field(None, description="Answers to each prompt.")
    best_of: StrictInt | None = Field(None, description="Samples, or beams, of which the n likeliest are answered.")
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None

    top_k: StrictInt | None = Field(None, description="An addition to OpenAI's; 0 and -1 keep every token.")
    min_p: Number | None = Field(None, description="An addition to OpenAI's.")
    repetition_penalty: Number | None = Field(None, description="An addition to OpenAI's; 1 is none.")
    min_tokens: StrictInt | None = Field(None, description="An addition to OpenAI's; no end before so many.")
    stop_token_ids: list[StrictInt] | None = Field(None, description="An addition to OpenAI's; tokens that end a text.")
    ignore_eos: StrictBool | None = Field(None, description="An addition to OpenAI's; write on past the end token.")
    use_beam_search: StrictBool | None = Field(None, description="An addition to OpenAI's; best_of or n beams, greedy.")
    length_penalty: Number | None = Field(None, description="An addition to OpenAI's, for beam search.")
    early_stopping: StrictBool | Literal["never"] | None = Field(
        None, description="An addition to OpenAI's, for beam search."
    )
    priority: StrictInt | None = Field(
        None, description="An addition to OpenAI's; of the waiting the least goes first."
    )
    cache_salt: StrictStr | None = Field(
        None, description="An addition to OpenAI's; cached prefixes are shared only among requests of one salt."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_is_not_there(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        kept = {}
        for name, value in body.items():
            if name in HARMLESS:
                continue
            if name not in NEUTRAL:
                kept[name] = value
            elif not any(value == neutral and type(value) is type(neutral) for neutral in NEUTRAL[name]):
                raise _unsupported(name, f"is {show(value)}, which this server does not support; leave it out.")
        return kept

    @model_validator(mode="after")
    def _what_goes_together(self) -> Generate:
        if self.stream_options is not None:
            if not self.stream:
                raise _unsupported("stream_options", "is only for streams; set stream to true or leave it out.")
            if self.stream_options.include_obfuscation:
                raise _unsupported("stream_options.include_obfuscation", "is not to be had here; leave it out.")
        if not self.use_beam_search:
            for name, idle in (("length_penalty", 1), ("early_stopping", False)):
                if (value := getattr(self, name)) is not None and value != idle:
                    raise _unsupported(name, "is only for beam search; set use_beam_search to true or leave it out.")
        if self.stream and (self.use_beam_search or (self.best_of or 1) > (self.n or 1)):
            what = "beam search" if self.use_beam_search else "best_of above n"
            raise _unsupported("stream", f"cannot go with {what}, which knows its answers at its end; set it to false.")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def scores_only(self) -> bool:
        """Whether nothing is to be written: with ``echo``, ``max_tokens`` 0 asks for the prompt's log probabilities."""
        return False

    @abstractmethod
    def logprobs_wanted(self) -> int | None:
        """How many of the likeliest tokens to tell for each token; None for no log probabilities at all."""

    def sampling(self, max_tokens: int, max_samples: int) -> Sampling:
        """As the engine wants it, with OpenAI's defaults, checked. ``max_tokens``: where the request names none.

        Raises Invalid.
        """
        greedy = bool(self.use_beam_search)
        if self.max_tokens is not None:
            # The first token comes with the prompt's own pass, so the engine writes one where none is wanted.
            max_tokens = 1 if self.scores_only else self.max_tokens
        sampling = Sampling(
            max_tokens=max_tokens,
            min_tokens=self.min_tokens or 0,
            temperature=_or(self.temperature, 0.0 if greedy else 1.0),
            top_p=_or(self.top_p, 1.0),
            top_k=0 if self.top_k in (None, -1) else self.top_k,
            min_p=_or(self.min_p, 0.0),
            repetition_penalty=_or(self.repetition_penalty, 1.0),
            presence_penalty=_or(self.presence_penalty, 0.0),
            frequency_penalty=_or(self.frequency_penalty, 0.0),
            logit_bias=_biases(self.logit_bias or {}),
            seed=self.seed,
            stop=[self.stop] if isinstance(self.stop, str) else self.stop or [],
            stop_token_ids=self.stop_token_ids or [],
            ignore_eos=bool(self.ignore_eos),
            n=1 if self.n is None else self.n,
            best_of=self.best_of or 0,
            logprobs=self.logprobs_wanted(),
            beam_search=greedy,
            length_penalty=_or(self.length_penalty, 1.0),
            early_stopping=str(self.early_stopping or False).lower(),
        )
        if self.best_of == 0:
            limits.check_whole("best_of", 0, 1, max_samples, "Leave it out for as many samples as n.")
        sampling_limits.check_sampling(sampling, max_samples)
        limits.check_priority(self.priority or 0)
        limits.check_salt(self.cache_salt or "")
        return sampling


class CompletionRequest(Generate):
    """``POST /v1/completions``. ``prompt``: a text or a list of token ids, or a list of several of either."""

    prompt: StrictStr | list[StrictInt] | list[StrictStr] | list[list[StrictInt]]
    echo: StrictBool | None = Field(None, description="Begin each answer with its prompt.")
    logprobs: StrictInt | None = Field(None, description="How many of the likeliest tokens to tell for each token.")

    def prompts(self) -> list[str | list[int]]:
        """Each prompt; an empty list of them counts as one prompt without tokens."""
        prompt: Any = self.prompt
        several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
        return prompt if several else [prompt]

    @property
    def scores_only(self) -> bool:
        return bool(self.echo) and self.max_tokens == 0

    def logprobs_wanted(self) -> int | None:
        if self.logprobs is not None:
            sampling_limits.check_logprobs("logprobs", self.logprobs)
        return self.logprobs


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: StrictStr


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: StrictStr | list[TextPart]

    def turn(self) -> ChatTurn:
        """For the chat template; ``developer`` is what newer clients call ``system``."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return ChatTurn("system" if self.role == "developer" else self.role, text)


class ChatRequest(Generate):
    """``POST /v1/chat/completions``."""

    messages: list[ChatMessage]
    max_completion_tokens: StrictInt | None = Field(None, description="OpenAI's newer name of max_tokens.")
    logprobs: StrictBool | None = Field(None, description="Whether to tell each token's log probability.")
    top_logprobs: StrictInt | None = Field(None, description="How many of the likeliest tokens to tell beside it.")

    @model_validator(mode="after")
    def _names_that_agree(self) -> ChatRequest:
        if self.max_completion_tokens is not None:
            if self.max_tokens not in (None, self.max_completion_tokens):
                raise PydanticCustomError(
                    "unsupported",
                    "max_tokens and {param} are two names of one limit and differ; send one of them.",
                    {"param": "max_completion_tokens"},
                )
            self.max_tokens = self.max_completion_tokens
        if self.top_logprobs and not self.logprobs:
            raise _unsupported("top_logprobs", "needs logprobs; set logprobs to true or leave it out.")
        return self

    def logprobs_wanted(self) -> int | None:
        if self.top_logprobs is not None:
            sampling_limits.check_logprobs("top_logprobs", self.top_logprobs)
        return (self.top_logprobs or 0) if self.logprobs else None


def _unsupported(param: str, why: str) -> PydanticCustomError:
    # Put in as a value, since words of the client's own may have braces.
    return PydanticCustomError("unsupported", "{param} {why}", {"param": param, "why": why})


def _or(value: Number | None, default: float) -> float:
    return default if value is None else value


def _biases(biases: dict[str, Number]) -> dict[int, float]:
    """JSON has texts for keys. Raises Invalid for one that is no token id."""
    known: dict[int, float] = {}
    for key, value in biases.items():
        if not (key.isascii() and key.isdigit() and len(key) <= MAX_TOKEN_DIGITS):
            raise Invalid(
                "wrong_type",
                "logit_bias",
                f"logit_bias has the key {show(key)}; write each key as a token id, as '42'.",
            )
        known[int(key)] = value
    return known
