"""The way in: each message enters its lanes, waits in the backlog or is settled, and its id counts as seen or not."""

from dataclasses import replace

import pytest

from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.inbound.misrouted import GRACE_S
from streamer.delivery.inbound.receiving import Receiving
from streamer.delivery.lanes import queue as queue_module
from streamer.delivery.seen import key_of
from streamer.routing.table import RoutingTable, TableRoute
from streamer.transports.base import LinkState
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, notification, publish, request
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import new_id
from tests.clock import START_MS
from tests.unit.delivery.inbound.ingress_harness import (
    AUTHORITIES,
    CLOUD_APP,
    EVERY_TOPIC,
    IngressHarness,
    acknowledgements,
)
from tests.unit.delivery.messages import message, queue_policy, topic

# entering


def test_a_message_enters_the_queue_of_each_of_its_routes() -> None:
    harness = IngressHarness()
    sent = [message(0), message(1)]
    harness.receive(*sent)
    assert harness.waiting("cloud") == sent
    assert harness.waiting("phone") == [sent[1]]
    assert harness.ingress.stats.received == 2


def test_a_message_is_acknowledged_once_all_of_its_destinations_have_it() -> None:
    harness = IngressHarness()
    batch = harness.receive(message(1))
    harness.settle_oldest("cloud")
    assert acknowledgements(batch) == [False]
    harness.settle_oldest("phone")
    assert acknowledgements(batch) == [True]


def test_a_batch_is_sent_as_a_batch() -> None:
    harness = IngressHarness()
    harness.transports["cloud"].state = LinkState.UP
    sent = [message(0), message(2), message(3)]
    harness.receive(*sent)
    assert harness.transports["cloud"].batches == [sent]


def test_single_messages_are_taken_as_well() -> None:
    harness = IngressHarness()
    harness.ingress.on_receive(MemoryReceived(message()))
    assert harness.cloud.messages == 1


def test_the_custody_watches_what_has_entered() -> None:
    harness = IngressHarness()
    batch = harness.receive(message(), is_kept_by_source=False)
    harness.held.flush()
    assert acknowledgements(batch) == [True]


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


def test_a_publish_leaves_with_the_sinks_that_its_route_sets_and_their_echoes_are_known() -> None:
    harness = IngressHarness(addressed=("cloud",))
    (received,) = harness.receive(message())
    sinks = [waiting.attributes.sink for waiting in harness.waiting()]
    assert sinks == [everything_at("fleet"), everything_at("backup")]
    harness.receive(*harness.waiting())
    assert harness.outcomes() == {"duplicate OK": 2}
    assert received.holders == 2


def test_copies_of_a_publish_for_several_authorities_leave_once_where_their_sink_is_removed() -> None:
    harness = IngressHarness()
    bare = message()
    copies = [replace(bare, attributes=replace(bare.attributes, sink=everything_at(name))) for name in ("fleet", "veh9")]
    batch = harness.receive(*copies)
    assert harness.waiting() == [bare]
    assert harness.outcomes("cloud") == {"duplicate OK": 1}
    assert acknowledgements(batch) == [False, True]
    assert harness.cloud.stats.accepted == 2
    assert harness.seen.young[key_of(copies[1])] is None


def test_a_topic_that_is_wanted_less_often_is_sampled_on_its_route_and_whole_on_others() -> None:
    harness = IngressHarness()
    harness.interest.change(topic(), {"phone1": 100}, "test")
    batch = harness.receive(*(message(made_ms=START_MS + ms) for ms in (0, 50, 100)))
    assert [sent.id[:6] for sent in harness.waiting("phone")] == [(START_MS + ms).to_bytes(6, "big") for ms in (0, 100)]
    assert len(harness.waiting("cloud")) == 3
    assert harness.outcomes("phone") == {"sampled_out OK": 1}
    assert [received.holders for received in batch] == [2, 1, 2]


def test_interest_that_has_changed_is_used_for_the_next_message() -> None:
    harness = IngressHarness()
    harness.receive(message())
    harness.interest.change(topic(), {"phone1": 0}, "test")
    harness.ingress.interest_changed([topic()])
    harness.receive(message())
    assert len(harness.waiting("phone")) == 1


# not entering


def test_an_invalid_message_is_rejected_and_its_sender_told() -> None:
    harness = IngressHarness()
    attributes = Attributes(UMessageType.REQUEST, topic()._replace(resource=0), CLOUD_APP._replace(resource=7))
    batch = harness.receive(UMessage(new_id(START_MS), attributes))
    assert harness.outcomes() == {"rejected INVALID_ARGUMENT": 1}
    assert len(harness.letters()) == len(harness.answers()) == 1
    assert acknowledgements(batch) == [True]


def test_a_publish_that_no_route_takes_is_counted_and_no_failure() -> None:
    harness = IngressHarness()
    harness.use({"phone": ()})
    batch = harness.receive(message())
    assert harness.outcomes() == {"unwanted OK": 1}
    assert harness.letters() == []
    assert acknowledgements(batch) == [True]


def test_a_message_expires_when_its_time_to_live_has_passed_and_not_before() -> None:
    harness = IngressHarness()
    harness.clock.advance(100)
    harness.receive(message(ttl=100, made_ms=START_MS))
    assert harness.outcomes() == {}
    harness.receive(message(ttl=99, made_ms=START_MS))
    assert harness.outcomes() == {"expired DEADLINE_EXCEEDED": 1}
    assert [letter.status.message for letter in harness.letters()] == ["its TTL had passed 0.001 s before it arrived"]
    assert harness.cloud.messages == 1


def test_the_sender_of_an_expired_request_is_answered() -> None:
    harness = IngressHarness()
    harness.clock.advance(100)
    harness.receive(request(START_MS, topic()._replace(resource=0), CLOUD_APP._replace(resource=7), 50))
    assert [answer.attributes.commstatus is not None for answer in harness.answers()] == [True]


def test_after_the_close_nothing_is_accepted_or_acknowledged() -> None:
    harness = IngressHarness()
    harness.ingress.close()
    batch = harness.receive(message())
    assert (harness.cloud.messages, harness.ingress.stats.received) == (0, 0)
    assert acknowledgements(batch) == [False]
    assert harness.source.log == ["pause"]


# copies


def test_a_copy_shares_the_fate_of_a_message_that_is_on_its_way() -> None:
    harness = IngressHarness()
    sent = message()
    batch = harness.receive(sent, sent)
    assert (harness.cloud.messages, harness.outcomes()) == (1, {"duplicate OK": 1})
    assert acknowledgements(batch) == [False, False]
    harness.settle_oldest()
    assert acknowledgements(batch) == [True, True]


def test_a_copy_of_a_settled_message_is_acknowledged_at_once() -> None:
    harness = IngressHarness()
    sent = message()
    harness.receive(sent)
    harness.settle_oldest()
    assert acknowledgements(harness.receive(sent)) == [True]
    assert harness.outcomes() == {"duplicate OK": 1}


def test_an_expired_copy_of_a_message_that_is_on_its_way_is_a_copy() -> None:
    harness = IngressHarness()
    sent = message(ttl=100)
    harness.receive(sent)
    harness.clock.advance(200)
    harness.receive(sent)
    assert harness.outcomes() == {"duplicate OK": 1}


def test_a_failure_is_told_once_however_often_its_message_arrives() -> None:
    harness = IngressHarness()
    harness.clock.advance(100)
    late = message(ttl=50, made_ms=START_MS)
    batch = harness.receive(late, late, late)
    assert harness.outcomes() == {"expired DEADLINE_EXCEEDED": 1, "duplicate OK": 2}
    assert len(harness.letters()) == 1
    assert acknowledgements(batch) == [True, True, True]


def test_a_message_that_was_turned_away_does_not_count_as_seen() -> None:
    harness = IngressHarness()
    said = notification(START_MS, topic(), CLOUD_APP)
    harness.use({})
    harness.receive(said)
    assert harness.outcomes() == {"rejected PERMISSION_DENIED": 1}
    harness.use({"cloud": ()})
    harness.receive(said)
    assert harness.waiting() == [said]


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


def test_a_message_from_the_wrong_side_is_a_copy_if_its_original_arrives_in_time() -> None:
    harness = IngressHarness()
    cloud, sent = from_the_wrong_side(harness), message()
    copy = MemoryReceived(sent)
    cloud.on_receive_batch([copy])
    assert copy.acknowledged
    harness.receive(sent)
    assert harness.waiting() == [sent]
    cloud.tick(harness.clock.s + GRACE_S)
    assert [outcome.value for outcome, _ in cloud.unrouted.outcomes] == ["duplicate"]


def test_a_message_from_the_wrong_side_is_rejected_if_no_original_arrives() -> None:
    harness = IngressHarness()
    cloud = from_the_wrong_side(harness)
    cloud.on_receive_batch([MemoryReceived(message())])
    cloud.tick(harness.clock.s + GRACE_S - 0.01)
    assert cloud.unrouted.settled == 0
    cloud.tick(harness.clock.s + GRACE_S)
    assert [code.name for _, code in cloud.unrouted.outcomes] == ["UNAUTHENTICATED"]
    assert len(harness.letters("cloud")) == 1


def test_a_forged_message_does_not_suppress_the_original_that_arrives_later() -> None:
    harness = IngressHarness()
    cloud, sent = from_the_wrong_side(harness), message()
    cloud.on_receive_batch([MemoryReceived(sent)])
    cloud.tick(harness.clock.s + GRACE_S)
    harness.receive(sent)
    assert harness.waiting() == [sent]


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


def test_no_original_will_arrive_after_the_close() -> None:
    harness = IngressHarness()
    cloud = from_the_wrong_side(harness)
    cloud.on_receive_batch([MemoryReceived(message())])
    cloud.close()
    assert [outcome.value for outcome, _ in cloud.unrouted.outcomes] == ["duplicate"]
    assert harness.letters("cloud") == []


def test_ids_are_forgotten_with_time() -> None:
    harness = IngressHarness()
    sent = message()
    harness.receive(sent)
    harness.settle_oldest()
    for _ in range(2):
        harness.clock.advance(600_000)
        harness.ingress.tick(harness.clock.s)
    assert sent.id not in harness.seen
