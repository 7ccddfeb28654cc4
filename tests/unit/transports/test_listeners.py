"""The registry of listeners and the pull buffer, without any wire."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.base import ListenerOptions, Received, UListener
from streamer.transports.listeners import Filter, FilterIndex, ListenerRegistry, describe, filter_matches
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import Attributes, Options, UMessage, UMessageType, notification, publish, request, response
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri, everything_at
from tests.unit.transports.ears import CountingUri, counting
from tests.unit.transports.ears import Ear as SlowEar

NOW_MS = 1_700_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)
OTHER_TOPIC = UUri("veh1", 0xA, 1, 0x8001)
APP = UUri("cloud", 0xC, 1, 0)
METHOD = UUri("veh1", 0xB, 1, 7)
ANY_TOPIC = everything_at("veh1")
ANYONE = everything_at("*")


class Ear(UListener):
    """Remembers what it heard, and releases it or not."""

    def __init__(self, keeps: bool = False) -> None:
        self.batches: list[list[Received]] = []
        self.keeps = keeps

    @property
    def heard(self) -> list[UMessage]:
        return [received.message for batch in self.batches for received in batch]

    def on_receive_batch(self, batch: Sequence[Received]) -> None:
        self.batches.append(list(batch))
        if not self.keeps:
            for received in batch:
                received.release()


def registry(**limits: int) -> ListenerRegistry:
    return ListenerRegistry(ListenerOptions(**limits))


def test_listener_with_overlapping_filters_hears_once() -> None:
    ears, ear = registry(), Ear()
    for source, sink in ((TOPIC, None), (ANY_TOPIC, None), (UUri("*", 0xA, 1, 0x8000), None)):
        ears.add(source, sink, ear)
    received = MemoryReceived(publish(NOW_MS, TOPIC))
    ears.deliver([received])
    assert ear.heard == [received.message]
    assert received.acknowledged


def test_several_listeners_share_the_acknowledgement() -> None:
    ears, kept = registry(), [Ear(keeps=True) for _ in range(3)]
    for ear in kept:
        ears.add(TOPIC, None, ear)
    received = MemoryReceived(publish(NOW_MS, TOPIC))
    ears.deliver([received])
    assert received.holders == 3
    for ear in kept:
        assert not received.acknowledged
        ear.batches[0][0].release()
    assert received.acknowledged


def test_message_for_nobody_is_released_at_once() -> None:
    ears, ear = registry(), Ear()
    ears.add(TOPIC, None, ear)
    received = MemoryReceived(publish(NOW_MS, OTHER_TOPIC))
    ears.deliver([received])
    assert received.acknowledged
    assert ear.batches == []


def test_batch_reaches_each_listener_in_one_piece_and_in_order() -> None:
    ears, all_ear, some_ear = registry(), Ear(), Ear()
    ears.add(ANY_TOPIC, None, all_ear)
    ears.add(TOPIC, None, some_ear)
    batch = [MemoryReceived(publish(NOW_MS, topic)) for topic in (TOPIC, OTHER_TOPIC, TOPIC, OTHER_TOPIC)]
    ears.deliver(batch)
    assert all_ear.batches == [batch]
    assert some_ear.batches == [[batch[0], batch[2]]]
    assert all(received.acknowledged for received in batch)


def test_listener_that_takes_messages_singly_gets_them_in_order() -> None:
    ears, ear = registry(), SlowEar()
    ears.add(ANY_TOPIC, None, ear)
    batch = [MemoryReceived(publish(NOW_MS, TOPIC)) for _ in range(5)]
    ears.deliver(batch)
    assert ear.heard == [received.message for received in batch]


def test_registering_again_changes_nothing_and_one_removal_ends_it() -> None:
    ears, ear = registry(), Ear()
    assert ears.add(TOPIC, None, ear) is True
    assert ears.add(TOPIC, None, ear) is False
    assert ears.remove(TOPIC, None, ear) is True
    ears.deliver([MemoryReceived(publish(NOW_MS, TOPIC))])
    assert ear.batches == []
    assert ears.filters() == []


def test_filter_is_new_with_its_first_listener_and_over_with_its_last() -> None:
    ears, first, second = registry(), Ear(), Ear()
    assert ears.add(TOPIC, None, first) is True
    assert ears.add(TOPIC, None, second) is False
    assert ears.add(TOPIC, APP, first) is True
    assert ears.filters() == [(TOPIC, None), (TOPIC, APP)]
    assert ears.remove(TOPIC, None, first) is False
    assert ears.remove(TOPIC, None, second) is True
    assert ears.filters() == [(TOPIC, APP)]


def test_nothing_is_delivered_after_unregistering_one_of_two_filters() -> None:
    ears, ear = registry(), Ear()
    ears.add(TOPIC, None, ear)
    ears.add(OTHER_TOPIC, None, ear)
    kept = publish(NOW_MS, OTHER_TOPIC)
    ears.deliver([MemoryReceived(publish(NOW_MS, TOPIC)), MemoryReceived(kept)])
    ears.remove(TOPIC, None, ear)
    before = len(ear.heard)
    ears.deliver([MemoryReceived(publish(NOW_MS, TOPIC)), MemoryReceived(kept)])
    assert ear.heard[before:] == [kept]


def test_listener_that_came_later_hears_what_comes_later() -> None:
    ears, early, late = registry(), Ear(), Ear()
    ears.add(TOPIC, None, early)
    ears.deliver([MemoryReceived(publish(NOW_MS, TOPIC))])
    ears.add(TOPIC, None, late)
    second = publish(NOW_MS, TOPIC)
    ears.deliver([MemoryReceived(second)])
    assert late.heard == [second]
    assert len(early.heard) == 2


@pytest.mark.parametrize(("source", "sink"), [(TOPIC, None), (OTHER_TOPIC, None), (TOPIC, APP)])
def test_unregistering_what_was_not_registered_is_not_found(source: UUri, sink: UUri | None) -> None:
    ears = registry()
    ears.add(TOPIC, None, Ear())
    with pytest.raises(UStatusError) as caught:
        ears.remove(source, sink, Ear())
    assert caught.value.code is UCode.NOT_FOUND
    assert ears.filters() == [(TOPIC, None)]


def test_limit_per_filter_is_resource_exhausted_and_leaves_room_on_others() -> None:
    ears, known = registry(max_listeners_per_filter=2), Ear()
    ears.add(TOPIC, None, known)
    ears.add(TOPIC, None, Ear())
    with pytest.raises(UStatusError, match="limit per filter") as caught:
        ears.add(TOPIC, None, Ear())
    assert caught.value.code is UCode.RESOURCE_EXHAUSTED
    assert ears.add(TOPIC, None, known) is False  # who is there already stays idempotent
    ears.add(OTHER_TOPIC, None, Ear())
    ears.remove(TOPIC, None, known)
    ears.add(TOPIC, None, Ear())


def test_overall_limit_is_resource_exhausted_and_frees_with_each_removal() -> None:
    ears, first = registry(max_listeners=2), Ear()
    ears.add(TOPIC, None, first)
    ears.add(OTHER_TOPIC, None, first)
    with pytest.raises(UStatusError, match="limit of this transport") as caught:
        ears.add(ANY_TOPIC, None, first)
    assert caught.value.code is UCode.RESOURCE_EXHAUSTED
    ears.remove(TOPIC, None, first)
    ears.add(ANY_TOPIC, None, first)


def test_filter_outside_the_table_is_an_invalid_argument_and_is_not_kept() -> None:
    ears = registry()
    with pytest.raises(UStatusError) as caught:
        ears.add(METHOD, None, Ear())
    assert caught.value.code is UCode.INVALID_ARGUMENT
    assert ears.filters() == []


ASK = request(NOW_MS, APP, METHOD, 1000)
SAMPLES = {
    "publish": publish(NOW_MS, TOPIC),
    "addressed": publish(NOW_MS, TOPIC)._replace(attributes=Attributes(UMessageType.PUBLISH, TOPIC, everything_at("cloud"))),
    "notification": notification(NOW_MS, TOPIC, APP),
    "request": ASK,
    "response": response(NOW_MS, ASK),
}


@pytest.mark.parametrize(
    ("source", "sink", "heard"),
    [
        (TOPIC, None, {"publish", "addressed"}),
        (ANY_TOPIC, None, {"publish", "addressed"}),
        (TOPIC, APP, {"notification"}),
        (UUri("*", 0xFFFF_FFFF, 0xFF, 0), METHOD, {"request"}),
        (METHOD, APP, {"response"}),
        (ANYONE, APP, {"notification", "response"}),
        (ANYONE, everything_at("cloud"), {"addressed", "notification", "response"}),
        (ANYONE, ANYONE, {"addressed", "notification", "request", "response"}),
        (everything_at("elsewhere"), ANYONE, set()),
    ],
)
def test_each_row_of_the_table_hears_what_it_is_for(source: UUri, sink: UUri | None, heard: set[str]) -> None:
    assert {name for name, m in SAMPLES.items() if filter_matches(source, sink, m.attributes)} == heard


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "deliver"]),
            st.integers(0, 2),
            st.sampled_from([(TOPIC, None), (OTHER_TOPIC, None), (ANY_TOPIC, None), (TOPIC, APP), (ANYONE, ANYONE)]),
        ),
        max_size=40,
    )
)
def test_registry_agrees_with_a_plain_set_of_triples(steps) -> None:
    """The model: a set of (listener, filter), limited to 2 per filter and 5 overall."""
    ears = registry(max_listeners=5, max_listeners_per_filter=2)
    listeners = [Ear(), Ear(), Ear()]
    model: set[tuple[int, tuple[UUri, UUri | None]]] = set()
    for step, who, pair in steps:
        present = {other for other, where in model if where == pair}
        if step == "add":
            if who not in present and (len(present) >= 2 or len(model) >= 5):
                with pytest.raises(UStatusError, match="RESOURCE_EXHAUSTED"):
                    ears.add(*pair, listeners[who])
            else:
                assert ears.add(*pair, listeners[who]) is (not present)
                model.add((who, pair))
        elif step == "remove":
            if who not in present:
                with pytest.raises(UStatusError, match="NOT_FOUND"):
                    ears.remove(*pair, listeners[who])
            else:
                assert ears.remove(*pair, listeners[who]) is (present == {who})
                model.discard((who, pair))
        else:
            batch = [MemoryReceived(message) for message in SAMPLES.values()]
            expected = [
                [m for m in SAMPLES.values() if any(w == n and filter_matches(*f, m.attributes) for w, f in model)]
                for n in range(3)
            ]
            before = [len(ear.heard) for ear in listeners]
            ears.deliver(batch)
            assert [ear.heard[n:] for ear, n in zip(listeners, before, strict=True)] == expected
            assert all(received.acknowledged for received in batch)
        assert set(ears.filters()) == {where for _, where in model}


def test_what_is_remembered_per_attributes_is_bounded() -> None:
    ears = registry()
    ears.add(ANY_TOPIC, None, Ear())
    shared = publish(NOW_MS, TOPIC).attributes
    for n in range(20_000):
        ears.matching(replace(shared, ttl=n))
    assert len(ears._cache) <= 8192


# the cost, and the order


FEW_OTHERS: list[Filter] = [(counting(ANY_TOPIC), None), (counting(ANYONE), APP), (counting(TOPIC), APP)]
TRACED = [publish(NOW_MS, TOPIC, b"", Options(traceparent=f"00-{n:032x}-{n:016x}-01")) for n in range(1, 11)]
ANSWERS = [response(NOW_MS, request(NOW_MS, APP, METHOD, 1000)) for _ in range(10)]


@pytest.mark.parametrize("messages", [pytest.param(TRACED, id="traced"), pytest.param(ANSWERS, id="responses")])
@pytest.mark.parametrize("topics", [10, 2000])
def test_number_of_topics_is_nothing_to_the_cost_of_messages_that_are_all_different(
    topics: int, messages: list[UMessage]
) -> None:
    ears, ear = registry(max_listeners=3000), Ear()
    for n in range(topics):
        ears.add(counting(TOPIC._replace(resource=0x8000 + n)), None, ear)
    for few in FEW_OTHERS:
        ears.add(*few, ear)
    before = CountingUri.compared
    ears.deliver([MemoryReceived(message) for message in messages])
    assert ear.heard == messages
    assert CountingUri.compared - before == len(FEW_OTHERS) * len(messages)


def test_a_topic_that_comes_or_goes_costs_nothing_for_the_messages_of_others() -> None:
    ears, ear, late = registry(), Ear(), Ear()
    ears.add(counting(ANY_TOPIC), None, ear)
    ears.add(counting(TOPIC), None, ear)
    ears.deliver([MemoryReceived(publish(NOW_MS, TOPIC)), MemoryReceived(publish(NOW_MS, OTHER_TOPIC))])
    before = CountingUri.compared
    for change in (ears.add, ears.remove):
        change(counting(OTHER_TOPIC), None, late)
        ears.deliver([MemoryReceived(publish(NOW_MS, TOPIC))])
    assert CountingUri.compared == before
    ears.deliver([MemoryReceived(publish(NOW_MS, OTHER_TOPIC))])
    assert CountingUri.compared == before + 1


NEAR = [TOPIC, OTHER_TOPIC, UUri("veh2", 0xA, 1, 0x8000)]
SOURCES = [
    *NEAR,
    ANY_TOPIC,
    ANYONE,
    UUri("*", 0xA, 1, 0x8000),
    UUri("veh1", 0xFFFF_000A, 1, 0x8000),
    UUri("veh1", 0xA, 1, 0xFFFF),
]
FILTERS: list[Filter] = [*((source, sink) for source in SOURCES for sink in (None, APP)), (ANYONE, ANYONE)]
HEARD = [
    *(made for topic in NEAR for made in (publish(NOW_MS, topic), notification(NOW_MS, topic, APP))),
    publish(NOW_MS, TOPIC, b"", Options(traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")),
    UMessage(bytes(16), Attributes(UMessageType.PUBLISH, ANYONE)),  # invalid, and it meets the same filters nevertheless
    *SAMPLES.values(),
]


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "deliver"]), st.integers(0, 2), st.sampled_from(FILTERS)), max_size=60
    )
)
def test_whoever_changes_what_a_message_reaches_the_same_listeners_in_the_same_order_as_by_trying_every_filter(
    steps,
) -> None:
    ears, listeners = registry(), [Ear(), Ear(), Ear()]
    model: dict[Filter, list[Ear]] = {}  # in the order in which the filters came
    for step, who, pair in steps:
        ear, there = listeners[who], model.get(pair, [])
        if step == "add" and ear not in there:
            ears.add(*pair, ear)
            model.setdefault(pair, []).append(ear)
        elif step == "remove" and ear in there:
            ears.remove(*pair, ear)
            there.remove(ear)
            if not there:
                del model[pair]
        elif step == "deliver":
            for message in HEARD:
                expected = dict.fromkeys(
                    ear for of, known in model.items() if filter_matches(*of, message.attributes) for ear in known
                )
                assert ears.matching(message.attributes) == tuple(expected)
        assert ears.filters() == list(model)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(FILTERS)), max_size=40))
def test_index_finds_what_trying_every_filter_finds_in_the_same_order(steps) -> None:
    index: FilterIndex[int] = FilterIndex()
    model: dict[Filter, int] = {}
    for number, (is_there, pair) in enumerate(steps):
        assert index.pop(pair) == model.pop(pair, None)
        if is_there:
            index.add(pair, number)
            model[pair] = number
        assert index.values() == list(model.values())
        for message in HEARD:
            found = [value for of, value in model.items() if filter_matches(*of, message.attributes)]
            assert index.matching(message.attributes) == found


def test_filter_is_described_for_people() -> None:
    assert describe(TOPIC, None) == "//veh1/A/1/8000"
    assert describe(TOPIC, APP) == "//veh1/A/1/8000 → //cloud/C/1/0"
