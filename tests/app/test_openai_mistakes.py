"""Everything that a client can get wrong in a request to the API, and what it is told."""

from __future__ import annotations

import json
from typing import Any

from tests.app.conftest import Site

MODEL = "fake-model"
CHAT = [{"role": "user", "content": "1 word"}]

# Path, body, status, the parameter at fault, its code, and what the message must say.
BAD: list[tuple[str, Any, int, str | None, str, list[str]]] = [
    ("completions", "{", 400, None, "bad_json", ["not JSON"]),
    ("completions", {"model": "gpt-9", "prompt": "x"}, 404, "model", "model_not_found", ["gpt-9", MODEL]),
    ("completions", {"prompt": "x"}, 400, "model", "missing_parameter", ["model", "add it"]),
    ("completions", {"model": MODEL}, 400, "prompt", "missing_parameter", ["prompt", "add it"]),
    ("completions", {"model": MODEL, "prompt": ""}, 400, "prompt", "empty_prompt", ["at least one"]),
    ("completions", {"model": MODEL, "prompt": []}, 400, "prompt", "empty_prompt", ["0 tokens", "1 to 20000"]),
    ("completions", {"model": MODEL, "prompt": ["a", ""]}, 400, "prompt[1]", "empty_prompt", ["at least one"]),
    ("completions", {"model": MODEL, "prompt": ["1 word", "too long"]}, 400, "prompt[1]", "prompt_too_long", ["101"]),
    ("completions", {"model": MODEL, "prompt": ["a"] * 65}, 400, "prompt", "too_many_prompts", ["65", "64", "several"]),
    ("completions", {"model": MODEL, "prompt": [[1], [2, -1]]}, 400, "prompt[1][1]", "out_of_range", ["-1"]),
    ("completions", {"model": MODEL, "prompt": ["a", [1]]}, 400, "prompt", "wrong_type", []),
    ("completions", {"model": MODEL, "prompt": "x" * 20001}, 400, "prompt", "prompt_too_long", ["20001", "20000"]),
    (
        "completions",
        {"model": MODEL, "prompt": "too long"},
        400,
        "prompt",
        "prompt_too_long",
        ["101", "100", "shorten"],
    ),
    (
        "completions",
        {"model": MODEL, "prompt": [2**63]},
        400,
        "prompt[0]",
        "out_of_range",
        [str(2**63), str(2**31 - 1)],
    ),
    ("completions", {"model": MODEL, "prompt": [[1, -1]]}, 400, "prompt[1]", "out_of_range", ["-1", "between 0"]),
    ("completions", {"model": MODEL, "prompt": [10**400]}, 400, "prompt[0]", "out_of_range", ["1" + "0" * 39 + "..."]),
    ("completions", {"model": MODEL, "prompt": "a\ud800"}, 400, "prompt", "invalid_text", ["U+D800", "character 1"]),
    ("completions", {"model": MODEL, "prompt": "x", "stop": "\udfff"}, 400, "stop", "invalid_text", ["U+DFFF", "pair"]),
    ("completions", {"model": "\ud800", "prompt": "x"}, 404, "model", "model_not_found", [MODEL]),
    (
        "completions",
        {"model": MODEL, "prompt": "x", "\ud800": 1},
        400,
        None,
        "wrong_type",
        ["unicode"],
    ),
    (
        "completions",
        {"model": MODEL, "prompt": "x", "k" * 5000: 1},
        400,
        "k" * 80 + "...",
        "unknown_parameter",
        ["..."],
    ),
    ("completions", {"model": MODEL, "prompt": "x", "top_p": 10**400}, 400, "top_p", "out_of_range", ["000...", "1"]),
    ("completions", {"model": MODEL, "prompt": "x", "top_k": 10**400}, 400, "top_k", "out_of_range", ["000...", "0"]),
    ("completions", {"model": MODEL, "prompt": "x", "seed": -(10**400)}, 400, "seed", "out_of_range", ["000...", "0"]),
    (
        "completions",
        {"model": MODEL, "prompt": "x", "temperature": float("nan")},
        400,
        "temperature",
        "out_of_range",
        [],
    ),
    ("completions", {"model": MODEL, "prompt": "x", "temperature": "1"}, 400, "temperature", "wrong_type", ["'1'"]),
    ("completions", {"model": MODEL, "prompt": "x", "stop": 5}, 400, "stop", "wrong_type", ["stop is 5:"]),
    ("completions", {"model": MODEL, "prompt": "x", "stop": ["a", 5]}, 400, "stop", "wrong_type", ["['a', 5]"]),
    (
        "chat/completions",
        {"model": MODEL, "messages": [{"role": "user", "content": [{"type": "text"}]}]},
        400,
        "messages.0.content",
        "wrong_type",
        ["{'type': 'text'}"],
    ),
    (
        "chat/completions",
        {"model": MODEL, "messages": [{"role": "user"}]},
        400,
        "messages.0.content",
        "missing_parameter",
        [],
    ),
    (
        "chat/completions",
        {"model": MODEL, "messages": [{"role": "user", "content": "\ud800"}]},
        400,
        "messages",
        "invalid_text",
        ["U+D800"],
    ),
    (
        "chat/completions",
        {"model": MODEL, "messages": CHAT, "temperature": 10**400},
        400,
        "temperature",
        "out_of_range",
        ["000...", "2"],
    ),
    ("completions", {"model": MODEL, "prompt": 7}, 400, "prompt", "wrong_type", ["7"]),
    ("completions", {"model": MODEL, "prompt": "x", "max_tokens": "9"}, 400, "max_tokens", "wrong_type", ["'9'"]),
    (
        "completions",
        {"model": MODEL, "prompt": "x", "max_tokens": 0},
        400,
        "max_tokens",
        "out_of_range",
        ["0", "least"],
    ),
    ("completions", {"model": MODEL, "prompt": "x", "best_off": 1}, 400, "best_off", "unknown_parameter", ["best_off"]),
    ("completions", {"model": MODEL, "prompt": "x", "stop": ["a"] * 5}, 400, "stop", "too_many_stops", ["5", "4"]),
    (
        "completions",
        {"model": MODEL, "prompt": "x", "stream_options": {}},
        400,
        "stream_options",
        "unsupported_parameter",
        ["stream to true"],
    ),
    ("chat/completions", {"model": MODEL, "messages": []}, 400, "messages", "empty_prompt", ["at least one"]),
    (
        "chat/completions",
        {"model": MODEL, "messages": CHAT, "tools": [{}]},
        400,
        "tools",
        "unsupported_parameter",
        ["tools"],
    ),
    (
        "chat/completions",
        {"model": MODEL, "messages": [{"role": "tool", "content": "x"}]},
        400,
        "messages.0.role",
        "wrong_type",
        ["'tool'", "user"],
    ),
    (
        "chat/completions",
        {"model": MODEL, "messages": CHAT, "max_tokens": 3, "max_completion_tokens": 4},
        400,
        "max_completion_tokens",
        "unsupported_parameter",
        ["one of them"],
    ),
    (
        "chat/completions",
        {"model": MODEL, "messages": CHAT, "temperature": 3},
        400,
        "temperature",
        "out_of_range",
        ["3", "2"],
    ),
]

# Field, value, code, and what the message must say; sent to both addresses.
BAD_FIELDS: list[tuple[str, Any, str, list[str]]] = [
    ("n", 0, "out_of_range", ["n is 0", "1 and 20"]),
    ("n", 21, "out_of_range", ["n is 21", "1 and 20"]),
    ("n", 1.0, "wrong_type", ["1.0"]),
    ("n", True, "wrong_type", ["True"]),
    ("best_of", 0, "out_of_range", ["best_of is 0", "1 and 20", "Leave it out"]),
    ("best_of", 21, "out_of_range", ["best_of is 21", "1 and 20"]),
    ("presence_penalty", 2.5, "out_of_range", ["2.5", "-2 and 2", "0 is none"]),
    ("presence_penalty", "1", "wrong_type", ["'1'"]),
    ("frequency_penalty", -3, "out_of_range", ["-3", "-2 and 2"]),
    ("repetition_penalty", 0, "out_of_range", ["0", "0.01 and 100"]),
    ("repetition_penalty", 101, "out_of_range", ["101", "100"]),
    ("min_p", 1.5, "out_of_range", ["1.5", "0 and 1"]),
    ("min_p", -0.1, "out_of_range", ["-0.1", "0 and 1"]),
    ("top_k", -2, "out_of_range", ["-2", "keeps every token"]),
    ("min_tokens", -1, "out_of_range", ["-1"]),
    ("min_tokens", 9, "out_of_range", ["9", "0 and 8", "max_tokens"]),
    ("logit_bias", {"x": 1}, "wrong_type", ["'x'", "token id"]),
    ("logit_bias", {"-1": 1}, "wrong_type", ["'-1'", "token id"]),
    ("logit_bias", {"9" * 5000: 1}, "wrong_type", ["999...", "token id"]),
    ("logit_bias", {str(2**31): 1}, "out_of_range", [str(2**31), str(2**31 - 1)]),
    ("logit_bias", {"7": 101}, "out_of_range", ["101", "-100 and 100", "token 7"]),
    ("logit_bias", {str(token): 1 for token in range(301)}, "too_many_biases", ["301", "300"]),
    ("logit_bias", [1], "wrong_type", ["[1]"]),
    ("stop_token_ids", [-1], "out_of_range", ["-1"]),
    ("stop_token_ids", list(range(65)), "too_many_stops", ["65", "64"]),
    ("stop_token_ids", 5, "wrong_type", ["5"]),
    ("length_penalty", 2, "unsupported_parameter", ["only for beam search", "use_beam_search"]),
    ("length_penalty", 0, "unsupported_parameter", ["only for beam search"]),
    ("early_stopping", True, "unsupported_parameter", ["only for beam search"]),
    ("early_stopping", "never", "unsupported_parameter", ["only for beam search"]),
    ("early_stopping", "soon", "wrong_type", ["'soon'"]),
    ("use_beam_search", "yes", "wrong_type", ["'yes'"]),
    ("priority", 2**31, "out_of_range", [str(2**31), "least goes first"]),
    ("priority", 0.5, "wrong_type", ["0.5"]),
    ("cache_salt", "s" * 257, "out_of_range", ["257", "256"]),
    ("cache_salt", 5, "wrong_type", ["5"]),
    ("cache_salt", "\ud800", "invalid_text", ["U+D800"]),
    ("suffix", "end", "unsupported_parameter", ["'end'", "leave it out"]),
    ("tools", [{}], "unsupported_parameter", ["tools"]),
    ("prompt_logprobs", 1, "unsupported_parameter", ["prompt_logprobs is 1"]),
    ("truncate_prompt_tokens", 5, "unsupported_parameter", ["truncate_prompt_tokens is 5"]),
    ("skip_special_tokens", False, "unsupported_parameter", ["skip_special_tokens is False"]),
    ("response_format", {"type": "json_object"}, "unsupported_parameter", ["{'type': 'json_object'}"]),
    ("guided_json", {}, "unknown_parameter", ["guided_json"]),
]

# As above, for fields that one of the two does not have or that need another beside them: path, fields, the one at fault.
BAD_TOGETHER: list[tuple[str, dict[str, Any], str, str, list[str]]] = [
    ("completions", {"n": 3, "best_of": 2}, "best_of", "out_of_range", ["best_of is 2", "3 and 20"]),
    ("completions", {"stream": True, "best_of": 2}, "stream", "unsupported_parameter", ["best_of above n", "false"]),
    (
        "chat/completions",
        {"stream": True, "use_beam_search": True, "n": 2},
        "stream",
        "unsupported_parameter",
        ["beam search", "false"],
    ),
    (
        "completions",
        {"use_beam_search": True, "n": 2, "length_penalty": 11},
        "length_penalty",
        "out_of_range",
        ["11", "-10 and 10"],
    ),
    ("completions", {"logprobs": 21}, "logprobs", "out_of_range", ["21", "0 and 20"]),
    ("completions", {"logprobs": -1}, "logprobs", "out_of_range", ["-1", "0 and 20"]),
    ("completions", {"logprobs": True}, "logprobs", "wrong_type", ["True"]),
    ("completions", {"top_logprobs": 2}, "top_logprobs", "unknown_parameter", ["top_logprobs"]),
    ("completions", {"echo": "yes"}, "echo", "wrong_type", ["'yes'"]),
    ("completions", {"max_tokens": 0}, "max_tokens", "out_of_range", ["0", "at least one"]),
    ("completions", {"max_tokens": 0, "echo": True, "min_tokens": 2}, "min_tokens", "out_of_range", ["2"]),
    ("chat/completions", {"max_tokens": 0}, "max_tokens", "out_of_range", ["0", "at least one"]),
    ("chat/completions", {"logprobs": 1}, "logprobs", "wrong_type", ["1"]),
    ("chat/completions", {"top_logprobs": 2}, "top_logprobs", "unsupported_parameter", ["needs logprobs"]),
    ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "out_of_range", ["21", "0 and 20"]),
    ("chat/completions", {"echo": True}, "echo", "unknown_parameter", ["echo"]),
    (
        "completions",
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
        "unsupported_parameter",
        ["leave it out"],
    ),
    (
        "completions",
        {"stream": True, "stream_options": {"continuous_usage_stats": True}},
        "stream_options.continuous_usage_stats",
        "unknown_parameter",
        [],
    ),
]


def _body(path: str, fields: dict[str, Any]) -> dict[str, Any]:
    text = {"prompt": "1 word"} if path == "completions" else {"messages": CHAT}
    return {"model": MODEL, "max_tokens": 8, **text, **fields}


async def test_each_value_out_of_its_range_is_named_with_its_limit(site: Site) -> None:
    cases = [
        (path, {field: value}, field, code, parts)
        for path in ("completions", "chat/completions")
        for field, value, code, parts in BAD_FIELDS
    ]
    async with site.http() as http:
        for path, fields, param, code, parts in [*cases, *BAD_TOGETHER]:
            content = json.dumps(_body(path, fields))
            answer = await http.post(f"/v1/{path}", content=content, headers={"Content-Type": "application/json"})
            error = answer.json().get("error")
            assert error is not None, (path, fields)
            assert (answer.status_code, error["param"], error["code"]) == (400, param, code), (path, fields, error)
            missing = [part for part in parts if part not in error["message"]]
            assert not missing, (error["message"], missing)
        assert len(site.arenas.generations) == 0


async def test_each_mistake_is_explained_in_openais_shape(site: Site) -> None:
    async with site.http() as http:
        for path, body, status, param, code, parts in BAD:
            content = body if isinstance(body, str) else json.dumps(body)
            answer = await http.post(f"/v1/{path}", content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code == status, (body, answer.text)
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert (error["param"], error["code"]) == (param, code), (body, error)
            missing = [part for part in parts if part not in error["message"]]
            assert not missing, (error["message"], missing)
        assert len(site.arenas.generations) == 0
        unknown = await http.get("/v1/embeddings")
        assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
