"""The pump: after messages were settled, backlogs are admitted and the egresses send, until nothing is left to do."""

import asyncio
from collections.abc import Callable

import pytest

from streamer.delivery.pump import Pump
from tests.clock import START_MS, FakeClock


class FakeEgress:
    """An egress that records its calls. ``on_pump`` is called each time."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name
        self.pumped_ms: list[int] = []
        self.on_pump: Callable[[], None] = lambda: None

    def pump(self, now_ms: int) -> None:
        self.log.append(self.name)
        self.pumped_ms.append(now_ms)
        self.on_pump()


class FakeIngress:
    """An ingress that admits one message of its backlog at a time."""

    def __init__(self, log: list[str], name: str, waiting: int = 0) -> None:
        self.log = log
        self.name = name
        self.waiting = waiting

    @property
    def has_backlog(self) -> bool:
        return self.waiting > 0

    def admit_backlog(self) -> None:
        self.log.append(self.name)
        self.waiting -= 1


class PumpHarness:
    """A pump with two egresses and one ingress; ``log`` has the calls, in order."""

    def __init__(self, waiting: int = 0) -> None:
        self.log: list[str] = []
        self.clock = FakeClock()
        self.pump = Pump(self.clock)
        self.cloud, self.vehicle = FakeEgress(self.log, "cloud"), FakeEgress(self.log, "vehicle")
        self.ingress = FakeIngress(self.log, "ingress", waiting)
        self.pump.add_egress(self.cloud)
        self.pump.add_egress(self.vehicle)
        if waiting:
            self.pump.add_backlog_of(self.ingress)


def test_who_has_settled_something_sends_and_nobody_else() -> None:
    harness = PumpHarness()
    harness.pump.go_on(harness.cloud)
    assert harness.log == ["cloud"]


def test_who_settles_while_it_sends_goes_on_by_itself() -> None:
    harness = PumpHarness()
    harness.pump.go_on(harness.cloud, is_sending=True)
    harness.pump.send()
    assert harness.log == []


def test_others_are_let_in_and_send_although_who_settles_is_sending() -> None:
    harness = PumpHarness(waiting=1)
    harness.pump.go_on(harness.cloud, is_sending=True)
    assert harness.log == ["ingress", "cloud", "vehicle"]
    harness = PumpHarness()
    harness.pump.mark(harness.vehicle)
    harness.pump.go_on(harness.cloud, is_sending=True)
    assert harness.log == ["vehicle", "cloud"]


def test_sending_is_told_the_time_on_the_wall() -> None:
    harness = PumpHarness()
    harness.clock.advance(7)
    harness.pump.go_on(harness.cloud)
    harness.pump.run()
    assert harness.cloud.pumped_ms == [START_MS + 7, START_MS + 7]


def test_the_backlog_is_let_in_first_and_then_every_egress_sends() -> None:
    harness = PumpHarness(waiting=1)
    harness.pump.go_on(harness.cloud)
    assert harness.log == ["ingress", "cloud", "vehicle"]


def test_what_is_settled_while_others_send_is_part_of_the_same_run_and_not_a_call_within_a_call() -> None:
    harness = PumpHarness()
    depth = deepest = 0
    left = 3

    def send() -> None:
        nonlocal depth, deepest, left
        depth += 1
        deepest = max(deepest, depth)
        if left:
            left -= 1
            harness.pump.go_on(harness.cloud)
        depth -= 1

    harness.cloud.on_pump = send
    harness.pump.go_on(harness.cloud)
    assert (harness.log, deepest) == (["cloud"] * 4, 1)


def test_one_egress_that_settles_has_another_one_send_if_it_says_so() -> None:
    harness = PumpHarness()
    harness.cloud.on_pump = lambda: harness.pump.mark(harness.vehicle)
    harness.pump.go_on(harness.cloud)
    assert harness.log == ["cloud", "vehicle"]


def test_room_that_comes_during_the_run_is_used_in_the_run() -> None:
    harness = PumpHarness(waiting=2)

    def send() -> None:
        if harness.ingress.waiting:
            harness.pump.go_on(harness.cloud)

    harness.cloud.on_pump = send
    harness.pump.go_on(harness.cloud)
    assert harness.ingress.waiting == 0
    assert harness.log == ["ingress", "cloud", "vehicle"] * 2


def test_who_is_marked_sends_with_the_next_run_once() -> None:
    harness = PumpHarness()
    harness.pump.mark(harness.vehicle)
    assert harness.log == []
    harness.pump.go_on(harness.cloud)
    harness.pump.go_on(harness.cloud)
    assert harness.log == ["vehicle", "cloud", "cloud"]


def test_a_run_has_everybody_send_and_leaves_nobody_marked() -> None:
    harness = PumpHarness()
    harness.pump.mark(harness.vehicle)
    harness.pump.run()
    harness.pump.go_on(harness.cloud)
    assert harness.log == ["cloud", "vehicle", "cloud"]


def test_an_error_while_sending_ends_the_run_and_not_the_pump() -> None:
    harness = PumpHarness()

    def fail() -> None:
        raise ZeroDivisionError

    harness.cloud.on_pump = fail
    with pytest.raises(ZeroDivisionError):
        harness.pump.go_on(harness.cloud)
    harness.pump.go_on(harness.vehicle)
    assert harness.log == ["cloud", "vehicle"]


async def test_a_condition_is_looked_at_whenever_something_was_settled() -> None:
    harness = PumpHarness()
    left = [1, 2, 3]
    waiting = asyncio.ensure_future(harness.pump.until(lambda: not left, 3600))
    while left:
        await asyncio.sleep(0)
        assert not waiting.done()
        left.pop()
        harness.pump.go_on(harness.cloud, is_sending=bool(left))
    await asyncio.wait_for(waiting, 10)


async def test_a_condition_that_holds_already_is_not_waited_for() -> None:
    await asyncio.wait_for(PumpHarness().pump.until(lambda: True, 3600), 10)


async def test_a_condition_that_never_holds_is_waited_for_no_longer_than_said() -> None:
    asked: list[str] = []

    def never() -> bool:
        asked.append("?")
        return False

    await asyncio.wait_for(PumpHarness().pump.until(never, 0.01), 10)
    assert asked == ["?"]


def test_who_has_no_backlog_any_more_is_not_asked_again() -> None:
    harness = PumpHarness(waiting=1)
    harness.pump.go_on(harness.cloud)
    harness.ingress.waiting = 1  # it does not say so
    harness.pump.go_on(harness.cloud)
    assert harness.log == ["ingress", "cloud", "vehicle", "cloud"]
    harness.pump.add_backlog_of(harness.ingress)
    harness.pump.go_on(harness.cloud)
    assert harness.log[4:] == ["ingress", "cloud", "vehicle"]
