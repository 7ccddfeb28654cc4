"""The way in: what enters, what is a copy, what has failed before, and what full queues do. For more see tests/flow."""

from dataclasses import replace

import pytest

from streamer.delivery.inbound import ingress as ingress_module
from streamer.delivery.inbound import receiving as receiving_module
from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.inbound.receiving import Receiving
from streamer.delivery.inbound.refusals import Admission
from streamer.delivery.lanes import queue as queue_module
from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK, REDELIVERED, REDRIVEN
from streamer.delivery.seen import key_of
from streamer.routing.outcome import Failure, Outcome
from streamer.routing.table import RoutingTable, TableRoute
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import UMessage, notification, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.clock import START_MS
from tests.unit.delivery.inbound.ingress_harness import AUTHORITIES, CLOUD_APP, EVERY_TOPIC, IngressHarness, acknowledgements
from tests.unit.delivery.messages import message, queue_policy, topic

STOPPED = Failure(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "the streamer was stopped")


def test_a_lane_that_was_retired_meanwhile_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MAX_LANES", 1)
    harness = IngressHarness()
    harness.cloud._retire_at = 1
    harness.receive(message(0))
    harness.settle_oldest()
    harness.receive(message(2))
    harness.settle_oldest()
    harness.receive(message(0))
    assert [delivery.lane.retired for delivery in harness.cloud.waiting()] == [False]


def test_a_message_expires_when_its_time_to_live_has_passed_and_not_before() -> None:
    harness = IngressHarness()
    harness.clock.advance(100)
    harness.receive(message(ttl=100, made_ms=START_MS))
    assert harness.outcomes() == {}
    harness.receive(message(ttl=99, made_ms=START_MS))
    assert harness.outcomes() == {"expired DEADLINE_EXCEEDED": 1}
    assert [letter.status.message for letter in harness.letters()] == ["its TTL had passed 0.001 s before it arrived"]
    assert harness.cloud.messages == 1


def test_a_redelivered_message_that_has_expired_is_no_sign_of_a_failure_nor_of_a_clock() -> None:
    harness = IngressHarness()
    harness.clock.advance(60_000)
    harness.ingress.on_receive_batch([MemoryReceived(message(ttl=50_000, made_ms=START_MS), redelivered=True)])
    assert harness.outcomes() == {"expired DEADLINE_EXCEEDED": 1}
    (text,) = (letter.status.message for letter in harness.letters())
    assert text == "its TTL had passed 10.000 s before it arrived again; it may have been delivered before"
    assert harness.ingress.source_clocks.read(harness.clock.s) == []


def test_after_the_close_nothing_is_accepted_or_acknowledged() -> None:
    harness = IngressHarness()
    harness.ingress.close()
    batch = harness.receive(message())
    assert (harness.cloud.messages, harness.ingress.stats.received) == (0, 0)
    assert acknowledgements(batch) == [False]
    assert harness.source.log == ["pause"]


@pytest.mark.parametrize("sent", [message(), notification(START_MS, topic(), CLOUD_APP)], ids=["unwanted", "rejected"])
def test_a_copy_that_no_route_takes_any_more_leaves_the_first_to_be_settled(sent: UMessage) -> None:
    harness = IngressHarness()
    batch = harness.receive(sent)
    harness.use({"phone": ()})
    batch += harness.receive(sent)
    assert harness.outcomes() == {"duplicate OK": 1}
    assert acknowledgements(batch) == [False, False]
    harness.settle_oldest()
    assert acknowledgements(batch) == [True, True]


# messages from the wrong side


def from_the_wrong_side(harness: IngressHarness) -> Ingress:
    """The ingress of `cloud`: `veh1` does not live there."""
    route = TableRoute("vehicle", "cloud", "vehicle", (EVERY_TOPIC,), (), queue_policy())
    table = RoutingTable("gateway", AUTHORITIES, (route,), frozenset())
    receiving = Receiving("cloud", harness.transports["cloud"], lambda *timer: None, harness.clock)
    ingress = Ingress(
        "cloud", Flows(), receiving, harness.settler, harness.seen, harness.clock, harness.custody, harness.pump
    )
    ingress.use(table, {"vehicle": (harness.queue, harness.egresses["cloud"])})
    return ingress


def test_a_message_from_the_wrong_side_is_a_copy_if_its_original_has_failed() -> None:
    harness = IngressHarness()
    harness.clock.advance(100)
    late = message(ttl=50, made_ms=START_MS)
    harness.receive(late)
    cloud = from_the_wrong_side(harness)
    cloud.on_receive_batch([MemoryReceived(late)])
    assert [outcome.value for outcome, _ in cloud.unrouted.outcomes] == ["duplicate"]


def test_a_message_from_the_wrong_side_that_is_rejected_at_once_was_not_seen_at_home() -> None:
    harness = IngressHarness()
    cloud = from_the_wrong_side(harness)
    letter = publish(START_MS, UUri("veh1", 4, 1, 0x8001), b"letter")
    cloud.on_receive_batch([MemoryReceived(letter)])
    assert [code.name for _, code in cloud.unrouted.outcomes] == ["UNAUTHENTICATED"]
    assert not harness.seen.has_arrived_at_home(letter)


def test_a_message_is_taken_although_its_id_was_seen() -> None:
    harness = IngressHarness()
    sent = message(payload=b"x")
    harness.receive(sent)
    harness.settle_oldest()
    assert harness.ingress.redrive(sent, 0, "", "", "") is Admission.TAKEN
    (delivery,) = harness.cloud.waiting()
    assert (delivery.message, delivery.history) == (sent, REDELIVERED | REDRIVEN)
    assert delivery.received.is_acknowledged
    assert harness.seen.young[key_of(sent)] is delivery.received


def test_a_message_is_not_left_out_by_sampling() -> None:
    harness = IngressHarness()
    harness.interest.change(topic(), {"phone1": 1000}, "test")
    sent = message(made_ms=START_MS + 1)
    harness.receive(message(made_ms=START_MS), sent)
    assert len(harness.waiting("phone")) == 1
    harness.ingress.redrive(sent, 0, "", "", "")
    assert harness.waiting("phone")[1:] == [sent]


def with_room_for(messages: int) -> IngressHarness:
    return IngressHarness(queue={"messages": messages, "on_full": "backpressure"})


def payloads(messages: list[UMessage]) -> list[bytes | None]:
    return [each.payload for each in messages]


def numbered(count: int, flow: int = 0) -> list[UMessage]:
    return [message(flow, payload=b"%d" % number) for number in range(count)]


# waiting outside


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


# slowing the transport down


def test_the_transport_is_resumed_when_enough_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving_module, "_PAUSE_AT", 2)
    harness = with_room_for(1)
    harness.receive(message(), message(ttl=10), message(ttl=10))
    harness.clock.advance(11)
    harness.ingress.expire_backlog()
    assert harness.source.log == ["pause", "resume"]


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
