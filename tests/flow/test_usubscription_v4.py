"""uSubscription version 4 from outside, through the router: who hears of changes, wildcards, other services."""

import pytest

from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.devices import Device, Devices
from tests.flow.uentities import REMOTE_TOPIC, SUBSCRIBED, Client, UEntity
from tests.waiting import until

TOPIC = UUri("dev1", 0x10, 1, 0x8001)
CHANGES = UUri("dev1", 0, 4, 0x8000)
FAR = UUri("phone", 0xC, 1, 0)
SUBSCRIBE, FETCH, RESET = 1, 3, 6


@pytest.fixture
async def newer(app: Client) -> Client:
    """A uEntity of dev1 that speaks version 4."""
    app.version = 4
    return app


async def _subscribe(client: Client, topic: UUri) -> "pb.SubscriptionStatus":
    asked = pb.SubscribeRequest(topic=uri_to_proto(topic))
    return (await client.granted(SUBSCRIBE, asked, pb.SubscribeResponse)).status


def _changes(listener: UEntity, kind: UMessageType = UMessageType.PUBLISH) -> list[tuple[UUri, UUri, int]]:
    found: list[tuple[UUri, UUri, int]] = []
    for message in listener.messages:
        if message.attributes.type is kind and message.attributes.source == CHANGES:
            told = pb.Subscription.FromString(message.payload or b"")
            found.append((uri_from_proto(told.topic), uri_from_proto(told.subscriber), told.status))
    return found


async def _far_client(devices: Devices) -> Client:
    far = Client(devices.clock, FAR)
    far.transport = await devices.join("far", "phone")
    far.service, far.version = "dev1", 4
    await far.transport.register_listener(everything_at("*"), far.uri, far)
    await far.listen(CHANGES)
    return far


async def test_who_listens_on_the_networks_of_the_device_hears_every_change(
    devices: Devices, device: Device, newer: Client, other: Client
) -> None:
    watcher = await devices.client(1, 0xEE)
    await watcher.listen(CHANGES)
    far = await _far_client(devices)
    await _subscribe(newer, TOPIC)
    await other.subscribe(TOPIC)
    await until(lambda: len(_changes(watcher)) == 2, "two changes")
    assert _changes(watcher) == [(TOPIC, app.uri, pb.STATUS_SUBSCRIBED) for app in (newer, other)]
    assert _changes(newer, UMessageType.NOTIFICATION) == [(TOPIC, newer.uri, pb.STATUS_SUBSCRIBED)]
    assert other.updates == [(TOPIC, other.uri, SUBSCRIBED)]
    assert _changes(far) == []


async def test_who_may_list_subscriptions_may_subscribe_to_their_changes_from_elsewhere(devices: Devices) -> None:
    await devices.device(1, fetch=[str(FAR), "//dev1/FFFFFFFF/FF/0"])
    newer = await devices.client(1, 0xA)
    newer.version = 4
    far = await _far_client(devices)
    assert await _subscribe(far, CHANGES) == pb.STATUS_SUBSCRIBED
    await _subscribe(newer, TOPIC)
    await until(lambda: (TOPIC, newer.uri, pb.STATUS_SUBSCRIBED) in _changes(far), "the change")


async def test_who_may_not_list_subscriptions_gets_no_changes_elsewhere(devices: Devices) -> None:
    await devices.device(1, subscribe=[{"from": str(FAR), "topics": ["//dev1/FFFFFFFF/FF/FFFF"]}])
    far = await _far_client(devices)
    assert await _subscribe(far, TOPIC) == pb.STATUS_SUBSCRIBED
    refused = await far.refused(SUBSCRIBE, pb.SubscribeRequest(topic=uri_to_proto(CHANGES)))
    assert refused.code == UCode.PERMISSION_DENIED


async def test_a_topic_of_any_instance_and_version_is_forwarded_while_somebody_subscribes(devices: Devices) -> None:
    device = await devices.device(1, subscribe=[{"from": str(FAR), "topics": ["//dev1/FFFFFFFF/FF/FFFF"]}])
    sensor, far = await devices.client(1, 0x10), await _far_client(devices)
    any_instance = UUri("dev1", 0xFFFF_0010, 0xFF, 0x8001)
    topics = [UUri("dev1", instance << 16 | 0x10, version, 0x8001) for instance, version in ((0, 1), (7, 2))]
    for topic in topics:
        await far.listen(topic)
        await sensor.publish(topic, b"before")
    assert far.news == []
    assert await _subscribe(far, any_instance) == pb.STATUS_SUBSCRIBED
    await until(lambda: (any_instance, None) in device.near.registry.filters(), "the listener")
    for topic in topics:
        await sensor.publish(topic, b"during")
    assert far.news == [b"during", b"during"]
    await far.granted(2, pb.UnsubscribeRequest(topic=uri_to_proto(any_instance)), pb.UnsubscribeResponse)
    await until(lambda: (any_instance, None) not in device.near.registry.filters(), "the end of the listener")
    for topic in topics:
        await sensor.publish(topic, b"after")
    assert far.news == [b"during", b"during"]


async def test_two_streamers_subscribe_in_version_4(devices: Devices, device: Device, newer: Client) -> None:
    await devices.device(2)
    sensor = await devices.client(2, 0x10)
    sensor.version = 4
    await _subscribe(newer, REMOTE_TOPIC)
    await until(lambda: len(_changes(newer, UMessageType.NOTIFICATION)) == 2, "the answer")
    assert [state for _, _, state in _changes(newer, UMessageType.NOTIFICATION)] == [
        pb.STATUS_SUBSCRIBE_PENDING,
        pb.STATUS_SUBSCRIBED,
    ]
    listed = await sensor.granted(FETCH, pb.FetchSubscriptionsRequest(), pb.FetchSubscriptionsResponse)
    assert [uri_from_proto(each.subscriber) for each in listed.subscriptions] == [UUri("gw1", 0, 3, 0)]
