"""The mapping between uProtocol messages and MQTT 5 packets, as in the specification and in other implementations."""

from dataclasses import replace

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import PermanentError, RefusedError
from streamer.transports.mqtt5 import wire
from streamer.uprotocol import cache
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import format_id, new_id
from tests.unit.transports.mqtt5.messages import ATTRIBUTES, ID, PUBLISH, REQUEST, through_codec


def written(attributes: Attributes, payload: bytes | None = b"x", topic: str = "a/b") -> mqtt5.PublishPacket:
    return through_codec(wire.encode(UMessage(ID, attributes, payload), topic, 7))


# -- what is written --------------------------------------------------------------------------------------------------


def test_publish_carries_exactly_these_properties() -> None:
    sent = written(replace(PUBLISH, priority=UPriority.CS1))
    assert sent.user_properties == [
        ("uP", "1"),
        ("1", format_id(ID)),
        ("2", "up-pub.v1"),
        ("3", "//veh1/A8000/2/8A50"),
        ("5", "CS1"),
    ]
    assert (sent.message_expiry_interval, sent.content_type, sent.correlation_data) == (None, None, None)
    assert (sent.qos, sent.retain, sent.duplicate, sent.packet_id) == (mqtt5.QoS.AT_LEAST_ONCE, False, False, 7)
    assert sent.response_topic is None


def test_request_carries_exactly_these_properties() -> None:
    sent = written(replace(REQUEST, traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01"))
    assert sent.user_properties == [
        ("uP", "1"),
        ("1", format_id(ID)),
        ("2", "up-req.v1"),
        ("3", "//veh1/403BA/3/0"),
        ("4", "//cloud/CD/4/B"),
        ("5", "CS4"),
        ("6", "1500"),
        ("7", "5"),
        ("10", "secret"),
        ("11", "00-" + "1" * 32 + "-" + "2" * 16 + "-01"),
    ]
    assert sent.message_expiry_interval == 2


def test_response_carries_its_request_as_correlation_data() -> None:
    reqid = new_id(1_790_000_000_001)
    response = Attributes(
        UMessageType.RESPONSE, UUri.parse("//cloud/CD/4/B"), UUri.parse("//veh1/403BA/3/0"), reqid=reqid, commstatus=UCode.OK
    )
    sent = written(response)
    assert sent.correlation_data == reqid
    assert sent.user_properties[-1] == ("8", "0")


@pytest.mark.parametrize(("ttl", "expiry_s"), [(None, None), (0, None), (1, 1), (1000, 1), (1001, 2), (2**32 - 1, 4294968)])
def test_ttl_is_always_a_property_and_its_expiry_is_rounded_up(ttl: int | None, expiry_s: int | None) -> None:
    sent = written(replace(PUBLISH, ttl=ttl))
    assert sent.message_expiry_interval == expiry_s
    assert dict(sent.user_properties).get("6") == (None if ttl is None else str(ttl))


def test_an_empty_attribute_has_no_property() -> None:
    assert written(replace(REQUEST, token="", traceparent="")) == written(replace(REQUEST, token=None))


def test_content_type_is_the_payload_format_number() -> None:
    assert written(replace(PUBLISH, payload_format=UPayloadFormat.SHM)).content_type == "8"


def test_in_vehicle_publish_goes_without_the_sink_a_streamer_set() -> None:
    addressed = replace(PUBLISH, sink=everything_at("cloud"))
    encoder = wire.Encoder("in-vehicle", "veh1")
    sent = through_codec(encoder.encode(UMessage(ID, addressed), 1, False))
    assert sent.topic == "veh1/8000/A/2/8A50"
    assert "4" not in dict(sent.user_properties)


def test_off_vehicle_publish_keeps_the_sink_a_streamer_set() -> None:
    addressed = replace(PUBLISH, sink=everything_at("cloud"))
    sent = through_codec(wire.Encoder("off-vehicle", "veh1").encode(UMessage(ID, addressed), 1, False))
    assert sent.topic == "veh1/cloud"
    assert dict(sent.user_properties)["4"] == "//cloud/FFFFFFFF/FF/FFFF"


def test_resent_packet_differs_in_the_duplicate_mark_only() -> None:
    encoder = wire.Encoder("in-vehicle", "veh1")
    message = UMessage(ID, REQUEST, b"payload")
    first, again = encoder.encode(message, 9, False), encoder.encode(message, 9, True)
    assert again[0] == first[0] | 0x08
    assert again[1:] == first[1:]


@given(ATTRIBUTES, st.sampled_from([0, 1, 20, 127, 128, 16_000, 2_097_152]), st.integers(1, 0xFFFF), st.booleans())
def test_packet_that_is_put_together_is_the_one_that_the_codec_writes(
    attributes: Attributes, size: int, packet_id: int, duplicate: bool
) -> None:
    bare = replace(attributes, sink=attributes.sink or REQUEST.sink, reqid=None, token=None, traceparent=None)
    data = wire.Encoder("off-vehicle", "veh1").encode(UMessage(ID, bare, b"x" * size), packet_id, duplicate)
    packet = through_codec(data)
    again = mqtt5.PublishPacket(
        packet.topic,
        b"x" * size,
        qos=mqtt5.QoS.AT_LEAST_ONCE,
        packet_id=packet_id,
        duplicate=duplicate,
        message_expiry_interval=packet.message_expiry_interval,
        content_type=packet.content_type,
        user_properties=[("uP", "1"), ("1", format_id(ID)), *packet.user_properties[2:]],
    )
    assert data == again.write()


def test_encoder_gives_the_same_bytes_from_memory_and_after_forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 2)
    encoder = wire.Encoder("in-vehicle", "veh1")
    messages = [UMessage(ID, replace(PUBLISH, ttl=ttl), b"x") for ttl in range(1, 6)]
    first = [encoder.encode(message, 1, False) for message in messages]
    assert [encoder.encode(message, 1, False) for message in messages] == first


def test_token_that_no_mqtt_string_holds_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="65535"):
        written(replace(PUBLISH, token="x" * 70_000))


@pytest.mark.parametrize(
    "character", ["\0", "\x01", "\t", "\n", "\x1f", "\x7f", "\x9f", "\ufdd0", "\ufdef", "\ufffe", "\U0001ffff", "\U0010fffe"]
)
def test_token_that_is_no_text_to_mqtt_is_a_value_error_that_does_not_tell_it(character: str) -> None:
    """Brokers end the connection over it (MQTT 5, 1.5.4)."""
    with pytest.raises(ValueError, match=rf"U\+{ord(character):04X} .* position 6") as caught:
        written(replace(REQUEST, token=f"secret{character}"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", [" ", "~", "\xa0", "\ufdcf", "\ufdf0", "\ufffd", "\U00010000", "\U0010fffd"])
def test_token_of_any_other_characters_is_written(token: str) -> None:
    assert ("10", token) in written(replace(REQUEST, token=token)).user_properties


# -- topics -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "structure", "topic"),
    [
        (PUBLISH, "in-vehicle", "veh1/8000/A/2/8A50"),
        (REQUEST, "in-vehicle", "veh1/3BA/4/3/0/cloud/CD/0/4/B"),
        (REQUEST, "off-vehicle", "veh1/cloud"),
        (replace(PUBLISH, source=UUri.parse("/A8000/2/8A50")), "in-vehicle", "own/8000/A/2/8A50"),
        (replace(REQUEST, sink=UUri.parse("/CD/4/B")), "off-vehicle", "veh1/own"),
        (replace(PUBLISH, sink=everything_at("cloud")), "off-vehicle", "veh1/cloud"),
        (replace(PUBLISH, sink=everything_at("cloud")), "in-vehicle", "veh1/8000/A/2/8A50"),
    ],
)
def test_topic(attributes: Attributes, structure: wire.Structure, topic: str) -> None:
    assert wire.topic_for(attributes, structure, "own") == topic


def test_publish_for_any_authority_goes_to_the_topic_of_the_star() -> None:
    attributes = replace(PUBLISH, sink=everything_at("*"))
    assert wire.topic_for(attributes, "off-vehicle", "own") == f"{PUBLISH.source.authority}/*"


@pytest.mark.parametrize(
    ("attributes", "structure"), [(PUBLISH, "off-vehicle"), (replace(REQUEST, sink=None), "in-vehicle")]
)
def test_what_cannot_be_addressed_says_so(attributes: Attributes, structure: wire.Structure) -> None:
    with pytest.raises(ValueError, match="sink"):
        wire.topic_for(attributes, structure, "own")


@pytest.mark.parametrize(
    ("source", "sink", "structure", "pattern"),
    [
        ("//veh1/A8000/2/8A50", None, "in-vehicle", "veh1/8000/A/2/8A50"),
        ("//*/FFFFFFFF/FF/FFFF", None, "in-vehicle", "+/+/+/+/+"),
        ("//veh1/FFFF/2/FFFF", None, "in-vehicle", "veh1/+/0/2/+"),
        ("//veh1/FFFF0001/2/8000", None, "in-vehicle", "veh1/1/+/2/8000"),
        ("//veh1/FFFFFFFF/FF/FFFF", "//cloud/FFFFFFFF/FF/FFFF", "in-vehicle", "veh1/+/+/+/+/cloud/+/+/+/+"),
        ("/FFFFFFFF/FF/0", "/CD/4/B", "in-vehicle", "own/+/+/+/0/own/CD/0/4/B"),
        ("//*/FFFFFFFF/FF/FFFF", None, "off-vehicle", "+/own"),
        ("//veh1/A8000/2/8A50", None, "off-vehicle", "veh1/own"),
        ("//*/FFFFFFFF/FF/FFFF", "//veh2/FFFFFFFF/FF/FFFF", "off-vehicle", "+/veh2"),
        ("//veh1/FFFFFFFF/FF/FFFF", "//*/FFFFFFFF/FF/FFFF", "off-vehicle", "veh1/+"),
    ],
)
def test_topic_filter(source: str, sink: str | None, structure: wire.Structure, pattern: str) -> None:
    sink_filter = None if sink is None else UUri.parse(sink)
    assert wire.topic_filter(UUri.parse(source), sink_filter, structure, "own") == pattern


# -- reason codes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        (0x87, PermanentError, UCode.PERMISSION_DENIED),
        (0x90, PermanentError, UCode.INVALID_ARGUMENT),
        (0x99, PermanentError, UCode.INVALID_ARGUMENT),
        (0x95, PermanentError, UCode.RESOURCE_EXHAUSTED),
        (0x97, RefusedError, UCode.RESOURCE_EXHAUSTED),
        (0x96, RefusedError, UCode.RESOURCE_EXHAUSTED),
        (0x91, RefusedError, UCode.UNAVAILABLE),
        (0x80, RefusedError, UCode.INTERNAL),
        (0x83, RefusedError, UCode.INTERNAL),
        (0xFE, RefusedError, UCode.INTERNAL),
    ],
)
def test_puback_reason(reason: int, kind: type, code: UCode) -> None:
    error = wire.puback_error(reason)
    assert type(error) is kind
    assert error is not None
    assert error.code is code


@pytest.mark.parametrize("reason", [0x00, 0x01, 0x10, 0x7F])
def test_puback_success(reason: int) -> None:
    assert wire.puback_error(reason) is None


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (0x00, UCode.OK),
        (0x86, UCode.UNAUTHENTICATED),
        (0x8C, UCode.UNAUTHENTICATED),
        (0x87, UCode.PERMISSION_DENIED),
        (0x88, UCode.UNAVAILABLE),
        (0x89, UCode.UNAVAILABLE),
        (0x85, UCode.INTERNAL),
    ],
)
def test_connack_reason(reason: int, code: UCode) -> None:
    assert wire.connack_code(reason) is code


@pytest.mark.parametrize("payload_format", list(UPayloadFormat))
@pytest.mark.parametrize("token", [None, "a token"], ids=["put together", "by the codec"])
def test_payload_format_is_a_user_property_too_where_that_is_wanted(
    payload_format: UPayloadFormat, token: str | None
) -> None:
    message = UMessage(ID, replace(PUBLISH, payload_format=payload_format, token=token), b"x")
    plain, both = (wire.Encoder("in-vehicle", "veh1", wanted) for wanted in (False, True))
    without, packet = (through_codec(encoder.encode(message, 7, False)) for encoder in (plain, both))
    added = [("12", str(int(payload_format)))] if payload_format else []
    assert sorted(packet.user_properties) == sorted([*without.user_properties, *added])
    assert packet.content_type == without.content_type
    assert "12" not in dict(without.user_properties)


# -- a TTL that counts from the arrival of the message ----------------------------------------------------------------

NOW_MS = 1_790_000_000_000


def sent_ending(message: UMessage, after_ms: int, sent_ms: int) -> mqtt5.PublishPacket:
    encoder = wire.Encoder("in-vehicle", "veh1", now_ms=lambda: NOW_MS + sent_ms)
    return through_codec(encoder.encode(message.ending(NOW_MS + after_ms, NOW_MS), 7, False))


@pytest.mark.parametrize(
    ("made_ms", "ttl", "expiry_s"),
    [
        (NOW_MS - 3_600_000, "3610000", 3610),  # it fits
        (NOW_MS + 5_000, "5000", 5),
        (40_000, "0", 8),  # 1970: the broker counts, receivers do not
        (NOW_MS + 3_600_000, "1", 8),  # an hour ahead: as short as can be
        (NOW_MS + 3 * 86_400_000, "10000", 10),
    ],
)
def test_a_ttl_from_the_arrival_is_sent_as_far_as_it_fits(made_ms: int, ttl: str, expiry_s: int) -> None:
    message = UMessage(new_id(made_ms), PUBLISH, b"x")
    sent = sent_ending(message, after_ms=10_000, sent_ms=2_500)
    assert (dict(sent.user_properties)["6"], sent.message_expiry_interval) == (ttl, expiry_s)
    assert dict(sent.user_properties)["1"] == format_id(message.id)


def test_a_request_from_1970_has_the_longest_ttl() -> None:
    sent = sent_ending(UMessage(new_id(40_000), REQUEST), after_ms=10_000, sent_ms=0)
    assert (dict(sent.user_properties)["6"], sent.message_expiry_interval) == ("4294967295", 10)


def test_what_has_expired_meanwhile_still_has_a_valid_expiry() -> None:
    message = UMessage(new_id(40_000), PUBLISH, b"x")
    assert sent_ending(message, after_ms=10_000, sent_ms=60_000).message_expiry_interval == 1
