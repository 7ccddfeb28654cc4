"""The way in: what enters, what is a copy, and what has failed before it enters. For more see tests/flow."""

import pytest

from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.inbound.receiving import Receiving
from streamer.delivery.lanes import queue as queue_module
from streamer.routing.table import RoutingTable, TableRoute
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import UMessage, notification, publish
from streamer.uprotocol.uri import UUri
from tests.clock import START_MS
from tests.unit.delivery.inbound.ingress_harness import AUTHORITIES, CLOUD_APP, EVERY_TOPIC, IngressHarness, acknowledgements
from tests.unit.delivery.messages import message, queue_policy, topic


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
