"""The MQTT 5 transport against a scripted broker: how it connects, subscribes and disconnects."""

import asyncio
import logging
import socket
from typing import Any

import mqtt5
import pytest

from streamer.transports.base import LinkState
from streamer.transports.errors import LinkLostError
from streamer.transports.mqtt5 import dialing
from streamer.uprotocol.uri import UUri
from tests.e2e.mqtt_connection import OTHER, connected, subscribed
from tests.e2e.mqtt_messages import TOPIC, message
from tests.listeners import RecordingListener
from tests.mqtt_peer import BrokerConnection, Endpoint, FakeBroker
from tests.waiting import until

DEAD = "192.0.2.1"
APP = UUri("gateway", 0xC0, 1, 0)
GRANTED_QOS_AT_MOST_ONCE = mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE
GRANTED_QOS_AT_LEAST_ONCE = mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE


@pytest.mark.parametrize(
    ("options", "is_present", "is_said"),
    [
        pytest.param({}, False, True, id="forgotten"),
        pytest.param({}, True, False, id="kept"),
        pytest.param({"clean_start": True}, False, False, id="not to be kept"),
        pytest.param({"session_expiry_s": 0}, False, False, id="ends with the connection"),
    ],
)
async def test_a_session_that_the_broker_has_forgotten_is_reported(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture, options: dict[str, Any], is_present: bool, is_said: bool
) -> None:
    endpoint = Endpoint(fake.url, **options)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        assert "session_forgotten" not in caplog.text  # nobody can know whether there was one
        peer.drop()
        await (await fake.peer()).accept(session_present=is_present)
        await endpoint.up()
    assert ("session_forgotten" in caplog.text) is is_said


@pytest.mark.parametrize("clean_start", [False, True])
async def test_connect_has_the_values_of_the_options(fake: FakeBroker, clean_start: bool) -> None:
    options: dict[str, Any] = {"receive_maximum": 7, "session_expiry_s": 60, "keep_alive_s": 9, "max_packet_bytes": 4096}
    options["clean_start"] = clean_start
    async with Endpoint(fake.url, "gateway.veh_1", **options).running():
        connect = await (await fake.peer()).accept()
    assert connect.client_id == "gateway-veh-1"
    assert (connect.receive_max, connect.session_expiry_interval) == (7, 60)
    assert (connect.keep_alive, connect.max_packet_size, connect.clean_start) == (9, 4096, clean_start)


async def test_up_only_after_every_subscription_is_confirmed(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        for number in range(60):
            await endpoint.transport.register_listener(TOPIC._replace(resource=0x8000 + number), None, RecordingListener())
        peer = await fake.peer()
        await peer.accept()
        for count in (*[8] * 7, 4):
            assert not endpoint.is_up
            assert len(await peer.grant()) == count
        await endpoint.up()
    assert endpoint.states == [LinkState.UP, LinkState.DOWN]


async def test_a_subscribe_that_is_never_answered_ends_the_connection_also_when_the_link_is_up(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, connect_timeout_s=2)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        await endpoint.transport.register_listener(TOPIC, None, RecordingListener())
        await peer.next(mqtt5.SubscribePacket)
        again = await fake.peer()  # meanwhile pings are answered, so the connection is not dead
        await again.accept()
        assert await again.grant() == ["veh1/8000/A/2/8A50"]
        await endpoint.up()


async def test_a_broker_of_small_packets_gets_small_subscribes(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        patterns = [f"veh1/8000/A/2/{0x8000 + number:X}" for number in range(9)]
        for number in range(9):
            await endpoint.transport.register_listener(TOPIC._replace(resource=0x8000 + number), None, RecordingListener())
        peer = await fake.peer()
        await peer.accept(max_packet_size=100)
        assert [await peer.grant() for _ in range(3)] == [patterns[:4], patterns[4:8], patterns[8:]]
        await endpoint.up()


async def test_a_filter_that_no_packet_of_the_broker_has_room_for_is_a_problem(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        await endpoint.transport.register_listener(TOPIC, None, RecordingListener())
        peer = await fake.peer()
        await peer.accept(max_packet_size=28)
        await endpoint.up()
        (problem,) = endpoint.transport.report().problems
        assert "'veh1/8000/A/2/8A50'" in problem
        assert "at most 28 bytes" in problem
        peer.drop()
        await until(lambda: not endpoint.is_up, "DOWN")
        peer = await fake.peer()
        await peer.accept(max_packet_size=29)
        assert await peer.grant() == ["veh1/8000/A/2/8A50"]
        await until(lambda: not endpoint.transport.report().problems, "no problem")


async def test_refused_subscription_is_counted_and_does_not_keep_the_link_down(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        await endpoint.transport.register_listener(TOPIC, None, RecordingListener())
        peer = await fake.peer()
        await peer.accept()
        subscribe = await peer.next(mqtt5.SubscribePacket)
        peer.write(mqtt5.SubAckPacket(subscribe.packet_id, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]))
        await endpoint.up()
        assert endpoint.transport._link.subscribing.refused == 1
        (problem,) = endpoint.transport.report().problems
        assert "'veh1/8000/A/2/8A50'" in problem
        assert "NOT_AUTHORIZED (0x87)" in problem


async def refused(fake: FakeBroker, endpoint: Endpoint, inbox: RecordingListener, count: int = 1) -> BrokerConnection:
    """A connection on which the broker refused that many filters."""
    for number in range(count):
        await endpoint.transport.register_listener(TOPIC._replace(resource=0x8000 + number), None, inbox)
    peer = await fake.peer()
    await peer.accept()
    while count > 0:
        subscribe = await peer.next(mqtt5.SubscribePacket)
        asked = len(subscribe.topic_filters)
        peer.write(mqtt5.SubAckPacket(subscribe.packet_id, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED] * asked))
        count -= asked
    await endpoint.up()
    return peer


async def granted_anew(fake: FakeBroker, endpoint: Endpoint, peer: BrokerConnection) -> None:
    """Have the endpoint connect again, to a broker that now grants everything."""
    peer.drop()
    await until(lambda: not endpoint.is_up)
    peer = await fake.peer()
    await peer.accept()
    await peer.grant()
    await endpoint.up()


async def test_refused_filter_is_a_problem_until_it_is_granted(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await refused(fake, endpoint, RecordingListener())
        assert len(endpoint.transport.report().problems) == 1
        await granted_anew(fake, endpoint, peer)
        assert endpoint.transport.report().problems == []


@pytest.mark.parametrize(
    ("answers", "reason"),
    [([GRANTED_QOS_AT_LEAST_ONCE], "no answer"), ([GRANTED_QOS_AT_LEAST_ONCE, GRANTED_QOS_AT_MOST_ONCE], "QoS 0")],
    ids=["no answer", "without acknowledgements"],
)
async def test_a_filter_that_is_not_granted_as_asked_is_a_problem_until_it_is(
    fake: FakeBroker, answers: list[mqtt5.SubAckReasonCode], reason: str
) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener()
    async with endpoint.running():
        for topic in (TOPIC, OTHER):
            await endpoint.transport.register_listener(topic, None, inbox)
        peer = await fake.peer()
        await peer.accept()
        subscribe = await peer.next(mqtt5.SubscribePacket)
        peer.write(mqtt5.SubAckPacket(subscribe.packet_id, answers))
        await endpoint.up()
        (problem,) = endpoint.transport.report().problems
        assert subscribe.topic_filters[1].pattern in problem
        assert reason in problem
        await granted_anew(fake, endpoint, peer)
        assert endpoint.transport.report().problems == []


async def test_a_shared_subscription_that_is_granted_without_acknowledgements_is_a_problem(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, share="gateways")
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        await endpoint.transport.register_listener(TOPIC, None, RecordingListener())
        subscribe = await peer.next(mqtt5.SubscribePacket)
        peer.write(mqtt5.SubAckPacket(subscribe.packet_id, [GRANTED_QOS_AT_MOST_ONCE]))
        await until(lambda: len(endpoint.transport.report().problems) == 1, what="the problem")
        assert "'$share/gateways/veh1/8000/A/2/8A50'" in endpoint.transport.report().problems[0]


async def test_a_broker_without_wildcards_is_asked_for_none_and_each_is_a_problem(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener()
    async with endpoint.running():
        for topic in (TOPIC, TOPIC._replace(authority="*")):
            await endpoint.transport.register_listener(topic, None, inbox)
        peer = await fake.peer()
        await peer.accept(wildcard_subscription_available=False)
        assert await peer.grant() == ["veh1/8000/A/2/8A50"]
        await endpoint.up()
        (problem,) = endpoint.transport.report().problems
        assert "'+/8000/A/2/8A50': it has no subscriptions with wildcards" in problem
        # one more while connected
        await endpoint.transport.register_listener(TOPIC._replace(resource=0xFFFF), None, inbox)
        assert len(endpoint.transport.report().problems) == 2
        # the broker is exchanged for one that has them
        peer.drop()
        await until(lambda: not endpoint.is_up)
        peer = await fake.peer()
        await peer.accept()
        assert len(await peer.grant()) == 3
        await endpoint.up()
        assert endpoint.transport.report().problems == []


async def test_refused_filter_is_not_a_problem_once_it_is_closed(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener()
    async with endpoint.running():
        peer = await refused(fake, endpoint, inbox, count=12)
        assert len(endpoint.transport.report().problems) == 10
        for number in range(12):
            await endpoint.transport.unregister_listener(TOPIC._replace(resource=0x8000 + number), None, inbox)
            await peer.next(mqtt5.UnsubscribePacket)
        assert endpoint.transport.report().problems == []
        await endpoint.transport.register_listener(TOPIC, None, inbox)
        await endpoint.transport.unregister_listener(TOPIC, None, inbox)
        subscribe = await peer.next(mqtt5.SubscribePacket)
        peer.write(mqtt5.SubAckPacket(subscribe.packet_id, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]))
        await until(lambda: endpoint.transport._link.subscribing.refused == 13)
        assert endpoint.transport.report().problems == []


async def test_unexpected_error_is_logged_and_tried_again(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **named: Any) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(mqtt5, "ConnectPacket", broken)
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        await (await fake.peer()).closed()
        await connected(fake, endpoint)
    record = next(record for record in caplog.records if "connect_failed" in record.message)
    assert record.exc_info is not None
    where = fake.url.removeprefix("mqtt://")
    assert record.message == f"connect_failed endpoint=gateway address={where} reason=other text=ZeroDivisionError"


async def test_filters_with_one_topic_are_subscribed_once(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url, topics="off-vehicle"), RecordingListener()
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        await endpoint.transport.register_listener(TOPIC, APP, inbox)
        await endpoint.transport.register_listener(OTHER, APP, inbox)
        assert await peer.grant() == ["veh1/gateway"]
        await endpoint.transport.unregister_listener(TOPIC, APP, inbox)
        await endpoint.transport.unregister_listener(OTHER, APP, inbox)
        unsubscribe = await peer.next(mqtt5.UnsubscribePacket)
        assert unsubscribe.patterns == ["veh1/gateway"]


async def test_after_a_reconnect_filters_are_brought_up_to_date(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener()
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.drop()
        await until(lambda: not endpoint.is_up)
        await endpoint.transport.unregister_listener(TOPIC, None, inbox)
        await endpoint.transport.register_listener(OTHER, None, inbox)
        again = await fake.peer()
        await again.accept(session_present=True)
        assert await again.grant() == ["veh1/8000/A/2/8A51"]
        unsubscribe = await again.next(mqtt5.UnsubscribePacket)
        assert unsubscribe.patterns == ["veh1/8000/A/2/8A50"]
        await endpoint.up()
        assert endpoint.reconnects == 1


@pytest.mark.parametrize("reason", [mqtt5.ConnAckReasonCode.NOT_AUTHORIZED, mqtt5.ConnAckReasonCode.SERVER_BUSY, 0x77])
async def test_refused_connection_is_tried_again(
    fake: FakeBroker, reason: mqtt5.ConnAckReasonCode | int, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await fake.peer()
        await peer.next(mqtt5.ConnectPacket)
        peer.write(b"\x20\x03\x00\x77\x00" if isinstance(reason, int) else mqtt5.ConnAckPacket(reason_code=reason))
        await peer.closed()
        await connected(fake, endpoint)
    assert endpoint.states == [LinkState.UP, LinkState.DOWN]
    if reason == mqtt5.ConnAckReasonCode.NOT_AUTHORIZED:
        assert "NOT_AUTHORIZED (0x87), PERMISSION_DENIED" in caplog.text


async def test_silent_broker_is_left_and_tried_again(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, connect_timeout_s=0.2)
    async with endpoint.running():
        await (await fake.peer()).next(mqtt5.ConnectPacket)
        await connected(fake, endpoint)


class Addresses:
    """What the name of a broker resolves to, and in which order they are tried. They listen on a port of one broker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, port: int, *hosts: str) -> None:
        self.tried: list[str] = []
        self._port = port
        self.hosts = hosts
        loop = asyncio.get_running_loop()
        self._create = loop.create_connection
        monkeypatch.setattr(dialing, "addresses_of", self._resolve)
        monkeypatch.setattr(loop, "create_connection", self._connect)

    async def _resolve(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        assert (host, port) == ("broker.test", self._port)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.hosts]

    async def _connect(self, protocol: Any, host: str, port: int, **options: Any) -> Any:
        self.tried.append(host)
        if host == DEAD:
            await asyncio.get_running_loop().create_future()  # as one that drops every packet
        return await self._create(protocol, host, port, **options)


@pytest.mark.parametrize("dead", [DEAD, "127.0.0.3"], ids=["nothing answers", "refused"])
async def test_a_dead_address_of_a_broker_costs_time_and_no_connection(
    fake: FakeBroker, dead: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(fake.url.rpartition(":")[2])
    addresses = Addresses(monkeypatch, port, dead, "127.0.0.1")
    endpoint = Endpoint(f"mqtt://broker.test:{port}", connect_timeout_s=0.2)
    async with endpoint.running():
        await connected(fake, endpoint)
    assert addresses.tried == [dead, "127.0.0.1"]
    assert "link_down" not in caplog.text


async def test_an_address_where_no_broker_answers_gives_way_to_the_next_one(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(fake.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.2", port)):  # the kernel accepts
        addresses = Addresses(monkeypatch, port, "127.0.0.2", "127.0.0.1")
        endpoint = Endpoint(f"mqtt://broker.test:{port}", connect_timeout_s=0.2)
        async with endpoint.running():
            await connected(fake, endpoint)
    assert addresses.tried == ["127.0.0.2", "127.0.0.2", "127.0.0.1"]


async def test_all_addresses_dead_are_tried_again(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(fake.url.rpartition(":")[2])
    addresses = Addresses(monkeypatch, port, "127.0.0.3", DEAD)
    endpoint = Endpoint(f"mqtt://broker.test:{port}", connect_timeout_s=0.2)
    async with endpoint.running():
        await until(lambda: len(addresses.tried) >= 5, "the third attempt")
    assert addresses.tried[:5] == ["127.0.0.3", DEAD, "127.0.0.3", DEAD, DEAD]
    assert "reason=timeout text=no connection within 0.2 s" in caplog.text


async def test_the_last_good_address_is_tried_first(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(fake.url.rpartition(":")[2])
    addresses = Addresses(monkeypatch, port, DEAD, "127.0.0.3", "127.0.0.1")
    endpoint = Endpoint(f"mqtt://broker.test:{port}", connect_timeout_s=0.2)
    async with endpoint.running():
        for _ in range(3):
            peer = await connected(fake, endpoint)
            peer.drop()
            await until(lambda: not endpoint.is_up, "DOWN")
        await connected(fake, endpoint)
    assert addresses.tried == [DEAD, "127.0.0.3", *["127.0.0.1"] * 4]


async def test_a_good_address_that_the_name_lost_is_not_tried(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(fake.url.rpartition(":")[2])
    addresses = Addresses(monkeypatch, port, "127.0.0.1")
    endpoint = Endpoint(f"mqtt://broker.test:{port}", connect_timeout_s=0.2)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        addresses.hosts = ("127.0.0.3", "127.0.0.4")
        peer.drop()
        await until(lambda: len(addresses.tried) >= 3, "the next attempt")
    assert addresses.tried[1:3] == ["127.0.0.3", "127.0.0.4"]


async def test_session_taken_over_is_logged_and_the_link_comes_back(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        peer.write(mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER))
        await connected(fake, endpoint)
    assert any(record.levelno == logging.ERROR and "same client id" in record.message for record in caplog.records)


async def test_stop_disconnects_and_gives_back_what_is_unconfirmed(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        endpoint.submit([message("a"), message("b")])
        await peer.next(mqtt5.PublishPacket)
        await peer.next(mqtt5.PublishPacket)
        await endpoint.transport.stop()
        goodbye = await peer.next(mqtt5.DisconnectPacket)
        assert goodbye.reason_code == mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION
        await endpoint.transport.stop()
    ((payloads, error),) = endpoint.told
    assert payloads == [b"a", b"b"]
    assert isinstance(error, LinkLostError)


async def test_stop_without_any_connection_ends_at_once(fake: FakeBroker) -> None:
    endpoint = Endpoint("mqtt://127.0.0.1:9")
    async with asyncio.timeout(60):
        async with endpoint.running():
            pass
    assert endpoint.states == []
