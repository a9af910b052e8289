"""The vocabulary as others see it: JSON with a schema."""

from __future__ import annotations

import json
import typing
from pathlib import Path

import jsonschema
import msgspec
import pytest

from engine import events
from engine.events import AnyEvent, BlockAllocated, Event, Snapshot, Step

RECORDING = Path(__file__).parents[2] / "static/recordings/growing.jsonl"


def test_an_event_is_a_flat_object_with_its_type_in_snake_case():
    expected = {"type": "block_allocated", "block": 7, "sequence": 0, "logical": 1}
    assert msgspec.to_builtins(BlockAllocated(7, 0, 1)) == expected


def test_every_event_has_its_place_in_the_union_and_says_what_it_means():
    defined = {item for item in vars(events).values() if isinstance(item, type) and issubclass(item, Event)} - {Event}
    assert set(typing.get_args(AnyEvent)) == defined
    assert [item.__name__ for item in defined if not item.__doc__] == []


def test_the_recording_keeps_to_the_schema():
    schemas = {kind: jsonschema.Draft202012Validator(msgspec.json.schema(kind)) for kind in (Snapshot, Step)}
    _, *lines = map(json.loads, RECORDING.read_text().splitlines())
    assert lines[0]["kind"] == "snapshot"
    for line in lines:
        schemas[Step if line["kind"] == "step" else Snapshot].validate(line)


@pytest.mark.parametrize("change", [{"block": "seven"}, {"type": "block_vanished"}])
def test_the_schema_refuses_what_the_decoder_refuses(change):
    event = {"type": "block_allocated", "block": 7, "sequence": 0, "logical": 1} | change
    schema = jsonschema.Draft202012Validator(msgspec.json.schema(AnyEvent))
    assert not schema.is_valid(event)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(event, AnyEvent)
