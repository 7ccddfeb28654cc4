"""The way in when queues are full: which messages wait or are rejected, and when the transport is paused."""

from dataclasses import replace

import pytest

from streamer.delivery.inbound import ingress as ingress_module
from streamer.delivery.inbound import receiving as receiving_module
from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK, Hold
from streamer.delivery.seen import key_of
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import UMessage, request
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.clock import START_MS
from tests.unit.delivery.inbound.ingress_harness import IngressHarness, acknowledgements
from tests.unit.delivery.messages import message, queue_policy

STOPPED = Failure(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "the streamer was stopped")


def with_room_for(messages: int, on_full: str = "backpressure", **keys: object) -> IngressHarness:
    return IngressHarness(queue={"messages": messages, "on_full": on_full} | keys)


def payloads(messages: list[UMessage]) -> list[bytes | None]:
    return [each.payload for each in messages]


def numbered(count: int, flow: int = 0) -> list[UMessage]:
    return [message(flow, payload=b"%d" % number) for number in range(count)]


# waiting outside


def test_messages_wait_unacknowledged_and_enter_in_order_as_room_comes() -> None:
    harness = with_room_for(2)
    batch = harness.receive(*numbered(4))
    assert payloads(harness.waiting()) == [b"0", b"1"]
    assert len(harness.ingress.backlog) == 2
    assert all(harness.seen.has_arrived_at_home(received.message) for received in batch)
    harness.settle_oldest()
    assert payloads(harness.waiting()) == [b"1", b"2"]
    harness.settle_oldest()
    harness.settle_oldest()
    assert payloads(harness.waiting()) == [b"3"]
    assert acknowledgements(batch) == [True, True, True, False]
    assert not harness.ingress.has_backlog


def test_a_newer_message_does_not_overtake_the_backlog() -> None:
    harness = with_room_for(2)
    harness.receive(*numbered(3))
    oldest = min(harness.cloud.waiting(), key=lambda delivery: delivery.seq)
    oldest.lane.drop(oldest)
    harness.settler.unheard(oldest)  # there is room, and nobody was told
    harness.receive(message(2, payload=b"newer"))
    assert payloads(harness.waiting()) == [b"1"]
    harness.ingress.admit_backlog()
    harness.settle_oldest()
    assert payloads(harness.waiting()) == [b"2", b"newer"]


def test_a_message_enters_none_of_its_queues_until_all_have_room() -> None:
    harness = with_room_for(1)
    harness.receive(message(0), message(1, payload=b"both"))
    assert (harness.cloud.messages, harness.phone.messages) == (1, 0)
    harness.receive(message(1, payload=b"next"))
    assert (harness.phone.messages, len(harness.ingress.backlog)) == (0, 2)
    harness.settle_oldest("cloud")
    assert (payloads(harness.waiting("cloud")), payloads(harness.waiting("phone"))) == ([b"both"], [b"both"])


def test_copies_for_several_authorities_need_room_for_all_of_them() -> None:
    harness = IngressHarness(addressed=("cloud",), queue={"messages": 3})
    harness.receive(message(), message(2))
    assert (harness.cloud.messages, len(harness.ingress.backlog)) == (2, 1)


def test_a_copy_takes_the_place_of_a_message_that_waits() -> None:
    harness = with_room_for(1)
    sent = numbered(2)
    (_, first) = harness.receive(*sent)
    (copy,) = harness.receive(sent[1])
    assert harness.outcomes() == {"duplicate OK": 1}
    assert (first.holders, copy.acknowledged) == (0, False)
    harness.settle_oldest()
    assert harness.waiting() == [sent[1]]
    harness.settle_oldest()
    assert copy.acknowledged


def test_a_message_that_expires_outside_is_told_and_the_others_wait_on() -> None:
    harness = with_room_for(1)
    question = request(START_MS, UUri("veh1", 0xA, 1, 0), UUri("fleet", 0xB, 1, 7), 100)
    harness.receive(message(), question, message(payload=b"waits"))
    harness.clock.advance(100)
    harness.ingress.expire_backlog()
    assert harness.outcomes() == {}
    harness.clock.advance(1)
    harness.ingress.expire_backlog()
    assert harness.outcomes() == {"expired DEADLINE_EXCEEDED": 1}
    assert [answer.attributes.reqid for answer in harness.answers()] == [question.id]
    assert [letter.status.message for letter in harness.letters()] == ["its TTL passed before its queue had room"]
    harness.settle_oldest()
    assert payloads(harness.waiting()) == [b"waits"]


def test_very_many_that_have_expired_outside_do_not_all_leave_at_once_for_room() -> None:
    harness = with_room_for(EXPIRED_MESSAGES_PER_TICK)
    harness.receive(*(message(payload=bytes(10)) for _ in range(EXPIRED_MESSAGES_PER_TICK)))
    dying = [message(payload=b"", ttl=100) for _ in range(3 * EXPIRED_MESSAGES_PER_TICK)]
    harness.receive(*dying, message(payload=b"waits"))
    assert len(harness.ingress.backlog) == len(dying) + 1
    harness.clock.advance(101)
    for _ in range(EXPIRED_MESSAGES_PER_TICK):
        harness.settle_oldest()
    first = sum(range(1, 33))  # each that left gave room for one more than the last: the first such sum beyond the bound
    assert harness.outcomes()["expired DEADLINE_EXCEEDED"] == first
    for expired, left in ((first + EXPIRED_MESSAGES_PER_TICK, 2 * EXPIRED_MESSAGES_PER_TICK - first + 1), (len(dying), 0)):
        harness.ingress.tick(harness.clock.s)
        for _ in range(4):
            harness.ingress.admit_backlog()
        assert (harness.outcomes()["expired DEADLINE_EXCEEDED"], len(harness.ingress.backlog)) == (expired, left)
    assert payloads(harness.waiting()) == [b"waits"]
    assert {letter.status.message for letter in harness.letters()} == {"its TTL passed before its queue had room"}


def test_a_message_whose_route_goes_while_it_waits_is_settled_when_there_is_room() -> None:
    harness = with_room_for(1)
    harness.receive(*numbered(2))
    harness.use({"phone": ()})
    harness.settle_oldest()
    assert harness.outcomes() == {"unwanted OK": 1}
    assert not harness.ingress.has_backlog


# slowing the transport down


def test_the_transport_is_paused_at_a_large_backlog_and_resumed_when_half_of_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving_module, "_PAUSE_AT", 4)
    harness = with_room_for(1)
    harness.receive(*numbered(4))
    assert harness.source.log == []
    harness.receive(message(), message())
    assert harness.source.log == ["pause"]
    harness.receive(message())
    assert harness.source.log == ["pause"]
    for _ in range(4):
        harness.settle_oldest()
    assert harness.source.log == ["pause"]
    harness.settle_oldest()
    assert harness.source.log == ["pause", "resume"]


def test_the_transport_is_paused_at_many_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving_module, "_PAUSE_AT_BYTES", 20_000)
    harness = with_room_for(1)
    harness.receive(message(), message(payload=b"x" * 10_000), message(payload=b"x" * 10_000))
    assert harness.source.log == ["pause"]
    harness.settle_oldest()
    assert harness.source.log == ["pause"]
    harness.settle_oldest()
    assert harness.source.log == ["pause", "resume"]


def test_the_transport_is_resumed_when_enough_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving_module, "_PAUSE_AT", 2)
    harness = with_room_for(1)
    harness.receive(message(), message(ttl=10), message(ttl=10))
    harness.clock.advance(11)
    harness.ingress.expire_backlog()
    assert harness.source.log == ["pause", "resume"]


def test_a_closed_ingress_lets_its_backlog_in_and_does_not_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving_module, "_PAUSE_AT", 2)
    harness = with_room_for(1)
    harness.receive(*numbered(3))
    harness.ingress.close()
    for _ in range(2):
        harness.settle_oldest()
    assert payloads(harness.waiting()) == [b"2"]
    assert harness.source.log == ["pause", "pause"]


def test_beyond_the_bound_of_the_backlog_messages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_module, "_MAX_BACKLOG_MESSAGES", 1)
    harness = with_room_for(1)
    batch = harness.receive(*numbered(3))
    assert harness.outcomes("cloud") == {"rejected RESOURCE_EXHAUSTED": 1}
    assert acknowledgements(batch) == [False, False, True]


def test_a_copy_takes_the_place_of_its_message_also_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_module, "_MAX_BACKLOG_MESSAGES", 1)
    harness = with_room_for(1)
    sent = numbered(2)
    harness.receive(*sent)
    (copy,) = harness.receive(sent[1])
    assert harness.outcomes("cloud") == {}
    assert not copy.acknowledged


def test_what_comes_in_spite_of_the_pause_and_is_retransmitted_by_nobody_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving_module, "_PAUSE_AT", 1)
    monkeypatch.setattr(ingress_module, "_MAX_BACKLOG_BYTES", 100_000)
    harness = with_room_for(1)
    for number in range(1000):
        harness.receive(message(payload=bytes(50_000)), is_kept_by_source=False)
        assert harness.ingress.backlog.bytes < 200_000, number
    assert harness.outcomes("cloud") == {"rejected RESOURCE_EXHAUSTED": 997}
    (kept,) = harness.receive(message(payload=bytes(50_000)))
    assert not kept.acknowledged  # it has a window, and is not refused
    assert harness.outcomes("cloud") == {"rejected RESOURCE_EXHAUSTED": 997}


def test_at_the_bound_of_bytes_what_waits_already_may_wait_for_another_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = with_room_for(1)
    both = message(1, payload=b"both")
    harness.receive(message(0), message(0), both, is_kept_by_source=False)
    harness.phone.use(queue_policy(queue={"messages": 1, "on_full": "backpressure"}))
    monkeypatch.setattr(receiving_module, "_PAUSE_AT", 1)
    monkeypatch.setattr(ingress_module, "_MAX_BACKLOG_BYTES", 1)
    for number in range(3):
        harness.receive(message(0, payload=b"%d" % number), is_kept_by_source=False)
    for _ in range(2):
        harness.settle_oldest()
    assert both in harness.waiting()
    assert both in harness.waiting("phone")


def test_copies_that_nobody_retransmits_take_no_place_and_hold_nothing_of_their_own() -> None:
    """Each has the id of the first, and a payload that nobody has counted."""
    harness = with_room_for(1)
    first = message(0, payload=b"first")
    (_, waiting) = harness.receive(message(0), first, is_kept_by_source=False)
    copies = [harness.receive(replace(first, payload=bytes(100_000)), is_kept_by_source=False)[0] for _ in range(40)]
    assert harness.ingress.backlog.bytes < 1000
    assert all(copy.message.payload == b"first" for copy in copies[-16:])
    assert not any(copy.acknowledged for copy in copies[-16:])  # they share its fate
    harness.settle_oldest()
    assert harness.waiting() == [first]
    harness.settle_oldest()
    assert waiting.acknowledged
    assert all(copy.acknowledged for copy in copies)


# where a full queue holds nothing back


def test_with_reject_a_message_that_does_not_fit_is_refused() -> None:
    harness = with_room_for(1, "reject")
    batch = harness.receive(*numbered(2))
    assert harness.outcomes("cloud") == {"rejected RESOURCE_EXHAUSTED": 1}
    assert [letter.status.message for letter in harness.letters()] == ["the egress queue is full"]
    assert acknowledgements(batch) == [False, True]
    assert harness.cloud.stats.accepted == 2


def test_with_reject_a_full_queue_does_not_keep_a_message_from_another() -> None:
    harness = with_room_for(1, "reject")
    batch = harness.receive(message(0), message(1))
    assert (len(harness.waiting("cloud")), len(harness.waiting("phone"))) == (1, 1)
    assert acknowledgements(batch) == [False, False]
    harness.settle_oldest("phone")
    assert acknowledgements(batch) == [False, True]


def test_with_evict_a_less_important_message_goes_for_a_new_one() -> None:
    harness = with_room_for(1, "evict")
    batch = harness.receive(message(0, level=1), message(2, level=2, payload=b"new"))
    assert payloads(harness.waiting()) == [b"new"]
    assert harness.outcomes("cloud") == {"dead_lettered RESOURCE_EXHAUSTED": 1}
    assert acknowledgements(batch) == [True, False]


def test_with_evict_a_new_message_goes_if_it_is_the_least_important() -> None:
    harness = with_room_for(1, "evict")
    harness.receive(message(0, level=2), message(2, level=1))
    assert harness.outcomes("cloud") == {"rejected RESOURCE_EXHAUSTED": 1}


def test_a_paused_flow_takes_no_more_than_its_share_of_the_queue() -> None:
    harness = with_room_for(4)
    harness.cloud.lane((message().attributes.source, None)).set_hold(Hold.PAUSED)
    harness.receive(*numbered(3), message(2))
    assert payloads(harness.waiting()) == [b"0", b"1", None]
    assert harness.outcomes("cloud") == {"rejected RESOURCE_EXHAUSTED": 1}
    assert [letter.status.message for letter in harness.letters()] == [
        "it is paused, and the room for paused messages is full"
    ]


# the end


def test_at_the_end_only_messages_that_would_be_lost_with_us_are_given_up() -> None:
    harness = with_room_for(1)
    kept = harness.receive(*numbered(2))
    lost = harness.receive(message(payload=b"lost"), is_kept_by_source=False)
    assert harness.ingress.give_up(STOPPED) == 1
    assert harness.outcomes("cloud") == {"dead_lettered UNAVAILABLE": 1}
    assert acknowledgements(kept + lost) == [False, False, True]
    assert len(harness.ingress.backlog) == 1


def test_with_a_journal_messages_that_would_be_lost_with_us_enter_beyond_the_bounds() -> None:
    harness = with_room_for(1)
    kept = harness.receive(*numbered(2))
    (lost,) = harness.receive(message(2, payload=b"lost"), is_kept_by_source=False)
    harness.ingress.admit_all()
    assert harness.seen.young[key_of(lost.message)] is lost
    assert payloads(harness.waiting()) == [b"0", b"lost"]
    assert (len(harness.ingress.backlog), acknowledgements(kept)) == (1, [False, False])


def test_at_the_end_a_message_whose_route_is_gone_is_settled() -> None:
    harness = with_room_for(1)
    harness.receive(message())
    batch = harness.receive(message(2), is_kept_by_source=False)
    harness.use({"phone": ()})
    harness.ingress.admit_all()
    assert harness.outcomes() == {"unwanted OK": 1}
    assert acknowledgements(batch) == [True]
