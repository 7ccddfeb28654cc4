"""When a broker may be waiting for acknowledgements. Times in ms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.mqtt5.pressure import Pressure

AT_MOST = 1000


class Broker:
    """Sends a message every so many ms, and has so many unacknowledged at most."""

    def __init__(self, bound: int, every_ms: int) -> None:
        self.pressure = Pressure(AT_MOST)
        self.bound, self.every_ms = bound, every_ms
        self.now_ms = self.unacknowledged = 0

    def run(self, within_ms: int) -> int | None:
        """Go on until pressure is felt; after how many ms that is, None if it is not."""
        for passed_ms in range(1, within_ms + 1):
            self.now_ms += 1
            if self.now_ms % self.every_ms == 0 and self.unacknowledged < self.bound:
                self.unacknowledged += 1
                self.pressure.note_received(self.unacknowledged)
            if self.now_ms % 10 == 0 and self.pressure.may_have_stopped(self.unacknowledged, self.now_ms / 1000):
                return passed_ms
        return None

    def acknowledge(self) -> None:
        self.unacknowledged = 0


def test_nothing_unacknowledged_is_no_pressure() -> None:
    assert Broker(20, 10_000).run(9_000) is None


@pytest.mark.parametrize("bound", [1, 20, 100])
def test_a_broker_at_its_bound_is_noticed_within_some_ms_and_its_bound_is_not_reached_again(bound: int) -> None:
    broker = Broker(bound, 1)
    first_ms = broker.run(1000)
    assert first_ms is not None
    assert broker.unacknowledged == bound
    assert first_ms <= bound + 30
    for _ in range(20):
        broker.acknowledge()
        assert broker.run(1000) is not None
        assert 3 * bound <= 4 * broker.unacknowledged <= 4 * bound
        assert broker.unacknowledged <= 3 * bound // 4 + 10


def test_a_broker_that_has_sent_more_before_is_not_waiting() -> None:
    broker = Broker(65_535, 2)
    assert broker.run(200) is None
    assert broker.unacknowledged == 100
    broker.acknowledge()
    broker.every_ms = 50
    assert broker.run(1000) is None


def test_a_bound_that_has_become_lower_is_noticed_within_some_seconds() -> None:
    broker = Broker(600, 1)
    broker.run(100)
    assert broker.unacknowledged == 100
    broker.acknowledge()
    broker.bound = 20
    assert broker.run(3000) is not None
    assert broker.unacknowledged == 20


def test_a_quiet_moment_that_looked_like_a_bound_is_forgotten_when_more_comes() -> None:
    broker = Broker(65_535, 2)
    broker.run(30)
    broker.every_ms = 10_000
    assert broker.run(100) is not None
    broker.every_ms = 2
    while broker.run(10) is not None:  # what was on its way while acknowledgements were
        pass
    assert broker.unacknowledged > 15
    broker.acknowledge()
    assert broker.run(100) is None


@pytest.mark.parametrize("bound", [1, 20, 100])
def test_a_broker_is_at_its_bound_only_once_it_has_stopped_there_and_until_it_sends_more(bound: int) -> None:
    broker = Broker(bound, 1)
    pressure = broker.pressure
    assert not any(pressure.is_at_bound(waiting) for waiting in range(2 * bound))
    assert broker.run(1000) is not None
    assert [pressure.is_at_bound(waiting) for waiting in range(bound + 1)] == [
        waiting > 0 and waiting >= 0.75 * bound for waiting in range(bound + 1)
    ]
    pressure.note_received(bound + 1)
    assert not pressure.is_at_bound(bound + 1)


def test_what_we_have_said_that_we_take_is_a_bound() -> None:
    broker = Broker(AT_MOST, 1)
    assert broker.run(1000) == 250


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=50))
def test_a_broker_that_has_stopped_is_noticed_whatever_it_did_before(steps: list[tuple[int, int]]) -> None:
    pressure, bound, now_s = Pressure(AT_MOST), 50, 0.0
    for waiting, passed_ms in steps:
        now_s += passed_ms / 1000
        pressure.note_received(waiting)
        pressure.may_have_stopped(waiting, now_s)
    pressure.note_received(bound)
    pressure.may_have_stopped(bound, now_s + 0.01)
    assert pressure.may_have_stopped(bound, now_s + 0.02)
