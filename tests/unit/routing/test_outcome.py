"""Outcomes: which of them are failures, and that only these are reported."""

import pytest

from streamer.routing.outcome import FAILURES, Failure, Outcome
from streamer.uprotocol.status import UCode

NO_FAILURES = {
    Outcome.DELIVERED,
    Outcome.DUPLICATE,
    Outcome.LOCAL,
    Outcome.UNWANTED,
    Outcome.UNHEARD,
    Outcome.SAMPLED_OUT,
    Outcome.UNCONFIRMED,
    Outcome.SUPERSEDED,
}


def test_every_outcome_is_a_failure_or_not() -> None:
    assert set(Outcome) == FAILURES | NO_FAILURES
    assert not FAILURES & NO_FAILURES


@pytest.mark.parametrize("outcome", Outcome)
def test_failures_are_reported_and_nothing_else_is(outcome: Outcome) -> None:
    assert outcome.is_failure == (outcome in FAILURES)
    assert Failure(outcome, UCode.INTERNAL, "why").is_reported == outcome.is_failure
