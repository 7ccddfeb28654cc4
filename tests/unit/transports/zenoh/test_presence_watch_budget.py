"""Watches are bounded in number and in pace, in all and for each source authority."""

from streamer.transports.zenoh.presence_watch import BURST_PER_AUTHORITY, MAX_WATCHES_PER_AUTHORITY, WatchBudget


def flow(number: int, authority: str = "veh1") -> str:
    return f"up/{authority}/1/0/1/8000/cloud/{number:X}/0/1/0"


def made(budget: WatchBudget, authority: str, now_s: float, count: int = 1000) -> int:
    return sum(budget.make(flow(number, authority), now_s) for number in range(count))


def made_in_time(budget: WatchBudget, numbers: range) -> list[str]:
    """The flows that got a watch, although there was time for all."""
    return [flow(number) for number in numbers if budget.make(flow(number), 10.0 * number)]


def test_authority_has_a_burst_and_then_a_pace() -> None:
    budget = WatchBudget()
    assert made(budget, "veh1", 0.0, 100) == BURST_PER_AUTHORITY
    assert sum(budget.make(flow(number), 1.0) for number in range(100, 200)) == 8


def test_authority_has_its_share_of_the_bound_however_long_it_waits() -> None:
    budget = WatchBudget()
    numbers = iter(range(10_000))
    assert (
        sum(budget.make(flow(next(numbers)), 100.0 * turn) for turn in range(20) for _ in range(100))
        == MAX_WATCHES_PER_AUTHORITY
    )
    assert made(budget, "veh2", 3000.0, 1) == 1


def test_watch_that_is_forgotten_makes_room() -> None:
    budget = WatchBudget()
    watched = made_in_time(budget, range(2000))
    assert [budget.forget(key) for key in (watched[0], watched[0], "unknown")] == [True, False, False]
    assert len(made_in_time(budget, range(2000, 2100))) == 1
