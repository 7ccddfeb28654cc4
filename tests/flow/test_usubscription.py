"""uSubscription from outside: uEntities call it with raw protobuf through the router, on one device and on two.

What each method does is tested in `tests.unit.features.usubscription`. Here: what is forwarded through subscriptions, and
that two services agree in the end whatever happens to links and processes.
"""

import random
from collections.abc import Sequence

import pytest

from streamer.features.usubscription.feature import UsubscriptionFeature
from streamer.transports.base import Received
from streamer.transports.memory import MemoryReceived, MemoryTransport
from streamer.uprotocol.message import UMessage, UMessageType, publish
from streamer.uprotocol.uri import UUri
from tests.flow.devices import Device, Devices
from tests.flow.uentities import (
    DAY_MS,
    REMOTE_TOPIC,
    SUBSCRIBE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBE_PENDING,
    UNSUBSCRIBED,
    Client,
    RemoteService,
    subscribed,
)
from tests.hosted import one_of
from tests.listeners import RecordingListener
from tests.waiting import until

TOPIC = UUri("dev1", 0x10, 1, 0x8001)
OTHER = UUri("dev1", 0x10, 1, 0x8002)
OWN = UUri("dev1", 0x10, 1, 0x8001)
THEIRS = [UUri("dev2", 0x10, 1, 0x8001), UUri("dev2", 0x10, 1, 0x8002)]
OURSELVES = UUri("gw1", 0, 3, 0)
STEPS = 40
SEEDS = 12


@pytest.fixture
async def permitting(devices: Devices) -> Device:
    """A device that permits a phone to subscribe to the topic."""
    return await devices.device(1, subscribe=[{"from": "//phone/C/1/0", "topics": [str(TOPIC)]}])


async def test_nothing_is_received_or_forwarded_without_a_subscription(devices: Devices, permitting: Device) -> None:
    """4: a uEntity of another device subscribes at our service itself."""
    publisher, far = await devices.client(1, 0x10), Client(devices.clock, UUri("phone", 0xC, 1, 0))
    far.transport = await devices.join("far", "phone")
    far.service = "dev1"
    await far.transport.register_listener(UUri("*", 0xFFFF_FFFF, 0xFF, 0xFFFF), far.uri, far)
    await far.listen(TOPIC)

    def heard() -> set[UUri]:
        return {source for source, sink in permitting.near.registry.filters() if sink is None}

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


async def test_what_is_published_once_the_subscriber_has_left_is_not_forwarded(devices: Devices, permitting: Device) -> None:
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
                    permitting.near.inject(MemoryReceived(publish(devices.clock.ms, TOPIC, b"%d" % len(answers))))

    anyone = UUri("*", 0xFFFF_FFFF, 0xFF, 0xFFFF)
    await far.transport.register_listener(anyone, far.uri, far)
    await far.listen(TOPIC)
    assert await far.subscribe(TOPIC) == SUBSCRIBED
    await until(lambda: (TOPIC, None) in permitting.near.registry.filters(), "the listener")
    await publisher.publish(TOPIC, b"during")
    await far.transport.register_listener(anyone, far.uri, Publisher())
    await far.unsubscribe(TOPIC)
    assert (len(answers), far.news) == (1, [b"during"])


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


async def test_subscriber_of_a_remote_topic_is_kept_across_restarts(
    devices: Devices, device: Device, app: Client, remote: RemoteService
) -> None:
    await subscribed(app, remote)
    device = await devices.restart(device)
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBED
    assert await app.subscriptions(app.uri) == ([(REMOTE_TOPIC, app.uri, SUBSCRIBED)], False)
    await until(lambda: (REMOTE_TOPIC, None) in device.far.registry.filters(), "the listener")


async def test_publish_of_another_device_arrives_from_the_subscription_to_its_end(devices: Devices, app: Client) -> None:
    far = await devices.device(2)
    publisher, observer = await devices.client(2, 0x10), await devices.client(2, 0xB)
    near = devices.devices["gw1"]
    await observer.register(REMOTE_TOPIC)
    await app.listen(REMOTE_TOPIC)
    await publisher.publish(REMOTE_TOPIC, b"before")
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED)
    heard = ((near.far, REMOTE_TOPIC), (far.near, REMOTE_TOPIC))
    await until(lambda: all((topic, None) in t.registry.filters() for t, topic in heard), "the listeners")
    await publisher.publish(REMOTE_TOPIC, b"during")
    await app.unsubscribe(REMOTE_TOPIC)
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED)
    await until(lambda: not any((topic, None) in t.registry.filters() for t, topic in heard), "the end of the listeners")
    await publisher.publish(REMOTE_TOPIC, b"after")
    assert app.news == [b"during"]
    assert observer.updates == [(REMOTE_TOPIC, OURSELVES, SUBSCRIBED), (REMOTE_TOPIC, OURSELVES, UNSUBSCRIBED)]


async def test_days_without_a_link_and_a_restart_lose_nothing(
    devices: Devices, device: Device, app: Client, remote: RemoteService
) -> None:
    device.far.lose_link()
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    for _ in range(3):
        devices.pass_time(DAY_MS)
        await app.all_is_said()
    device = await devices.restart(device)
    await remote.grant(await remote.next(1))
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED)
    assert {method for method, _ in remote.asked} == {SUBSCRIBE}
