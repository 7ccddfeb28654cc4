"""PUBLISH packets as the reader takes them apart: like the codec, and without its panics."""

from contextlib import suppress
from typing import Any

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.transports.mqtt5 import frames, publish
from tests.unit.transports.mqtt5.messages import through_codec

QOS_0, QOS_1 = mqtt5.QoS.AT_MOST_ONCE, mqtt5.QoS.AT_LEAST_ONCE
FIELDS = (
    "topic", "packet_id", "payload", "user_properties", "content_type", "correlation_data", "message_expiry_interval"
)  # fmt: skip
EVERYTHING, ASCII = (
    mqtt5.PublishPacket(
        "a/" + text,
        b"p",
        qos=QOS_1,
        packet_id=9,
        payload_format_indicator=1,
        content_type=text,
        response_topic="r",
        correlation_data=b"c",
        message_expiry_interval=0x1234,
        subscription_ids=[number, 1],
        user_properties=[("k", text + text), ("key", "value")],
    ).write()
    for text, number in (("\u00e4", 300), ("t", 3))
)
PROPERTIES = (
    b"\x01\x01", b"\x02\0\0\1\0", b"\x03\0\2\xc3\xa4", b"\x08\0\1r", b"\x09\0\1\xff", b"\x0b\xac\2", b"\x23\0\0",
    b"\x26\0\1k\0\1v", b"\x26\0\0\0\0", b"\x0b\0", b"\x0b\x80\0", b"\x0b\xff\xff\xff\x7f", b"\x11\0\0\0\1", b"\x12\0\1x",
    b"\x7f\0\0", b"\x21\0\1",
)  # fmt: skip


def same_as_codec(frame: bytes) -> bool:
    """Compare what reader and codec read. Return whether they read a packet."""
    try:
        read = publish.read(frame, 8192)
    except MalformedPacketError as exc:
        refused = exc
    except frames.ProtocolError:  # for the codec any text is a topic
        return False
    else:
        packet: Any = through_codec(frame)
        assert [getattr(read, name) for name in FIELDS] == [getattr(packet, name) for name in FIELDS]
        return True
    assert refused.reason is Malformed.PACKET
    if frame.isascii() and "after the properties" not in str(refused):  # else the codec panics, or reads on
        with pytest.raises((ValueError, IndexError)):
            through_codec(frame)
    return False


@pytest.mark.parametrize("whole", [EVERYTHING, ASCII], ids=["any text", "ASCII"])
def test_whatever_is_changed_in_a_packet_it_is_read_as_the_codec_reads_it(whole: bytes) -> None:
    assert same_as_codec(whole)
    read = 0
    for at in range(2, len(whole)):
        for value in (*range(0x30), 0x7F, 0x80, 0xC3, 0xFF):
            changed = bytearray(whole)
            changed[at] = value
            read += same_as_codec(bytes(changed))
    assert read > 50


@given(
    st.sampled_from([b"", b"t", b"#", b"a/\xc3\xa4"]),
    st.sampled_from([0x30, 0x31, 0x32, 0x3B]),
    st.lists(st.sampled_from(PROPERTIES), max_size=5),
    st.integers(-3, 3),
    st.sampled_from([b"", b"x", b"\x26\0\0"]),
)
def test_any_properties_are_read_as_the_codec_reads_them(
    topic: bytes, first: int, properties: list[bytes], wrong: int, payload: bytes
) -> None:
    joined = b"".join(properties)
    packet_id = b"\0\7" if first & frames.QOS else b""
    size = bytes([max(0, len(joined) + wrong)])
    body = len(topic).to_bytes(2, "big") + topic + packet_id + size + joined + payload
    same_as_codec(bytes((first, len(body))) + body)


@given(st.binary(max_size=40), st.sampled_from([0x30, 0x32]))
def test_reading_raises_nothing_but_malformed(rest: bytes, first: int) -> None:
    with suppress(MalformedPacketError):
        publish.read(bytes((first, len(rest))) + rest, 8192)


@pytest.mark.parametrize(
    "frame",
    [b"\x32\x87\0\0\1a\0\5\0x", b"\x32\x08\0\1a\0\5\x80\0x", b"\x32\x0a\0\1a\0\5\x80\x80\x80\x80x"],
    ids=["of the packet", "of the properties", "of the properties, too long"],
)
def test_length_in_more_bytes_than_it_needs_is_malformed(frame: bytes) -> None:
    assert not same_as_codec(frame)


_NOT_UTF8 = (b"\xff", b"\xc3", b"\xed\xa0\x80")


@pytest.mark.parametrize(
    "frame",
    [
        b"\x32\x0c\x00\x02ab\x00\x05\x04\x03\x00\x01\xffa",  # a content type that is no UTF-8
        b"\x32\x06\x00\x02ab\x00\x05",  # no property length
        b"\x32\x0a\x00\x02ab\x00\x05\x7f\x26ab",  # properties longer than the packet
    ],
)
def test_unreadable_publish_is_malformed_and_gives_its_packet_id(frame: bytes) -> None:
    with pytest.raises(MalformedPacketError) as caught:
        publish.read(frame, 8192)
    assert caught.value.reason is Malformed.PACKET
    assert publish.packet_id(frame) == 5


@pytest.mark.parametrize("text", _NOT_UTF8)
@pytest.mark.parametrize("first", [0x30, 0x32])
@pytest.mark.parametrize("place", ["content type", "response topic", "key", "value"])
def test_text_that_is_not_utf8_is_refused(text: bytes, first: int, place: str) -> None:
    size = len(text).to_bytes(2, "big")
    properties = {
        "content type": b"\x03" + size + text,
        "response topic": b"\x08" + size + text,
        "key": b"\x26" + size + text + b"\x00\x01v",
        "value": b"\x26\x00\x01k" + size + text,
    }[place]
    before = b"\x02\xff\xff\xff\x00\x09\x00\x02\xff\xfe" + b"\x26\x00\x01k\x00\x02\xc3\xa4"  # numbers, bytes and text
    topic = b"\x00\x02\xc3\xa4"
    packet_id = b"\x00\x05" if first & frames.QOS else b""
    body = topic + packet_id + bytes([len(before) + len(properties)]) + before + properties + b"\xff"
    with pytest.raises(MalformedPacketError, match="text that is not UTF-8"):
        publish.read(bytes([first, len(body)]) + body, 8192)


@pytest.mark.parametrize("qos", [QOS_0, QOS_1])
def test_property_that_ends_in_the_payload_is_refused(qos: mqtt5.QoS) -> None:
    packet_id = None if qos == QOS_0 else 5
    frame = mqtt5.PublishPacket("a", b"\xf4" * 9, qos=qos, packet_id=packet_id, user_properties=[("uP", "")]).write()
    overrun = frame.replace(b"uP\x00\x00", b"uP\x00\x04")
    with pytest.raises(MalformedPacketError, match="a property that ends 4 bytes after the properties"):
        publish.read(overrun, 8192)


@pytest.mark.parametrize("frame", [b"\x32\x04\x00\xffab", b"\x32\x04\x00\x02ab", b"\x32\x06\x00\x02ab\x00\x00"])
def test_publish_without_packet_id_ends_the_connection(frame: bytes) -> None:
    with pytest.raises(frames.ProtocolError):
        publish.packet_id(frame)


def with_properties(count: int, qos: mqtt5.QoS = QOS_1) -> bytes:
    pairs = [("k", "v")] * count  # 7 bytes each
    packet_id = 9 if qos == QOS_1 else None
    return mqtt5.PublishPacket("a/b", b"x" * 9000, qos=qos, packet_id=packet_id, user_properties=pairs).write()


@pytest.mark.parametrize("qos", [QOS_1, QOS_0])
def test_properties_are_measured_before_they_are_decoded(qos: mqtt5.QoS) -> None:
    publish.read(with_properties(146, qos), 1024)
    with pytest.raises(MalformedPacketError) as caught:
        publish.read(with_properties(147, qos), 1024)
    assert caught.value.reason is Malformed.HEADER


def test_property_bomb_is_refused_and_can_be_acknowledged() -> None:
    bomb = with_properties(2_000_000)
    with pytest.raises(MalformedPacketError):
        publish.read(bomb, 8192)
    assert publish.packet_id(bomb) == 9


@given(st.binary(max_size=40), st.integers(0x30, 0x33))
def test_measuring_raises_nothing_but_malformed(rest: bytes, first: int) -> None:
    with suppress(MalformedPacketError):
        publish.read(bytes((first, len(rest))) + rest, 8)


WITH_TOKEN = mqtt5.PublishPacket(
    "a/b",
    b"payload",
    qos=QOS_1,
    packet_id=3,
    correlation_data=b"c" * 16,
    user_properties=[("uP", "1"), ("10", "t" * 200), ("2", "up-pub.v1"), ("10", "t"), ("x", "y" * 50)],
).write()


@given(
    st.lists(st.tuples(st.integers(1, len(WITH_TOKEN) - 1), st.integers(0, 255)), max_size=4),
    st.integers(2, len(WITH_TOKEN)),
    st.integers(0, 400),
)
def test_part_that_is_read_is_bounded_and_has_no_token_however_the_packet_is_damaged(
    damage: list[tuple[int, int]], end: int, max_header_bytes: int
) -> None:
    frame = bytearray(WITH_TOKEN)
    for position, value in damage:
        frame[position] = value
    with suppress(IndexError, ValueError, frames.ProtocolError):
        part, _, _ = publish.read_part(bytes(frame[:end]), max_header_bytes, 4)
        assert len(part.payload) <= 4
        assert sum(len(key) + len(value) for key, value in part.user_properties) <= max_header_bytes
        assert "10" not in dict(part.user_properties)
