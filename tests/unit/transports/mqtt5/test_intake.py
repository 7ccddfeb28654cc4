"""The intake sorts packets: what becomes a message, what goes to the session, what is ignored beyond the receive maximum."""

import contextlib
from dataclasses import replace
from typing import Any

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import Malformed, Unwanted
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.frames import FrameReader, ProtocolError, as_variable_int
from streamer.transports.mqtt5.intake import PacketIntake
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.publish import read_part
from streamer.transports.mqtt5.session import Session
from streamer.transports.mqtt5.wire import Encoder
from streamer.transports.received import Received
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Options, UMessage, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.transport_events import EventLog

NOW_MS = 1_790_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)
PINGRESP = b"\xd0\x00"


def puback(packet_id: int) -> bytes:
    return b"\x40\x02" + packet_id.to_bytes(2, "big")


class IntakeHarness:
    """An intake, what it has taken, and what it has told."""

    def __init__(self, **options: Any) -> None:
        self.encoder = Encoder("in-vehicle", "veh1")
        self.session = Session(10, self.encoder.encode, lambda: None)
        self.session.connected(False, 10, None)
        self.events = EventLog()
        self.intake = PacketIntake(
            self.session,
            PublishDecoder("in-vehicle", "gateway", 1024, Flows()),
            Mqtt5Options(broker=("mqtt://localhost",), topics="in-vehicle", **options),
            self.events,
        )
        self.control: list[bytes] = []
        self.messages: list[Received] = []

    def take(self, *packets: bytes) -> None:
        self.intake.take(packets, self.control.append, self.messages)

    def publish(self, payload: bytes, packet_id: int = 1) -> bytes:
        return self.encoder.encode(self.message(payload), packet_id, False)

    @staticmethod
    def message(payload: bytes = b"") -> UMessage:
        return publish(NOW_MS, TOPIC, payload)

    @property
    def payloads(self) -> list[bytes | None]:
        return [received.message.payload for received in self.messages]


def test_messages_stay_in_order_and_the_rest_goes_to_whom_it_concerns() -> None:
    harness = IntakeHarness()
    results: list[object] = []
    harness.session.submit((Received(harness.message()),), lambda parcels, error: results.append(error))
    harness.take(harness.publish(b"a", 1), PINGRESP, puback(1), harness.publish(b"b", 2))
    harness.session.report_results()
    assert harness.payloads == [b"a", b"b"]
    assert harness.control == [PINGRESP]
    assert results == [None]
    assert [each.packet_id for each in harness.session.unacknowledged] == [1, 2]


def test_a_message_with_qos_0_owes_no_acknowledgement() -> None:
    harness = IntakeHarness()
    packet, _ = mqtt5.read(memoryview(harness.publish(b"a")))
    assert isinstance(packet, mqtt5.PublishPacket)
    harness.take(mqtt5.PublishPacket(packet.topic, b"b", user_properties=packet.user_properties).write())
    assert harness.payloads == [b"b"]
    assert not harness.session.unacknowledged


def test_a_packet_that_is_too_large_is_refused_though_its_header_is_known() -> None:
    harness = IntakeHarness(max_packet_bytes=70_000)
    harness.take(harness.publish(b"a", 1), harness.publish(b"b", 2))
    frames, error = FrameReader(70_000).feed(harness.publish(b"x" * 80_000, 3))
    assert error is None
    harness.take(*map(bytes, frames))
    assert harness.payloads == [b"a", b"b"]
    assert [each.code for each in harness.intake.refused] == [UCode.RESOURCE_EXHAUSTED]
    assert [each.packet_id for each in harness.session.unacknowledged] == [1, 2, 3]


def test_a_packet_that_is_sent_again_says_so_whether_its_header_is_known_or_not() -> None:
    harness = IntakeHarness()
    first, again = (harness.encoder.encode(harness.message(), 1, mark) for mark in (False, True))
    harness.take(again, first, again)
    assert [each.redelivered for each in harness.messages] == [True, False, True]


def test_a_packet_that_is_no_message_is_told_and_acknowledged_in_its_turn() -> None:
    harness = IntakeHarness()
    foreign = b"\x32\x08\x00\x01x\x00\x07\x00hi"  # no user property at all
    harness.take(harness.publish(b"a", 1), foreign, harness.publish(b"b", 2))
    assert harness.payloads == [b"a", b"b"]
    assert [each.reason for each in harness.events.malformed] == [Malformed.MARKER]
    assert [each.packet_id for each in harness.session.unacknowledged] == [1, 7, 2]


def harness_bytes() -> int:
    """The memory of a message of the harness."""
    return IntakeHarness.message(b"0").size


@pytest.mark.parametrize("size", [1, 100, 70_000])
def test_unacknowledged_messages_take_no_more_memory_than_they_may_whatever_their_size(size: int) -> None:
    most = 1_000_000
    harness = IntakeHarness(receive_maximum=65_535, receive_excess_bytes=most, max_packet_bytes=100_000)
    for number in range(3 * most // (size + harness_bytes())):
        harness.take(harness.publish(bytes(size), number + 1))
    assert harness.intake.overflows
    assert most < harness.session.unacknowledged_bytes <= most + size + 2 * harness_bytes()
    assert not harness.intake.has_room(1)


def test_beyond_the_bound_all_that_follows_is_ignored_until_the_next_connection() -> None:
    harness = IntakeHarness(receive_maximum=100, receive_excess_bytes=3 * harness_bytes())
    full = []
    for number in range(6):
        harness.take(harness.publish(b"%d" % number, number + 1))
        full.append(harness.intake.is_full)
    assert harness.payloads == [b"0", b"1", b"2", b"3"]  # as many bytes as may be, and one more message
    assert full == [False, True, True, True, True, True]  # reading should have stopped at half of them
    assert harness.intake.overflows
    harness.session.disconnected()
    harness.session.connected(True, 10, None)
    harness.intake.overflows = False
    harness.take(harness.publish(b"4", 5))
    assert harness.payloads[-1] == b"4"


@pytest.mark.parametrize("first", [0x34, 0x36])
def test_a_publish_with_another_qos_ends_the_connection_after_what_came_before(first: int) -> None:
    harness = IntakeHarness()
    wrong = bytearray(harness.publish(b"b", 2))
    wrong[0] = first
    with pytest.raises(ProtocolError, match="not asked for"):
        harness.take(harness.publish(b"a", 1), bytes(wrong))
    assert harness.payloads == [b"a"]


# -- what is too large, and the balance


LARGE = Options(ttl=30_000, permission_level=3)


def with_properties(packet: bytes, *more: tuple[str, str]) -> bytes:
    """The same PUBLISH with more user properties."""
    read, _ = mqtt5.read(memoryview(packet))
    assert isinstance(read, mqtt5.PublishPacket)
    return mqtt5.PublishPacket(
        read.topic,
        read.payload,
        qos=read.qos,
        packet_id=read.packet_id,
        content_type=read.content_type,
        message_expiry_interval=read.message_expiry_interval,
        user_properties=[*read.user_properties, *more],
    ).write()


def stub_of(packet: bytes, max_packet_bytes: int) -> bytes:
    """What is left of a packet that is too large, in pieces, after it has passed."""
    reader = FrameReader(max_packet_bytes)
    stubs: list[bytes] = []
    for start in range(0, len(packet), 1000):
        frames, error = reader.feed(packet[start : start + 1000])
        assert error is None
        stubs += frames
    (stub,) = stubs
    assert len(stub) < len(packet)
    return bytes(stub)


def test_beginning_of_a_message_that_is_too_large_is_refused_with_its_attributes() -> None:
    harness = IntakeHarness(max_packet_bytes=2048)
    message = publish(NOW_MS, TOPIC, bytes(range(256)) * 400, LARGE)
    stub = stub_of(harness.encoder.encode(message, 2, False), 2048)
    harness.take(harness.publish(b"a", 1), stub, harness.publish(b"b", 3))
    assert harness.payloads == [b"a", b"b"]
    (refused,) = harness.intake.refused
    assert refused.received.message == replace(message, payload=bytes(range(256)) * 16)
    assert (refused.code, refused.payload_bytes) == (UCode.RESOURCE_EXHAUSTED, 102_400)
    assert refused.text.startswith("too large: size: a packet of 102")
    assert [each.packet_id for each in harness.session.unacknowledged] == [1, 2, 3]
    assert harness.events.malformed == []


MANY = [("junk", "x" * 1000)] * 100
BEYOND = {
    "token": [("10", "t" * 2000)],
    "properties behind the known ones": MANY,
    "properties and a token": [*MANY, ("10", "t" * 60_000)],
    "token and properties": [("10", "t" * 60_000), *MANY],
}


@pytest.mark.parametrize("more", BEYOND.values(), ids=BEYOND)
def test_attributes_that_fit_are_known_of_a_message_whose_header_is_too_large(more: list[tuple[str, str]]) -> None:
    harness = IntakeHarness()
    message = publish(NOW_MS, TOPIC, b"x" * 5000, LARGE)
    harness.take(with_properties(harness.encoder.encode(message, 1, False), *more))
    (refused,) = harness.intake.refused
    assert refused.received.message == replace(message, payload=b"x" * 4096)
    assert refused.payload_bytes == 5000
    assert "ttt" not in refused.text


def test_header_without_an_id_within_its_bound_is_malformed() -> None:
    harness = IntakeHarness()
    packet, _ = mqtt5.read(memoryview(harness.publish(b"a", 1)))
    assert isinstance(packet, mqtt5.PublishPacket)
    harness.take(
        mqtt5.PublishPacket(
            packet.topic, b"a", qos=packet.qos, packet_id=1, user_properties=[*MANY, *packet.user_properties]
        ).write()
    )
    assert ([each.reason for each in harness.events.malformed], harness.intake.refused) == ([Malformed.HEADER], [])
    assert [each.packet_id for each in harness.session.unacknowledged] == [1]


def test_message_of_another_is_malformed_however_large() -> None:
    harness = IntakeHarness(max_packet_bytes=2048)
    forged = Encoder("in-vehicle", "veh1").encode(publish(NOW_MS, TOPIC, bytes(10_000)), 1, False)
    harness.take(stub_of(forged.replace(b"veh1/A/0", b"evil/A/0", 1), 2048))
    assert ([each.reason for each in harness.events.malformed], harness.intake.refused) == ([Malformed.SIZE], [])


FORBIDDEN = [(topic, b"", 0x81) for topic in (b"a\0b", b"\0", b"a/+", b"#", b"a\xff", b"\xed\xa0\x80")]
ALIASES = [(topic, b"\x23" + alias, 0x94) for topic in (b"", b"x") for alias in (b"\0\0", b"\0\1", b"\xff\xff")]


@pytest.mark.parametrize(("topic", "properties", "code"), [(b"", b"", 0x82), *FORBIDDEN, *ALIASES])
@pytest.mark.parametrize("size", [0, 100_000], ids=["small", "too large"])
@pytest.mark.parametrize("first", [0x30, 0x32], ids=["QoS 0", "QoS 1"])
def test_a_topic_or_an_alias_that_no_broker_may_send_ends_the_connection_with_its_code(
    first: int, size: int, topic: bytes, properties: bytes, code: int
) -> None:
    harness = IntakeHarness(max_packet_bytes=70_000)
    body = len(topic).to_bytes(2, "big") + topic + (b"\0\7" if first == 0x32 else b"")
    body += bytes([len(properties)]) + properties + bytes(size)
    whole = bytes([first]) + as_variable_int(len(body)) + body
    cut, error = FrameReader(70_000).feed(harness.publish(b"a", 1) + whole + harness.publish(b"b", 2))
    assert error is None
    with pytest.raises(ProtocolError) as caught:
        harness.take(*cut)
    assert caught.value.reason == code
    assert harness.payloads == [b"a"]
    assert [each.packet_id for each in harness.session.unacknowledged] == [1]  # the broker is told, and not acknowledged
    assert harness.events.packets == len(harness.messages) + len(harness.events.malformed) == 2


def test_identity_that_may_be_missing_proves_nothing() -> None:
    harness = IntakeHarness(identity_property="user")
    harness.take(with_properties(harness.publish(b"a", 1), ("user", "admin"), *MANY, ("user", "mallory")))
    assert ([each.reason for each in harness.events.malformed], harness.intake.refused) == ([Malformed.HEADER], [])


def test_every_packet_is_counted_once() -> None:
    harness = IntakeHarness(receive_maximum=2, receive_excess_bytes=5 * harness_bytes() // 2)
    foreign = b"\x32\x08\x00\x01x\x00\x07\x00hi"
    large = with_properties(harness.publish(b"large", 8), *MANY)
    harness.take(harness.publish(b"a", 1), PINGRESP, foreign, large)
    with pytest.raises(ProtocolError):
        harness.take(harness.publish(b"b", 2), harness.publish(b"c", 3), b"\x34" + harness.publish(b"d", 4)[1:])
    events = harness.events
    assert events.packets == 6
    assert [each.reason for each in events.malformed] == [Malformed.MARKER, Malformed.PACKET]
    assert events.unwanted == {Unwanted.EXCESS: 1}
    assert events.packets == len(harness.messages) + len(harness.intake.refused) + len(events.malformed) + 1


@given(st.binary(max_size=200), st.sampled_from([b"\x30", b"\x32"]), st.integers(0, 100))
def test_garbage_that_is_too_large_costs_nothing_but_itself(rest: bytes, first: bytes, most: int) -> None:
    harness = IntakeHarness()
    frame = first + bytes((0x80 | 0x7F, 0x7F)) + rest  # announces 16 383 bytes
    with contextlib.suppress(ProtocolError):
        harness.take(frame)
    assert harness.events.packets == 1
    assert len(harness.events.malformed) + len(harness.intake.refused) == 1
    with contextlib.suppress(ValueError, IndexError):
        read_part(frame, most, 10)
