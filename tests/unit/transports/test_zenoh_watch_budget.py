"""Watches are bounded in number and in pace, in all and for each source authority."""

from streamer.transports.zenoh.watch_budget import BURST_PER_AUTHORITY, MAX_SINKS, SHARE, WatchBudget


def sink(number: int) -> str:
    return f"up/*/*/*/*/*/cloud/{number:X}/0/1/0"


def topic(number: int) -> str:
    return f"up/veh1/{number:X}/0/1/8000/{{}}/{{}}/{{}}/{{}}/{{}}"


def made(budget: WatchBudget, authority: str, now_s: float, count: int = 1000) -> int:
    return sum(budget.make(sink(number), authority, now_s) for number in range(count))


def test_authority_has_a_burst_and_then_a_pace() -> None:
    budget = WatchBudget()
    assert [budget.make(topic(number), "veh1", 0.0) for number in range(100)].count(True) == BURST_PER_AUTHORITY
    assert [budget.make(topic(number), "veh1", 1.0) for number in range(100)].count(True) == 8


def test_authority_has_its_share_of_the_bound_however_long_it_waits() -> None:
    budget = WatchBudget()
    assert sum(made(budget, "veh1", 100.0 * turn) for turn in range(10)) == MAX_SINKS // SHARE
    assert made(budget, "veh2", 1000.0, 1) == 1
    assert budget.make(topic(1), "veh1", 1000.0)  # topics have a bound of their own


def test_watch_that_is_forgotten_makes_room() -> None:
    budget = WatchBudget()
    for turn in range(10):
        made(budget, "veh1", 100.0 * turn)
    budget.forget(sink(0))
    budget.forget(sink(0))
    budget.forget("unknown")
    assert made(budget, "veh1", 2000.0) == 1
