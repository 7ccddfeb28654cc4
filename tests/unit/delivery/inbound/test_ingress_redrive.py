"""The way in for messages of dead letters: as if they arrived now, even if their ids were seen."""

from dataclasses import replace

import pytest

from streamer.delivery.inbound.refusals import Admission
from streamer.delivery.lanes.lane import REDELIVERED, REDRIVEN
from streamer.delivery.seen import key_of
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import UMessage, notification
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import everything_at
from tests.clock import START_MS
from tests.unit.delivery.inbound.ingress_harness import CLOUD_APP, IngressHarness
from tests.unit.delivery.messages import message, topic


def failure(harness: IngressHarness, sent: UMessage) -> Failure:
    found = harness.ingress.redrive(sent, "", "", "")
    assert isinstance(found, Failure)
    return found


def test_a_message_is_taken_although_its_id_was_seen() -> None:
    harness = IngressHarness()
    sent = message(payload=b"x")
    harness.receive(sent)
    harness.settle_oldest()
    assert harness.ingress.redrive(sent, "", "", "") is Admission.TAKEN
    (delivery,) = harness.cloud.waiting()
    assert (delivery.message, delivery.history) == (sent, REDELIVERED | REDRIVEN)
    assert delivery.received.is_acknowledged
    assert harness.seen.young[key_of(sent)] is delivery.received


def test_a_message_enters_all_of_its_queues_or_none() -> None:
    harness = IngressHarness(queue={"messages": 1})
    harness.receive(message(0))
    assert harness.ingress.redrive(message(1), "", "", "") is Admission.LATER
    assert harness.phone.messages == 0
    harness.settle_oldest()
    assert harness.ingress.redrive(message(1), "", "", "") is Admission.TAKEN
    assert (harness.cloud.messages, harness.phone.messages) == (1, 1)


def test_a_message_that_nobody_wants_now_is_not_taken() -> None:
    harness = IngressHarness()
    harness.use({"phone": ()})
    assert failure(harness, message()).outcome is Outcome.UNWANTED
    assert harness.ingress.unrouted.accepted == 0


def test_a_message_that_has_expired_is_not_taken() -> None:
    harness = IngressHarness()
    harness.clock.advance(100)
    assert failure(harness, message(ttl=50, made_ms=START_MS)).code is UCode.DEADLINE_EXCEEDED
    assert (harness.outcomes(), harness.letters()) == ({}, [])


def test_a_message_that_is_not_allowed_now_is_not_taken() -> None:
    harness = IngressHarness()
    harness.use({})
    assert failure(harness, notification(START_MS, topic(), CLOUD_APP)).code is UCode.PERMISSION_DENIED
    assert (harness.outcomes(), harness.letters()) == ({}, [])


@pytest.mark.parametrize(
    ("route", "target", "goes_to"),
    [
        ("cloud", "cloud", ["cloud"]),
        ("phone", "cloud", ["phone"]),
        ("formerly", "phone", ["phone"]),
        ("formerly", "elsewhere", ["cloud", "phone"]),
        ("", "", ["cloud", "phone"]),
    ],
)
def test_a_message_goes_where_it_failed_if_that_is_there(route: str, target: str, goes_to: list[str]) -> None:
    harness = IngressHarness()
    assert harness.ingress.redrive(message(1), route, target, "") is Admission.TAKEN
    assert [name for name in ("cloud", "phone") if harness.waiting(name)] == goes_to


@pytest.mark.parametrize("on_full", ["reject", "evict"])
def test_nothing_that_waits_makes_room_for_it(on_full: str) -> None:
    harness = IngressHarness(queue={"messages": 1, "on_full": on_full})
    harness.receive(first := message(0))
    assert harness.ingress.redrive(message(0, level=6), "", "", "") is Admission.LATER
    assert harness.waiting() == [first]


def test_a_message_is_not_left_out_by_sampling() -> None:
    harness = IngressHarness()
    harness.interest.change(topic(), {"phone1": 1000}, "test")
    sent = message(made_ms=START_MS + 1)
    harness.receive(message(made_ms=START_MS), sent)
    assert len(harness.waiting("phone")) == 1
    harness.ingress.redrive(sent, "", "", "")
    assert harness.waiting("phone")[1:] == [sent]


def test_a_copy_for_another_authority_leaves_although_one_has_gone_the_same_way() -> None:
    harness = IngressHarness()
    bare = message()
    first, second = (
        replace(bare, attributes=replace(bare.attributes, sink=everything_at(name))) for name in ("fleet", "veh9")
    )
    harness.receive(first)
    assert harness.ingress.redrive(second, "", "", "") is Admission.TAKEN
    assert harness.waiting() == [bare, bare]
