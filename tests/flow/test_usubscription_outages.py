"""Two devices with a uSubscription service each, and everything that can happen between them, in a seeded random order.

uEntities of dev1 subscribe to topics of dev2 (and one of their own), leave and expire; the link is cut and restored; either
daemon is killed and started again; hours pass. Whatever happens, a response that was given holds. Once the link is up and
time passes, both services agree on the subscriptions, and a Publish goes exactly to its subscribers.
"""

import random

import pytest

from streamer.features.record import one_of
from streamer.features.usubscription.feature import UsubscriptionFeature
from streamer.transports.memory import MemoryTransport
from streamer.uprotocol.uri import UUri
from tests.flow.devices import Device, Devices
from tests.flow.uentities import SUBSCRIBE_PENDING, SUBSCRIBED, Client
from tests.waiting import until

OWN = UUri("dev1", 0x10, 1, 0x8001)
THEIRS = [UUri("dev2", 0x10, 1, 0x8001), UUri("dev2", 0x10, 1, 0x8002)]
OURSELVES = UUri("gw1", 0, 3, 0)
STEPS = 40
SEEDS = 12


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
