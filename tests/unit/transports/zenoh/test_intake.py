"""Which of several subscriptions that bring the same message is used, and what the choice costs. Without Zenoh."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import zenoh
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import Unwanted
from streamer.transports.listeners import Filter, filter_matches
from streamer.transports.zenoh.wire import key_for, narrowed
from streamer.uprotocol.message import Options, UMessage, notification, publish, request, response
from streamer.uprotocol.protobuf import attributes_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.unit.transports.counting_uri import CountingUri, counting
from tests.unit.transports.zenoh.intake_harness import ANYONE, APP, ASK, METHOD, NOW_MS, OTHER_TOPIC, TOPIC, IntakeHarness


def test_every_sample_is_counted_once() -> None:
    harness = IntakeHarness()
    harness.listen((everything_at("veh1"), None))
    harness.listen((TOPIC, None))
    first, second = harness.subscriptions
    message = publish(NOW_MS, TOPIC, b"x")
    assert [harness.bring(each, message) for each in (first, second)] == [1, 0]
    assert [harness.bring(each, publish(NOW_MS, UUri("veh2", 1, 1, 0x8000))) for each in (first, second)] == [0, 0]
    events = harness.events
    assert (events.packets, events.unwanted) == (4, {Unwanted.COPY: 1, Unwanted.NO_LISTENER: 2})
    second.discarded = 5
    harness.intake._ended(second)
    assert (events.packets, events.unwanted[Unwanted.STOPPED]) == (9, 5)


async def test_declared_keys_are_held_while_closed_subscriptions_bring_what_is_on_its_way() -> None:
    """Zenoh undeclares a key that nobody holds, and drops the samples that it is about to deliver on it."""
    harness = IntakeHarness()
    before = harness.intake._frequent
    assert before is not None
    await harness.intake.close()
    assert harness.intake._frequent is before


BEYOND = {
    "token": Options(token="t" * 2000, ttl=30_000),
    "token that fits into nothing": Options(token="t" * 20_000, ttl=30_000),
}


@pytest.mark.parametrize("options", BEYOND.values(), ids=BEYOND)
def test_sample_whose_attributes_are_too_large_is_refused_with_those_that_fit(options: Options) -> None:
    harness = IntakeHarness()
    harness.listen((everything_at("veh1"), None))
    harness.listen((TOPIC, None))
    message = publish(NOW_MS, TOPIC, b"x" * 5000, options)
    assert [harness.bring(each, message) for each in harness.subscriptions] == [0, 0]
    (refused,) = harness.events.turned_away
    known = replace(message.attributes.shared, provenance=refused.received.message.attributes.provenance)
    assert refused.received.message == UMessage(message.id, known, b"x" * 4096)
    assert (refused.code, refused.payload_bytes) == (UCode.RESOURCE_EXHAUSTED, 5000)
    assert "ttt" not in refused.text
    assert (harness.events.packets, harness.events.unwanted) == (2, {Unwanted.COPY: 1})


TRACED = [publish(NOW_MS, TOPIC, b"", Options(traceparent=f"00-{n:032x}-{n:016x}-01")) for n in range(1, 11)]
ANSWERS = [response(NOW_MS, request(NOW_MS, APP, METHOD, 1000)) for _ in range(10)]


def cost_of(topics: int, messages: Sequence[UMessage]) -> int:
    """Comparisons for messages that come through each of a few subscriptions beside those of the topics."""
    harness = IntakeHarness()
    for n in range(topics):
        harness.listen((counting(TOPIC._replace(resource=0x8000 + n)), None))
    few: list[Filter] = [(counting(everything_at("veh1")), None), (counting(ANYONE), APP)]
    for of in few:
        harness.listen(of)
    ways = [part for part in harness.subscriptions if part.filter in [(TOPIC, None), *few]]
    before = CountingUri.compared
    for message in messages:
        assert sum(harness.bring(way, message) for way in ways) == 1
    return CountingUri.compared - before


@pytest.mark.parametrize("messages", [pytest.param(TRACED, id="traced"), pytest.param(ANSWERS, id="responses")])
def test_cost_of_a_message_does_not_depend_on_the_number_of_topics(messages: list[UMessage]) -> None:
    few = cost_of(10, messages)
    assert few > 0
    assert cost_of(2000, messages) == few


def test_adding_or_removing_a_topic_costs_nothing_for_messages_of_others() -> None:
    harness = IntakeHarness()
    harness.listen((counting(everything_at("veh1")), None))
    harness.listen((counting(TOPIC), None))
    message, other = publish(NOW_MS, TOPIC), publish(NOW_MS, OTHER_TOPIC)
    way, topic = harness.subscriptions
    assert [harness.bring(way, message), harness.bring(topic, message), harness.bring(way, other)] == [1, 0, 1]
    before = CountingUri.compared
    for change in (harness.listen, harness.leave):
        change((counting(OTHER_TOPIC), None))
        assert [harness.bring(way, message), harness.bring(topic, message)] == [1, 0]
    assert CountingUri.compared == before


def test_when_the_chosen_subscription_goes_the_next_one_is_listened_to() -> None:
    harness = IntakeHarness()
    harness.listen((TOPIC, None))
    harness.listen((everything_at("veh1"), None))
    message = publish(NOW_MS, TOPIC)
    topic, way = harness.subscriptions
    assert [harness.bring(topic, message), harness.bring(way, message)] == [1, 0]
    harness.leave((TOPIC, None))
    assert harness.bring(way, message) == 1
    harness.listen((TOPIC, None))  # it comes last now
    assert [harness.bring(part, message) for part in harness.subscriptions] == [1, 0]


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
def test_the_first_subscription_that_matches_is_listened_to_as_by_trying_every_filter(
    steps: list[tuple[str, Filter]],
) -> None:
    harness = IntakeHarness()
    model: dict[Filter, None] = {}  # in the order in which they came
    for step, of in steps:
        if step == "bring":
            parts = [part for there in model for part in narrowed(*there)]
            assert [subscription.filter for subscription in harness.subscriptions] == parts
            for message in MESSAGES:
                matching = [n for n, part in enumerate(parts) if filter_matches(*part, message.attributes)]
                heard = [n for n, way in enumerate(harness.subscriptions) if harness.bring(way, message)]
                assert heard == matching[:1]
        elif of in model:
            del model[of]
            harness.leave(of)
        else:
            model[of] = None
            harness.listen(of)


def test_a_publish_with_the_sink_that_a_streamer_set_comes_on_its_topic_and_goes_to_who_listens_to_the_sink() -> None:
    """Its key has no sink, so the subscription to the topic brings it; a filter without sink does not match it."""
    harness = IntakeHarness()
    for of in ((TOPIC, None), (ANYONE, everything_at("cloud"))):
        harness.listen(of)
    plain = publish(NOW_MS, TOPIC)
    attributes = replace(plain.attributes, sink=everything_at("cloud"))
    attachment = b"\x01" + attributes_to_proto(plain.id, attributes).SerializeToString()
    sample: Any = SimpleNamespace(
        kind=zenoh.SampleKind.PUT,
        payload=SimpleNamespace(to_bytes=lambda: b""),
        attachment=SimpleNamespace(to_bytes=lambda: attachment),
        key_expr=key_for(attributes, ""),
        priority=1,
    )
    for subscription in harness.subscriptions:
        harness.intake._take(subscription, [sample])
    assert [message.attributes for message in harness.listener.messages] == [attributes]
    harness.leave((ANYONE, everything_at("cloud")))
    harness.intake._take(harness.subscriptions[0], [sample])
    assert len(harness.listener.messages) == 1


def test_the_next_session_chooses_anew_for_flows_that_are_known() -> None:
    harness = IntakeHarness()
    harness.listen((TOPIC, None))
    message = publish(NOW_MS, TOPIC)
    assert harness.bring(harness.subscriptions[0], message) == 1
    harness.open_session()
    assert harness.bring(harness.subscriptions[0], message) == 1
