"""What finding the listeners of a message costs, and in which order they get it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.base import ListenerOptions, TransportEvents
from streamer.transports.listeners import Filter, FilterIndex, ListenerRegistry, filter_matches
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, Options, UMessage, UMessageType, notification, publish, request, response
from streamer.uprotocol.uri import UUri, everything_at
from tests.listeners import RecordingListener
from tests.unit.transports.counting_uri import CountingUri, counting

NOW_MS = 1_700_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)
OTHER_TOPIC = UUri("veh1", 0xA, 1, 0x8001)
APP = UUri("cloud", 0xC, 1, 0)
METHOD = UUri("veh1", 0xB, 1, 7)
ANY_TOPIC = everything_at("veh1")
ANYONE = everything_at("*")


def new_registry(**limits: int) -> ListenerRegistry:
    return ListenerRegistry(ListenerOptions(**limits), TransportEvents(), Flows())


FEW_OTHERS: list[Filter] = [(counting(ANY_TOPIC), None), (counting(ANYONE), APP), (counting(TOPIC), APP)]
TRACED = [publish(NOW_MS, TOPIC, b"", Options(traceparent=f"00-{n:032x}-{n:016x}-01")) for n in range(1, 11)]
ANSWERS = [response(NOW_MS, request(NOW_MS, APP, METHOD, 1000)) for _ in range(10)]


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
ASK = request(NOW_MS, APP, METHOD, 1000)
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
