"""The MQTT 5 transport against a scripted broker that exceeds our receive maximum."""

import asyncio
from collections.abc import Sequence
from typing import Any

import mqtt5
import pytest

from streamer.transports.base import Received
from streamer.transports.mqtt5.options import ReconnectOptions
from tests.constants import with_constants
from tests.e2e.mqtt_connection import incoming, subscribed
from tests.e2e.mqtt_messages import TOPIC, message
from tests.listeners import RecordingListener
from tests.mqtt_peer import BrokerConnection, Endpoint, FakeBroker, KeepAliveChecks
from tests.waiting import until

BYTES = 7 * message("1").size // 2
"""Beyond it are four messages."""


async def overflowing(fake: FakeBroker, endpoint: Endpoint, inbox: RecordingListener) -> BrokerConnection:
    """A connection on which the broker has sent 1 to 6; our receive maximum is 2."""
    peer = await subscribed(fake, endpoint, inbox)
    peer.write(*(incoming(str(packet_id), packet_id) for packet_id in range(1, 7)))
    await until(lambda: len(inbox.received) == 4)
    return peer


async def test_excess_is_not_read_while_nothing_of_ours_is_unconfirmed(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint, inbox = Endpoint(fake.url, receive_maximum=2), RecordingListener(releases=False)
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(*(incoming(str(packet_id), packet_id) for packet_id in range(1, 5)))
        await until(lambda: len(inbox.received) == 4)
        peer.write(*(incoming(str(packet_id), packet_id) for packet_id in range(5, 8)))
        for number in range(7):
            await until(lambda: len(inbox.received) > number)  # noqa: B023  # within this round
            inbox.received[number].release()
            assert (await peer.next(mqtt5.PubAckPacket)).packet_id == number + 1
        assert inbox.payloads == [b"%d" % number for number in range(1, 8)]
        assert endpoint.is_up
    assert "receive_maximum_exceeded" not in caplog.text


async def test_what_exceeds_twice_our_receive_maximum_is_ignored_and_logged_once(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(fake.url, receive_maximum=2, receive_excess_bytes=BYTES, keep_alive_s=1)
    inbox = RecordingListener(releases=False)
    broken = b"\x32\x08\x00\x02\xff\xfe\x00\x1f\x00a"
    async with endpoint.running():
        peer = await overflowing(fake, endpoint, inbox)
        endpoint.submit([message("ours")])
        await peer.next(mqtt5.PublishPacket)  # it stays unconfirmed, so reading goes on
        peer.write(incoming("7", 7), broken)
        inbox.received[0].release()
        assert (await peer.next(mqtt5.PubAckPacket)).packet_id == 1
        peer.write(incoming("8", 8))  # there is room, but it would overtake
        await peer.nothing_until_ping()
        await peer.nothing_until_ping()  # the answer to the first one was read
        assert inbox.payloads == [b"1", b"2", b"3", b"4"]
        assert endpoint.malformed == []
        assert endpoint.is_up
    assert caplog.text.count("receive_maximum_exceeded") == 1


async def test_exceeded_receive_maximum_does_not_stop_what_we_send(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = KeepAliveChecks(monkeypatch)
    endpoint = Endpoint(fake.url, receive_maximum=2, receive_excess_bytes=BYTES, window=2, ack_timeout_s=0.3)
    inbox = RecordingListener(releases=False)
    async with endpoint.running():
        peer = await overflowing(fake, endpoint, inbox)
        endpoint.submit([message(str(number)) for number in range(10)])
        for _ in range(10):
            peer.write(mqtt5.PubAckPacket((await peer.next(mqtt5.PublishPacket)).packet_id or 0))
            await checks.next()  # of which there are four in ack_timeout_s
        await until(lambda: len(endpoint.confirmed) == 10)
        assert endpoint.is_up
        assert len(inbox.received) == 4


async def test_what_was_ignored_comes_again_on_a_new_connection_once_there_is_room(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    ladder = with_constants(ReconnectOptions, initial_ms=100, factor=1000, max_ms=100_000)
    options: dict[str, Any] = {"receive_maximum": 2, "receive_excess_bytes": BYTES, "keep_alive_s": 1, "reconnect": ladder}
    endpoint, inbox = Endpoint(fake.url, **options), Remembering()
    async with endpoint.running(), asyncio.timeout(90):  # a second step of the ladder would take longer
        first = 1
        for _ in range(3):
            peer = await overflowing_again(fake, endpoint, inbox, first)
            for received in inbox.held[:2]:
                received.release()
            assert [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in "ab"] == [first, first + 1]
            await peer.nothing_until_ping()  # it does not say goodbye too early
            assert endpoint.is_up  # two are left, more than half of our receive maximum
            inbox.held[2].release()
            assert (await peer.next(mqtt5.PubAckPacket)).packet_id == first + 2
            goodbye = await peer.next(mqtt5.DisconnectPacket)
            assert goodbye.reason_code == mqtt5.DisconnectReasonCode.RECEIVE_MAX_EXCEEDED
            peer.write(incoming("late", 99))  # thrown away
            peer.drop()
            await until(lambda: not endpoint.is_up)
            inbox.held[3].release()  # void: it belongs to the old connection
            inbox.held.clear()
            first += 3
    assert [int(payload or b"") for payload in inbox.new] == list(range(1, 11))
    assert "receive_maximum 2 or its bytes exceeded" in caplog.text


class Remembering(RecordingListener):
    """Holds back what arrives, in ``held``; ``new`` has each payload once, as by a listener that remembers ids."""

    def __init__(self) -> None:
        super().__init__(releases=False)
        self.new: list[bytes | None] = []
        self.held: list[Received] = []

    def on_receive_batch(self, batch: Sequence[Received]) -> None:
        for received in batch:
            self.held.append(received)
            if received.message.payload not in self.new:
                self.new.append(received.message.payload)


async def overflowing_again(fake: FakeBroker, endpoint: Endpoint, inbox: Remembering, first: int) -> BrokerConnection:
    """The next connection, on which the broker sends six from ``first`` on."""
    peer = await fake.peer()
    await peer.accept(session_present=first > 1)
    if first == 1:
        await endpoint.transport.register_listener(TOPIC, None, inbox)
    await peer.grant()
    await endpoint.up()
    peer.write(*(incoming(str(packet_id), packet_id) for packet_id in range(first, first + 6)))
    await until(lambda: len(inbox.held) == 4)
    return peer
