"""The intake sorts packets: what becomes a message, what goes to the session, what is ignored beyond the receive maximum."""

from typing import Any

import mqtt5
import pytest

from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.frames import ProtocolError
from streamer.transports.mqtt5.intake import PacketIntake
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.session import Session
from streamer.transports.mqtt5.wire import Encoder
from streamer.transports.received import Received
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.uri import UUri

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
        self.malformed: list[MalformedPacketError] = []
        self.intake = PacketIntake(
            self.session,
            PublishDecoder("in-vehicle", "gateway", 1024),
            Mqtt5Options(broker="mqtt://localhost", topics="in-vehicle", **options),
            self.malformed.append,
        )
        self.control: list[bytes] = []
        self.messages: list[Received] = []

    def take(self, *packets: bytes) -> None:
        self.intake.take(
            [memoryview(each) for each in packets], lambda frame: self.control.append(bytes(frame)), self.messages
        )

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
    harness.session.settle()
    assert harness.payloads == [b"a", b"b"]
    assert harness.control == [PINGRESP]
    assert results == [None]
    assert [each.packet_id for each in harness.session.receipts] == [1, 2]


def test_a_message_with_qos_0_owes_no_acknowledgement() -> None:
    harness = IntakeHarness()
    packet, _ = mqtt5.read(memoryview(harness.publish(b"a")))
    assert isinstance(packet, mqtt5.PublishPacket)
    harness.take(mqtt5.PublishPacket(packet.topic, b"b", user_properties=packet.user_properties).write())
    assert harness.payloads == [b"b"]
    assert not harness.session.receipts


def test_a_packet_that_is_no_message_is_told_and_acknowledged_in_its_turn() -> None:
    harness = IntakeHarness()
    foreign = b"\x32\x08\x00\x01x\x00\x07\x00hi"  # no user property at all
    harness.take(harness.publish(b"a", 1), foreign, harness.publish(b"b", 2))
    assert harness.payloads == [b"a", b"b"]
    assert [each.reason for each in harness.malformed] == [Malformed.MARKER]
    assert [each.packet_id for each in harness.session.receipts] == [1, 7, 2]


def test_beyond_the_bound_all_that_follows_is_ignored_until_the_next_connection() -> None:
    harness = IntakeHarness(receive_maximum=2, receive_excess_bytes=1024)
    for number in range(6):
        harness.take(harness.publish(b"%d" % number, number + 1))
    assert harness.payloads == [b"0", b"1", b"2", b"3"]  # twice the maximum, with more bytes than may be
    assert (harness.intake.is_full, harness.intake.overflows) == (True, True)
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
