"""Redrive: the messages of dead letters are sent again, and each letter goes or stays, once."""

from typing import cast

import pytest

from streamer.delivery.custody import Custody
from streamer.delivery.dead_letter import FailedMessage, letter_of
from streamer.delivery.ingress import Again, Ingress
from streamer.delivery.pump import Pump
from streamer.delivery.redrive import Redrive
from streamer.journal import codec
from streamer.journal.entries import Letter
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from tests.clock import START_MS, FakeClock
from tests.unit.delivery.messages import message


class FakeIngress:
    """Answers with ``answer``; ``taken`` is what it was given."""

    def __init__(self) -> None:
        self.answer = Again.TAKEN
        self.given: list[UMessage] = []

    def redrive(self, sent: UMessage) -> Again:
        self.given.append(sent)
        return self.answer


class FakeCustody:
    """Notes which letters are deleted, and which stay."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.kept: list[int] = []

    def letter_done(self, number: int) -> None:
        self.done.append(number)

    def letter_kept(self, number: int) -> None:
        self.kept.append(number)


class FakePump:
    """Counts its runs."""

    runs = 0

    def run(self) -> None:
        self.runs += 1


class RedriveHarness:
    """A redrive with one endpoint, `vehicle`."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.vehicle = FakeIngress()
        self.custody = FakeCustody()
        self.pump = FakePump()
        ingresses = {"vehicle": cast(Ingress, self.vehicle)}
        self.redrive = Redrive(ingresses, cast(Custody, self.custody), self.clock, cast(Pump, self.pump))

    @property
    def fates(self) -> tuple[list[int], list[int]]:
        """The numbers of the letters that were deleted, and of those that stay."""
        return self.custody.done, self.custody.kept


def letter(number: int, sent: UMessage, ingress: str = "vehicle", body: bytes | None = None) -> Letter:
    packed = codec.pack(sent) if body is None else body
    return Letter(number, sent.id, "up", ingress, "cloud", "expired", 4, "late", 1, 0, 0, 1, "//veh1/A/1/8000", "", packed)


def test_a_message_is_sent_as_it_came_and_its_letter_goes() -> None:
    harness, sent = RedriveHarness(), message(payload=b"x", ttl=5)
    harness.redrive.take([letter(1, sent)], [None])
    assert harness.vehicle.given == [sent]
    assert harness.fates == ([1], [])
    assert (harness.redrive.count, harness.pump.runs) == (1, 1)


@pytest.mark.parametrize(("ttl_ms", "ttl"), [(1000, 3000), (0, 0)])
def test_a_message_gets_the_time_to_live_that_was_asked_for_from_now_on(ttl_ms: int, ttl: int) -> None:
    harness, sent = RedriveHarness(), message(ttl=5, made_ms=START_MS)
    harness.clock.advance(2000)
    harness.redrive.take([letter(1, sent)], [ttl_ms])
    (given,) = harness.vehicle.given
    assert (given.id, given.attributes.ttl) == (sent.id, ttl)


def test_a_letter_for_which_there_is_no_room_waits_for_the_next_time() -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Again.LATER
    harness.redrive.take([letter(1, message())], [None])
    assert harness.fates == ([], [])
    harness.vehicle.answer = Again.TAKEN
    harness.redrive.go_on()
    assert harness.fates == ([1], [])
    harness.redrive.go_on()
    assert len(harness.vehicle.given) == 2


def test_a_letter_that_nobody_wants_stays_and_can_be_redriven_later(caplog: pytest.LogCaptureFixture) -> None:
    harness, sent = RedriveHarness(), message()
    harness.vehicle.answer = Again.UNWANTED
    harness.redrive.take([letter(1, sent), letter(2, message())], [None, None])
    assert harness.fates == ([], [1, 2])
    assert [record.getMessage() for record in caplog.records] == [
        f"redrive_kept letters=2 first_id={sent.id.hex()} reason=nobody wants it now"
    ]
    harness.vehicle.answer = Again.TAKEN
    harness.redrive.take([letter(1, sent)], [None])
    assert harness.fates == ([1], [1, 2])


def test_a_letter_whose_endpoint_is_gone_stays() -> None:
    harness = RedriveHarness()
    harness.redrive.take([letter(1, message(), "formerly"), letter(2, message())], [None, None])
    assert harness.fates == ([2], [1])


def test_a_letter_that_cannot_be_read_stays_and_holds_up_no_other() -> None:
    harness = RedriveHarness()
    harness.redrive.take([letter(1, message(), body=b"\xff"), letter(2, message())], [None, None])
    assert harness.fates == ([2], [1])
    assert harness.redrive.count == 1


def test_a_letter_that_was_taken_is_not_taken_twice() -> None:
    harness = RedriveHarness()
    for _ in range(2):
        harness.redrive.take([letter(1, message())], [None])
    assert len(harness.vehicle.given) == 1


def test_a_letter_that_is_asked_for_again_while_it_waits_is_sent_once_with_the_latest_time_to_live() -> None:
    harness, sent = RedriveHarness(), message(ttl=5, made_ms=START_MS)
    harness.vehicle.answer = Again.LATER
    harness.redrive.take([letter(1, sent)], [None])
    harness.vehicle.answer = Again.TAKEN
    harness.redrive.take([letter(1, sent)], [7000])
    assert [given.attributes.ttl for given in harness.vehicle.given] == [5, 7000]
    assert harness.redrive.count == 1


def test_nothing_is_pumped_when_no_letter_waits() -> None:
    harness = RedriveHarness()
    harness.redrive.go_on()
    assert harness.pump.runs == 0


def test_a_message_of_which_only_a_part_is_known_is_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    failed = FailedMessage(
        message(payload=b"part"), Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "too large", payload_bytes=9999), 0, 0
    )
    harness = RedriveHarness()
    harness.redrive.take([letter_of(failed, "vehicle", 1)], [None])
    assert harness.vehicle.given == []
    assert harness.fates == ([], [1])
    assert "only_a_part_is_known" in caplog.text
