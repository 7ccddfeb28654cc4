"""uSubscription from outside, topics of the own device: uEntities call it with raw protobuf through the router.

The names follow the clauses of the document: Subscribe 4.1, Unsubscribe 4.2, Fetch 4.3 and 4.4, notifications 7, Reset 9.
"""

import random
from collections.abc import Sequence

import pytest

from streamer.features.record import one_of
from streamer.features.usubscription.feature import UsubscriptionFeature
from streamer.transports.base import Received
from streamer.transports.memory import MemoryReceived, MemoryTransport
from streamer.uprotocol.message import UMessage, UMessageType, publish
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.devices import Device, Devices
from tests.flow.uentities import CHANGES, RESET, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBED, Client
from tests.listeners import RecordingListener
from tests.waiting import until

TOPIC = UUri("dev1", 0x10, 1, 0x8001)
OTHER = UUri("dev1", 0x10, 1, 0x8002)
HOUR_MS = 3_600_000
OWN = UUri("dev1", 0x10, 1, 0x8001)
THEIRS = [UUri("dev2", 0x10, 1, 0x8001), UUri("dev2", 0x10, 1, 0x8002)]
OURSELVES = UUri("gw1", 0, 3, 0)
STEPS = 40
SEEDS = 12


@pytest.fixture
async def device(devices: Devices) -> Device:
    return await devices.device(1, page=3, subscribe=[{"from": "//phone/C/1/0", "topics": [str(TOPIC)]}])


# 4.1 Subscribe


async def test_subscriber_of_a_local_topic_is_subscribed_at_once_and_notified(app: Client) -> None:
    assert await app.subscribe(TOPIC) == SUBSCRIBED
    await until(lambda: app.updates, "an Update")
    assert app.updates == [(TOPIC, app.uri, SUBSCRIBED)]
    assert await app.subscribers(TOPIC) == ([app.uri], False)


async def test_subscription_without_expiration_survives_a_restart_and_years(
    devices: Devices, device: Device, app: Client
) -> None:
    await app.subscribe(TOPIC)
    for _ in range(2):
        device = await devices.restart(device)
        devices.pass_time(365 * 24 * HOUR_MS)
        assert await app.subscribers(TOPIC) == ([app.uri], False)
    assert await app.subscribe(TOPIC) == SUBSCRIBED


async def test_subscription_ends_at_its_expiration_and_not_before(devices: Devices, app: Client) -> None:
    await app.subscribe(TOPIC, devices.clock.ms + HOUR_MS)
    devices.pass_time(HOUR_MS - 1)
    assert await app.subscribers(TOPIC) == ([app.uri], False)
    devices.pass_time(1)
    await until(lambda: len(app.updates) == 2, "the Update that tells the end")
    assert app.updates[-1] == (TOPIC, app.uri, UNSUBSCRIBED)
    assert await app.subscribers(TOPIC) == ([], False)


async def test_subscription_ends_in_time_even_with_a_restart_in_between(
    devices: Devices, device: Device, app: Client
) -> None:
    await app.subscribe(TOPIC, devices.clock.ms + HOUR_MS)
    await devices.restart(device)
    assert await app.subscribers(TOPIC) == ([app.uri], False)
    devices.pass_time(HOUR_MS)
    assert await app.subscribers(TOPIC) == ([], False)


async def test_second_subscribe_returns_the_current_state_and_changes_nothing(app: Client) -> None:
    for _ in range(3):
        assert await app.subscribe(TOPIC) == SUBSCRIBED
    await app.all_is_said()
    assert app.updates == [(TOPIC, app.uri, SUBSCRIBED)]
    assert await app.subscriptions(app.uri) == ([(TOPIC, app.uri, SUBSCRIBED)], False)


@pytest.mark.parametrize(("second_h", "ends_h"), [(3, 3), (1, 1), (None, None)], ids=["later", "earlier", "for ever"])
async def test_expiration_of_the_second_subscribe_counts(
    devices: Devices, app: Client, second_h: int | None, ends_h: int | None
) -> None:
    start_ms = devices.clock.ms
    await app.subscribe(TOPIC, start_ms + 2 * HOUR_MS)
    await app.subscribe(TOPIC, None if second_h is None else start_ms + second_h * HOUR_MS)
    devices.pass_time((100 if ends_h is None else ends_h) * HOUR_MS - 1)
    assert await app.subscribers(TOPIC) == ([app.uri], False)
    devices.pass_time(1)
    assert await app.subscribers(TOPIC) == ([app.uri] if ends_h is None else [], False)


async def test_nothing_is_received_or_forwarded_without_a_subscription(devices: Devices, device: Device) -> None:
    """4: a uEntity of another device subscribes at our service itself."""
    publisher, far = await devices.client(1, 0x10), Client(devices.clock, UUri("phone", 0xC, 1, 0))
    far.transport = await devices.join("far", "phone")
    far.service = "dev1"
    await far.transport.register_listener(UUri("*", 0xFFFF_FFFF, 0xFF, 0xFFFF), far.uri, far)
    await far.listen(TOPIC)

    def heard() -> set[UUri]:
        return {source for source, sink in device.near.registry.filters() if sink is None}

    await publisher.publish(TOPIC, b"before")
    assert heard() == set()
    assert await far.subscribe(TOPIC) == SUBSCRIBED
    await until(lambda: heard() == {TOPIC}, "the listener")
    await publisher.publish(TOPIC, b"during")
    await publisher.publish(OTHER, b"another topic")
    await far.unsubscribe(TOPIC)
    await until(lambda: heard() == set(), "the end of the listener")
    await publisher.publish(TOPIC, b"after")
    assert far.news == [b"during"]


async def test_what_is_published_once_the_subscriber_has_left_is_not_forwarded(devices: Devices, device: Device) -> None:
    """Its Response is the moment: whatever arrives at the streamer right behind it is too late."""
    publisher, far = await devices.client(1, 0x10), Client(devices.clock, UUri("phone", 0xC, 1, 0))
    far.transport = await devices.join("far", "phone")
    far.service = "dev1"
    answers: list[UMessage] = []

    class Publisher(RecordingListener):
        def on_receive_batch(self, batch: Sequence[Received]) -> None:
            super().on_receive_batch(batch)
            for received in batch:
                if received.message.attributes.type is UMessageType.RESPONSE:
                    answers.append(received.message)
                    device.near.inject(MemoryReceived(publish(devices.clock.ms, TOPIC, b"%d" % len(answers))))

    anyone = UUri("*", 0xFFFF_FFFF, 0xFF, 0xFFFF)
    await far.transport.register_listener(anyone, far.uri, far)
    await far.listen(TOPIC)
    assert await far.subscribe(TOPIC) == SUBSCRIBED
    await until(lambda: (TOPIC, None) in device.near.registry.filters(), "the listener")
    await publisher.publish(TOPIC, b"during")
    await far.transport.register_listener(anyone, far.uri, Publisher())
    await far.unsubscribe(TOPIC)
    assert (len(answers), far.news) == (1, [b"during"])


# 4.2 Unsubscribe


async def test_subscriber_that_unsubscribes_is_no_longer_tracked_even_after_a_restart(
    devices: Devices, device: Device, app: Client, other: Client
) -> None:
    await app.subscribe(TOPIC)
    await other.subscribe(TOPIC)
    await app.unsubscribe(TOPIC)
    assert await app.subscribers(TOPIC) == ([other.uri], False)
    assert app.updates == [(TOPIC, app.uri, SUBSCRIBED), (TOPIC, app.uri, UNSUBSCRIBED)]
    await devices.restart(device)
    assert await app.subscribers(TOPIC) == ([other.uri], False)


async def test_unsubscribe_without_a_subscription_leaves_it_unsubscribed(app: Client, other: Client) -> None:
    await other.subscribe(TOPIC)
    await app.unsubscribe(TOPIC)
    await app.unsubscribe(OTHER)
    await app.all_is_said()
    assert app.updates == []
    assert await app.subscriptions(app.uri) == ([], False)
    assert await app.subscribers(TOPIC) == ([other.uri], False)


async def test_after_the_last_one_has_left_nothing_more_is_notified(app: Client, other: Client) -> None:
    await other.register(TOPIC)
    await app.subscribe(TOPIC)
    await app.unsubscribe(TOPIC)
    await app.unsubscribe(TOPIC)
    await app.all_is_said()
    await other.all_is_said()
    told = [(TOPIC, app.uri, SUBSCRIBED), (TOPIC, app.uri, UNSUBSCRIBED)]
    assert app.updates == other.updates == told


# 4.3 FetchSubscribers, 4.4 FetchSubscriptions


async def test_subscribers_come_in_pages_in_the_same_order_each_time(devices: Devices, device: Device, app: Client) -> None:
    clients = [await devices.client(1, number) for number in (9, 3, 7, 1, 8, 2, 6)]
    for client in clients:
        await client.subscribe(TOPIC)
    uris = [client.uri for client in clients]
    for _ in range(2):
        assert await app.subscribers(TOPIC) == (uris, False)
        assert await app.subscribers(TOPIC, 0) == (uris[:3], True)
        assert await app.subscribers(TOPIC, 3) == (uris[3:6], True)
        assert await app.subscribers(TOPIC, 4) == (uris[4:], False)
        assert await app.subscribers(TOPIC, 6) == (uris[6:], False)
        assert await app.subscribers(TOPIC, 7) == ([], False)
        device = await devices.restart(device)
    assert await app.subscribers(OTHER) == ([], False)


async def test_subscriptions_of_a_topic_and_of_a_subscriber_come_in_pages_in_the_same_order(
    devices: Devices, device: Device, app: Client
) -> None:
    topics = [UUri("dev1", 0x10, 1, 0x8000 + number) for number in (9, 3, 7, 1, 8)]
    clients = [app, *[await devices.client(1, number) for number in (9, 3, 7, 1)]]
    for topic in topics:
        await app.subscribe(topic)
    for client in clients[1:]:
        await client.subscribe(topics[0])
    of_app = [(topic, app.uri, SUBSCRIBED) for topic in topics]
    of_topic = [(topics[0], client.uri, SUBSCRIBED) for client in clients]
    for _ in range(2):
        for about, entries in ((app.uri, of_app), (topics[0], of_topic)):
            assert await app.subscriptions(about) == (entries, False)
            assert await app.subscriptions(about, 0) == (entries[:3], True)
            assert await app.subscriptions(about, 1) == (entries[1:4], True)
            assert await app.subscriptions(about, 2) == (entries[2:], False)
            assert await app.subscriptions(about, 5) == ([], False)
        device = await devices.restart(device)


# 7 Notifications


async def test_changes_are_notifications_of_type_update_from_resource_8000(app: Client) -> None:
    await app.subscribe(TOPIC)
    await app.unsubscribe(TOPIC)
    await app.all_is_said()
    assert [message.attributes.source for message in app.notifications] == [UUri("dev1", 0, 3, CHANGES)] * 2
    assert [message.attributes.sink for message in app.notifications] == [app.uri] * 2
    for message, state in zip(app.notifications, (SUBSCRIBED, UNSUBSCRIBED), strict=True):
        update = pb.Update.FromString(message.payload or b"")
        assert (update.topic.resource_id, update.subscriber.uri.ue_id, update.status.state) == (0x8001, 0xA, state)


async def test_observer_is_notified_of_others_until_it_unregisters(
    devices: Devices, device: Device, app: Client, other: Client
) -> None:
    await other.register(TOPIC)
    await app.subscribe(TOPIC)
    await app.subscribe(OTHER)
    await devices.restart(device)  # registrations are kept
    await app.unsubscribe(TOPIC)
    await other.all_is_said()
    assert other.updates == [(TOPIC, app.uri, SUBSCRIBED), (TOPIC, app.uri, UNSUBSCRIBED)]
    await other.unregister(TOPIC)
    await app.subscribe(TOPIC)
    await other.all_is_said()
    assert len(other.updates) == 2
    assert app.updates[-1] == (TOPIC, app.uri, SUBSCRIBED)


# 9 Reset


async def test_reset_by_a_usubscription_service_flushes_everything_on_disk_too(
    devices: Devices, device: Device, app: Client, other: Client
) -> None:
    await app.subscribe(TOPIC)
    await app.subscribe(OTHER)
    await other.register(TOPIC)
    service_of_another = await devices.client(1, 0)
    await service_of_another.granted(RESET, pb.ResetRequest(), pb.ResetResponse)
    await app.all_is_said()
    assert sorted(app.updates[2:]) == [(TOPIC, app.uri, UNSUBSCRIBED), (OTHER, app.uri, UNSUBSCRIBED)]
    for _ in range(2):
        assert await app.subscriptions(app.uri) == ([], False)
        device = await devices.restart(device)
    heard = len(other.updates)
    assert heard == 1
    await app.subscribe(TOPIC)
    await other.all_is_said()
    assert len(other.updates) == heard  # its registration is gone too


@pytest.mark.parametrize("ue_id", [0xA, 0x1_0000, 0xFFFE], ids=["a uEntity", "an instance of 0", "another"])
async def test_reset_by_anybody_else_is_denied_and_changes_nothing(devices: Devices, app: Client, ue_id: int) -> None:
    await app.subscribe(TOPIC)
    somebody = await devices.client(1, ue_id) if ue_id != 0xA else app
    status = await somebody.refused(RESET, pb.ResetRequest())
    assert status.code == UCode.PERMISSION_DENIED
    assert await app.subscribers(TOPIC) == ([app.uri], False)


class SubscriptionScenario:
    """The subscriptions so far, and when they expire."""

    def __init__(self, devices: Devices, seed: int) -> None:
        self.devices = devices
        self.random = random.Random(seed)
        self.inside: dict[tuple[UUri, UUri], int | None] = {}

    async def begin(self) -> None:
        self.near = await self.devices.device(1)
        self.far = await self.devices.device(2)
        self.apps = [await self.devices.client(1, number) for number in (0xA, 0xB, 0xC)]
        self.sensor = await self.devices.client(2, 0x10)
        for topic in THEIRS:
            await self.apps[0].listen(topic)

    async def step(self) -> None:
        app, topic = self.random.choice(self.apps), self.random.choice([OWN, *THEIRS])
        match self.random.choice(["in", "in", "out", "out", "cut", "mend", "time", "kill near", "kill far"]):
            case "in":
                await self.subscribe(app, topic)
            case "out":
                await app.unsubscribe(topic)
                self.inside.pop((topic, app.uri), None)
            case "cut":
                self.near.far.lose_link()
            case "mend":
                self.near.far.restore_link()
            case "time":
                self.pass_time(self.random.choice([1, 1000, 61_000, 300_000, 3_600_000]))
            case "kill near":
                self.near = await self.devices.restart(self.near)
            case "kill far":
                self.far = await self.devices.restart(self.far)

    async def subscribe(self, app: Client, topic: UUri) -> None:
        lasts_ms = self.random.choice([None, None, 200_000, 4_000_000])
        end_ms = None if lasts_ms is None else self.devices.clock.ms + lasts_ms
        state = await app.subscribe(topic, end_ms)
        assert state in ([SUBSCRIBED] if topic == OWN else [SUBSCRIBED, SUBSCRIBE_PENDING])
        self.inside[topic, app.uri] = end_ms

    def pass_time(self, ms: int) -> None:
        self.devices.pass_time(ms)
        now_ms = self.devices.clock.ms
        self.inside = {relation: end for relation, end in self.inside.items() if end is None or end > now_ms}

    def wants(self, topic: UUri) -> set[UUri]:
        return {app for name, app in self.inside if name == topic}

    async def answers_hold(self) -> None:
        """Exactly these subscribers are listed, and a topic of the own device is subscribed at once."""
        for topic in (OWN, *THEIRS):
            entries, _ = await self.apps[0].subscriptions(topic)
            assert {subscriber for _, subscriber, _ in entries} == self.wants(topic)
            assert topic != OWN or {state for _, _, state in entries} <= {SUBSCRIBED}

    async def everything_is_settled(self) -> None:
        """The link is up, and time passes until no service has anything more to send."""
        self.near.far.restore_link()
        for _ in range(20):
            for client in (self.apps[0], self.sensor, self.apps[0], self.sensor):  # there and back, twice
                await client.all_is_said()
            remote = one_of(self.near.service_host.features, UsubscriptionFeature).gauges()["remote_pending"]
            if not remote and all([await self.is_agreed(topic) for topic in THEIRS]):
                return
            self.pass_time(300_000)
        raise AssertionError("the services did not come to an end")

    async def is_agreed(self, topic: UUri) -> bool:
        entries, _ = await self.apps[0].subscriptions(topic)
        there, _ = await self.sensor.subscribers(topic)
        wanted = bool(self.wants(topic))
        return {state for _, _, state in entries} <= {SUBSCRIBED} and there == ([OURSELVES] if wanted else [])

    async def publishes_go_where_they_are_wanted(self) -> None:
        for topic in THEIRS:
            wanted = bool(self.wants(topic))
            for transport in (self.near.far, self.far.near):
                await self._is_heard(transport, topic, wanted)
            heard = self.apps[0].news
            await self.sensor.publish(topic, b"news")
            assert self.apps[0].news == heard + ([b"news"] if wanted else [])

    async def _is_heard(self, transport: MemoryTransport, topic: UUri, wanted: bool) -> None:
        await until(lambda: ((topic, None) in transport.registry.filters()) is wanted, f"{topic} heard: {wanted}")


def seen(device: Device) -> dict[str, int]:
    return {
        name: number
        for name, number in one_of(device.service_host.features, UsubscriptionFeature).gauges().items()
        if name in ("subscriptions", "remote_topics")
    }


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_answers_hold_and_both_services_agree_in_the_end(devices: Devices, seed: int) -> None:
    scenario = SubscriptionScenario(devices, seed)
    await scenario.begin()
    for _ in range(STEPS):
        await scenario.step()
        await scenario.answers_hold()
    await scenario.everything_is_settled()
    await scenario.answers_hold()
    await scenario.publishes_go_where_they_are_wanted()
    before = seen(scenario.near)
    scenario.near = await devices.restart(scenario.near)
    await scenario.answers_hold()
    assert seen(scenario.near) == before
