"""The examples of `zenoh.adoc`: keys, and the attachment; and what the documentation says of priorities."""

import ast
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from streamer.transports.mqtt5.wire import PRIORITY
from streamer.transports.zenoh.wire import PRIORITIES, encode_attachment, key_filter, key_for
from streamer.uprotocol.message import Attributes, UMessageType, publish
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import attributes_to_proto
from streamer.uprotocol.uri import UUri

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("kind", "source", "sink", "key"),
    [
        (UMessageType.PUBLISH, "up:/10AB/3/80CD", None, "up/device1/10AB/0/3/80CD/{}/{}/{}/{}/{}"),
        (
            UMessageType.NOTIFICATION,
            "//device1/10AB/3/80CD",
            "//device2/300EF/4/0",
            "up/device1/10AB/0/3/80CD/device2/EF/3/4/0",
        ),
        (UMessageType.REQUEST, "up:/403AB/3/0", "//device2/CD/4/B", "up/device1/3AB/4/3/0/device2/CD/0/4/B"),
        (UMessageType.RESPONSE, "//device2/CD/4/B", "up:/403AB/3/0", "up/device2/CD/0/4/B/device1/3AB/4/3/0"),
    ],
)
def test_keys_are_those_of_the_examples(kind: UMessageType, source: str, sink: str | None, key: str) -> None:
    attributes = Attributes(kind, UUri.parse(source), None if sink is None else UUri.parse(sink))
    assert key_for(attributes, "device1") == key


@pytest.mark.parametrize(
    ("source", "sink", "key"),
    [
        ("//device2/10AB/3/80CD", None, "up/device2/10AB/0/3/80CD/{}/{}/{}/{}/{}"),
        ("//*/FFFFFFFF/FF/FFFF", "/300EF/4/0", "up/*/*/*/*/*/device1/EF/3/4/0"),
        ("//*/FFFF05A1/2/FFFF", "//device1/300EF/4/B18", "up/*/5A1/*/2/*/device1/EF/3/4/B18"),
        ("//*/FFFFFFFF/FF/FFFF", "//device1/FFFFFFFF/FF/FFFF", "up/*/*/*/*/*/device1/*/*/*/*"),
    ],
)
def test_key_expressions_of_filters_are_those_of_the_examples(source: str, sink: str | None, key: str) -> None:
    assert key_filter(UUri.parse(source), None if sink is None else UUri.parse(sink), "device1") == key


def test_the_attachment_is_the_version_and_the_attributes() -> None:
    message = publish(1_700_000_000_000, UUri("device1", 0x10AB, 3, 0x80CD), b"x")
    attachment = encode_attachment(message)
    assert attachment[0] == 1
    assert pb.UAttributes.FromString(attachment[1:]) == attributes_to_proto(message.id, message.attributes)


def test_zenoh_is_of_major_version_1() -> None:
    assert version("eclipse-zenoh").partition(".")[0] == "1"
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [each for each in dependencies if each.startswith("eclipse-zenoh") and each.endswith(",<2")]


def test_nothing_queries_and_nothing_can_be_queried() -> None:
    """The clause wants publish and subscribe only. Liveliness tokens are neither."""
    names: set[str] = set()
    for file in (ROOT / "streamer" / "transports" / "zenoh").glob("*.py"):
        names |= {node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)}
    assert {"put", "declare_subscriber"} <= names
    assert not names & {"declare_queryable", "declare_querier", "Queryable", "Querier", "Query", "Selector"}


def test_the_priorities_of_both_transports_are_documented() -> None:
    """uP-L1 `send`: whether and how the classes are mapped is in the documentation. CS1 is the default class."""
    text = (ROOT / "docs" / "transports.md").read_text()
    rows = re.findall(r"^\| (CS\d|unspecified) \| (\w+) \| (.+) \|$", text, re.MULTILINE)
    expected = [(f"CS{level}", name, f"user property {PRIORITY}, `CS{level}`") for level, name in enumerate(PRIORITIES)]
    assert rows == [*expected, ("unspecified", PRIORITIES[1], "no property")]
