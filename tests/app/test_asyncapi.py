"""The description of the socket: valid by AsyncAPI's own schema, and true of what is said."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

from app import client_messages as ask
from app.asyncapi import HEARD, SAID, document
from engine import events as ev
from engine.trace import Header
from tests.app.conftest import Site
from tests.stories import STORIES

RECORDING = Path(__file__).parents[2] / "static/recordings/growing.jsonl"
SPECIFICATION = "@asyncapi/specs@6.8.1"
SCHEMAS = document()["components"]["schemas"]


def validator(name: str) -> jsonschema.Draft7Validator:
    """For one of the document's schemas, which name each other."""
    return jsonschema.Draft7Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}})


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_every_reference_leads_somewhere() -> None:
    found = set(references(document()))
    assert len(found) > 80
    for reference in found:
        place: Any = document()
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]


def test_every_schema_is_one_of_draft_7() -> None:
    assert len(SCHEMAS) > 50
    for schema in SCHEMAS.values():
        jsonschema.Draft7Validator.check_schema(schema)
    assert not {"prefixItems", "discriminator"} & set(json.dumps(SCHEMAS).split('"'))


def test_every_message_and_every_event_is_described() -> None:
    described = document()
    assert set(HEARD) == set(get_args(ask.AnyClientMessage))
    assert {kind.__name__ for kind in (*HEARD, *SAID)} == set(described["components"]["messages"])
    assert {kind.__name__ for kind in get_args(ev.AnyEvent)} <= set(SCHEMAS)
    assert set(described["operations"]) == {*ask.TYPES, "tell"}
    replied = described["operations"]["open"]["reply"]["messages"]
    assert [message["$ref"].rsplit("/", 1)[1] for message in replied] == ["Opened", "Queued", "Error"]
    for name, message in described["components"]["messages"].items():
        assert message["summary"], name
        assert SCHEMAS[name].get("description") or message["summary"].startswith("The message "), name


@pytest.mark.slow
def test_the_document_is_valid_by_the_official_schema(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine, which has AsyncAPI's schema")
    command = [npm, "pack", "--silent", "--pack-destination", str(tmp_path), SPECIFICATION]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if fetched.returncode:
        pytest.skip(f"{SPECIFICATION} cannot be fetched: {fetched.stderr[-200:]}")
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as package:
        member = package.extractfile("package/schemas/3.0.0-without-$id.json")
        assert member is not None
        official = json.load(member)
    servers = {"here": {"host": "127.0.0.1:8000", "protocol": "ws"}}
    jsonschema.Draft7Validator(official).validate({**document(), "servers": servers})
    broken = {**document(), "channels": {"arena": {"address": 5}}}
    assert not jsonschema.Draft7Validator(official).is_valid(broken)


def test_every_line_of_a_trace_is_as_described() -> None:
    header, snapshot, *steps, closing = [json.loads(line) for line in RECORDING.read_text().splitlines()]
    validator("Header").validate(header)
    for line in (snapshot, closing):
        validator("Snapshot").validate(line)
    for step in steps:
        validator("Step").validate(step)
        for event in step["events"]:
            [name] = [kind.__name__ for kind in get_args(ev.AnyEvent) if kind.__struct_config__.tag == event["type"]]
            validator(name).validate(event)
    with pytest.raises(jsonschema.ValidationError):
        validator("Step").validate({**steps[0], "events": [{"type": "block_teleported", "block": 1}]})


def test_events_of_every_kind_are_as_described() -> None:
    seen = set()
    for tell in STORIES.values():
        for step in tell().steps:
            validator("Step").validate(json.loads(msgspec.json.encode(step)))
            seen |= {type(event) for event in step.events}
    assert seen == set(get_args(ev.AnyEvent))


def test_what_the_schema_of_a_message_allows_is_what_the_server_reads() -> None:
    good = {"type": "open", "ref": 1, "params": {"block_size": 8}}
    assert isinstance(ask.decode(json.dumps(good)), ask.Open)
    validator("Open").validate(good)
    for change in ({"ref": -1}, {"scene": "other"}, {"unknown": 1}, {"params": {"block_size": "8"}}):
        assert isinstance(ask.decode(json.dumps(good | change)), ask.Misfit)
        assert not validator("Open").is_valid(good | change)


async def test_it_is_served_and_what_the_server_says_is_as_described(site: Site) -> None:
    async with site.http() as http:
        answer = await http.get("/asyncapi.json")
    assert answer.status_code == 200
    told = answer.json()
    assert told["servers"] == {"here": {"host": f"127.0.0.1:{site.port}", "protocol": "ws"}}
    assert {**told, "servers": None} == {**document(), "servers": None}
    names = {
        "status": "Status",
        "opened": "Opened",
        "snapshot": "Snapshot",
        "step": "Step",
        "ok": "Ok",
        "error": "Error",
    }
    names |= {"closed": "Closed", "pong": "Pong"}
    async with site.browser() as page:

        async def hear_until(kind: str) -> dict[str, Any]:
            while True:
                message = await page.hear()
                validator(names[message["kind"]]).validate(message)
                if message["kind"] == kind:
                    return message

        await page.say("open", scene="empty")
        arena = (await hear_until("opened"))["arena"]
        await hear_until("snapshot")
        await page.say("ping")
        await hear_until("pong")
        await page.say("submit", arena="nowhere", prompt="1 words")
        await hear_until("error")
        await page.say("submit", arena=arena, prompt="forever")
        await hear_until("ok")
        await hear_until("step")
        await page.say("close", arena=arena)
        await hear_until("closed")


def test_the_header_of_a_trace_is_part_of_it() -> None:
    assert SCHEMAS["Header"]["description"].startswith((Header.__doc__ or "").split(".")[0])
