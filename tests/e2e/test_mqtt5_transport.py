"""The MQTT 5 transport with real brokers, and with clients that are not ours."""

import asyncio
from collections import Counter

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from streamer.transports.errors import LinkLostError, Malformed
from streamer.transports.installed import load_transport
from streamer.transports.mqtt5.transport import Mqtt5Transport
from streamer.uprotocol.message import Options, UPayloadFormat, UPriority, notification, publish, request, response
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.brokers import BROKERS, Mosquitto, broker
from tests.e2e.mqtt_messages import NOW_MS, TOPIC, message, numbered, texts
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint
from tests.ports import HOST
from tests.waiting import until

CAR = UUri.parse("//veh1/403BA/3/0")
METHOD = UUri.parse("//cloud/CD/4/B")


# -- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BROKERS)
@pytest.mark.parametrize("topics", ["in-vehicle", "off-vehicle"])
async def test_every_kind_of_message_arrives_as_it_was_sent(kind: str, topics: str) -> None:
    everything = Options(UPriority.CS5, 0, 7, "token", "00-" + "1" * 32 + "-" + "2" * 16 + "-01", UPayloadFormat.JSON)
    ask = request(NOW_MS, CAR, METHOD, 2_500_000_001, b"?", everything)
    asked_by_the_cloud = request(NOW_MS, METHOD._replace(resource=0), CAR._replace(resource=9), 2_500_000_000)
    messages = [
        notification(NOW_MS, TOPIC, METHOD._replace(resource=0), b"", everything),
        notification(NOW_MS, TOPIC, METHOD._replace(resource=0)),
        ask,
        response(NOW_MS, asked_by_the_cloud, b"!", UCode.OK),
    ]
    inbox = RecordingListener()
    with broker(kind) as server:
        async with Endpoint(server.url, "cloud", topics=topics).running() as cloud:
            await cloud.transport.register_listener(everything_at("veh1"), everything_at("cloud"), inbox)
            await cloud.up()
            async with Endpoint(server.url, "veh1", topics=topics).running() as car:
                await car.up()
                car.submit(messages)
                await until(lambda: len(inbox.received) == len(messages))
                await until(lambda: len(car.confirmed) == len(messages))
    assert [received.message for received in inbox.received] == messages


@pytest.mark.parametrize("kind", BROKERS)
async def test_an_independent_client_and_ours_understand_each_other(kind: str) -> None:
    inbox = RecordingListener()
    with broker(kind) as server:
        async with (
            aiomqtt.Client(HOST, server.port, protocol=aiomqtt.ProtocolVersion.V5) as theirs,
            Endpoint(server.url, "gateway").running() as ours,  # last: it subscribes before it is up
        ):
            await ours.transport.register_listener(TOPIC, None, inbox)
            await ours.up()
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = [
                ("3", "//veh1/a8000/2/8a50"),
                ("2", "up-pub.v1"),
                ("1", "0190d3a4-7e00-7abc-8def-0123456789AB"),
                ("uP", "1"),
            ]
            properties.MessageExpiryInterval = 60
            properties.ContentType = "3"
            await theirs.publish("veh1/8000/A/2/8A50", b"{}", qos=1, properties=properties)
            await theirs.publish("veh1/8000/A/2/8A50", b"not ours", qos=1)
            await until(lambda: inbox.received and ours.malformed)
            await theirs.subscribe("+/+/+/+/+", qos=1)
            ours.submit([message("back")])
            heard = await anext(aiter(theirs.messages))
    got = inbox.received[0].message
    assert got.id.hex() == "0190d3a47e007abc8def0123456789ab"
    assert (got.attributes.source, got.attributes.ttl) == (TOPIC, 60_000)
    assert got.attributes.payload_format is UPayloadFormat.JSON
    assert [error.reason for error in ours.malformed] == [Malformed.MARKER]
    assert heard.payload == b"back"
    assert ("3", str(TOPIC)) in heard.properties.UserProperty  # type: ignore[union-attr]  # MQTT 5 has them


@pytest.mark.parametrize("kind", BROKERS)
async def test_thousands_arrive_in_order_each_once(kind: str) -> None:
    count, inbox = 5000, RecordingListener()
    with broker(kind) as server:
        async with Endpoint(server.url, "cloud").running() as cloud, Endpoint(server.url, "veh1").running() as car:
            await cloud.transport.register_listener(TOPIC, None, inbox)
            await cloud.up()
            await car.up()
            car.submit(numbered(count))
            await until(lambda: len(inbox.received) >= count and len(car.confirmed) >= count)
    assert inbox.payloads == texts(count)
    assert car.confirmed == texts(count)
    assert len(car.told) < count / 2  # told in runs, not singly


@pytest.mark.parametrize("kind", BROKERS)
async def test_large_message_crosses(kind: str) -> None:
    payload, inbox = bytes(range(256)) * 8192, RecordingListener()
    with broker(kind) as server:
        async with Endpoint(server.url, "cloud").running() as cloud, Endpoint(server.url, "veh1").running() as car:
            await cloud.transport.register_listener(TOPIC, None, inbox)
            await cloud.up()
            await car.up()
            car.submit([publish(NOW_MS, TOPIC, payload), message("after")])
            await until(lambda: len(inbox.received) == 2)
    assert inbox.payloads == [payload, b"after"]


@pytest.mark.parametrize("kind", BROKERS)
async def test_receive_pulls_what_came(kind: str) -> None:
    with broker(kind) as server:
        async with Endpoint(server.url, "cloud").running() as cloud, Endpoint(server.url, "veh1").running() as car:
            await cloud.up()
            await car.up()
            with pytest.raises(Exception, match="NOT_FOUND"):
                await cloud.transport.receive(TOPIC)
            await until(lambda: not cloud.transport._link.session.has_requests)
            await car.transport.send(message("pulled"))
            pull = cloud.transport._pulls[TOPIC, None]
            await until(lambda: pull._waiting)
            assert (await cloud.transport.receive(TOPIC)).payload == b"pulled"


# -- outages ----------------------------------------------------------------------------------------------------------


@pytest.mark.mosquitto
async def test_orderly_restart_of_a_persistent_broker_loses_and_repeats_nothing_towards_the_sender() -> None:
    inbox = RecordingListener()
    with Mosquitto(persistence=True, max_inflight=20) as server:
        async with Endpoint(server.url, "cloud").running() as cloud, Endpoint(server.url, "veh1").running() as car:
            await cloud.transport.register_listener(TOPIC, None, inbox)
            await cloud.up()
            await car.up()
            car.submit(numbered(3000))
            await until(lambda: len(car.confirmed) > 200)
            server.stop()
            await until(lambda: not car.is_up and not cloud.is_up)
            assert len(car.confirmed) < 3000
            server.start()
            await until(lambda: len(car.confirmed) == 3000 and len(set(inbox.payloads)) == 3000)
            assert car.reconnects >= 1
    assert car.confirmed == texts(3000)
    assert car.refused == []
    first_seen = list(dict.fromkeys(inbox.payloads))
    assert first_seen == texts(3000)


@pytest.mark.parametrize("kind", BROKERS)
async def test_killed_broker_without_memory_gives_back_each_message_once(kind: str) -> None:
    with broker(kind) as server:
        async with Endpoint(server.url, "veh1", window=50).running() as car:
            await car.up()
            car.submit(numbered(5000))
            await until(lambda: len(car.confirmed) > 100)
            server.kill()
            await until(lambda: not car.is_up)
            server.start()
            await car.up()
            told = Counter(payload for payloads, _ in car.told for payload in payloads)
    assert told == Counter(texts(5000))
    assert all(isinstance(error, LinkLostError) for _, error in car.refused)
    assert car.confirmed + [payload for payload, _ in car.refused] == texts(5000)


@pytest.mark.mosquitto
async def test_what_was_not_acknowledged_comes_again_after_our_own_restart() -> None:
    inbox, again = RecordingListener(releases=False), RecordingListener()
    with Mosquitto() as server:
        async with Endpoint(server.url, "veh1").running() as car:
            await car.up()
            async with Endpoint(server.url, "cloud").running() as cloud:
                await cloud.transport.register_listener(TOPIC, None, inbox)
                await cloud.up()
                car.submit(numbered(5))
                await until(lambda: len(inbox.received) == 5)
                inbox.received[0].release()
                inbox.received[1].release()
                inbox.received[3].release()  # behind one that is not released
            async with Endpoint(server.url, "cloud").running() as cloud:
                await cloud.transport.register_listener(TOPIC, None, again)
                await until(lambda: len(again.received) == 3)
    assert again.payloads == [b"2", b"3", b"4"]
    assert all(received.redelivered for received in again.received)


# -- life -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BROKERS)
async def test_broker_may_start_later_than_we_do(kind: str) -> None:
    with broker(kind) as server:
        server.stop()
        async with Endpoint(server.url).running() as endpoint:
            assert not endpoint.is_up
            server.start()
            await endpoint.up()
            assert endpoint.reconnects == 0


def test_it_works_on_uvloop_too() -> None:
    uvloop = pytest.importorskip("uvloop")
    inbox = RecordingListener()

    async def cross(url: str) -> None:
        async with Endpoint(url, "cloud").running() as cloud, Endpoint(url, "veh1").running() as car:
            await cloud.transport.register_listener(TOPIC, None, inbox)
            await cloud.up()
            await car.up()
            car.submit(numbered(3000))
            await until(lambda: len(inbox.received) == 3000 and len(car.confirmed) == 3000)

    with broker("rumqttd") as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(cross(server.url))
    assert inbox.payloads == texts(3000)


def test_it_is_found_by_its_name() -> None:
    assert load_transport("mqtt5") is Mqtt5Transport
