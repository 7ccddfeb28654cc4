"""The JSON Schema of the configuration says of every key what it means."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from streamer.config.load import json_schema
from streamer.features.every import FILE
from streamer.transports.base import TransportOptions


def nodes(value: Any, location: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object schema in a JSON Schema with its place. Conditions are none: they only look at values."""
    if isinstance(value, dict):
        if isinstance(value.get("properties"), dict):
            yield location, value
        for key, inner in value.items():
            if key != "if":
                yield from nodes(inner, f"{location}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from nodes(inner, f"{location}[{index}]")


def undescribed(schema: dict[str, Any]) -> list[str]:
    """The keys without a description. One that says the same as that of the key's own model stands only there."""
    found = []
    for location, node in nodes(schema):
        if ".allOf[" in location:  # they only say which model the options have
            continue
        for key, about in node["properties"].items():
            model = schema["$defs"].get(str(about.get("$ref", "")).rpartition("/")[2], {})
            if not str(about.get("description") or model.get("description") or "").strip():
                found.append(f"{location}.{key}")
    return found


def test_every_key_has_a_description() -> None:
    assert undescribed(json_schema(FILE)) == []


def test_the_options_of_transports_and_verifiers_are_among_them() -> None:
    places = [location for location, _ in nodes(json_schema(FILE))]
    assert {f".$defs.{kind}.options" for kind in ("mqtt5", "zenoh", "memory", "jwt")} <= {*places}
    assert ".$defs.mqtt5.TlsOptions" in places


ONLY_COMPARED = {"absent_s", "interval_s", "repeat_s", "unconfirmed_s"}
"""Times that are compared with a clock and nothing else: any number will do."""


def test_every_time_has_a_largest_value() -> None:
    found = [
        f"{location}.{key}"
        for location, node in nodes(json_schema(FILE))
        for key, about in node["properties"].items()
        if key.endswith(("_s", "_ms")) and key not in ONLY_COMPARED
        for number in about.get("anyOf", [about])
        if number.get("type") in ("number", "integer") and "maximum" not in number
    ]
    assert found == []


def test_a_key_that_says_nothing_is_found() -> None:
    class Silent(TransportOptions):
        level: int = 0
        depth: int = 0
        """How deep."""

    assert undescribed({"$defs": {}, **Silent.model_json_schema()}) == [".level"]


def test_what_a_plugin_writes_below_a_key_is_its_description() -> None:
    class Inner(BaseModel):
        x: int = 0

    class Options(TransportOptions):
        inner: Inner = Inner()
        """Inside."""

    schema = Options.model_json_schema()
    assert schema["properties"]["inner"]["description"] == "Inside."
    assert undescribed(schema) == [".$defs.Inner.x"]
