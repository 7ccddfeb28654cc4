"""The byte stream of an MQTT connection cut into packets."""

import tracemalloc
from contextlib import suppress
from itertools import pairwise
from typing import Any

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.transports.mqtt5 import frames, publish
from streamer.transports.mqtt5.headers import KnownHeaders

QOS_1 = mqtt5.QoS.AT_LEAST_ONCE
LARGE = mqtt5.PublishPacket("a/b", b"x" * 20_000, qos=QOS_1, packet_id=3).write()
STREAM = b"".join(
    [
        mqtt5.PingRespPacket().write(),
        mqtt5.PublishPacket("a/b", b"x" * 90, qos=QOS_1, packet_id=1).write(),
        mqtt5.PublishPacket("a/b", b"x" * 300, qos=QOS_1, packet_id=2).write(),
        LARGE,
        mqtt5.PubAckPacket(4).write(),
    ]
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_packets_do_not_depend_on_how_the_stream_is_split(cuts: list[int]) -> None:
    reader = frames.FrameReader(1 << 20)
    edges = [0, *sorted(cuts), len(STREAM)]
    found = []
    for start, end in pairwise(edges):
        complete, error = reader.feed(STREAM[start:end])
        assert error is None
        found += [bytes(frame) for frame in complete]
    assert b"".join(found) == STREAM
    assert len(found) == 5


def test_stream_in_single_bytes_gives_the_same_packets() -> None:
    reader = frames.FrameReader(1 << 20)
    found = [bytes(frame) for byte in STREAM for frame in reader.feed(bytes((byte,)))[0]]
    assert b"".join(found) == STREAM


@pytest.mark.parametrize("announcement", [b"\x90\xe9\x07", b"\x34\xe9\x07"], ids=["no PUBLISH", "QoS 2"])
def test_too_large_packet_is_refused_by_its_announcement(announcement: bytes) -> None:
    reader = frames.FrameReader(1000)
    complete, error = reader.feed(mqtt5.PingRespPacket().write() + announcement)
    assert len(complete) == 1
    assert error is not None
    assert error.reason == mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_too_large_publish_is_skipped_however_the_stream_is_split(cuts: list[int]) -> None:
    reader = frames.FrameReader(1000)
    found = []
    for start, end in pairwise([0, *sorted(cuts), len(STREAM)]):
        complete, error = reader.feed(STREAM[start:end])
        assert error is None
        found += [bytes(frame) for frame in complete]
    assert not reader.is_skipping
    stub = found.pop(3)
    assert b"".join(found) == STREAM.replace(LARGE, b"")
    assert publish.packet_id(stub) == 3
    with pytest.raises(MalformedPacketError) as caught:
        publish.read(stub, 8192)
    assert caught.value.reason is Malformed.SIZE


def test_publish_of_the_largest_size_that_there_is_takes_little_memory() -> None:
    reader = frames.FrameReader(1 << 20)
    piece = b"x" * (1 << 20)
    tracemalloc.start()
    try:
        found, _ = reader.feed(b"\x32\xff\xff\xff\x7f\x00\x01a\x00\x05\x00")
        for _ in range(255):
            found += reader.feed(piece)[0]
        found += reader.feed(piece[7:] + b"\xd0\x00")[0]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    stub, ping = found
    assert publish.packet_id(stub) == 5
    assert bytes(ping) == b"\xd0\x00"
    assert most < 3 << 20  # the piece with which it ends, and a copy of it


def test_too_large_publish_without_room_for_a_packet_id_ends_the_connection() -> None:
    (stub,), _ = frames.FrameReader(1000).feed(b"\x32\xe9\x07\xff\xff" + bytes(999))
    with pytest.raises(frames.ProtocolError):
        publish.packet_id(stub)


@pytest.mark.parametrize("data", [b"HTTP/1.1 400", b"\x00\xff", b"\x10\xff", b"\x82\x10", b"\xc0\x00"])
def test_packet_that_no_broker_sends_is_malformed_at_once(data: bytes) -> None:
    complete, error = frames.FrameReader(1000).feed(mqtt5.PingRespPacket().write() + data)
    assert len(complete) == 1
    assert error is not None
    assert error.reason == mqtt5.DisconnectReasonCode.MALFORMED_PACKET


def test_length_of_more_than_four_bytes_is_malformed() -> None:
    _, error = frames.FrameReader(1000).feed(b"\x30\xff\xff\xff\xff\x01")
    assert error is not None
    assert error.reason == mqtt5.DisconnectReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("property_id", [0x12, 0x15, 0x1A, 0x1C, 0x1F])
@pytest.mark.parametrize("before", [b"\x20\x00\x00", b"\x90\x00\x05", b"\xb0\x00\x05", b"\xe0\x8b", b"\xf0\x18"])
def test_text_of_a_control_packet_is_refused_without_a_word_from_the_codec(
    before: bytes, property_id: int, capfd: pytest.CaptureFixture[str]
) -> None:
    body = before[1:] + bytes((5, property_id, 0, 2)) + b"\xff\xfe" + b"\x00"
    with pytest.raises(MalformedPacketError, match="text that is not UTF-8"):
        frames.read(bytes((before[0], len(body))) + body)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("code", range(1, 6))
def test_an_answer_of_mqtt_3_is_called_that(code: int) -> None:
    with pytest.raises(MalformedPacketError, match=r"speaks only MQTT 3\.1\.1"):
        frames.read(bytes((0x20, 2, 0, code)))


ANY: dict[str, Any] = {"reason_str": "\u00e4", "user_properties": [("k", "\u00e4\u20ac"), ("key", "value")]}
EVERY_KIND: list[Any] = [
    mqtt5.ConnAckPacket(
        assigned_client_id="\u00e4", server_reference="r", authentication_data=b"\xff", server_keep_alive=9, **ANY
    ),
    mqtt5.PubAckPacket(5, reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED, **ANY),
    mqtt5.PubRecPacket(5, reason_code=mqtt5.PubRecReasonCode.NOT_AUTHORIZED, **ANY),
    mqtt5.PubRelPacket(5, reason_code=mqtt5.PubRelReasonCode.PACKET_ID_NOT_FOUND, **ANY),
    mqtt5.PubCompPacket(5, reason_code=mqtt5.PubCompReasonCode.PACKET_ID_NOT_FOUND, **ANY),
    mqtt5.SubAckPacket(5, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED] * 3, **ANY),
    mqtt5.UnsubAckPacket(5, [mqtt5.UnsubAckReasonCode.NOT_AUTHORIZED] * 3, **ANY),
    mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SERVER_BUSY, server_reference="\u00e4", **ANY),
    mqtt5.AuthPacket(authentication_method="\u00e4", authentication_data=b"\xff", **ANY),
]  # fmt: skip


@pytest.mark.parametrize("packet", EVERY_KIND, ids=lambda packet: type(packet).__name__)
def test_whatever_is_changed_in_a_packet_the_codec_says_nothing(packet: Any, capfd: pytest.CaptureFixture[str]) -> None:
    whole = packet.write()
    assert frames.read(whole).user_properties == ANY["user_properties"]
    read = 0
    for at in range(2, len(whole)):
        for value in (*range(0x30), 0x7F, 0x80, 0xC3, 0xFF):
            changed = bytearray(whole)
            changed[at] = value
            try:
                frames.read(bytes(changed))
            except MalformedPacketError:
                continue
            read += 1
    assert read > 50
    assert capfd.readouterr().err == ""


@given(st.binary(max_size=40), st.sampled_from([packet.write()[0] for packet in EVERY_KIND]))
def test_reading_raises_nothing_but_malformed(rest: bytes, first: int) -> None:
    with suppress(MalformedPacketError):
        frames.read(bytes((first, len(rest))) + rest)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b"\x40\x02\x01\x02", (0x102, 0)),
        (b"\x40\x03\x01\x02\x10", (0x102, 0x10)),
        (b"\x40\x03\x01\x02\x96", (0x102, 0x96)),
        (b"\x40\x82\x00\x01\x02", (0x102, 0)),  # lengths in more bytes than needed
        (b"\x40\x82\x80\x00\x01\x02", (0x102, 0)),
        (b"\x40\x83\x80\x80\x00\x01\x02\x10", (0x102, 0x10)),
        (mqtt5.PubAckPacket(5, reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED, reason_str="r" * 300).write(), (5, 0x87)),
    ],
)
def test_puback(frame: bytes, expected: tuple[int, int]) -> None:
    assert frames.puback(frame) == expected


@pytest.mark.parametrize("length", [0, 1])
@pytest.mark.parametrize("length_bytes", [1, 2, 3, 4])
def test_short_puback_ends_the_connection(length: int, length_bytes: int) -> None:
    with pytest.raises(frames.ProtocolError, match="without packet id"):
        frames.puback(b"\x40" + in_bytes(length, length_bytes) + bytes(length))


def in_bytes(length: int, count: int) -> bytes:
    """A length in so many bytes, be it more than needed (MQTT 5, 1.5.5)."""
    return bytes((length | 0x80, *(0x80,) * (count - 2), 0)) if count > 1 else bytes((length,))


@given(st.binary(max_size=12), st.integers(1, 4), st.sampled_from([0x30, 0x32, 0x3A, 0x40]))
def test_what_is_read_without_the_codec_may_be_as_short_as_it_likes(body: bytes, length_bytes: int, first: int) -> None:
    (frame,), error = frames.FrameReader(1024).feed(bytes((first,)) + in_bytes(len(body), length_bytes) + body)
    assert error is None
    with suppress(frames.ProtocolError):
        (frames.puback if first == frames.PUBACK else publish.packet_id)(frame)
    with suppress(MalformedPacketError):
        publish.read(frame, 1)
    with suppress(ValueError, IndexError):
        publish.read_part(frame, 8, 8)
    assert KnownHeaders().read(frame) is None


@pytest.mark.parametrize("first", [0x20, 0x40, 0x90, 0xB0, 0xE0])
def test_other_packets_are_small(first: int) -> None:
    complete, error = frames.FrameReader(1 << 24).feed(bytes((first, 0x80, 0x80, 0x01)) + bytes(100))
    assert complete == []
    assert error is not None
    assert error.reason == mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE
