"""Topic aliases: a broker that keeps the rules of MQTT finds the whole topic of every packet, whatever happened before."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.base import MessageParcel, SendResult
from streamer.transports.mqtt5.session import Session
from streamer.transports.mqtt5.topic_aliases import TopicAliases
from streamer.transports.mqtt5.wire import Encoder
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id

_NOT_AUTHORIZED = 0x87


def on_topic(number: int, payload: bytes = b"x", **attributes: Any) -> UMessage:
    source = UUri("veh1", 0xA, 2, 0x8000 + number)
    return UMessage(new_id(1), Attributes(UMessageType.PUBLISH, source, **attributes), payload)


class Broker:
    """The other end of a session: it learns aliases from packets, and forgets them with the connection.

    ``topics``: of all packets. ``saved``: how many came without one.
    """

    def __init__(self, allowed: int, wanted: int = 65_535, window: int = 1000) -> None:
        self._aliases = TopicAliases(wanted)
        self.session = Session(
            window, Encoder("in-vehicle", "veh1", aliases=self._aliases).encode, lambda: None, aliases=self._aliases
        )
        self.allowed = allowed
        self.told: list[SendResult] = []
        self.topics: list[str] = []
        self.unanswered: list[mqtt5.PublishPacket] = []
        self.saved = 0
        self.set = 0
        self._known: dict[int, str] = {}

    def connect(self, max_packet_bytes: int | None = None, session_present: bool = True) -> None:
        self._known.clear()
        self.unanswered.clear()
        self.session.connected(session_present, 65_535, max_packet_bytes, self.allowed)
        self.take()

    def reconnect(self) -> None:
        self.session.disconnected()
        self.connect()

    def send(self, *messages: UMessage) -> None:
        self.session.submit([MessageParcel(message) for message in messages], lambda parcels, error: self.told.append(error))
        self.take()

    def take(self) -> None:
        for data in self.session.take_outgoing():
            packet, size = mqtt5.read(memoryview(data))
            assert isinstance(packet, mqtt5.PublishPacket)
            assert size == len(data)
            alias = packet.topic_alias
            assert alias is None or 1 <= alias <= self.allowed
            if not packet.topic:
                self.saved += 1
                assert alias is not None
                topic = self._known[alias]
            else:
                topic = packet.topic
                if alias is not None:
                    self.set += 1
                    self._known[alias] = topic
            self.topics.append(topic)
            self.unanswered.append(packet)

    def answer(self, index: int = 0, reason: int = 0) -> None:
        """Answer one of the packets; if it is refused, the broker forgets the alias that it has set."""
        packet = self.unanswered.pop(index)
        if reason and packet.topic_alias is not None and packet.topic:
            self._known.pop(packet.topic_alias, None)
        assert packet.packet_id is not None
        self.session.on_puback(packet.packet_id, reason)
        self.session.report_results()
        self.take()

    def answer_all(self) -> None:
        while self.unanswered:
            self.answer()


def topic(number: int) -> str:
    return f"veh1/A/0/2/{0x8000 + number:X}"


def test_the_topic_is_left_out_once_the_broker_has_confirmed_its_alias() -> None:
    broker = Broker(5)
    broker.connect()
    broker.send(on_topic(1), on_topic(1))
    assert (broker.set, broker.saved) == (1, 0)
    broker.answer_all()
    broker.send(on_topic(1), on_topic(1))
    assert (broker.set, broker.saved) == (1, 2)
    assert broker.topics == [topic(1)] * 4


@pytest.mark.parametrize(("allowed", "wanted"), [(0, 100), (5, 0)])
def test_there_is_none_where_broker_or_options_allow_none(allowed: int, wanted: int) -> None:
    broker = Broker(allowed, wanted)
    broker.connect()
    for _ in range(3):
        broker.send(on_topic(1))
        broker.answer_all()
    assert (broker.set, broker.saved) == (0, 0)


def test_what_is_sent_again_after_a_reconnect_has_its_whole_topic() -> None:
    broker = Broker(5)
    broker.connect()
    broker.send(on_topic(1))
    broker.answer_all()
    broker.send(on_topic(1))
    assert broker.saved == 1
    broker.reconnect()
    assert broker.unanswered[0].duplicate
    assert broker.unanswered[0].topic == topic(1)
    assert broker.saved == 1


def test_a_topic_that_the_broker_refuses_gets_no_alias_and_others_do() -> None:
    broker = Broker(5)
    broker.connect()
    for _ in range(3):
        broker.send(on_topic(1))
        broker.answer(reason=_NOT_AUTHORIZED)
    assert (broker.set, broker.saved) == (1, 0)
    for _ in range(2):
        broker.send(on_topic(2))
        broker.answer_all()
    assert (broker.set, broker.saved) == (2, 1)


UNSENDABLE: list[tuple[Callable[[], UMessage], int | None]] = [
    (lambda: on_topic(1, token="\x01"), None),
    (lambda: on_topic(1, b"x" * 400), 300),
]


@pytest.mark.parametrize(("message", "max_packet_bytes"), UNSENDABLE, ids=["not valid", "too large"])
@pytest.mark.parametrize("others", [0, 5])
def test_a_packet_that_is_not_sent_sets_no_alias(
    message: Callable[[], UMessage], max_packet_bytes: int | None, others: int
) -> None:
    broker = Broker(5)
    broker.connect(max_packet_bytes)
    broker.send(*(on_topic(10 + number) for number in range(others)))
    broker.answer_all()
    for _ in range(50):  # some of them get the number of another topic, if none is free
        broker.send(message())
    assert len([error for error in broker.told if error is not None]) == 50
    broker.send(on_topic(1))
    broker.answer_all()
    for _ in range(50):
        broker.send(on_topic(1))
        broker.answer_all()
    assert set(broker.topics[others:]) == {topic(1)}
    assert broker.saved > 0


def test_topics_in_use_keep_their_numbers_whatever_strangers_come() -> None:
    broker = Broker(10)
    broker.connect()
    for round_ in range(200):
        broker.send(*(on_topic(number) for number in range(10)))
        broker.send(*(on_topic(100 + round_ * 10 + number) for number in range(10)))
        broker.answer_all()
    assert broker.set == 10
    assert broker.saved == 199 * 10


def test_a_topic_that_begins_to_be_used_gets_the_number_of_one_that_is_not_used_any_more() -> None:
    broker = Broker(10)
    broker.connect()
    broker.send(*(on_topic(number) for number in range(10)))
    broker.answer_all()
    for _ in range(200):
        broker.send(on_topic(50))
        broker.answer_all()
    assert broker.saved > 100
    assert broker.set == 11


def test_many_topics_in_turn_cost_at_most_one_setting_in_eight_messages() -> None:
    broker = Broker(10)
    broker.connect()
    for _ in range(20):
        for number in range(500):
            broker.send(on_topic(number))
            broker.answer_all()
    without = 10_000 - broker.saved
    assert broker.set <= 10 + without // 8


def test_a_broker_that_does_not_keep_its_own_rules_gets_no_aliases_any_more() -> None:
    broker = Broker(5)
    broker.connect()
    broker.session.aliases.give_up()
    broker.reconnect()
    for _ in range(3):
        broker.send(on_topic(1))
        broker.answer_all()
    assert (broker.set, broker.saved) == (0, 0)


def test_carried_attributes_do_not_keep_a_packet_from_having_an_alias() -> None:
    broker = Broker(5)
    broker.connect()
    for number in range(3):
        broker.send(on_topic(1, token=f"token {number}"))
        packet = broker.unanswered[0]
        assert ("10", f"token {number}") in packet.user_properties
        broker.answer_all()
    assert broker.saved == 2


@pytest.mark.parametrize("payload", [b"", b"x" * 20, b"x" * 127, b"x" * 16_383])
@pytest.mark.parametrize("ttl", [None, 10_000])
def test_a_packet_with_an_alias_is_otherwise_the_same(payload: bytes, ttl: int | None) -> None:
    aliased, plain = Broker(5), Broker(0)
    message = on_topic(1, payload, ttl=ttl)
    for broker in (aliased, plain):
        broker.connect()
        broker.send(replace(message, id=new_id(1)))
        broker.answer_all()
        broker.send(message)
    (short,), (whole,) = aliased.unanswered, plain.unanswered
    assert aliased.saved == 1
    for name in ("payload", "user_properties", "message_expiry_interval", "content_type", "qos", "retain"):
        assert getattr(short, name) == getattr(whole, name), name


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 8)),
        st.tuples(st.just("invalid"), st.integers(0, 8)),
        st.tuples(st.just("answer"), st.integers(0, 3)),
        st.tuples(st.just("refuse"), st.integers(0, 3)),
        st.tuples(st.just("reconnect"), st.just(0)),
    ),
    max_size=200,
)


@given(STEPS, st.integers(0, 4), st.integers(1, 5))
def test_every_packet_has_a_topic_that_the_broker_knows(steps: list[tuple[str, int]], allowed: int, window: int) -> None:
    broker = Broker(allowed, window=window)
    broker.connect()
    expected: Counter[str] = Counter()
    for step, number in steps:
        match step:
            case "send":
                broker.send(on_topic(number))
                expected[topic(number)] += 1
            case "invalid":
                broker.send(on_topic(number, token="\x01"))
            case "reconnect":
                broker.reconnect()
            case _ if number < len(broker.unanswered):
                broker.answer(number, _NOT_AUTHORIZED if step == "refuse" else 0)
    broker.answer_all()
    assert Counter(broker.topics) >= expected
    assert broker.topics.count("") == 0
