"""Everything that a client can get wrong on the socket: an error that helps, and a connection that lives on."""

from __future__ import annotations

import json
from typing import Any

import pytest
import websockets

from tests.app.conftest import Site, serve

ARENA = {"ref": 7, "arena": "a1"}

# What is sent, then the code, the field, and what the message must contain: the value, the limit, the way out.
BAD: list[tuple[Any, str, str, list[str]]] = [
    ("{", "bad_json", "", ["not JSON", "one JSON object per frame"]),
    ("[1, 2]", "bad_json", "", ["[1, 2]", "one JSON object per frame"]),
    ('{"type": "submit", "ref": 7, "arena": "a1", "prompt": "\\ud83d"}', "bad_json", "", ["not JSON"]),
    ('{"type": "set", "ref": 7, "arena": "a1", "params": {"pace_ms": NaN}}', "bad_json", "", ["not JSON"]),
    ('{"type": "open", "ref": 7, "params": {"block_size": "x"}, "params": 5}', "wrong_type", "params", ["5", "object"]),
    (
        '{"type": "open", "ref": 7, "params": 5, "params": {"block_size": "x"}}',
        "wrong_type",
        "params.block_size",
        ["x"],
    ),
    ('{"type": "open", "type": "fly", "ref": 3, "ref": 7}', "unknown_type", "type", ["fly"]),
    ({"ref": 7}, "unknown_type", "type", ["null", "open, submit"]),
    ({"ref": 7, "type": "fly"}, "unknown_type", "type", ['"fly"', "open, submit"]),
    ({"type": "open"}, "missing_field", "ref", ["ref", "Add it"]),
    ({"type": "open", "ref": -1}, "wrong_type", "ref", ["-1", ">= 0"]),
    ({"type": "open", "ref": 2**60}, "wrong_type", "ref", [str(2**60), str(2**53 - 1)]),
    ({"type": "open", "ref": 7, "colour": 1}, "unknown_field", "colour", ["colour", "Leave it out"]),
    ({"type": "open", "ref": 7, "a b": 1}, "unknown_field", "a b", ["a b", "Leave it out"]),
    ({"type": "open", "ref": 7, "k" * 5000: 1}, "unknown_field", "k" * 80 + "...", ["k" * 80 + "...`", "Leave it out"]),
    ({"type": "open", "ref": 7, "scene": "moon"}, "wrong_type", "scene", ["moon"]),
    ({"type": "open", "ref": 7, "params": {"block_size": "4"}}, "wrong_type", "params.block_size", ['"4"', "int"]),
    (
        {"type": "open", "ref": 7, "params": {"block_size": 0}},
        "out_of_range",
        "params.block_size",
        ["0", "1 and 256", "Try"],
    ),
    (
        {"type": "open", "ref": 7, "params": {"block_size": 257}},
        "out_of_range",
        "params.block_size",
        ["257", "256", "Try"],
    ),
    (
        {"type": "open", "ref": 7, "params": {"num_blocks": 0}},
        "out_of_range",
        "params.num_blocks",
        ["0", "at least one"],
    ),
    (
        {"type": "open", "ref": 7, "params": {"block_size": 256, "num_blocks": 5}},
        "arena_too_large",
        "params.num_blocks",
        ["1280 slots", "at most 960", "at most 3 blocks"],
    ),
    ({"type": "open", "ref": 7, "params": {"pace_ms": -1}}, "out_of_range", "params.pace_ms", ["-1", "0 and 60000"]),
    ({"type": "open", "ref": 7, "drive_secret": "guess"}, "unknown_arena", "drive_secret", ["30 s", "leaving it out"]),
    ({"type": "pause", "ref": 7, "arena": "a99"}, "unknown_arena", "arena", ["a99", "open first"]),
    ({"type": "pause", "ref": 7, "arena": "api"}, "unknown_arena", "arena", ["api", "open first"]),
    ({"type": "submit", **ARENA, "prompt": ""}, "empty_prompt", "prompt", ["empty", "at least one"]),
    ({"type": "submit", **ARENA, "prompt": " \n\t"}, "empty_prompt", "prompt", ["empty", "at least one"]),
    ({"type": "submit", **ARENA, "prompt": "x" * 20001}, "prompt_too_long", "prompt", ["20001", "20000", "by 1"]),
    ({"type": "submit", **ARENA, "prompt": "too long"}, "prompt_too_long", "prompt", ["101", "100", "shorten"]),
    ({"type": "submit", **ARENA, "prompt": 5}, "wrong_type", "prompt", ["5", "str"]),
    ({"type": "submit", **ARENA, "prompt": "x", "max_tokens": 0}, "out_of_range", "max_tokens", ["0", "at least one"]),
    ({"type": "submit", **ARENA, "prompt": "x", "temperature": 2.5}, "out_of_range", "temperature", ["2.5", "0 and 2"]),
    (
        {"type": "submit", **ARENA, "prompt": "x", "top_p": 0},
        "out_of_range",
        "top_p",
        ["0", "at most 1", "temperature"],
    ),
    ({"type": "submit", **ARENA, "prompt": "x", "top_k": -1}, "out_of_range", "top_k", ["-1", "keeps every token"]),
    ({"type": "submit", **ARENA, "prompt": "x", "seed": 2**63}, "out_of_range", "seed", [str(2**63), "Leave it out"]),
    ({"type": "submit", **ARENA, "prompt": "x", "stop": list("abcde")}, "too_many_stops", "stop", ["5", "4"]),
    ({"type": "submit", **ARENA, "prompt": "x", "stop": [""]}, "out_of_range", "stop", ["0 characters", "1 to 256"]),
    ({"type": "submit", **ARENA, "prompt": "x", "stop": [1]}, "wrong_type", "stop[0]", ["1", "str"]),
    ({"type": "open", "ref": 7, "params": {"manager": "slab"}}, "wrong_type", "params.manager", ["slab"]),
    ({"type": "open", "ref": 7, "params": {"preemption": "never"}}, "wrong_type", "params.preemption", ["never"]),
    ({"type": "open", "ref": 7, "params": {"prefix_cache": 1}}, "wrong_type", "params.prefix_cache", ["1", "bool"]),
    ({"type": "open", "ref": 7, "params": {"max_len": -1}}, "out_of_range", "params.max_len", ["-1", "0 and 960"]),
    (
        {"type": "open", "ref": 7, "params": {"prefill_chunk": -2}},
        "out_of_range",
        "params.prefill_chunk",
        ["-2", "-1 never cuts"],
    ),
    (
        {"type": "open", "ref": 7, "params": {"cpu_blocks": 10**30}},
        "out_of_range",
        "params.cpu_blocks",
        ["0 and 512", "for none"],
    ),
    (
        {"type": "open", "ref": 7, "params": {"cpu_blocks": 129}},
        "arena_too_large",
        "params.cpu_blocks",
        ["516 slots", "swap to at most 512", "at most 128 blocks"],
    ),
    (
        {"type": "reset", **ARENA, "params": {"cpu_blocks": 200}},
        "arena_too_large",
        "params.cpu_blocks",
        ["800 slots", "512"],
    ),
    ({"type": "reset", **ARENA, "params": {"manager": 5}}, "wrong_type", "params.manager", ["5"]),
    ({"type": "submit", **ARENA, "prompt": "x", "n": 0}, "out_of_range", "n", ["0", "1 and 20"]),
    ({"type": "submit", **ARENA, "prompt": "x", "n": 21}, "out_of_range", "n", ["21", "1 and 20"]),
    ({"type": "submit", **ARENA, "prompt": "x", "n": 3, "best_of": 2}, "out_of_range", "best_of", ["2", "3 and 20"]),
    ({"type": "submit", **ARENA, "prompt": "x", "min_p": 2}, "out_of_range", "min_p", ["2", "0 and 1"]),
    ({"type": "submit", **ARENA, "prompt": "x", "min_tokens": 65}, "out_of_range", "min_tokens", ["65", "0 and 64"]),
    (
        {"type": "submit", **ARENA, "prompt": "x", "repetition_penalty": 0},
        "out_of_range",
        "repetition_penalty",
        ["0.01 and 100"],
    ),
    (
        {"type": "submit", **ARENA, "prompt": "x", "logit_bias": {"a": 1}},
        "wrong_type",
        "logit_bias",
        ['{"a": 1}', "int", "each key"],
    ),
    (
        {"type": "submit", **ARENA, "prompt": "x", "logit_bias": {"5": "b"}},
        "wrong_type",
        "logit_bias",
        ['{"5": "b"}', "float"],
    ),
    (
        {"type": "submit", **ARENA, "prompt": "x", "logit_bias": {"5": -101}},
        "out_of_range",
        "logit_bias",
        ["-101", "token 5", "-100 and 100"],
    ),
    ({"type": "submit", **ARENA, "prompt": "x", "stop_token_ids": [-5]}, "out_of_range", "stop_token_ids", ["-5"]),
    (
        {"type": "submit", **ARENA, "prompt": "x", "early_stopping": True},
        "wrong_type",
        "early_stopping",
        ["true"],
    ),
    ({"type": "submit", **ARENA, "prompt": "x", "logprobs": 1}, "unknown_field", "logprobs", ["Leave it out"]),
    ({"type": "submit", **ARENA, "prompt": "x", "priority": 2**31}, "out_of_range", "priority", ["least goes first"]),
    ({"type": "submit", **ARENA, "prompt": "x", "cache_salt": "s" * 257}, "out_of_range", "cache_salt", ["257", "256"]),
    ({"type": "fork", **ARENA}, "missing_field", "sequence", ["Add it"]),
    ({"type": "fork", **ARENA, "sequence": -1}, "out_of_range", "sequence", ["-1", "number in the events"]),
    ({"type": "register_prefix", **ARENA, "prompt": " "}, "empty_prompt", "prompt", ["empty"]),
    ({"type": "register_prefix", **ARENA, "prompt": "too long"}, "prompt_too_long", "prompt", ["101"]),
    ({"type": "reset_cache", **ARENA, "prompt": "x"}, "unknown_field", "prompt", ["Leave it out"]),
    ({"type": "abort", **ARENA, "request": 10**200}, "out_of_range", "request", ["1" + "0" * 39 + "...", "submit"]),
    ({"type": "abort", **ARENA, "request": 2**70}, "out_of_range", "request", [str(2**70), "submit"]),
    ({"type": "set", **ARENA, "params": {"pace_ms": 60001}}, "out_of_range", "params.pace_ms", ["60001", "60000"]),
    ({"type": "reset", **ARENA, "params": {"block_size": 0}}, "out_of_range", "params.block_size", ["0", "256"]),
    (
        {"type": "reset", **ARENA, "params": {"num_blocks": 300}},
        "arena_too_large",
        "params.num_blocks",
        ["1200", "960"],
    ),
]


async def test_each_mistake_is_explained_and_the_connection_lives_on() -> None:
    async with serve(max_arena_slots=4000, api_cpu_slots=0) as site, site.browser() as page:
        await page.open()
        for sent, code, field, parts in BAD:
            await page.socket.send(sent if isinstance(sent, str) else json.dumps(sent))
            error = await page.hear("error", "ok", "opened", "queued")
            assert (error["kind"], error["code"], error["field"]) == ("error", code, field), (sent, error)
            missing = [part for part in parts if part not in error["message"]]
            assert not missing, (error["message"], missing)
            meant = sent
            if isinstance(sent, str):
                meant = json.loads(sent) if sent.startswith('{"') else None
            known = isinstance(meant, dict) and 0 <= meant.get("ref", -1) < 2**53
            assert error["ref"] == (meant["ref"] if known else None)
            assert error["arena"] == (meant.get("arena") if isinstance(meant, dict) else None)
        await page.say("pause", arena="a1")
        assert (await page.hear("ok", "error"))["kind"] == "ok"
        assert site.arenas.visitors == 1


async def test_a_ping_is_answered(site: Site) -> None:
    async with site.browser() as page:
        ref = await page.say("ping")
        assert await page.hear("pong") == {"v": 1, "kind": "pong", "ref": ref}


async def test_a_binary_frame_is_explained(site: Site) -> None:
    async with site.browser() as page:
        await page.socket.send(b"{}")
        assert (await page.hear("error"))["code"] == "not_text"


async def test_a_message_over_the_limit_is_explained_and_one_far_over_closes() -> None:
    async with serve(max_message_bytes=1024) as site, site.browser() as page:
        await page.socket.send("x" * 1025)
        error = await page.hear("error")
        assert error["code"] == "message_too_large"
        assert "1025 bytes" in error["message"]
        assert "1024" in error["message"]
        await page.socket.send("x" * 5000)
        await page.socket.wait_closed()
        assert page.socket.close_code == 1009


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:1", "null", "https://127.0.0.1.evil.example"]
)
async def test_a_foreign_page_gets_no_socket(site: Site, origin: str) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with site.browser(origin=origin):
            pass
    assert refused.value.response.status_code == 403


async def test_a_client_without_origin_and_a_listed_origin_are_let_in() -> None:
    async with serve(allowed_origins="https://a.example, https://b.example/") as site:
        async with websockets.connect(f"ws://127.0.0.1:{site.port}/ws/arena") as socket:
            assert json.loads(await socket.recv())["kind"] == "status"
        async with site.browser(origin="https://b.example") as page:
            assert (await page.hear())["kind"] == "status"
