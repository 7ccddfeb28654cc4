"""Redrive: the messages of dead letters are sent again, and each letter is deleted or stays, once."""

import io
from typing import cast

import pytest

from streamer.delivery.custody.custody import Custody
from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.inbound.redrive import Redrive
from streamer.delivery.inbound.refusals import Admission
from streamer.delivery.outcomes.dead_letter import letter_of
from streamer.delivery.pump import Pump
from streamer.journal import codec
from streamer.journal.entries import CorruptEntryError, JournalError, Letter, MissingEntryError
from streamer.logs.lines import HumanFormatter
from streamer.logs.output import LineHandler
from streamer.routing.outcome import FailedMessage, Failure, Outcome
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from tests.clock import START_MS, FakeClock
from tests.unit.delivery.messages import message


class FakeIngress:
    """An ingress that answers with ``answer``; ``taken`` has the messages."""

    def __init__(self) -> None:
        self.answer: Admission | Failure = Admission.TAKEN
        self.given: list[UMessage] = []
        self.where: list[tuple[str, str, str]] = []  # they had failed: route, endpoint and sink

    def redrive(self, sent: UMessage, waited_s: float, route: str, target: str, sink: str) -> Admission | Failure:
        self.given.append(sent)
        self.where.append((route, target, sink))
        return self.answer


class FakeCustody:
    """A custody that records deleted and remaining letters. ``bodies`` are in its journal; None: it cannot be read."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.kept: list[int] = []
        self.bodies: dict[int, bytes | None] = {}

    @property
    def journal(self) -> "FakeCustody":
        return self

    def letter_body(self, number: int) -> bytes:
        if number not in self.bodies:
            raise MissingEntryError("it has gone")
        body = self.bodies[number]
        if body is None:
            raise JournalError("not now")
        if body == b"":
            raise CorruptEntryError("its body was changed")
        return body

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
        self.ingresses = {"vehicle": cast(Ingress, self.vehicle)}
        self.redrive = Redrive(self.ingresses, cast(Custody, self.custody), self.clock, cast(Pump, self.pump))

    def take(self, *letters: Letter, ttl_ms: int | None = None) -> None:
        self.custody.bodies |= {each.number: each.body for each in letters}
        self.redrive.take(letters, [ttl_ms] * len(letters))

    @property
    def fates(self) -> tuple[list[int], list[int]]:
        """The numbers of the letters that were deleted, and of those that stay."""
        return self.custody.done, self.custody.kept


def letter(number: int, sent: UMessage, ingress: str = "vehicle", body: bytes | None = None) -> Letter:
    packed = codec.pack(sent) if body is None else body
    return Letter(
        number, sent.id, "up", ingress, "cloud", "expired", 4, "late", 1, 0, 0, 1, str(sent.attributes.source), "", packed
    )


def test_a_message_is_sent_as_it_came_and_its_letter_goes() -> None:
    harness, sent = RedriveHarness(), message(payload=b"x", ttl=5)
    harness.take(letter(1, sent))
    assert harness.vehicle.given == [sent]
    assert harness.vehicle.where == [("up", "cloud", "")]
    assert harness.fates == ([1], [])
    assert (harness.redrive.count, harness.pump.runs) == (1, 1)


@pytest.mark.parametrize(("ttl_ms", "ttl"), [(1000, 3000), (0, 0)])
def test_a_message_gets_the_time_to_live_that_was_asked_for_from_now_on(ttl_ms: int, ttl: int) -> None:
    harness, sent = RedriveHarness(), message(ttl=5, made_ms=START_MS)
    harness.clock.advance(2000)
    harness.take(letter(1, sent), ttl_ms=ttl_ms)
    (given,) = harness.vehicle.given
    assert (given.id, given.attributes.ttl) == (sent.id, ttl)


def test_a_letter_for_which_there_is_no_room_waits_for_the_next_time() -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Admission.LATER
    harness.take(letter(1, message()))
    assert harness.fates == ([], [])
    harness.vehicle.answer = Admission.TAKEN
    harness.redrive.go_on()
    assert harness.fates == ([1], [])
    harness.redrive.go_on()
    assert len(harness.vehicle.given) == 2


@pytest.mark.parametrize(
    ("outcome", "said"), [(Outcome.UNWANTED, "nobody wants it now"), (Outcome.EXPIRED, "why it cannot go")]
)
def test_a_letter_that_cannot_go_stays_and_can_be_redriven_later(
    outcome: Outcome, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness, sent = RedriveHarness(), message()
    harness.vehicle.answer = Failure(outcome, UCode.OK, "why it cannot go")
    harness.take(letter(1, sent), letter(2, message()))
    assert harness.fates == ([], [1, 2])
    assert [record.getMessage() for record in caplog.records] == [
        f"redrive_kept reason={said} letters=2 first_id={sent.id.hex()}"
    ]
    harness.vehicle.answer = Admission.TAKEN
    harness.take(letter(1, sent))
    assert harness.fates == ([1], [1, 2])


def test_every_reason_for_which_letters_stay_has_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    harness, stream = RedriveHarness(), io.StringIO()
    handler = LineHandler(HumanFormatter(), repeat_s=10)
    handler.setStream(stream)
    for number, reason in enumerate(("no route", "not allowed", "its TTL has passed", "not allowed")):
        harness.vehicle.answer = Failure(Outcome.REJECTED, UCode.OK, reason)
        harness.take(letter(number, message()))
    for record in caplog.records:
        handler.handle(record)
    said = stream.getvalue()
    assert [said.count(reason) for reason in ("no route", "not allowed", "its TTL has passed")] == [1, 1, 1]


def test_behind_a_letter_without_room_those_of_its_flow_wait_and_no_others() -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Admission.LATER
    first, second, other = message(0), message(0), message(1)
    harness.take(letter(1, first), letter(2, second), letter(3, other))
    assert harness.vehicle.given == [first, other]
    harness.vehicle.answer = Admission.TAKEN
    harness.redrive.go_on()
    assert harness.vehicle.given[2:] == [first, second, other]
    assert harness.fates == ([1, 2, 3], [])


def test_a_letter_whose_endpoint_goes_while_it_waits_stays() -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Admission.LATER
    harness.take(letter(1, message()), letter(2, message()))
    harness.ingresses.clear()
    harness.redrive.go_on()
    assert harness.fates == ([], [1, 2])
    assert not harness.redrive.is_waiting


def test_a_letter_whose_endpoint_is_gone_stays() -> None:
    harness = RedriveHarness()
    harness.take(letter(1, message(), "formerly"), letter(2, message()))
    assert harness.fates == ([2], [1])


def test_a_letter_that_cannot_be_read_stays_and_holds_up_no_other() -> None:
    harness = RedriveHarness()
    harness.take(letter(1, message(), body=b"\xff"), letter(2, message()))
    assert harness.fates == ([2], [1])
    assert harness.redrive.count == 1


def test_a_letter_that_was_taken_is_not_taken_twice() -> None:
    harness = RedriveHarness()
    for _ in range(2):
        harness.take(letter(1, message()))
    assert len(harness.vehicle.given) == 1


def test_a_letter_that_is_asked_for_again_while_it_waits_is_sent_once_with_the_latest_time_to_live() -> None:
    harness, sent = RedriveHarness(), message(ttl=5, made_ms=START_MS)
    harness.vehicle.answer = Admission.LATER
    harness.take(letter(1, sent))
    harness.vehicle.answer = Admission.TAKEN
    harness.take(letter(1, sent), ttl_ms=7000)
    assert [given.attributes.ttl for given in harness.vehicle.given] == [5, 7000]
    assert harness.redrive.count == 1


def test_a_letter_that_is_purged_while_it_waits_is_not_sent() -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Admission.LATER
    harness.take(letter(1, message()), letter(2, last := message()))
    del harness.custody.bodies[1]
    harness.vehicle.answer = Admission.TAKEN
    harness.redrive.go_on()
    assert harness.vehicle.given[1:] == [last]
    assert harness.fates == ([2], [])


def test_a_letter_that_is_damaged_while_it_waits_stays_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Admission.LATER
    harness.take(letter(1, message()))
    harness.custody.bodies[1] = b""
    harness.redrive.go_on()
    assert harness.fates == ([], [1])
    assert "redrive_impossible reason=its body was changed" in caplog.text


def test_what_waits_does_so_without_its_message() -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Admission.LATER
    for page in range(0, 200, 50):
        harness.take(*(letter(n, message(n % 150)) for n in range(page, page + 50)))
    assert sum(len(letters) for letters in harness.redrive._waiting.values()) == 200
    assert not any(each.body for letters in harness.redrive._waiting.values() for each, _ in letters.values())


def test_so_many_are_sent_in_one_cycle_of_the_loop() -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Admission.LATER
    harness.take(*(letter(n, message(n % 3)) for n in range(600)))
    harness.vehicle.answer = Admission.TAKEN
    counts = []
    while harness.redrive.is_waiting:
        harness.redrive.go_on()
        counts.append(harness.redrive.count)
    assert counts == [256, 512, 600]


def test_a_letter_that_cannot_be_read_now_waits() -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Admission.LATER
    harness.take(letter(1, sent := message()))
    harness.vehicle.answer = Admission.TAKEN
    body, harness.custody.bodies[1] = harness.custody.bodies[1], None
    harness.redrive.go_on()
    assert (harness.fates, harness.redrive.is_waiting) == (([], []), True)
    harness.custody.bodies[1] = body
    harness.redrive.go_on()
    assert harness.vehicle.given == [sent, sent]
    assert harness.fates == ([1], [])


def test_however_many_flows_wait_so_many_are_tried_at_a_time_and_each_in_its_turn() -> None:
    harness = RedriveHarness()
    harness.vehicle.answer = Admission.LATER
    harness.take(*(letter(flow, message(flow)) for flow in range(200)))
    for _ in range(3):
        harness.redrive.go_on()
    tried = [given.attributes.source.resource for given in harness.vehicle.given]
    assert tried == [(message(turn % 200)).attributes.source.resource for turn in range(4 * 64)]


def test_nothing_is_pumped_when_no_letter_waits() -> None:
    harness = RedriveHarness()
    harness.redrive.go_on()
    assert harness.pump.runs == 0


def test_a_message_of_which_only_a_part_is_known_is_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    failed = FailedMessage(
        message(payload=b"part"), Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "too large", payload_bytes=9999), 0, 0
    )
    harness = RedriveHarness()
    harness.take(letter_of(failed, "vehicle", 1))
    assert harness.vehicle.given == []
    assert harness.fates == ([], [1])
    assert "only_a_part_is_known" in caplog.text
