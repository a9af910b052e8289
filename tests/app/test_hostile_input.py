"""Whatever bytes arrive: an answer in words, never a fault of the server's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.arenas import Arenas
from app.client_messages import TYPES, Misfit, decode
from app.engine_client import EngineClient, OnAnswer
from app.errors import Invalid
from app.main import create_app
from app.server_messages import Error, encode
from app.settings import Settings
from engine import wire
from engine.messages import AnyCommand, Failed, Output, Sampling, Status, Submit, Submitted
from tests.app.conftest import Site
from tests.app.fake_engine import MODEL

ANY_TEXT = st.text(st.characters(), max_size=8)  # halves of surrogate pairs too
ANY_NUMBER = st.integers() | st.floats() | st.sampled_from([2**63, -(2**70), 10**400, 1e308])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | ANY_NUMBER | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
ANY_KEY = ANY_TEXT | st.integers().map(str) | st.sampled_from(["9" * 5000, "07", "1e3", "\u0665"])


def objects(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects that come near to a good one: names that exist, and values that may be anything."""
    return st.fixed_dictionaries({}, optional={name: value | ANY_JSON for name, value in values.items()})


MESSAGES = objects(
    {
        "type": st.sampled_from(TYPES),
        "ref": st.just(1),
        "arena": st.just("a1"),
        "prompt": st.just("x"),
        "scene": st.just("empty"),
        "params": objects(
            {
                "block_size": st.just(4),
                "num_blocks": st.just(4),
                "pace_ms": st.just(1.5),
                "manager": st.just("paged"),
                "cpu_blocks": st.just(2),
                "prefix_cache": st.booleans(),
            }
        ),
        "stop": st.lists(ANY_JSON, max_size=2),
        "logit_bias": st.dictionaries(ANY_KEY, ANY_NUMBER, max_size=2),
        "sequence": st.just(0),
        "n": st.just(2),
        "request": st.just(0),
        "drive_secret": st.just("s"),
        "since": st.just(0),
    }
)


@st.composite
def frames(draw: st.DrawFn) -> str:
    """Text frames: JSON with names that come twice, cut short, or no JSON at all."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(ANY_TEXT)
    text = json.dumps(draw(MESSAGES), ensure_ascii=draw(st.booleans()))
    if kind == 1:
        return text[: draw(st.integers(0, len(text)))]
    if kind == 2:
        return text
    pairs = [*draw(MESSAGES).items(), *draw(MESSAGES).items()]
    return "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs) + "}"


@settings(max_examples=150, deadline=None)
@given(frames())
def test_any_frame_is_a_message_or_is_explained(text: str) -> None:
    said = decode(text)
    if isinstance(said, Misfit):
        problem = said.problem
        assert problem.code in ("bad_json", "unknown_type", "missing_field", "unknown_field", "wrong_type")
        encode(Error(ref=said.ref, arena=said.arena, code=problem.code, field=problem.field, message=problem.message))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, '{"type":' + "[" * 900 + "]" * 900 + "}"]
)
def test_depth_and_length_are_explained_too(text: str) -> None:
    assert isinstance(decode(text), Misfit)


class Engine:
    """Takes every request that the wire can carry, and ends it at once."""

    def __init__(self, hub: Arenas) -> None:
        self.status = Status("ready", "", 1.0, MODEL)
        self.ready = True
        self._hub = hub

    def send(self, command: AnyCommand, on_answer: OnAnswer) -> None:
        raise AssertionError(f"{command} was not to be sent")

    async def request(self, command: Submit, at_once: OnAnswer) -> None:
        if command.prompt in ("engine_error", "invalid_prompt", "queue_full"):
            raise Invalid(str(command.prompt), "prompt", "what the engine says")
        wire.decode_command(wire.encode(command)[wire.HEADER :])
        at_once(Submitted(0, command.arena, 0, 1))
        for index in range(command.sampling.n):
            last = index == command.sampling.n - 1
            self._hub.generations.pass_on(Output(command.arena, 0, "text", [1], index, "stop", last=last))


BODIES = objects(
    {
        "model": st.just("fake-model"),
        "prompt": st.just("x") | st.lists(ANY_NUMBER, max_size=2) | ANY_TEXT,
        "messages": st.lists(objects({"role": st.just("user"), "content": ANY_TEXT}), max_size=2),
        "temperature": ANY_NUMBER,
        "top_p": ANY_NUMBER,
        "top_k": ANY_NUMBER,
        "seed": ANY_NUMBER,
        "max_tokens": ANY_NUMBER,
        "stop": ANY_TEXT | st.lists(ANY_TEXT, max_size=2),
        "stream": st.booleans(),
        "n": st.integers(1, 3) | ANY_NUMBER,
        "best_of": st.integers(1, 3) | ANY_NUMBER,
        "logprobs": st.booleans() | st.integers(0, 3) | ANY_NUMBER,
        "top_logprobs": st.integers(0, 3) | ANY_NUMBER,
        "echo": st.booleans(),
        "logit_bias": st.dictionaries(ANY_KEY, ANY_NUMBER, max_size=2),
        "min_p": ANY_NUMBER,
        "repetition_penalty": ANY_NUMBER,
        "presence_penalty": ANY_NUMBER,
        "stop_token_ids": st.lists(ANY_NUMBER, max_size=2),
        "use_beam_search": st.booleans(),
        "early_stopping": st.booleans() | st.just("never"),
        "length_penalty": ANY_NUMBER,
        "priority": ANY_NUMBER,
        "cache_salt": ANY_TEXT,
    }
).map(lambda body: {"model": "fake-model", "prompt": "x", **body})


def post(path: str, content: bytes, kind: str = "application/json") -> httpx.Response:
    async def send() -> httpx.Response:
        app = create_app(Settings(allowed_hosts="test"), ["nothing"])
        hub: Any = app.state.arenas
        hub.engine = Engine(hub)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
            return await http.post(path, content=content, headers={"Content-Type": kind} if kind else {})

    return asyncio.run(send())


@settings(max_examples=60, deadline=None)
@given(BODIES, st.sampled_from(["/v1/completions", "/v1/chat/completions"]))
def test_any_body_is_answered_without_a_fault(body: dict[str, Any], path: str) -> None:
    if path.endswith("chat/completions"):
        body.pop("prompt")
    answer = post(path, json.dumps(body).encode())
    assert answer.status_code in (200, 400, 404), answer.text
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert len(error["message"]) < 600
        assert error["code"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [("text/plain", "the body came as text/plain"), ("", "the body came without a Content-Type")],
)
def test_another_content_type_is_told_which_to_send(kind: str, said: str) -> None:
    answer = post("/v1/completions", b'{"model": "fake-model", "prompt": "x"}', kind)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "wrong_content_type")
    assert answer.json()["error"]["message"] == f"{said}; send it as Content-Type: application/json."


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("engine_error", 500, "server_error"),
        ("invalid_prompt", 400, "invalid_request_error"),
        ("queue_full", 429, "rate_limit_error"),
    ],
)
def test_what_the_engine_refuses_is_said_in_its_own_words(code: str, status: int, kind: str) -> None:
    answer = post("/v1/completions", json.dumps({"model": "fake-model", "prompt": code}).encode())
    assert answer.status_code == status
    assert answer.json() == {
        "error": {"message": "what the engine says", "type": kind, "param": "prompt", "code": code}
    }


@pytest.mark.parametrize("body", [b"9" * 5000, b"[" * 100_000, b"\xff\xfe", b"", b"null", b'"text"'])
def test_bodies_that_no_reader_takes_are_refused_in_openais_shape(body: bytes) -> None:
    answer = post("/v1/completions", body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


UNSENDABLE: list[Callable[[Submit], Any]] = [
    lambda submit: Submit(0, "api", "\ud800", submit.sampling, "api"),
    lambda submit: Submit(0, "api", [2**64], submit.sampling, "api"),
    lambda submit: Submit(0, "api", "x" * (wire.MAX_FRAME + 1), submit.sampling, "api"),
]


@pytest.mark.parametrize("broken", UNSENDABLE)
async def test_what_the_wire_cannot_carry_is_refused_and_leaves_nothing_behind(
    site: Site, broken: Callable[[Submit], Any]
) -> None:
    engine: EngineClient = site.arenas.engine
    command = broken(Submit(0, "api", "x", Sampling(), "api"))
    before = set(engine._waiting)
    answers: list[Any] = []
    engine.send(command, answers.append)
    assert [type(answer) for answer in answers] == [Failed]
    with pytest.raises(Invalid, match="cannot be passed on"):
        await engine.request(command)
    assert set(engine._waiting) <= before


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "%ff%fe", "%00", "\\", "js/%2500"])
async def test_no_name_of_a_file_breaks_the_server(site: Site, name: str) -> None:
    async with site.http() as http:
        answer = await http.get(f"/static/{name}")
        assert (answer.status_code, answer.text) == (404, "There is no such file.\n")
