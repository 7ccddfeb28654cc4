"""Subscribing as a dialogue: which SUBSCRIBEs and UNSUBSCRIBEs go out, and what the broker's answers lead to."""

from collections.abc import Sequence

import mqtt5
import pytest

from streamer.transports.mqtt5.session import MAX_PACKET_ID, Session
from streamer.transports.mqtt5.subscribing import Subscribing

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

    def connect(self, session_present: bool = False) -> bool:
        self.session.connected(session_present, 10, None)
        return self.subscribing.connected(session_present, True, True)

    def lose(self) -> None:
        self.session.disconnected()
        self.subscribing.disconnected()
        self.asked.clear()

    def answer(self, index: int = 0) -> bool:
        """The broker's answer to one packet. True if nothing more has to be waited for."""
        packet = self.asked.pop(index)
        if isinstance(packet, mqtt5.UnsubscribePacket):
            self.unsubscribed += packet.patterns
            codes = [mqtt5.UnsubAckReasonCode.SUCCESS] * len(packet.patterns)
            return self.subscribing.removed(mqtt5.UnsubAckPacket(packet.packet_id, codes))
        patterns = [each.pattern for each in packet.topic_filters]
        self.subscribed += patterns
        return self.subscribing.confirmed(mqtt5.SubAckPacket(packet.packet_id, [GRANTED] * len(patterns)))

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


def test_packet_ids_that_are_all_in_use_are_not_searched_for_ever() -> None:
    session = Session(10, lambda message, packet_id, duplicate: b"", lambda: None)
    assert {session.request(["x"]) for _ in range(MAX_PACKET_ID)} == set(range(1, MAX_PACKET_ID + 1))
    assert not session.may_request
    with pytest.raises(AssertionError, match="every packet id is in use"):
        session.request(["x"])
