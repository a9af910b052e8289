"""Requests of the OpenAI-compatible API.

Nothing is ignored in silence. A parameter of OpenAI's that this server does not have may be sent with the value that
means "not used" (``n: 1``, ``tools: []``); any other value is refused by name. Parameters that never change a text
(``user``, ``metadata``, ...) are taken and have no effect here either.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from app.limits import show
from engine.messages import ChatTurn, Sampling

HARMLESS = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})

# Parameters that are not there, with the values that ask for nothing.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0),
    "function_call": (None, "none"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "n": (None, 1),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "presence_penalty": (None, 0),
    "reasoning_effort": (None, "none"),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
    "verbosity": (None, "medium"),
    "web_search_options": (None,),
}

Number = StrictFloat | StrictInt


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_usage: StrictBool = False
    include_obfuscation: StrictBool = False


class Generate(BaseModel):
    """What both kinds of completions share."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: StrictStr
    max_tokens: StrictInt | None = None
    temperature: Number | None = Field(None, description="0 is greedy; 1, the default, samples as the model says.")
    top_p: Number | None = None
    top_k: StrictInt | None = Field(None, description="An addition to OpenAI's; 0 keeps every token.")
    seed: StrictInt | None = None
    stop: StrictStr | list[StrictStr] | None = None
    ignore_eos: StrictBool | None = Field(None, description="An addition to OpenAI's; write on past the end token.")
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None

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
            elif not any(value == neutral and type(value) is type(neutral) for neutral in _widened(NEUTRAL[name])):
                raise PydanticCustomError(
                    "unsupported",
                    "{param} is {value}, which this server does not support; leave it out.",
                    {"param": name, "value": show(value)},
                )
        return kept

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> Generate:
        if self.stream_options is not None and not self.stream:
            raise PydanticCustomError(
                "unsupported",
                "{param} is only for streams; set stream to true or leave it out.",
                {"param": "stream_options"},
            )
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self, max_tokens: int) -> Sampling:
        """As the engine wants it, with OpenAI's defaults and unchecked. ``max_tokens``: where the request names none."""
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Sampling(
            max_tokens=max_tokens if self.max_tokens is None else self.max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k or 0,
            seed=self.seed,
            stop=stop,
            ignore_eos=bool(self.ignore_eos),
        )


class CompletionRequest(Generate):
    """``POST /v1/completions``. ``prompt``: a text or a list of token ids, alone or as the only member of a list."""

    prompt: StrictStr | list[StrictInt] | list[StrictStr] | list[list[StrictInt]]

    def single_prompt(self) -> str | list[int]:
        """The one prompt. Raises PydanticCustomError's sibling ValueError with the count when there are several."""
        prompt: Any = self.prompt
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise ValueError(
                    f"prompt lists {len(prompt)} prompts; this server takes 1 in a request. Send one each."
                )
            return prompt[0]  # type: ignore[no-any-return]
        return prompt  # type: ignore[no-any-return]


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

    @model_validator(mode="after")
    def _one_limit(self) -> ChatRequest:
        if self.max_completion_tokens is not None:
            if self.max_tokens not in (None, self.max_completion_tokens):
                raise PydanticCustomError(
                    "unsupported",
                    "max_tokens and {param} are two names of one limit and differ; send one of them.",
                    {"param": "max_completion_tokens"},
                )
            self.max_tokens = self.max_completion_tokens
        return self


def _widened(values: tuple[object, ...]) -> tuple[object, ...]:
    """JSON has one kind of number: 0 and 0.0 say the same, though neither says ``false``."""
    return values + tuple(float(value) for value in values if type(value) is int)
