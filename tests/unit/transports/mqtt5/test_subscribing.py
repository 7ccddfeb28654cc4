"""Subscribing as a dialogue: which SUBSCRIBEs and UNSUBSCRIBEs go out, and what the broker's answers lead to."""

from collections.abc import Sequence
from typing import Any

import mqtt5
import pytest

from streamer.transports.mqtt5.session import MAX_PACKET_ID, Session
from streamer.transports.mqtt5.subscribing import Subscribing
from streamer.transports.mqtt5.subscriptions import NO_SHARING, NO_WILDCARDS

GRANTED = mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE
AT_ONCE = 100
IN_A_PACKET = 8
Asked = mqtt5.SubscribePacket | mqtt5.UnsubscribePacket


def named(count: int) -> list[str]:
    return [f"veh1/{number}" for number in range(count)]


class Dialogue:
    """The subscriptions of a session, and a broker that has not yet answered ``asked``."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self.session = Session(10, lambda message, packet_id, duplicate: b"", lambda: None)
        self.subscribing = Subscribing("cloud", self.session, self._take)
        self.asked: list[Asked] = []
        self.subscribed: list[str] = []
        self.unsubscribed: list[str] = []
        self.most = 0
        self.subscribing.open(patterns)

    def _take(self, data: bytes) -> None:
        packet, _ = mqtt5.read(memoryview(data))
        assert isinstance(packet, Asked)
        self.asked.append(packet)
        self.most = max(self.most, len(self.asked))

    def connect(
        self,
        session_present: bool = False,
        can_share: bool = True,
        has_wildcards: bool = True,
        max_packet_bytes: int | None = None,
    ) -> bool:
        self.session.connected(session_present, 10, max_packet_bytes)
        return self.subscribing.connected(session_present, can_share, has_wildcards)

    @property
    def problems(self) -> list[str]:
        return self.subscribing.problems()

    def lose(self) -> None:
        self.session.disconnected()
        self.subscribing.disconnected()
        self.asked.clear()

    def answer(self, index: int = 0, codes: Sequence[mqtt5.SubAckReasonCode] | None = None) -> bool:
        """The broker's answer to one packet: these ``codes``, or all granted. True if nothing more has to be waited for."""
        packet = self.asked.pop(index)
        if isinstance(packet, mqtt5.UnsubscribePacket):
            self.unsubscribed += packet.patterns
            removed = [mqtt5.UnsubAckReasonCode.SUCCESS] * len(packet.patterns)
            return self.subscribing.removed(mqtt5.UnsubAckPacket(packet.packet_id, removed))
        patterns = [each.pattern for each in packet.topic_filters]
        self.subscribed += patterns
        given = [GRANTED] * len(patterns) if codes is None else list(codes)
        return self.subscribing.confirmed(mqtt5.SubAckPacket(packet.packet_id, given))

    def connect_and_answer(self) -> None:
        self.connect()
        self.answer_all()

    def answer_all(self, index: int = 0) -> list[bool]:
        found = []
        while self.asked:
            found.append(self.answer(index))
        return found


@pytest.mark.parametrize("index", [0, -1], ids=["in order", "the latest first"])
def test_however_many_filters_there_are_few_subscribes_are_unanswered(index: int) -> None:
    patterns = named(100_000)
    dialogue = Dialogue(patterns)
    assert dialogue.connect() is False
    ends = dialogue.answer_all(index)
    assert ends == [False] * (len(patterns) // IN_A_PACKET - 1) + [True]
    assert sorted(dialogue.subscribed) == sorted(patterns)
    assert dialogue.most == AT_ONCE


@pytest.mark.parametrize("is_leaving", [True, False])
def test_however_many_filters_go_few_unsubscribes_are_unanswered(is_leaving: bool) -> None:
    patterns = named(10_000)
    dialogue = Dialogue(patterns)
    dialogue.connect()
    dialogue.answer_all()
    if is_leaving:
        dialogue.subscribing.leave()
    else:
        dialogue.subscribing.close(patterns)
    assert dialogue.session.has_requests
    assert not any(dialogue.answer_all())
    assert dialogue.unsubscribed == patterns
    assert dialogue.most == AT_ONCE
    assert not dialogue.session.has_requests


def test_who_leaves_while_it_connects_subscribes_to_nothing_more() -> None:
    dialogue = Dialogue(named(10_000))
    dialogue.connect()
    dialogue.subscribing.leave()
    dialogue.answer_all()
    assert dialogue.subscribed == named(AT_ONCE * IN_A_PACKET)
    assert set(dialogue.unsubscribed) == set(named(10_000))


def test_a_filter_that_is_closed_while_it_waits_is_not_subscribed_to_and_does_not_keep_the_link_down() -> None:
    patterns = named((AT_ONCE + 1) * IN_A_PACKET)
    dialogue = Dialogue(patterns)
    dialogue.connect()
    late = patterns[-IN_A_PACKET:]
    dialogue.subscribing.close(late)
    assert dialogue.answer_all() == [False] * AT_ONCE + [True]
    assert dialogue.subscribed == patterns[:-IN_A_PACKET]
    assert dialogue.unsubscribed == late


def test_a_filter_that_comes_and_goes_while_it_waits_is_asked_for_once() -> None:
    dialogue = Dialogue(named(AT_ONCE * IN_A_PACKET))
    dialogue.connect()
    for _ in range(50):
        dialogue.subscribing.open(["veh2"])
        dialogue.subscribing.close(["veh2"])
    dialogue.subscribing.open(["veh2"])
    dialogue.answer_all()
    assert dialogue.subscribed.count("veh2") == 1
    assert dialogue.unsubscribed == []


def test_after_a_lost_connection_everything_is_asked_for_again() -> None:
    patterns = named(10_000)
    dialogue = Dialogue(patterns)
    dialogue.connect()
    dialogue.lose()
    assert dialogue.connect(session_present=True) is True
    dialogue.answer_all()
    assert dialogue.subscribed == patterns


def test_what_an_earlier_run_without_a_share_has_left_is_removed_even_if_the_connection_is_lost_before() -> None:
    shared = [f"$share/fleet/{pattern}" for pattern in named(AT_ONCE * IN_A_PACKET)]
    dialogue = Dialogue(shared)
    dialogue.connect(session_present=True)
    dialogue.lose()
    dialogue.connect(session_present=True)
    dialogue.answer_all()
    assert dialogue.unsubscribed == named(AT_ONCE * IN_A_PACKET)
    dialogue.lose()
    dialogue.connect(session_present=True)
    dialogue.answer_all()
    assert dialogue.unsubscribed == named(AT_ONCE * IN_A_PACKET)


# -- refused filters

NO_AUTHORITY = mqtt5.SubAckReasonCode.NOT_AUTHORIZED
CANNOT_SHARE = mqtt5.SubAckReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED


def problems(dialogue: Dialogue) -> dict[str, str]:
    """The reason for each filter that is a problem."""
    split = (problem.removeprefix("the broker refused the subscription ").split(": ", 1) for problem in dialogue.problems)
    return {pattern.strip("'"): reason for pattern, reason in split}


def test_each_filter_of_a_suback_has_its_own_answer() -> None:
    dialogue = Dialogue(["a", "b", "c", "d", "e"])
    dialogue.connect()
    assert (
        dialogue.answer(codes=[GRANTED, NO_AUTHORITY, mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE, CANNOT_SHARE]) is True
    )
    found = problems(dialogue)
    assert list(found) == ["b", "c", "d", "e"]
    assert NO_SHARING not in found["b"]
    assert "QoS 0" in found["c"]
    assert found["d"].endswith(NO_SHARING)
    assert "no answer" in found["e"]
    assert dialogue.subscribing.refused == 4


def test_codes_beyond_the_filters_that_were_asked_for_mean_nothing() -> None:
    dialogue = Dialogue(["a"])
    dialogue.connect()
    dialogue.answer(codes=[GRANTED, NO_AUTHORITY])
    assert (problems(dialogue), dialogue.subscribing.refused) == ({}, 0)


def test_a_filter_that_is_granted_later_is_no_problem_any_more() -> None:
    dialogue = Dialogue(["a", "b"])
    dialogue.connect()
    dialogue.answer(codes=[NO_AUTHORITY, NO_AUTHORITY])
    dialogue.lose()
    dialogue.connect()
    dialogue.answer(codes=[NO_AUTHORITY, GRANTED])
    assert list(problems(dialogue)) == ["a"]
    assert dialogue.subscribing.refused == 3


def test_a_refused_filter_that_is_closed_is_no_problem_any_more() -> None:
    dialogue = Dialogue(["a"])
    dialogue.connect()
    dialogue.answer(codes=[NO_AUTHORITY])
    dialogue.subscribing.close(["a"])
    assert problems(dialogue) == {}


@pytest.mark.parametrize(
    ("broker", "refused", "reason"),
    [
        ({"can_share": False}, ["$share/fleet/a", "$share/fleet/+/b"], NO_SHARING),
        ({"has_wildcards": False}, ["+/b", "$share/fleet/+/b"], NO_WILDCARDS),
        ({"max_packet_bytes": 30}, ["c" * 30], "at most 30 bytes"),
        ({}, [], ""),
    ],
)
def test_what_a_broker_cannot_take_is_not_asked_for_nor_waited_for(
    broker: dict[str, Any], refused: list[str], reason: str
) -> None:
    patterns = ["a", "+/b", "c" * 30, "$share/fleet/a", "$share/fleet/+/b"]
    dialogue = Dialogue(patterns)
    assert dialogue.connect(**broker) is False
    assert dialogue.answer_all()[-1] is True
    assert dialogue.subscribed == [pattern for pattern in patterns if pattern not in refused]
    found = problems(dialogue)
    assert list(found) == refused
    assert all(reason in each for each in found.values())
    dialogue.subscribing.close(patterns)
    dialogue.answer_all()
    too_long = refused if "max_packet_bytes" in broker else []
    assert dialogue.unsubscribed == [pattern for pattern in patterns if pattern not in too_long]


def test_without_a_filter_that_the_broker_can_be_asked_for_nothing_is_waited_for() -> None:
    dialogue = Dialogue(["$share/fleet/a"])
    assert dialogue.connect(can_share=False) is True
    assert dialogue.asked == []


def test_before_there_is_a_connection_nothing_is_asked_for() -> None:
    dialogue = Dialogue(["a", "b"])
    dialogue.subscribing.close(["b"])
    dialogue.subscribing.leave()
    assert (dialogue.asked, dialogue.session.has_requests) == ([], False)


def test_who_leaves_subscribes_to_nothing_more() -> None:
    dialogue = Dialogue(["a"])
    dialogue.connect()
    dialogue.answer_all()
    dialogue.subscribing.leave()
    dialogue.subscribing.open(["late"])
    dialogue.answer_all()
    assert (dialogue.subscribed, dialogue.unsubscribed) == (["a"], ["a"])


def test_a_new_session_has_nothing_that_must_be_removed() -> None:
    dialogue = Dialogue(["a", "b"])
    dialogue.connect()
    dialogue.answer_all()
    dialogue.lose()
    dialogue.subscribing.close(["b"])
    dialogue.connect(session_present=False)
    dialogue.answer_all()
    dialogue.lose()
    dialogue.connect(session_present=True)
    dialogue.answer_all()
    assert dialogue.unsubscribed == []


def test_what_was_closed_without_a_connection_is_removed_from_the_session_that_the_broker_has() -> None:
    dialogue = Dialogue(["a", "b"])
    dialogue.connect()
    dialogue.answer_all()
    dialogue.lose()
    dialogue.subscribing.close(["b"])
    for _ in range(2):
        assert dialogue.connect(session_present=True) is True
        dialogue.answer_all()
        dialogue.lose()
    assert dialogue.unsubscribed == ["b"]


def test_what_an_earlier_run_has_left_is_removed_even_if_only_a_part_was_answered_before() -> None:
    dialogue = Dialogue(["$share/fleet/a"])
    dialogue.connect(session_present=True)
    dialogue.answer()
    dialogue.lose()
    dialogue.connect(session_present=True)
    dialogue.answer_all()
    assert dialogue.unsubscribed == ["a"]


def test_packet_ids_that_are_all_in_use_are_not_searched_for_ever() -> None:
    session = Session(10, lambda message, packet_id, duplicate: b"", lambda: None)
    assert {session.request(["x"]) for _ in range(MAX_PACKET_ID)} == set(range(1, MAX_PACKET_ID + 1))
    assert not session.may_request
    with pytest.raises(AssertionError, match="every packet id is in use"):
        session.request(["x"])


def unanswered(d: Dialogue) -> bool:
    """An answer has not come, and the connection goes on. True if nothing more has to be waited for."""
    d.asked.clear()
    assert d.subscribing.continues_unanswered()
    return d.subscribing.give_up_unanswered()


def test_only_after_a_second_connection_without_an_answer_it_goes_on_without() -> None:
    d = Dialogue(named(1))
    d.connect()
    assert not d.subscribing.continues_unanswered()
    d.lose()
    assert not d.connect()
    assert unanswered(d)
    assert d.problems == ["the broker refused the subscription 'veh1/0': it does not answer the SUBSCRIBE"]
    assert d.subscribing.refused == 1
    assert not unanswered(d)  # it is up already
    assert d.subscribing.refused == 1
    d.answer()
    assert d.problems == []
    assert not d.subscribing.continues_unanswered()  # everything was answered since


def test_who_leaves_unsubscribes_again_if_an_answer_does_not_come() -> None:
    d = Dialogue(["a"])
    d.connect_and_answer()
    d.subscribing.leave()
    d.subscribing.continues_unanswered()
    assert not unanswered(d)
    d.answer_all()
    assert (d.subscribed, d.unsubscribed, d.problems) == (["a"], ["a"], [])


def test_an_answer_that_is_late_counts() -> None:
    d = Dialogue(named(1))
    d.connect()
    d.subscribing.continues_unanswered()
    (late,) = d.asked
    assert unanswered(d)
    d.asked.append(late)
    d.answer(-1)
    assert d.problems == []


def test_one_filter_without_an_answer_holds_up_no_other() -> None:
    d = Dialogue(named(IN_A_PACKET * (AT_ONCE + 1)))
    d.connect()
    d.subscribing.continues_unanswered()
    assert not unanswered(d)  # the last packet waits for its turn
    assert len(d.asked) == AT_ONCE
    assert d.answer()  # of that one, which comes before those that are asked for again


def test_an_unsubscribe_without_an_answer_is_no_problem_and_sent_again() -> None:
    d = Dialogue(named(2))
    d.connect_and_answer()
    d.subscribing.close(["veh1/0"])
    d.subscribing.continues_unanswered()
    assert not unanswered(d)
    assert d.problems == []
    d.answer_all()
    assert d.unsubscribed == ["veh1/0"]


# several brokers


class AtTwoBrokers(Dialogue):
    """The same, with a session at each of two brokers."""

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self.subscribing = Subscribing("cloud", self.session, self._take, brokers=2)
        self.subscribing.open(patterns)

    def move(self, broker: int, session_present: bool) -> bool:
        self.lose()
        self.session.connected(session_present, 10, None)
        return self.subscribing.connected(session_present, True, True, broker)


def test_what_was_closed_while_another_broker_was_in_use_is_removed_from_each_session() -> None:
    d = AtTwoBrokers(["a", "b"])
    d.connect_and_answer()
    d.move(1, session_present=False)
    d.subscribing.close(["a"])
    d.answer_all()
    assert d.unsubscribed == ["a"]
    d.move(0, session_present=True)
    d.answer_all()
    assert d.unsubscribed == ["a", "a"]
    d.move(0, session_present=True)
    d.answer_all()
    assert d.unsubscribed == ["a", "a"]


def test_the_session_that_another_broker_has_kept_is_up_once_it_has_every_subscription() -> None:
    d = AtTwoBrokers(["a"])
    d.connect_and_answer()
    assert not d.move(1, session_present=True)
    assert d.answer()
    assert d.move(1, session_present=True)


def test_a_filter_that_is_opened_again_is_removed_nowhere() -> None:
    d = AtTwoBrokers(["a", "b"])
    d.connect_and_answer()
    d.move(1, session_present=False)
    d.subscribing.close(["a"])
    d.answer_all()
    d.subscribing.open(["a"])
    d.move(0, session_present=True)
    d.answer_all()
    assert d.unsubscribed == ["a"]
