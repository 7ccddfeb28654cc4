"""Which broker is tried next: the last good one, and the first one again once it has proven itself."""

import pytest

from streamer.transports.mqtt5.brokers import BrokerChoice, Prefer

SETTLED_S = 10.0
PROOF_S = 60.0
LONG_S = 700.0
NEVER_S = 1e9


def make(count: int = 2, prefer: Prefer = "first") -> BrokerChoice:
    return BrokerChoice(count, prefer, PROOF_S, SETTLED_S)


def lose(choice: BrokerChoice, broker: int, lived_s: float = LONG_S, is_no_fault: bool = False) -> list[int]:
    """A broker accepts a connection, which ends: the order of the next attempt."""
    choice.accepted(broker, "192.0.2.1")
    choice.ended(lived_s, is_no_fault)
    return choice.order


def proof_s(choice: BrokerChoice, at_s: float = 1000.0) -> int:
    """How many seconds the first broker has to accept connections until the return."""
    choice.accepted(1, "192.0.2.2")
    choice.tested(True, at_s)
    return next(second for second in range(100_000) if choice.may_return(at_s + second))


@pytest.mark.parametrize("prefer", ["first", "last-good"])
def test_the_last_good_broker_is_tried_first_and_then_the_others_in_order(prefer: Prefer) -> None:
    choice = make(3, prefer)
    assert choice.order == [0, 1, 2]
    assert lose(choice, 1) == [1, 2, 0]
    assert lose(choice, 0) == [0, 1, 2]


def test_a_broker_that_ends_connections_soon_twice_in_a_row_is_tried_last() -> None:
    choice = make(3)
    assert lose(choice, 0) == [0, 1, 2]
    assert lose(choice, 0, lived_s=1) == [0, 1, 2]
    assert lose(choice, 0, lived_s=1) == [1, 2, 0]
    assert lose(choice, 1, lived_s=1) == [1, 2, 0]
    assert lose(choice, 1) == [1, 2, 0]  # it has stood for long
    assert lose(choice, 1, lived_s=1) == [1, 2, 0]
    assert lose(choice, 2, lived_s=1) == [2, 0, 1]  # the first of its own


def test_a_connection_that_ends_over_a_message_says_nothing_about_the_broker() -> None:
    choice = make()
    assert [lose(choice, 0, lived_s=1, is_no_fault=True) for _ in range(5)] == [[0, 1]] * 5
    choice.accepted(1, "192.0.2.2")
    assert proof_s(choice) == PROOF_S


def test_the_first_broker_is_returned_to_once_it_has_accepted_connections_for_long_enough() -> None:
    choice = make()
    choice.accepted(1, "192.0.2.2")
    assert choice.test_every_s == PROOF_S / 2
    assert not choice.may_return(NEVER_S)
    choice.tested(True, 100)
    assert not choice.may_return(159)
    assert choice.may_return(160)
    choice.tested(False, 170)
    assert not choice.may_return(NEVER_S)
    choice.tested(True, 200)
    choice.tested(True, 230)
    assert not choice.may_return(259)
    assert choice.may_return(260)
    choice.return_to_first()
    assert choice.order == [0, 1]
    assert not choice.may_return(NEVER_S)
    assert choice.test_every_s is None


def test_what_was_found_before_the_connection_to_another_broker_does_not_count() -> None:
    choice = make(3)
    choice.accepted(1, "192.0.2.2")
    choice.tested(True, 100)
    choice.accepted(2, "192.0.2.3")
    assert not choice.may_return(NEVER_S)


def test_last_good_never_returns_by_itself() -> None:
    choice = make(prefer="last-good")
    choice.accepted(1, "192.0.2.2")
    assert choice.test_every_s is None
    choice.tested(True, 100)
    assert not choice.may_return(NEVER_S)


def test_the_one_broker_of_an_endpoint_is_never_tested() -> None:
    choice = make(1)
    assert [lose(choice, 0, lived_s=1) for _ in range(4)] == [[0]] * 4
    assert choice.test_every_s is None


def test_a_first_broker_that_does_not_hold_has_to_prove_itself_for_longer_each_time() -> None:
    choice = make()
    found = []
    for _ in range(8):
        lose(choice, 0, lived_s=300)
        found.append(proof_s(choice))
    assert found == [120, 240, 480, 960, 1920, 3600, 3600, 3600]
    lose(choice, 0, lived_s=36_000)
    assert proof_s(choice) == PROOF_S


def test_a_first_broker_that_takes_connections_but_refuses_us_is_tried_less_and_less_often() -> None:
    choice = make()
    found = []
    for _ in range(8):
        found.append(proof_s(choice))
        choice.return_to_first()
    assert found == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    lose(choice, 0, lived_s=36_000)
    assert proof_s(choice) == PROOF_S


def test_a_choice_that_stays_at_a_broker_tries_no_other_and_returns_to_none() -> None:
    choice = make(3)
    choice.accepted(1, "192.0.2.2")
    choice.tested(True, 100)
    choice.stay_at(2)
    assert [lose(choice, 2, lived_s=1) for _ in range(4)] == [[2]] * 4
    assert choice.test_every_s is None
    assert not choice.may_return(NEVER_S)


def test_of_each_broker_the_last_good_address_is_known() -> None:
    choice = make()
    choice.accepted(0, "192.0.2.1")
    choice.accepted(1, "192.0.2.2")
    choice.accepted(0, "192.0.2.9")
    assert choice.good_addresses == {0: "192.0.2.9", 1: "192.0.2.2"}
