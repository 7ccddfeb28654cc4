"""Which subscription brings a topic, and that each message of a topic comes once. Without Zenoh."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import Malformed, Unwanted
from streamer.transports.listeners import Filter, filter_matches
from streamer.transports.zenoh import topics as module
from streamer.transports.zenoh.subscription import KeySubscription
from streamer.transports.zenoh.topics import MAX_OWN_SUBSCRIPTIONS, MAX_WIDE_SUBSCRIPTIONS, Topics
from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.uri import UUri, everything_at
from tests.unit.transports.zenoh.intake_harness import NOW_MS, IntakeHarness


def topics_of(authority: str, number: int) -> list[UUri]:
    return [UUri(authority, 0xA, 1, 0x8000 + n) for n in range(number)]


def sources(topics: Topics, opened: Iterable[UUri]) -> list[UUri]:
    """The source filters of the subscriptions that bring these, each once."""
    return list(dict.fromkeys(topics.open(topic) for topic in opened))


def test_a_topic_beyond_those_with_a_subscription_of_their_own_shares_that_of_its_authority() -> None:
    topics, some = Topics(), topics_of("veh1", MAX_OWN_SUBSCRIPTIONS)
    assert sources(topics, some) == some
    assert sources(topics, topics_of("veh1", MAX_OWN_SUBSCRIPTIONS + 100)[MAX_OWN_SUBSCRIPTIONS:]) == [everything_at("veh1")]
    assert sources(topics, topics_of("veh2", 5)) == [everything_at("veh2")]


def test_many_topics_that_are_known_from_the_start_have_no_subscription_of_their_own() -> None:
    many, few = topics_of("veh1", MAX_OWN_SUBSCRIPTIONS), topics_of("veh2", 5)
    topics = Topics([*many, *few])
    assert sources(topics, [*many, *few]) == [everything_at("veh1"), *few]


@pytest.mark.parametrize("is_known", [True, False])
def test_any_number_of_topics_of_any_number_of_authorities_needs_a_bounded_number_of_subscriptions(is_known: bool) -> None:
    many = [topic for n in range(1000) for topic in topics_of(f"veh{n}", 3)]
    opened = sources(Topics(many if is_known else ()), many)
    assert len(opened) <= MAX_OWN_SUBSCRIPTIONS + MAX_WIDE_SUBSCRIPTIONS + 1
    assert opened[-1] == everything_at("*")


def test_topics_that_come_and_go_declare_a_bounded_number_of_keys() -> None:
    """Zenoh keeps a key as long as a link to which it was declared."""
    topics = Topics()
    declared = set()
    for authority in range(1000):
        for topic in topics_of(f"veh{authority}", 3):
            of = topics.open(topic)
            declared.add(of)
            assert topics.close(topic, of)
    assert len(declared) == MAX_OWN_SUBSCRIPTIONS + MAX_WIDE_SUBSCRIPTIONS + 1


def test_a_topic_that_had_a_subscription_of_its_own_gets_it_again() -> None:
    topics, (first, *others) = Topics(), topics_of("veh1", MAX_OWN_SUBSCRIPTIONS + 5)
    assert topics.open(first) == first
    sources(topics, others)
    assert topics.close(first, first)
    assert topics.open(first) == first


def test_a_wide_subscription_ends_with_its_last_topic() -> None:
    topics = Topics()
    sources(topics, topics_of("veh1", MAX_OWN_SUBSCRIPTIONS))
    one, other = topics_of("veh2", 2)
    of = topics.open(one)
    assert topics.open(other) == of
    assert [topics.close(one, of), topics.close(other, of)] == [False, True]


# -- in the intake


@pytest.fixture
def few_have_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OWN_SUBSCRIPTIONS", 1)
    monkeypatch.setattr(module, "MAX_WIDE_SUBSCRIPTIONS", 1)


OWN, ONE, OTHER, NOBODYS = topics_of("veh1", 4)
ELSEWHERE = UUri("veh2", 0xA, 1, 0x8000)


@pytest.mark.usefixtures("few_have_their_own")
def test_what_nobody_asked_for_is_dropped_by_its_key_and_counted_once_for_many() -> None:
    harness = IntakeHarness()
    for topic in (OWN, ONE, OTHER, ELSEWHERE):
        harness.listen((topic, None))
    own, wide, same, everything = harness.subscriptions
    assert wide is same
    assert [each.filter[0] for each in (own, wide, everything)] == [OWN, everything_at("veh1"), everything_at("*")]
    for topic, ways in ((OWN, (1, 0, 0)), (ONE, (0, 1, 0)), (NOBODYS, (0, 0, 0)), (ELSEWHERE, (0, 0, 1))):
        message = publish(NOW_MS, topic)
        matching = [way for way in (own, wide, everything) if way.filter[0].matches(topic)]
        came = {id(way): harness.bring(way, message) for way in matching}
        assert tuple(came.get(id(way), 0) for way in (own, wide, everything)) == ways
    assert (harness.events.packets, harness.events.malformed) == (8, [])
    assert harness.events.unwanted == {Unwanted.OTHER_TOPIC: 5}


@pytest.mark.usefixtures("few_have_their_own")
def test_what_comes_after_a_topic_is_left_goes_to_nobody() -> None:
    harness = IntakeHarness()
    for topic in (OWN, ONE, OTHER):
        harness.listen((topic, None))
    _, wide, _ = harness.subscriptions
    assert harness.bring(wide, publish(NOW_MS, ONE)) == 1
    harness.leave((ONE, None))
    assert [harness.bring(wide, publish(NOW_MS, topic)) for topic in (ONE, OTHER)] == [0, 1]
    assert harness.events.unwanted == {Unwanted.OTHER_TOPIC: 1}
    harness.leave((OTHER, None))
    assert (wide.closing, harness.bring(wide, publish(NOW_MS, OTHER))) == (True, 0)


@pytest.mark.usefixtures("few_have_their_own")
def test_a_key_with_wildcards_is_malformed_also_where_it_comes_through_a_wide_subscription() -> None:
    harness = IntakeHarness()
    for topic in (OWN, ONE):
        harness.listen((topic, None))
    _, wide = harness.subscriptions
    plain = publish(NOW_MS, ONE)
    attributes = replace(plain.attributes, source=everything_at("veh1"))
    assert harness.bring(wide, UMessage(plain.id, attributes, None)) == 0
    assert [error.reason for error in harness.events.malformed] == [Malformed.ADDRESS]


class Network:
    """Subscriptions are declared and undeclared later, and what is put waits in each that is declared and matches it."""

    def __init__(self) -> None:
        self.harness = IntakeHarness()
        self.control: deque[KeySubscription] = deque()  # to declare, or to undeclare if it is declared
        self.seen: list[KeySubscription] = []
        self.left: list[KeySubscription] = []
        self.waiting: dict[KeySubscription, deque[UMessage]] = {}
        self.declared: set[KeySubscription] = set()
        self.due: list[tuple[UMessage, set[Filter]]] = []
        """What was put, and the filters that were open then, and ever since, and were declared."""

    def toggle(self, of: Filter) -> None:
        if of in self.harness.registry.filters():
            self.harness.leave(of)
            for _, since in self.due:
                since.discard(of)
        else:
            self.harness.listen(of)
        for subscription in self.seen:
            if subscription.closing and subscription not in self.left:
                self.left.append(subscription)
                self.control.append(subscription)
        for subscription in self.harness.subscriptions:
            if subscription not in self.seen:
                self.seen.append(subscription)
                self.control.append(subscription)

    def turn_control(self) -> None:
        if self.control:
            subscription = self.control.popleft()
            if subscription in self.declared:
                self.declared.discard(subscription)
            else:
                self.declared.add(subscription)
                self.waiting[subscription] = deque()

    def catch_up(self) -> None:
        """Declare and undeclare everything."""
        while self.control:
            self.turn_control()

    def put(self, topic: UUri) -> None:
        message = publish(NOW_MS, topic)
        matching = [of for of in self.harness.registry.filters() if filter_matches(*of, message.attributes)]
        parts = self.harness.intake._subscriptions
        self.due.append((message, {of for of in matching if self.declared.issuperset(parts.get(of) or ())}))
        for subscription in self.declared:
            if filter_matches(*subscription.filter, message.attributes):
                self.waiting[subscription].append(message)

    def drain(self, number: int) -> None:
        """Deliver what waits longest in one of the subscriptions."""
        some = [subscription for subscription in self.seen if self.waiting.get(subscription)]
        if some:
            subscription = some[number % len(some)]
            self.harness.bring(subscription, self.waiting[subscription].popleft())

    def drain_all(self) -> None:
        while any(self.waiting.values()):
            self.drain(0)


TOPICS: list[Filter] = [(topic, None) for topic in (OWN, ONE, OTHER, ELSEWHERE)]
WIDER: list[Filter] = [(everything_at("veh1"), None), (everything_at("*"), None)]
STEPS = st.tuples(st.sampled_from(["toggle", "toggle", "control", "control", "put", "drain"]), st.integers(0, 11))


def run(steps: list[tuple[str, int]], filters: list[Filter]) -> Network:
    network = Network()
    for step, number in steps:
        if step == "toggle":
            network.toggle(filters[number % len(filters)])
        elif step == "control":
            network.turn_control()
        elif step == "put":
            network.put((OWN, ONE, OTHER, NOBODYS, ELSEWHERE)[number % 5])
        else:
            network.drain(number)
    network.drain_all()
    return network


@pytest.mark.usefixtures("few_have_their_own")
@given(st.lists(STEPS, max_size=60))
def test_a_message_of_a_topic_that_stays_open_comes_once_whatever_else_comes_and_goes(steps: list[tuple[str, int]]) -> None:
    network = run(steps, TOPICS)
    came = [message.id for message in network.harness.listener.messages]
    assert len(came) == len(set(came))
    assert {message.id for message, since in network.due if since} <= set(came)
    assert set(came) <= {message.id for message, _ in network.due if message.attributes.source != NOBODYS}


@pytest.mark.usefixtures("few_have_their_own")
@given(st.lists(STEPS, max_size=60))
def test_no_message_is_lost_when_filters_that_overlap_with_topics_come_and_go(steps: list[tuple[str, int]]) -> None:
    """One whose filter closes while it is on its way may come twice, as from any subscription that closes."""
    network = run(steps, [*TOPICS, *WIDER])
    came = {message.id for message in network.harness.listener.messages}
    assert {message.id for message, since in network.due if since} <= came


def came_first(network: Network, of: Filter) -> None:
    """Deliver what waits in the subscriptions of a filter."""
    for subscription in network.harness.intake._subscriptions.get(of) or ():
        for message in network.waiting[subscription]:
            network.harness.bring(subscription, message)
        network.waiting[subscription].clear()


EVERYTHING: Filter = (everything_at("veh1"), None)


@pytest.mark.usefixtures("few_have_their_own")
@pytest.mark.parametrize("order", ["topic, filter", "filter, topic"])
@pytest.mark.parametrize("leaves", ["topic", "filter"])
def test_of_a_topic_and_a_filter_for_more_one_is_closed_while_a_message_is_on_its_way(order: str, leaves: str) -> None:
    """The topic is on a wide subscription, which stays. The copy of the one that is not used came first."""
    network, topic = Network(), (ONE, None)
    for of in ((OWN, None), (OTHER, None), *((topic, EVERYTHING) if order == "topic, filter" else (EVERYTHING, topic))):
        network.toggle(of)
    network.catch_up()
    network.put(ONE)
    came_first(network, topic if order == "filter, topic" else EVERYTHING)
    assert network.harness.listener.messages == []
    network.toggle(topic if leaves == "topic" else EVERYTHING)
    network.drain_all()
    assert [message.id for message in network.harness.listener.messages] == [message.id for message, _ in network.due]
    network.catch_up()
    network.put(ONE)
    network.drain_all()
    assert [message.id for message in network.harness.listener.messages] == [message.id for message, _ in network.due]


@pytest.mark.usefixtures("few_have_their_own")
def test_a_topic_that_is_left_and_comes_back_beside_a_filter_for_more_comes_once() -> None:
    network, topic = Network(), (ONE, None)
    for of in ((OWN, None), (OTHER, None), topic, EVERYTHING, topic, topic):
        network.toggle(of)
    network.catch_up()
    network.put(ONE)
    network.toggle(EVERYTHING)
    network.drain_all()
    assert len(network.harness.listener.messages) == 1


@pytest.mark.usefixtures("few_have_their_own")
def test_when_everything_else_is_left_too_nothing_is_open() -> None:
    for last in ((OTHER, None), (ONE, None), EVERYTHING):
        network = Network()
        several: list[Filter] = [(OWN, None), (ONE, None), (OTHER, None), EVERYTHING]
        for of in [*several, *(of for of in several if of != last), last]:
            network.toggle(of)
        assert network.harness.subscriptions == []
        assert all(subscription.closing for subscription in network.seen)


def test_keys_of_all_that_a_wide_subscription_is_for_are_those_of_the_messages() -> None:
    harness = IntakeHarness()
    for topic in topics_of("veh1", MAX_OWN_SUBSCRIPTIONS + 3):
        harness.listen((topic, None))
    (wide,) = {each for each in harness.subscriptions if each.topics is not None}
    last = topics_of("veh1", MAX_OWN_SUBSCRIPTIONS + 3)[-3:]
    assert list(wide.topics or ()) == [key_for(publish(NOW_MS, topic).attributes, "") for topic in last]
