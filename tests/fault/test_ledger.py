"""The ledger notices each kind of violation, names it, and is content when everything adds up."""

import math

import pytest

from tests.fault.ledger import FIRST, Allowance, Breach, Ledger, Sent, Verdict, digest_of

DIGEST = digest_of(b"payload")


def message_id(number: int, flow: str = "a") -> bytes:
    return flow.encode() * 8 + number.to_bytes(8, "big")


@pytest.fixture
def ledger() -> Ledger:
    """Ten messages in each of two flows to ``far``, all acknowledged."""
    ledger = Ledger()
    for number in range(10):
        for flow in "ab":
            ledger.sent(Sent(message_id(number, flow), flow, number, "far", DIGEST, number / 10))
            ledger.acknowledged(message_id(number, flow))
    return ledger


def arrive(ledger: Ledger, numbers: list[int], flow: str = "a", side: str = "far") -> None:
    for number in numbers:
        ledger.arrived(side, message_id(number, flow), DIGEST)


def breaches(verdict: Verdict) -> set[Breach]:
    return {violation.breach for violation in verdict.violations}


def judged(ledger: Ledger, queued: int = 0, **allowance: int | bool) -> Verdict:
    return ledger.verdict(Allowance(**allowance), queued)  # type: ignore[arg-type]


def complete(ledger: Ledger) -> None:
    arrive(ledger, list(range(10)), "a")
    arrive(ledger, list(range(10)), "b")


def test_everything_arrived_in_order(ledger: Ledger) -> None:
    complete(ledger)
    verdict = judged(ledger)
    assert verdict.is_clean
    assert +verdict.figures == {"sent": 20, "acknowledged": 20, "arrived": 20}


def test_lost_message_is_named_with_flow_number_and_time(ledger: Ledger) -> None:
    arrive(ledger, [0, 1, 2, 4, 5, 6, 7, 8, 9], "a")
    arrive(ledger, list(range(10)), "b")
    (violation,) = judged(ledger).violations
    assert violation.breach is Breach.LOST
    assert violation.count == 1
    assert violation.examples == (f"a number 3 (id {message_id(3).hex()}, sent at 0.300 s)",)


def test_many_lost_messages_are_counted_and_the_first_ones_named(ledger: Ledger) -> None:
    (violation,) = judged(ledger).violations
    assert violation.count == 20
    assert len(violation.examples) == FIRST
    assert violation.examples[0].startswith("a number 0 ")


def test_what_is_queued_is_not_lost_but_nothing_more(ledger: Ledger) -> None:
    arrive(ledger, list(range(8)), "a")
    arrive(ledger, list(range(10)), "b")
    assert judged(ledger, queued=2).is_clean
    assert breaches(judged(ledger, queued=1)) == {Breach.LOST}


def test_unacknowledged_message_need_not_arrive(ledger: Ledger) -> None:
    complete(ledger)
    ledger.sent(Sent(message_id(10), "a", 10, "far", DIGEST, 1.0))
    assert judged(ledger).is_clean
    ledger.acknowledged(message_id(10))
    assert breaches(judged(ledger)) == {Breach.LOST}


def test_excused_message_need_not_arrive(ledger: Ledger) -> None:
    arrive(ledger, list(range(1, 10)), "a")
    arrive(ledger, list(range(10)), "b")
    ledger.excuse({message_id(0)}, "the broker lost it")
    assert judged(ledger).is_clean


def test_inversion_inside_a_flow(ledger: Ledger) -> None:
    arrive(ledger, [0, 1, 3, 2, 4, 5, 6, 7, 8, 9], "a")
    arrive(ledger, list(range(10)), "b")
    (violation,) = judged(ledger).violations
    assert violation.breach is Breach.INVERTED
    assert violation.count == 1
    assert violation.examples[0].startswith("a number 2 ")
    assert " after a number 3 " in violation.examples[0]


def test_inversions_can_be_allowed_and_are_still_counted(ledger: Ledger) -> None:
    arrive(ledger, [0, 1, 3, 2, 4, 5, 6, 7, 8, 9], "a")
    arrive(ledger, list(range(10)), "b")
    verdict = judged(ledger, inversions=True)
    assert verdict.is_clean
    assert verdict.figures["inversions"] == 1


def test_flows_may_overtake_each_other_and_copies_may_come_late(ledger: Ledger) -> None:
    arrive(ledger, list(range(10)), "b")
    arrive(ledger, list(range(10)), "a")
    arrive(ledger, [3, 4, 5], "a")
    assert judged(ledger, duplicates=3).is_clean


def test_too_many_duplicates(ledger: Ledger) -> None:
    complete(ledger)
    arrive(ledger, [7, 7, 8], "a")
    verdict = judged(ledger, duplicates=2)
    assert breaches(verdict) == {Breach.DUPLICATES}
    assert verdict.figures["duplicates"] == 3
    assert verdict.violations[0].examples[0].startswith("3 times a number 7 ")


def test_corrupted_payload(ledger: Ledger) -> None:
    complete(ledger)
    ledger.sent(Sent(message_id(10), "a", 10, "far", DIGEST, 1.0))
    ledger.arrived("far", message_id(10), digest_of(b"paYload"))
    assert breaches(judged(ledger)) == {Breach.CORRUPTED}


def test_unknown_message_and_wrong_receiver(ledger: Ledger) -> None:
    complete(ledger)
    ledger.arrived("far", b"x" * 16, DIGEST)
    ledger.arrived("near", message_id(1), DIGEST)
    assert breaches(judged(ledger)) == {Breach.STRANGER, Breach.MISDIRECTED}


def test_dead_letter_accounts_for_a_message_where_one_is_allowed(ledger: Ledger) -> None:
    arrive(ledger, list(range(9)), "a")
    arrive(ledger, list(range(10)), "b")
    ledger.dead_lettered("near", message_id(9), DIGEST, 4)
    assert breaches(judged(ledger)) == {Breach.REFUSED}
    assert judged(ledger, dead_letters=True).is_clean


def test_corrupted_dead_letter_and_dead_letter_of_an_unknown_message(ledger: Ledger) -> None:
    arrive(ledger, list(range(9)), "a")
    arrive(ledger, list(range(10)), "b")
    ledger.dead_lettered("near", message_id(9), digest_of(b""), 4)
    ledger.dead_lettered("near", b"x" * 16, DIGEST, 4)
    assert breaches(judged(ledger, dead_letters=True)) == {Breach.CORRUPTED, Breach.STRANGER}


def test_arrived_and_dead_lettered(ledger: Ledger) -> None:
    complete(ledger)
    ledger.dead_lettered("near", message_id(9), DIGEST, 4)
    assert breaches(judged(ledger, dead_letters=True)) == {Breach.TWO_ENDS}
    assert judged(ledger, dead_letters=True, two_ends=True).is_clean


def test_dead_lettered_request_must_be_answered(ledger: Ledger) -> None:
    complete(ledger)
    ledger.sent(Sent(message_id(0, "r"), "r", 0, "far", DIGEST, 1.0, is_request=True, acknowledged=True))
    ledger.dead_lettered("near", message_id(0, "r"), DIGEST, 14)
    assert breaches(judged(ledger, dead_letters=True)) == {Breach.UNANSWERED}
    ledger.answered(message_id(0, "r"), 14)
    assert judged(ledger, dead_letters=True).is_clean


def test_dump_has_every_message_and_what_became_of_it(ledger: Ledger) -> None:
    arrive(ledger, [1, 0])
    dump = ledger.dump()
    assert len(dump["sent"]) == 20
    assert dump["sent"][0]["arrived"] == 1
    assert len(dump["breaches"]["INVERTED"]) == 1


def test_time_that_a_way_has_worked_counts_each_second_by_its_messages_in_time() -> None:
    ledger = Ledger()
    late = {
        0: 1.0,
        1: 3.0,
        2: 1.0,
        3: math.inf,
    }  # two in the first second, one in the second, none in the third, one in the last
    for number, sent_s in enumerate((10.0, 10.5, 11.5, 13.5)):
        ledger.sent(Sent(message_id(number), "near→far publish", number, "far", DIGEST, sent_s))
        if late[number] < math.inf:
            ledger.arrived("far", message_id(number), DIGEST, sent_s + late[number])
    assert ledger.worked(("near", "far"), 10.0, 14.0, within_s=2.0) == pytest.approx(100 * (0.5 + 1 + 0 + 0) / 4)
    assert ledger.worked(("near", "far"), 10.0, 12.0, within_s=3.0) == 100
    assert ledger.worked(("far", "near"), 10.0, 14.0, within_s=2.0) == 0
