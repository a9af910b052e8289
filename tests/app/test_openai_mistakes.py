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
    ("completions", {"model": MODEL, "prompt": ["a", "b"]}, 400, "prompt", "unsupported_parameter", ["2", "1"]),
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
    (
        "completions",
        {"model": MODEL, "prompt": "x", "n": 2},
        400,
        "n",
        "unsupported_parameter",
        ["n is 2", "leave it out"],
    ),
    ("completions", {"model": MODEL, "prompt": "x", "echo": True}, 400, "echo", "unsupported_parameter", ["True"]),
    ("completions", {"model": MODEL, "prompt": "x", "logprobs": 0}, 400, "logprobs", "unsupported_parameter", ["0"]),
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
        {"model": MODEL, "messages": CHAT, "logprobs": True},
        400,
        "logprobs",
        "unsupported_parameter",
        [],
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
