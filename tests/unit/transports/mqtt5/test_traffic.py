"""What each read from a broker and each batch to it leads to: what is written, acknowledged, held back and told."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import mqtt5
import pytest

from streamer.transports.base import MessageParcel
from streamer.transports.errors import LinkLostError
from streamer.transports.link_error import LinkFailure
from streamer.uprotocol.message import request
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.unit.transports.mqtt5.traffic_harness import NOW_MS, TrafficHarness

CALLER, METHOD = UUri("veh1", 0xA, 1, 0), UUri("cloud", 0xB, 1, 7)
PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"


def puback(packet_id: int) -> bytes:
    return b"\x40\x02" + packet_id.to_bytes(2, "big")


Make = Callable[..., TrafficHarness]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes harnesses, and ends their connections."""
    with ExitStack() as stack:

        def make(**settings: Any) -> TrafficHarness:
            end, _ = map(stack.enter_context, socket.socketpair())
            harness = TrafficHarness(end, **settings)
            stack.callback(harness.connection.connection_lost, None)
            return harness

        yield make


def ids(packets: list[Any], kind: type) -> list[int]:
    assert [type(packet) for packet in packets] == [kind] * len(packets)
    return [packet.packet_id for packet in packets]


# -- sending


async def test_a_batch_is_written_at_once_in_order_and_in_one_write(make: Make) -> None:
    harness = make()
    harness.submit(b"a", b"b", b"c")
    harness.traffic.write(PINGREQ)
    assert len(harness.socket.writes) == 2
    assert harness.socket.writes.pop() == PINGREQ
    assert [packet.payload for packet in harness.written()] == [b"a", b"b", b"c"]
    assert harness.results == []
    harness.read(puback(1), puback(2), puback(3))
    assert harness.results == [None, None, None]


async def test_without_a_session_a_batch_is_given_back_as_not_sent(make: Make) -> None:
    harness = make()
    harness.session.disconnected()
    harness.submit(b"a", b"b")
    assert [type(error) for error in harness.results] == [LinkLostError] * 2
    assert harness.socket.writes == []


async def test_what_is_sent_after_the_connection_has_gone_waits_for_the_next_one(make: Make) -> None:
    harness = make()
    harness.traffic.connection = None
    harness.submit(b"a")
    harness.traffic.write(PINGREQ)
    assert (harness.socket.writes, harness.results, harness.session.unconfirmed) == ([], [], 1)


async def test_a_full_socket_holds_messages_back_until_it_takes_more(make: Make) -> None:
    harness = make()
    harness.connection.pause_writing()
    harness.submit(b"a", b"b")
    assert harness.written() == []
    harness.connection.resume_writing()
    assert [packet.payload for packet in harness.written()] == [b"a", b"b"]


async def test_confirmations_make_room_for_what_waits_in_the_same_read(make: Make) -> None:
    harness = make(window=2)
    harness.submit(b"a", b"b", b"c", b"d", b"e")
    assert ids(harness.written(), mqtt5.PublishPacket) == [1, 2]
    harness.read(puback(1), puback(2))
    assert [packet.payload for packet in harness.written()] == [b"c", b"d"]
    assert harness.results == [None, None]


# -- receiving


async def test_messages_of_one_read_are_delivered_as_one_batch(make: Make) -> None:
    harness = make()
    harness.read(harness.publish(b"a"), harness.publish(b"b"), harness.publish(b"c"))
    assert harness.batches == [3]
    assert [each.message.payload for each in harness.received] == [b"a", b"b", b"c"]
    assert harness.events.packets == 3


async def test_packets_of_the_protocol_go_on_with_the_connection_that_they_came_on(make: Make) -> None:
    harness = make()
    later = make().connection
    harness.read(PINGRESP, harness.publish(b"a"))
    harness.traffic.on_frames(later, [PINGRESP])
    assert harness.control == [(harness.connection, PINGRESP), (later, PINGRESP)]
    assert harness.batches == [1]


@pytest.mark.parametrize(
    ("sent", "came", "is_expecting"),
    [
        pytest.param([], [PINGRESP], False, id="nothing"),
        pytest.param([], ["message"], True, id="messages"),
        pytest.param([b"a", b"b"], [puback(1)], True, id="unconfirmed"),
        pytest.param([b"a"], [puback(1)], False, id="confirmed"),
    ],
)
async def test_more_is_expected_after_messages_and_while_something_is_unconfirmed(
    sent: list[bytes], came: list[Any], is_expecting: bool, make: Make
) -> None:
    harness = make()
    if sent:
        harness.submit(*sent)
    frames = [harness.publish(b"m") if each == "message" else each for each in came]
    assert harness.traffic.on_frames(harness.connection, frames) is is_expecting


async def test_a_response_is_expected_after_the_puback_of_its_request(make: Make) -> None:
    harness = make()
    harness.traffic.submit([MessageParcel(request(NOW_MS, CALLER, METHOD, 1000))], lambda parcels, error: None)
    assert harness.traffic.on_frames(harness.connection, [puback(1)]) is True


async def test_a_parcel_that_is_refused_at_once_is_not_looked_at_again(make: Make) -> None:
    """Whoever gets the result may settle it, and let go of its message."""
    harness = make()
    harness.session.max_packet_bytes = 10
    parcel = MessageParcel(request(NOW_MS, CALLER, METHOD, 1000))

    def settle(parcels: object, error: object) -> None:
        del parcel.message

    harness.traffic.submit([parcel], settle)
    assert not hasattr(parcel, "message")


async def test_the_next_request_is_expected_after_the_puback_of_a_response(make: Make) -> None:
    harness = make()
    harness.read(harness.publish(b"a Request, say"))
    harness.submit(b"the Response")
    assert harness.traffic.on_frames(harness.connection, [puback(1)]) is True


async def test_long_after_the_last_call_nothing_is_expected(make: Make) -> None:
    harness = make()
    harness.traffic.submit([MessageParcel(request(NOW_MS, CALLER, METHOD, 1000))], lambda parcels, error: None)
    harness.connection.last_read_s += 11
    assert harness.traffic.on_frames(harness.connection, [puback(1)]) is False


async def test_a_mistake_of_the_broker_ends_the_connection_after_what_came_before_it(make: Make) -> None:
    harness = make()
    wrong = bytearray(harness.publish(b"b"))
    wrong[0] = 0x34  # QoS 2
    harness.read(harness.publish(b"a"), bytes(wrong))
    assert [each.message.payload for each in harness.received] == [b"a"]
    (packet,) = harness.written()
    assert (type(packet), packet.reason_code) == (mqtt5.DisconnectPacket, mqtt5.DisconnectReasonCode.PROTOCOL_ERROR)
    assert harness.socket.is_closed
    assert harness.connection.reason == "a PUBLISH that was not asked for"


async def test_a_message_that_is_too_large_is_told_once(make: Make) -> None:
    harness = make(max_packet_bytes=70_000)
    harness.read(harness.publish(b"a"), harness.publish(b"x" * 80_000))
    harness.read(harness.publish(b"b"))
    assert [each.code for each in harness.events.turned_away] == [UCode.RESOURCE_EXHAUSTED]
    assert [each.message.payload for each in harness.received] == [b"a", b"b"]


async def test_a_broker_that_stopped_at_its_bound_before_is_told_when_it_is_there_again(make: Make) -> None:
    harness = make()
    harness.read(harness.publish(), harness.publish(), harness.publish(), harness.publish())
    assert harness.events.awaited == 0
    for now_s in (1.0, 2.0):
        harness.session.pressure.may_have_stopped(4, now_s)  # it has fallen silent with four
    harness.acknowledge(4)
    harness.traffic.flush()
    harness.read(harness.publish(), harness.publish())
    assert harness.events.awaited == 0
    harness.read(harness.publish())
    assert harness.events.awaited == 1


async def test_a_bound_that_the_broker_goes_beyond_is_none(make: Make) -> None:
    harness = make()
    harness.read(*(harness.publish() for _ in range(4)))
    for now_s in (1.0, 2.0):
        harness.session.pressure.may_have_stopped(4, now_s)
    harness.read(harness.publish())  # the fifth
    assert harness.events.awaited == 0


# -- acknowledging


async def test_acknowledgements_of_a_turn_leave_together_in_the_order_of_the_messages(make: Make) -> None:
    harness = make()
    harness.read(*(harness.publish() for _ in range(3)))
    first, second, third = harness.received
    third.acknowledge()
    second.acknowledge()
    await asyncio.sleep(0)
    assert harness.socket.writes == []  # the first is not acknowledged yet
    first.acknowledge()
    assert harness.socket.writes == []
    await asyncio.sleep(0)
    assert len(harness.socket.writes) == 1
    assert ids(harness.written(), mqtt5.PubAckPacket) == [1, 2, 3]


async def test_each_turn_with_something_to_acknowledge_has_its_acknowledgements(make: Make) -> None:
    harness = make()
    for packet_id in (1, 2):
        harness.read(harness.publish())
        harness.acknowledge(1)
        await asyncio.sleep(0)
        assert ids(harness.written(), mqtt5.PubAckPacket) == [packet_id]


async def test_without_a_connection_nothing_counts_as_acknowledged(make: Make) -> None:
    harness = make()
    harness.read(harness.publish())
    harness.traffic.connection = None
    harness.acknowledge(1)
    await asyncio.sleep(0)
    assert (harness.socket.writes, harness.session.acknowledged) == ([], 0)


# -- beyond the receive maximum


async def test_a_broker_that_exceeds_the_maximum_is_not_read_until_there_is_room(make: Make) -> None:
    harness = make(receive_maximum=4)
    harness.read(*(harness.publish() for _ in range(7)))
    assert harness.socket.is_reading_now
    harness.read(harness.publish())
    assert not harness.socket.is_reading_now  # twice the maximum
    harness.acknowledge(3)
    harness.traffic.flush()
    assert not harness.socket.is_reading_now
    harness.acknowledge(1)
    harness.traffic.flush()
    assert harness.socket.is_reading_now  # as many as it may have sent
    assert not harness.traffic.is_ended_for_excess


async def test_confirmations_are_read_even_from_a_broker_that_exceeds_the_maximum(make: Make) -> None:
    harness = make(receive_maximum=4)
    harness.read(*(harness.publish() for _ in range(8)))
    assert not harness.socket.is_reading_now
    harness.submit(b"a")
    assert harness.socket.is_reading_now  # its confirmation comes after what waits to be read
    harness.read(harness.publish())
    assert harness.socket.is_reading_now
    harness.read(puback(1))
    assert not harness.socket.is_reading_now


async def test_a_message_that_cannot_be_sent_does_not_make_it_be_read(make: Make) -> None:
    harness = make(receive_maximum=4)
    harness.read(*(harness.publish() for _ in range(8)))
    harness.session.max_packet_bytes = 10
    harness.submit(b"a")
    assert [getattr(error, "code", None) for error in harness.results] == [UCode.RESOURCE_EXHAUSTED]
    assert not harness.socket.is_reading_now


async def test_a_connection_that_has_ended_by_itself_was_not_ended_for_room(make: Make) -> None:
    harness = make(receive_maximum=4, receive_excess_bytes=1024)
    harness.submit(b"a")
    harness.read(*(harness.publish() for _ in range(9)))
    harness.connection.close("something else", LinkFailure.OTHER)
    harness.acknowledge(8)
    harness.traffic.flush()
    assert (harness.traffic.is_ended_for_excess, harness.connection.reason) == (False, "something else")


async def test_once_half_of_the_maximum_is_free_a_broker_has_to_send_again_what_was_ignored(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ustreamer.mqtt5")
    size = TrafficHarness.message().size
    harness = make(receive_maximum=4, receive_excess_bytes=15 * size // 2)
    harness.submit(b"a")  # so that it is read on
    harness.written()
    harness.read(*(harness.publish() for _ in range(8)))
    assert caplog.messages == []
    harness.read(harness.publish())
    text = f"receive_maximum_exceeded endpoint=cloud receive_maximum=4 unacknowledged=8 bytes={8 * size}"
    assert caplog.messages == [text]
    harness.read(harness.publish())
    assert len(caplog.messages) == 1
    assert len(harness.received) == 8
    harness.acknowledge(5)
    harness.traffic.flush()
    assert ids(harness.written(), mqtt5.PubAckPacket) == [1, 2, 3, 4, 5]
    assert not harness.traffic.is_ended_for_excess  # three are left
    harness.acknowledge(1)
    harness.traffic.flush()
    acknowledgement, farewell = harness.written()
    assert acknowledgement.packet_id == 6
    assert farewell.reason_code == mqtt5.DisconnectReasonCode.RECEIVE_MAX_EXCEEDED
    assert harness.traffic.is_ended_for_excess
    assert (harness.socket.has_ended, harness.connection.is_open) == (True, False)
    harness.traffic.flush()
    assert harness.written() == []
