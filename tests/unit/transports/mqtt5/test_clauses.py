"""What `mqtt_5.adoc` demands of a packet, one test for each of its clauses: each attribute, the payload, the topics."""

from dataclasses import replace
from typing import Any

import pytest

from streamer.transports.mqtt5.wire import Structure, encode, topic_filter, topic_for
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import format_id, new_id
from tests.unit.transports.mqtt5.messages import ID, PUBLISH, REQUEST, through_codec

NOTIFICATION = Attributes(UMessageType.NOTIFICATION, UUri.parse("//device1/3BA/3/8001"), UUri.parse("//device1/200AB/1/0"))
RESPONSE = Attributes(
    UMessageType.RESPONSE,
    UUri.parse("//device1/3BA/3/67"),
    UUri.parse("//device1/100AB/1/0"),
    priority=UPriority.CS4,
    ttl=1000,
    reqid=new_id(1_790_000_000_001),
)


def sent(attributes: Attributes, payload: bytes | None = b"x") -> Any:
    return through_codec(encode(UMessage(ID, attributes, payload), "topic", 7))


def property_of(attributes: Attributes, key: str) -> str | None:
    values = [value for name, value in sent(attributes).user_properties if name == key]
    assert len(values) <= 1
    return values[0] if values else None


def test_only_attributes_with_a_value_have_a_property() -> None:
    bare = sent(PUBLISH)
    assert [key for key, _ in bare.user_properties] == ["uP", "1", "2", "3"]
    assert (bare.message_expiry_interval, bare.content_type, bare.correlation_data) == (None, None, None)
    assert sent(replace(PUBLISH, token="", traceparent="")) == bare


def test_the_version_is_1() -> None:
    assert property_of(PUBLISH, "uP") == "1"


def test_the_id_is_hyphenated_text() -> None:
    assert property_of(PUBLISH, "1") == format_id(ID)


@pytest.mark.parametrize(
    ("attributes", "name"),
    [(PUBLISH, "up-pub.v1"), (REQUEST, "up-req.v1"), (RESPONSE, "up-res.v1"), (NOTIFICATION, "up-not.v1")],
)
def test_the_type_is_its_cloudevents_name(attributes: Attributes, name: str) -> None:
    assert property_of(attributes, "2") == name


def test_the_source_is_a_uri() -> None:
    assert property_of(REQUEST, "3") == "//veh1/403BA/3/0"


def test_the_sink_is_a_uri() -> None:
    assert property_of(REQUEST, "4") == "//cloud/CD/4/B"
    assert property_of(PUBLISH, "4") is None


@pytest.mark.parametrize("priority", list(UPriority))
def test_the_priority_is_its_name(priority: UPriority) -> None:
    assert property_of(replace(PUBLISH, priority=priority), "5") == (priority.name if priority else None)


@pytest.mark.parametrize(("ttl", "expiry_s"), [(1, 1), (999, 1), (1000, 1), (1001, 2), (60_000, 60)])
def test_the_expiry_interval_is_the_ttl_in_seconds_rounded_up(ttl: int, expiry_s: int) -> None:
    assert sent(replace(PUBLISH, ttl=ttl)).message_expiry_interval == expiry_s


@pytest.mark.parametrize("ttl", [1, 999, 1001, 59_999])
def test_a_ttl_that_is_not_in_whole_seconds_is_a_property_too(ttl: int) -> None:
    assert property_of(replace(PUBLISH, ttl=ttl), "6") == str(ttl)


def test_the_permission_level_is_decimal() -> None:
    assert property_of(replace(REQUEST, permission_level=11), "7") == "11"


def test_the_commstatus_is_the_number_of_its_code() -> None:
    assert property_of(replace(RESPONSE, commstatus=UCode.UNAUTHENTICATED), "8") == "16"


def test_the_request_id_is_correlation_data_of_16_bytes() -> None:
    assert sent(RESPONSE).correlation_data == RESPONSE.reqid


def test_the_token_is_a_property() -> None:
    assert property_of(REQUEST, "10") == "secret"


def test_the_traceparent_is_a_property() -> None:
    text = f"00-{'a' * 32}-{'b' * 16}-01"
    assert property_of(replace(PUBLISH, traceparent=text), "11") == text


@pytest.mark.parametrize("payload_format", list(UPayloadFormat))
def test_the_payload_format_is_the_number_in_the_content_type(payload_format: UPayloadFormat) -> None:
    content_type = sent(replace(PUBLISH, payload_format=payload_format)).content_type
    assert content_type == (str(int(payload_format)) if payload_format else None)


@pytest.mark.parametrize("payload", [b"x", bytes(range(256)), b"\xff" * 1000])
def test_the_payload_is_unaltered(payload: bytes) -> None:
    assert sent(PUBLISH, payload).payload == payload


@pytest.mark.parametrize(
    ("source", "sink", "topic"),
    [
        ("//device1/3BA/3/9876", None, "device1/3BA/0/3/9876"),
        ("//device1/3BA/3/8001", "//device1/200AB/1/0", "device1/3BA/0/3/8001/device1/AB/2/1/0"),
        ("//device1/403BA/3/0", "up:///AB/1/2", "device1/3BA/4/3/0/device1/AB/0/1/2"),
        ("up:///3BA/3/67", "//device1/100AB/1/0", "device1/3BA/0/3/67/device1/AB/1/1/0"),
    ],
)
def test_in_vehicle_topics_are_those_of_the_examples(source: str, sink: str | None, topic: str) -> None:
    kind = UMessageType.PUBLISH if sink is None else UMessageType.NOTIFICATION
    attributes = Attributes(kind, UUri.parse(source), None if sink is None else UUri.parse(sink))
    assert topic_for(attributes, "in-vehicle", "device1") == topic


@pytest.mark.parametrize("kind", [kind for kind in UMessageType if kind])
def test_off_vehicle_topics_are_two_authorities(kind: UMessageType) -> None:
    sink = everything_at("backend") if kind is UMessageType.PUBLISH else UUri("backend", 1, 1, 0)
    attributes = Attributes(kind, UUri("vehicle1", 0xA, 1, 0x8000), sink)
    assert topic_for(attributes, "off-vehicle", "vehicle1") == "vehicle1/backend"


@pytest.mark.parametrize(
    ("structure", "source", "sink", "expected"),
    [
        ("in-vehicle", "//*/FFFF03BA/3/9876", None, "+/3BA/+/3/9876"),
        ("in-vehicle", "//device1/3BA/4/FFFF", "//device1/AB/1/0", "device1/3BA/0/4/+/device1/AB/0/1/0"),
        ("in-vehicle", "//*/FFFFFFFF/FF/FFFF", "/AB/1/12CD", "+/+/+/+/+/device1/AB/0/1/12CD"),
        ("in-vehicle", "//*/FFFFFFFF/FF/FFFF", "/AB/1/0", "+/+/+/+/+/device1/AB/0/1/0"),
        ("off-vehicle", "//*/FFFFFFFF/FF/FFFF", "//backend/FFFFFFFF/FF/FFFF", "+/backend"),
    ],
)
def test_filters_are_those_of_the_examples(structure: Structure, source: str, sink: str | None, expected: str) -> None:
    parsed = None if sink is None else UUri.parse(sink)
    assert topic_filter(UUri.parse(source), parsed, structure, "device1") == expected
