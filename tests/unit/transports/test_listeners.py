"""The registry of listeners: for which filters, in which order and at which cost; and the pull buffer, without any wire."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.base import ListenerOptions, Received, TransportEvents, UListener
from streamer.transports.errors import Unwanted
from streamer.transports.listeners import (
    Filter,
    FilterIndex,
    ListenerRegistry,
    PullBuffer,
    check_filter,
    describe,
    filter_matches,
)
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import (
    Attributes,
    Options,
    UMessage,
    UMessageType,
    UPriority,
    notification,
    publish,
    request,
    response,
)
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri, everything_at
from tests.listeners import RecordingListener
from tests.transport_events import EventLog
from tests.unit.transports.counting_uri import CountingUri, counting

NOW_MS = 1_700_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)
OTHER_TOPIC = UUri("veh1", 0xA, 1, 0x8001)
APP = UUri("cloud", 0xC, 1, 0)
METHOD = UUri("veh1", 0xB, 1, 7)
ANY_TOPIC = everything_at("veh1")
ANYONE = everything_at("*")
FEW_OTHERS: list[Filter] = [(counting(ANY_TOPIC), None), (counting(ANYONE), APP), (counting(TOPIC), APP)]
TRACED = [publish(NOW_MS, TOPIC, b"", Options(traceparent=f"00-{n:032x}-{n:016x}-01")) for n in range(1, 11)]
ANSWERS = [response(NOW_MS, request(NOW_MS, APP, METHOD, 1000)) for _ in range(10)]
ENTITY, FIRST_METHOD, LAST_METHOD, FIRST_TOPIC, LAST_TOPIC, ANY = 0, 1, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF
LEGAL_PAIRS = {
    (FIRST_TOPIC, None),
    (LAST_TOPIC, None),
    (ANY, None),
    (FIRST_TOPIC, ENTITY),
    (LAST_TOPIC, ENTITY),
    (ENTITY, FIRST_METHOD),
    (ENTITY, LAST_METHOD),
    (FIRST_METHOD, ENTITY),
    (LAST_METHOD, ENTITY),
    (ANY, ENTITY),
    (ANY, ANY),
}
RESOURCES = (ENTITY, FIRST_METHOD, LAST_METHOD, FIRST_TOPIC, LAST_TOPIC, ANY)
ALL_PAIRS = [(source, sink) for source in RESOURCES for sink in (None, *RESOURCES)]


class SingleListener(UListener):
    """Takes messages one by one."""

    def __init__(self) -> None:
        self.messages: list[UMessage] = []

    def on_receive(self, received: Received) -> None:
        self.messages.append(received.message)
        received.release()


def new_registry(events: TransportEvents | None = None, **limits: int) -> ListenerRegistry:
    return ListenerRegistry(ListenerOptions(**limits), events or TransportEvents(), Flows())


def test_listener_with_overlapping_filters_gets_a_message_once() -> None:
    registry, listener = new_registry(), RecordingListener()
    for source, sink in ((TOPIC, None), (ANY_TOPIC, None), (UUri("*", 0xA, 1, 0x8000), None)):
        registry.add(source, sink, listener)
    received = MemoryReceived(publish(NOW_MS, TOPIC))
    registry.deliver([received])
    assert listener.messages == [received.message]
    assert received.acknowledged


def test_several_listeners_share_the_acknowledgement() -> None:
    registry, kept = new_registry(), [RecordingListener(releases=False) for _ in range(3)]
    for listener in kept:
        registry.add(TOPIC, None, listener)
    received = MemoryReceived(publish(NOW_MS, TOPIC))
    registry.deliver([received])
    assert received.holders == 3
    for listener in kept:
        assert not received.acknowledged
        listener.batches[0][0].release()
    assert received.acknowledged


def test_message_without_listener_is_released_at_once() -> None:
    registry, listener = new_registry(), RecordingListener()
    registry.add(TOPIC, None, listener)
    received = MemoryReceived(publish(NOW_MS, OTHER_TOPIC))
    registry.deliver([received])
    assert received.acknowledged
    assert listener.batches == []


def test_message_without_listener_is_told_to_be_unwanted() -> None:
    events = EventLog()
    registry = new_registry(events)
    registry.add(TOPIC, None, RecordingListener())
    registry.deliver([MemoryReceived(publish(NOW_MS, topic)) for topic in (OTHER_TOPIC, TOPIC, OTHER_TOPIC)])
    assert events.unwanted == {Unwanted.NO_LISTENER: 2}


ANSWER = response(NOW_MS, request(NOW_MS, APP, METHOD, 1000))
PUBLISHED = publish(NOW_MS, TOPIC, b"", Options(traceparent=f"00-{1:032x}-{1:016x}-01"))
INVALID = {
    "rule of its type": replace(ANSWER, attributes=replace(ANSWER.attributes, priority=UPriority.CS1)),
    "what it should carry": replace(ANSWER, attributes=replace(ANSWER.attributes, reqid=None)),
    "what it carries": replace(PUBLISHED, attributes=replace(PUBLISHED.attributes, traceparent="here")),
}


@pytest.mark.parametrize("bad", INVALID.values(), ids=INVALID)
def test_listeners_get_valid_messages_only_and_the_others_are_refused(bad: UMessage) -> None:
    events, listener, pulled = EventLog(), RecordingListener(), PullBuffer(lambda: NOW_MS)
    registry = new_registry(events)
    for each in (listener, pulled):
        registry.add(ANYONE, ANYONE, each)
        registry.add(ANYONE, None, each)
    batch = [MemoryReceived(message) for message in (ANSWER, bad, PUBLISHED)]
    registry.deliver(batch)
    assert listener.messages == [ANSWER, PUBLISHED]
    assert [pulled.pull(), pulled.pull()] == [ANSWER, PUBLISHED]
    with pytest.raises(UStatusError):
        pulled.pull()
    (refused,) = events.turned_away
    assert (refused.received, refused.code) == (batch[1], UCode.INVALID_ARGUMENT)
    assert refused.text == "invalid attributes: " + "; ".join(bad.attributes.problems)
    assert batch[1].acknowledged


def test_invalid_message_that_nobody_listens_to_is_unwanted() -> None:
    events = EventLog()
    new_registry(events).deliver([MemoryReceived(bad) for bad in INVALID.values()])
    assert (events.unwanted, events.turned_away) == ({Unwanted.NO_LISTENER: 3}, [])


def test_batch_reaches_each_listener_in_one_piece_and_in_order() -> None:
    registry, all_listener, some_listener = new_registry(), RecordingListener(), RecordingListener()
    registry.add(ANY_TOPIC, None, all_listener)
    registry.add(TOPIC, None, some_listener)
    batch = [MemoryReceived(publish(NOW_MS, topic)) for topic in (TOPIC, OTHER_TOPIC, TOPIC, OTHER_TOPIC)]
    registry.deliver(batch)
    assert all_listener.batches == [batch]
    assert some_listener.batches == [[batch[0], batch[2]]]
    assert all(received.acknowledged for received in batch)


def test_listener_that_takes_messages_singly_gets_them_in_order() -> None:
    registry, listener = new_registry(), SingleListener()
    registry.add(ANY_TOPIC, None, listener)
    batch = [MemoryReceived(publish(NOW_MS, TOPIC)) for _ in range(5)]
    registry.deliver(batch)
    assert listener.messages == [received.message for received in batch]


def test_registering_again_changes_nothing_and_one_removal_ends_it() -> None:
    registry, listener = new_registry(), RecordingListener()
    assert registry.add(TOPIC, None, listener) is True
    assert registry.add(TOPIC, None, listener) is False
    assert registry.remove(TOPIC, None, listener) is True
    registry.deliver([MemoryReceived(publish(NOW_MS, TOPIC))])
    assert listener.batches == []
    assert registry.filters() == []


def test_filter_is_new_with_its_first_listener_and_gone_with_its_last() -> None:
    registry, first, second = new_registry(), RecordingListener(), RecordingListener()
    assert registry.add(TOPIC, None, first) is True
    assert registry.add(TOPIC, None, second) is False
    assert registry.add(TOPIC, APP, first) is True
    assert registry.filters() == [(TOPIC, None), (TOPIC, APP)]
    assert registry.remove(TOPIC, None, first) is False
    assert registry.remove(TOPIC, None, second) is True
    assert registry.filters() == [(TOPIC, APP)]


def test_nothing_is_delivered_after_unregistering_one_of_two_filters() -> None:
    registry, listener = new_registry(), RecordingListener()
    registry.add(TOPIC, None, listener)
    registry.add(OTHER_TOPIC, None, listener)
    kept = publish(NOW_MS, OTHER_TOPIC)
    registry.deliver([MemoryReceived(publish(NOW_MS, TOPIC)), MemoryReceived(kept)])
    registry.remove(TOPIC, None, listener)
    before = len(listener.messages)
    registry.deliver([MemoryReceived(publish(NOW_MS, TOPIC)), MemoryReceived(kept)])
    assert listener.messages[before:] == [kept]


def test_listener_that_is_added_later_gets_later_messages() -> None:
    registry, early, late = new_registry(), RecordingListener(), RecordingListener()
    registry.add(TOPIC, None, early)
    registry.deliver([MemoryReceived(publish(NOW_MS, TOPIC))])
    registry.add(TOPIC, None, late)
    second = publish(NOW_MS, TOPIC)
    registry.deliver([MemoryReceived(second)])
    assert late.messages == [second]
    assert len(early.messages) == 2


@pytest.mark.parametrize(("source", "sink"), [(TOPIC, None), (OTHER_TOPIC, None), (TOPIC, APP)])
def test_unregistering_what_was_not_registered_is_not_found(source: UUri, sink: UUri | None) -> None:
    registry = new_registry()
    registry.add(TOPIC, None, RecordingListener())
    with pytest.raises(UStatusError) as caught:
        registry.remove(source, sink, RecordingListener())
    assert caught.value.code is UCode.NOT_FOUND
    assert registry.filters() == [(TOPIC, None)]


def test_limit_per_filter_is_resource_exhausted_and_leaves_room_on_others() -> None:
    registry, known = new_registry(max_listeners_per_filter=2), RecordingListener()
    registry.add(TOPIC, None, known)
    registry.add(TOPIC, None, RecordingListener())
    with pytest.raises(UStatusError, match="limit per filter") as caught:
        registry.add(TOPIC, None, RecordingListener())
    assert caught.value.code is UCode.RESOURCE_EXHAUSTED
    assert registry.add(TOPIC, None, known) is False  # who is there already stays idempotent
    registry.add(OTHER_TOPIC, None, RecordingListener())
    registry.remove(TOPIC, None, known)
    registry.add(TOPIC, None, RecordingListener())


def test_overall_limit_is_resource_exhausted_and_frees_with_each_removal() -> None:
    registry, first = new_registry(max_listeners=2), RecordingListener()
    registry.add(TOPIC, None, first)
    registry.add(OTHER_TOPIC, None, first)
    with pytest.raises(UStatusError, match="limit of this transport") as caught:
        registry.add(ANY_TOPIC, None, first)
    assert caught.value.code is UCode.RESOURCE_EXHAUSTED
    registry.remove(TOPIC, None, first)
    registry.add(ANY_TOPIC, None, first)


def test_filter_outside_the_table_is_an_invalid_argument_and_is_not_kept() -> None:
    registry = new_registry()
    with pytest.raises(UStatusError) as caught:
        registry.add(METHOD, None, RecordingListener())
    assert caught.value.code is UCode.INVALID_ARGUMENT
    assert registry.filters() == []


ASK = request(NOW_MS, APP, METHOD, 1000)
SAMPLES = {
    "publish": publish(NOW_MS, TOPIC),
    "addressed": replace(publish(NOW_MS, TOPIC), attributes=Attributes(UMessageType.PUBLISH, TOPIC, everything_at("cloud"))),
    "notification": notification(NOW_MS, TOPIC, APP),
    "request": ASK,
    "response": response(NOW_MS, ASK),
}


@pytest.mark.parametrize(
    ("source", "sink", "heard"),
    [
        (TOPIC, None, {"publish"}),
        (ANY_TOPIC, None, {"publish"}),
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
    registry, listener = new_registry(), RecordingListener()
    registry.add(source, sink, listener)
    registry.deliver([Received(message) for message in SAMPLES.values()])
    assert listener.messages == [message for name, message in SAMPLES.items() if name in heard]


@pytest.mark.parametrize(
    ("source", "sink"), [(METHOD, None), (TOPIC, METHOD), (TOPIC, ANYONE), (TOPIC._replace(authority="VEH1"), None)]
)
def test_unregistering_an_invalid_filter_is_an_invalid_argument(source: UUri, sink: UUri | None) -> None:
    with pytest.raises(UStatusError) as caught:
        new_registry().remove(source, sink, RecordingListener())
    assert caught.value.code is UCode.INVALID_ARGUMENT


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
def test_registry_agrees_with_a_plain_set_of_triples(steps: list[tuple[str, int, Filter]]) -> None:
    """The model: a set of (listener, filter), limited to 2 per filter and 5 overall."""
    registry = new_registry(max_listeners=5, max_listeners_per_filter=2)
    listeners = [RecordingListener(), RecordingListener(), RecordingListener()]
    model: set[tuple[int, tuple[UUri, UUri | None]]] = set()
    for step, who, pair in steps:
        present = {other for other, where in model if where == pair}
        if step == "add":
            if who not in present and (len(present) >= 2 or len(model) >= 5):
                with pytest.raises(UStatusError, match="RESOURCE_EXHAUSTED"):
                    registry.add(*pair, listeners[who])
            else:
                assert registry.add(*pair, listeners[who]) is (not present)
                model.add((who, pair))
        elif step == "remove":
            if who not in present:
                with pytest.raises(UStatusError, match="NOT_FOUND"):
                    registry.remove(*pair, listeners[who])
            else:
                assert registry.remove(*pair, listeners[who]) is (present == {who})
                model.discard((who, pair))
        else:
            batch = [MemoryReceived(message) for message in SAMPLES.values()]
            expected = [
                [m for m in SAMPLES.values() if any(w == n and filter_matches(*f, m.attributes) for w, f in model)]
                for n in range(3)
            ]
            before = [len(listener.messages) for listener in listeners]
            registry.deliver(batch)
            assert [listener.messages[n:] for listener, n in zip(listeners, before, strict=True)] == expected
            assert all(received.acknowledged for received in batch)
        assert set(registry.filters()) == {where for _, where in model}


def test_what_is_remembered_per_attributes_is_bounded() -> None:
    registry = new_registry()
    registry.add(ANY_TOPIC, None, RecordingListener())
    shared = publish(NOW_MS, TOPIC).attributes
    for n in range(20_000):
        registry.matching(replace(shared, ttl=n))
    assert len(registry._flows) + len(registry._flows._old) <= 8192


def test_filter_is_described_for_people() -> None:
    assert describe(TOPIC, None) == "//veh1/A/1/8000"
    assert describe(TOPIC, APP) == "//veh1/A/1/8000 → //cloud/C/1/0"


@pytest.mark.parametrize("messages", [pytest.param(TRACED, id="traced"), pytest.param(ANSWERS, id="responses")])
@pytest.mark.parametrize("topics", [10, 2000])
def test_cost_of_a_message_does_not_depend_on_the_number_of_topics(topics: int, messages: list[UMessage]) -> None:
    registry, listener = new_registry(max_listeners=3000), RecordingListener()
    for n in range(topics):
        registry.add(counting(TOPIC._replace(resource=0x8000 + n)), None, listener)
    for few in FEW_OTHERS:
        registry.add(*few, listener)
    before = CountingUri.compared
    registry.deliver([MemoryReceived(message) for message in messages])
    assert listener.messages == messages
    assert CountingUri.compared - before == len(FEW_OTHERS)  # once: they differ only in what each carries for itself


def test_adding_or_removing_a_topic_costs_nothing_for_messages_of_others() -> None:
    registry, listener, late = new_registry(), RecordingListener(), RecordingListener()
    registry.add(counting(ANY_TOPIC), None, listener)
    registry.add(counting(TOPIC), None, listener)
    registry.deliver([MemoryReceived(publish(NOW_MS, TOPIC)), MemoryReceived(publish(NOW_MS, OTHER_TOPIC))])
    before = CountingUri.compared
    for change in (registry.add, registry.remove):
        change(counting(OTHER_TOPIC), None, late)
        registry.deliver([MemoryReceived(publish(NOW_MS, TOPIC))])
    assert CountingUri.compared == before
    registry.deliver([MemoryReceived(publish(NOW_MS, OTHER_TOPIC))])
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
    replace(publish(NOW_MS, TOPIC), attributes=Attributes(UMessageType.PUBLISH, TOPIC, everything_at("cloud"))),
    ASK,
    response(NOW_MS, ASK),
]


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "deliver"]), st.integers(0, 2), st.sampled_from(FILTERS)), max_size=60
    )
)
def test_message_reaches_the_same_listeners_in_the_same_order_as_by_trying_every_filter(
    steps: list[tuple[str, int, Filter]],
) -> None:
    registry, listeners = new_registry(), [RecordingListener(), RecordingListener(), RecordingListener()]
    model: dict[Filter, list[RecordingListener]] = {}  # in the order in which the filters came
    for step, who, pair in steps:
        listener, there = listeners[who], model.get(pair, [])
        if step == "add" and listener not in there:
            registry.add(*pair, listener)
            model.setdefault(pair, []).append(listener)
        elif step == "remove" and listener in there:
            registry.remove(*pair, listener)
            there.remove(listener)
            if not there:
                del model[pair]
        elif step == "deliver":
            for message in HEARD:
                expected = dict.fromkeys(
                    listener for of, known in model.items() if filter_matches(*of, message.attributes) for listener in known
                )
                assert registry.matching(message.attributes) == tuple(expected)
        assert registry.filters() == list(model)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(FILTERS)), max_size=40))
def test_index_finds_what_trying_every_filter_finds_in_the_same_order(steps: list[tuple[bool, Filter]]) -> None:
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


@pytest.mark.parametrize(("source", "sink"), ALL_PAIRS)
def test_filters_are_those_of_the_table_and_no_others(source: int, sink: int | None) -> None:
    pair = UUri("veh1", 1, 1, source), None if sink is None else UUri("cloud", 1, 1, sink)
    if (source, sink) in LEGAL_PAIRS:
        check_filter(*pair)
    else:
        with pytest.raises(UStatusError) as caught:
            check_filter(*pair)
        assert caught.value.code is UCode.INVALID_ARGUMENT


@pytest.mark.parametrize("bad", [{"ue_id": 1 << 32}, {"version": 256}, {"resource": 1 << 16}, {"authority": "A"}])
def test_filter_out_of_range_is_an_invalid_argument(bad: dict[str, Any]) -> None:
    for pair in ((TOPIC._replace(**bad), None), (TOPIC, UUri("a", 1, 1, 0)._replace(**bad))):
        with pytest.raises(UStatusError) as caught:
            check_filter(*pair)
        assert caught.value.code is UCode.INVALID_ARGUMENT


def buffered(*messages: UMessage, size: int = 10, now_ms: int = NOW_MS) -> tuple[PullBuffer, list[MemoryReceived]]:
    buffer = PullBuffer(lambda: now_ms, size)
    batch = [MemoryReceived(message) for message in messages]
    buffer.on_receive_batch(batch)
    return buffer, batch


def test_pull_hands_out_the_earliest_first_and_then_finds_nothing() -> None:
    messages = [publish(NOW_MS, TOPIC, bytes([n])) for n in range(3)]
    buffer, batch = buffered(*messages)
    assert not any(received.acknowledged for received in batch)
    assert [buffer.pull() for _ in messages] == messages
    assert all(received.acknowledged for received in batch)
    with pytest.raises(UStatusError) as caught:
        buffer.pull()
    assert caught.value.code is UCode.NOT_FOUND


def test_pull_passes_over_what_has_waited_for_its_ttl_whatever_its_id_says() -> None:
    ahead_ms = NOW_MS + 2 * 86_400_000
    buffer, _ = buffered(publish(ahead_ms, TOPIC, b"late", Options(ttl=999)), publish(ahead_ms, TOPIC, b"in time"))
    buffer._waiting[0].since_s -= 1
    assert buffer.pull().payload == b"in time"


def test_pull_passes_over_what_has_expired() -> None:
    late = [publish(NOW_MS - 1000, TOPIC, b"late", Options(ttl=999)) for _ in range(2)]
    in_time = publish(NOW_MS - 1000, TOPIC, b"in time", Options(ttl=1000))
    buffer, batch = buffered(*late, in_time)
    assert buffer.pull() == in_time
    assert all(received.acknowledged for received in batch)


def test_full_buffer_lets_the_oldest_go() -> None:
    messages = [publish(NOW_MS, TOPIC, bytes([n])) for n in range(5)]
    buffer, batch = buffered(*messages, size=3)
    assert [received.acknowledged for received in batch] == [True, True, False, False, False]
    assert [buffer.pull() for _ in range(3)] == messages[2:]
