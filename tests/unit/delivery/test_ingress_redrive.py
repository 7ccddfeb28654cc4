"""The way in for messages that had become dead letters: as if they arrived now, whether their ids were seen or not."""

from dataclasses import replace

from streamer.delivery.dedup import key_of
from streamer.delivery.ingress import Again
from streamer.delivery.lane import REDELIVERED
from streamer.uprotocol.message import notification
from streamer.uprotocol.uri import everything_at
from tests.clock import START_MS
from tests.unit.delivery.ingress_harness import CLOUD_APP, IngressHarness
from tests.unit.delivery.messages import message, topic


def test_a_message_is_taken_although_its_id_was_seen() -> None:
    harness = IngressHarness()
    sent = message(payload=b"x")
    harness.receive(sent)
    harness.settle_oldest()
    assert harness.ingress.redrive(sent) is Again.TAKEN
    (delivery,) = harness.cloud.waiting()
    assert (delivery.message, delivery.history) == (sent, REDELIVERED)
    assert delivery.received.is_kept
    assert harness.seen.young[key_of(sent)] is delivery.received


def test_a_message_enters_all_of_its_queues_or_none() -> None:
    harness = IngressHarness(queue={"messages": 1})
    harness.receive(message(0))
    assert harness.ingress.redrive(message(1)) is Again.LATER
    assert harness.phone.messages == 0
    harness.settle_oldest()
    assert harness.ingress.redrive(message(1)) is Again.TAKEN
    assert (harness.cloud.messages, harness.phone.messages) == (1, 1)


def test_a_message_that_nobody_wants_now_is_not_taken() -> None:
    harness = IngressHarness()
    harness.use({"phone": ()})
    assert harness.ingress.redrive(message()) is Again.UNWANTED
    assert harness.ingress.unrouted.accepted == 0


def test_a_message_that_has_expired_fails_again() -> None:
    harness = IngressHarness()
    harness.clock.advance(100)
    assert harness.ingress.redrive(message(ttl=50, made_ms=START_MS)) is Again.TAKEN
    assert harness.outcomes() == {"expired DEADLINE_EXCEEDED": 1}
    assert len(harness.letters()) == 1


def test_a_message_that_is_not_allowed_now_fails_again() -> None:
    harness = IngressHarness()
    harness.use({})
    assert harness.ingress.redrive(notification(START_MS, topic(), CLOUD_APP)) is Again.TAKEN
    assert harness.outcomes() == {"rejected PERMISSION_DENIED": 1}


def test_a_message_is_not_left_out_by_sampling() -> None:
    harness = IngressHarness()
    harness.interest.change(topic(), {"phone1": 1000}, "test")
    sent = message(made_ms=START_MS + 1)
    harness.receive(message(made_ms=START_MS), sent)
    assert len(harness.waiting("phone")) == 1
    harness.ingress.redrive(sent)
    assert harness.waiting("phone")[1:] == [sent]


def test_a_copy_for_another_authority_leaves_although_one_has_gone_the_same_way() -> None:
    harness = IngressHarness()
    bare = message()
    first, second = (
        replace(bare, attributes=replace(bare.attributes, sink=everything_at(name))) for name in ("fleet", "veh9")
    )
    harness.receive(first)
    assert harness.ingress.redrive(second) is Again.TAKEN
    assert harness.waiting() == [bare, bare]
