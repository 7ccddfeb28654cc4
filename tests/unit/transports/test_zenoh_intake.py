"""Which of several subscriptions that bring the same message is listened to, and what finding out costs. No Zenoh here."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.base import ListenerOptions, TransportContext
from streamer.transports.listeners import Filter, ListenerRegistry, filter_matches
from streamer.transports.zenoh.inflow import Inflow
from streamer.transports.zenoh.intake import Intake
from streamer.transports.zenoh.receipts import Receipts
from streamer.transports.zenoh.wire import encode_attachment, narrowed
from streamer.uprotocol.message import Options, UMessage, notification, publish, request, response
from streamer.uprotocol.uri import UUri, everything_at
from tests.unit.transports.ears import CountingUri, Ear, counting

NOW_MS = 1_700_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)
OTHER_TOPIC = UUri("veh1", 0xA, 1, 0x8001)
APP = UUri("cloud", 0xC, 1, 0)
METHOD = UUri("veh1", 0xB, 1, 7)
ANYONE = everything_at("*")

ASK = request(NOW_MS, APP, METHOD, 1000)


class NoControl:
    """Declares nothing."""

    def post(self, call: Callable[[], None]) -> None:
        pass


class World:
    """An intake with a session that brings what the test says, and one listener."""

    def __init__(self) -> None:
        self.registry = ListenerRegistry(ListenerOptions(max_listeners=3000))
        context = TransportContext("vehicle", "gateway.veh1")
        self.intake = Intake(context, self.registry, Receipts("vehicle", (), 1.0), 10)
        self.ear = Ear()
        nothing: Any = object()
        control: Any = NoControl()
        self.intake.open(nothing, control, nothing)

    def listen(self, of: Filter) -> None:
        self.registry.add(*of, self.ear)
        self.intake.open_filter(*of)

    def leave(self, of: Filter) -> None:
        self.registry.remove(*of, self.ear)
        self.intake.close_filter(*of)

    @property
    def subscriptions(self) -> list[Inflow]:
        """Those that are open, in the order in which they came."""
        return [part for parts in self.intake._subscriptions.values() for part in parts]

    def bring(self, subscription: Inflow, message: UMessage) -> int:
        """How often the message is heard that comes through a subscription."""
        before = len(self.ear.heard)
        blob = SimpleNamespace(to_bytes=lambda: message.payload or b"")
        attachment = SimpleNamespace(to_bytes=lambda: encode_attachment(message))
        sample: Any = SimpleNamespace(payload=blob, attachment=attachment)
        self.intake._take(subscription, [sample])
        return len(self.ear.heard) - before


TRACED = [publish(NOW_MS, TOPIC, b"", Options(traceparent=f"00-{n:032x}-{n:016x}-01")) for n in range(1, 11)]
ANSWERS = [response(NOW_MS, request(NOW_MS, APP, METHOD, 1000)) for _ in range(10)]


def cost_of(topics: int, messages: Sequence[UMessage]) -> int:
    """Comparisons for messages that come through each of a few subscriptions beside those of the topics."""
    world = World()
    for n in range(topics):
        world.listen((counting(TOPIC._replace(resource=0x8000 + n)), None))
    few: list[Filter] = [(counting(everything_at("veh1")), None), (counting(ANYONE), APP)]
    for of in few:
        world.listen(of)
    ways = [part for part in world.subscriptions if part.filter in [(TOPIC, None), *few]]
    before = CountingUri.compared
    for message in messages:
        assert sum(world.bring(way, message) for way in ways) == 1
    return CountingUri.compared - before


@pytest.mark.parametrize("messages", [pytest.param(TRACED, id="traced"), pytest.param(ANSWERS, id="responses")])
def test_number_of_topics_is_nothing_to_the_cost_of_messages_that_are_all_different(messages: list[UMessage]) -> None:
    few = cost_of(10, messages)
    assert few > 0
    assert cost_of(2000, messages) == few


def test_a_topic_that_comes_or_goes_costs_nothing_for_the_messages_of_others() -> None:
    world = World()
    world.listen((counting(everything_at("veh1")), None))
    world.listen((counting(TOPIC), None))
    message, other = publish(NOW_MS, TOPIC), publish(NOW_MS, OTHER_TOPIC)
    way, topic = world.subscriptions
    assert [world.bring(way, message), world.bring(topic, message), world.bring(way, other)] == [1, 0, 1]
    before = CountingUri.compared
    for change in (world.listen, world.leave):
        change((counting(OTHER_TOPIC), None))
        assert [world.bring(way, message), world.bring(topic, message)] == [1, 0]
    assert CountingUri.compared == before


def test_when_the_chosen_subscription_goes_the_next_one_is_listened_to() -> None:
    world = World()
    world.listen((TOPIC, None))
    world.listen((everything_at("veh1"), None))
    message = publish(NOW_MS, TOPIC)
    topic, way = world.subscriptions
    assert [world.bring(topic, message), world.bring(way, message)] == [1, 0]
    world.leave((TOPIC, None))
    assert world.bring(way, message) == 1
    world.listen((TOPIC, None))  # it comes last now
    assert [world.bring(part, message) for part in world.subscriptions] == [1, 0]


FILTERS: list[Filter] = [
    (TOPIC, None),
    (OTHER_TOPIC, None),
    (everything_at("veh1"), None),
    (UUri("*", 0xA, 1, 0x8000), None),
    (TOPIC, APP),
    (ANYONE, APP),
    (ANYONE, ANYONE),
    (ANYONE, everything_at("cloud")),
]
MESSAGES = [
    publish(NOW_MS, TOPIC),
    publish(NOW_MS, OTHER_TOPIC),
    publish(NOW_MS, TOPIC, b"", Options(traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")),
    notification(NOW_MS, TOPIC, APP),
    ASK,
    response(NOW_MS, ASK),
]


@given(st.lists(st.tuples(st.sampled_from(["turn", "bring"]), st.sampled_from(FILTERS)), max_size=40))
def test_the_first_subscription_that_matches_is_listened_to_as_by_trying_every_filter(steps) -> None:
    world = World()
    model: dict[Filter, None] = {}  # in the order in which they came
    for step, of in steps:
        if step == "bring":
            parts = [part for there in model for part in narrowed(*there)]
            assert [subscription.filter for subscription in world.subscriptions] == parts
            for message in MESSAGES:
                matching = [n for n, part in enumerate(parts) if filter_matches(*part, message.attributes)]
                heard = [n for n, way in enumerate(world.subscriptions) if world.bring(way, message)]
                assert heard == matching[:1]
        elif of in model:
            del model[of]
            world.leave(of)
        else:
            model[of] = None
            world.listen(of)
