"""The way in for messages of dead letters: as if they arrived now, even if their ids were seen."""

from streamer.delivery.inbound.refusals import Admission
from streamer.delivery.lanes.lane import REDELIVERED, REDRIVEN
from streamer.delivery.seen import key_of
from tests.clock import START_MS
from tests.unit.delivery.inbound.ingress_harness import IngressHarness
from tests.unit.delivery.messages import message, topic


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
