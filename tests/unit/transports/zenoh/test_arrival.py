"""What has arrived at the other end of a connection, as looks at its socket tell it: a dialogue of looks."""

import math

import pytest

from streamer.transports.zenoh.arrival import _LONGEST_S, _SETTLE_S, Arrival, Reading

STEP_S = _SETTLE_S + 0.01


class Connection:
    """A socket at which the test looks every `STEP_S`."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.arrival = Arrival(self.now_s)
        self.is_open = self.has_room = True
        self.unacknowledged = self.acknowledged = self.received = 0

    def write(self, size: int = 1000) -> None:
        self.unacknowledged += size

    def acknowledge(self, size: int | None = None) -> None:
        size = self.unacknowledged if size is None else size
        self.unacknowledged -= size
        self.acknowledged += size

    def look(self, after_s: float = STEP_S) -> float:
        """Look, and say up to when everything has arrived."""
        self.now_s += after_s
        reading = Reading(self.is_open, self.has_room, self.unacknowledged, self.acknowledged, self.received)
        self.arrival.look(reading, self.now_s)
        return self.arrival.until_s

    def looked(self, times: int) -> float:
        for _ in range(times):
            self.look()
        return self.arrival.until_s


def test_what_was_put_before_two_looks_has_arrived_when_it_is_acknowledged_and_something_came_after_that() -> None:
    here = Connection()
    here.write()
    here.acknowledge()
    first_s = here.now_s + STEP_S
    here.looked(2)
    here.received += 3
    assert here.look() == pytest.approx(first_s)


def test_without_an_acknowledgement_nothing_has_arrived() -> None:
    here = Connection()
    here.looked(2)
    here.received += 3
    until_s = here.looked(1)
    here.write()
    for _ in range(10):
        here.received += 3  # the other side sends, and gets nothing
        here.look()
    assert here.arrival.until_s <= until_s + 2 * STEP_S  # only what was put before the bytes that are missing


def test_what_came_before_the_acknowledgement_proves_nothing() -> None:
    here = Connection()
    here.write()
    here.looked(3)
    here.received += 3
    here.acknowledge()
    before_s = here.look()
    assert here.looked(5) == before_s
    here.received += 3
    assert here.look() > before_s


def test_a_side_that_acknowledges_and_says_nothing_proves_nothing() -> None:
    here = Connection()
    for _ in range(100):
        here.write()
        here.acknowledge()
        assert here.look() == 100.0


@pytest.mark.parametrize("pending", [0, 10, 1000])
def test_under_steady_traffic_what_was_written_counts_when_it_is_acknowledged_not_when_the_socket_is_empty(
    pending: int,
) -> None:
    here = Connection()
    here.write(pending)
    for _ in range(20):
        here.write(500)
        here.acknowledge(500)
        here.received += 3
        here.look()
    assert (here.now_s - here.arrival.until_s) < (5 * STEP_S if pending <= 1000 else math.inf)


def test_an_acknowledgement_between_two_readings_delays_the_proof_until_the_socket_is_empty() -> None:
    """The unacknowledged bytes are read first, so that some count twice."""
    here = Connection()
    here.look()
    here.unacknowledged, here.acknowledged = 1000, 1000  # in truth all 1000 are acknowledged
    here.look()
    here.unacknowledged = 0
    here.look()
    here.received += 3
    assert here.look() > 100.0


def test_while_the_socket_is_nearly_full_more_may_wait_in_front_of_it() -> None:
    here = Connection()
    here.has_room = False
    for _ in range(10):
        here.received += 3
        assert here.look() == 100.0
    here.has_room = True
    here.look()
    full_until_s = here.now_s
    here.looked(1)
    here.received += 3
    assert here.look() == full_until_s


def test_looks_that_are_too_close_or_too_far_apart_prove_nothing_about_what_was_written_in_between() -> None:
    for apart_s in (_SETTLE_S / 10, _LONGEST_S + 0.01):
        here = Connection()
        for _ in range(3):
            here.received += 3
            here.look(apart_s)
        assert here.arrival.until_s == 100.0, apart_s


def test_the_end_of_a_stream_is_no_word_of_a_process_that_was_killed() -> None:
    here = Connection()
    here.looked(3)
    here.received, here.is_open = here.received + 1, False
    assert here.look() == 100.0
    assert here.arrival.is_over
    here.received += 100
    assert here.look() == 100.0


def test_the_farewell_of_a_process_that_closes_proves_what_was_acknowledged_before() -> None:
    here = Connection()
    here.looked(3)
    here.received, here.is_open = here.received + 5, False
    assert here.look() > 100.0
