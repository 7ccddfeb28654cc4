"""What is counted, where it is kept, and what a clock or a disk that fails does to it."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamer.features.budget import service
from streamer.features.budget.config import BudgetConfig
from streamer.features.budget.service import Budgets
from streamer.features.host.state import StateError
from streamer.transports.base import ByteCounts
from tests.clock import FakeClock
from tests.hosted import StateOn

DAY_MS = 86_400_000
OPTIONS = BudgetConfig(bytes=1000)
NOVEMBER = round(datetime(2026, 11, 16, tzinfo=UTC).timestamp()) * 1000  # half of it is over


class World:
    def __init__(self, path: Path | None = None) -> None:
        self.clock = FakeClock(NOVEMBER)
        self.state = StateOn(path, Budgets.TABLES)
        self.state.open()
        self.budgets = Budgets(self.state, self.clock)
        self.budgets.restore()

    def used(self, carried: int | None, options: BudgetConfig = OPTIONS) -> int | None:
        return self.budgets.count("cloud", options, None if carried is None else ByteCounts(carried, 0)).used


def test_what_is_sent_and_received_counts_once() -> None:
    world = World()
    assert world.budgets.count("cloud", OPTIONS, ByteCounts(10, 5)).used == 15
    assert world.budgets.count("cloud", OPTIONS, ByteCounts(10, 5)).used == 15
    assert world.budgets.count("cloud", OPTIONS, ByteCounts(11, 7)).used == 18
    assert world.budgets.count("other", OPTIONS, ByteCounts(1, 0)).used == 1


def test_where_bytes_are_not_counted_the_use_is_unknown_and_nothing_is_held() -> None:
    world = World()
    use = world.budgets.count("cloud", OPTIONS, None)
    assert (use.used, use.is_held, use.lasts_until_ms) == (None, False, None)
    assert world.used(5000) == 5000
    assert world.budgets.count("cloud", OPTIONS, None).is_held  # known from before: the link is only away


@pytest.mark.parametrize(
    ("hold_at", "used", "is_held"), [(100, 999, False), (100, 1000, True), (80, 799, False), (80, 800, True)]
)
def test_it_is_held_from_the_share_on(hold_at: float, used: int, is_held: bool) -> None:
    options = BudgetConfig(bytes=1000, hold_at=hold_at)
    assert World().budgets.count("cloud", options, ByteCounts(used, 0)).is_held is is_held


def test_the_next_period_begins_with_nothing_used() -> None:
    world = World()
    assert world.used(1000) == 1000
    world.clock.advance(15 * DAY_MS)
    use = world.budgets.count("cloud", OPTIONS, ByteCounts(1001, 0))
    assert (use.used, use.is_held) == (1, False)


@pytest.mark.parametrize("step_ms", [-20 * 365 * DAY_MS, -40 * DAY_MS, 40 * DAY_MS, 14 * 365 * DAY_MS])
def test_a_clock_that_is_wrong_for_a_while_gives_nothing_back(step_ms: int) -> None:
    world = World()
    assert world.used(900) == 900
    world.clock.ms += step_ms
    assert world.used(950) == 50  # of another period
    world.clock.ms -= step_ms
    assert world.used(1000) == 950


def test_when_it_is_used_up_is_told_by_the_mean_rate_and_only_within_the_period() -> None:
    world = World()
    of_half = 15 * DAY_MS
    use = world.budgets.count("cloud", OPTIONS, ByteCounts(750, 0))
    assert use.lasts_until_ms == NOVEMBER - of_half + of_half * 1000 // 750
    assert world.budgets.count("other", OPTIONS, ByteCounts(500, 0)).lasts_until_ms is None  # it lasts exactly
    world.clock.advance(of_half + 3_599_999)
    assert world.budgets.count("cloud", OPTIONS, ByteCounts(1749, 0)).lasts_until_ms is None  # too early to say
    world.clock.advance(1)
    assert world.budgets.count("cloud", OPTIONS, ByteCounts(1749, 0)).lasts_until_ms is not None


async def test_the_count_survives_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path / "journal.db")
    world.used(700)
    await world.budgets.save()
    world.used(800)
    world.state.close()
    again = World(tmp_path / "journal.db")
    assert again.used(None) == 700
    assert again.used(50) == 750
    again.state.close()


async def test_a_service_that_is_stopped_writes_what_it_has(tmp_path: Path) -> None:
    world = World(tmp_path / "journal.db")
    task = asyncio.create_task(world.budgets.run())
    await asyncio.sleep(0)
    world.used(7)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    world.state.close()
    again = World(tmp_path / "journal.db")
    assert again.used(None) == 7
    again.state.close()


async def test_what_a_disk_did_not_take_is_written_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.used(5)
    with monkeypatch.context() as patch:

        async def fail(*_: object) -> None:
            raise StateError("full")

        patch.setattr(world.state, "write", fail)
        await world.budgets.save()
    await world.budgets.save()
    assert world.state.read("SELECT bytes FROM budget_used", tuple) == [(5,)]


async def test_a_file_keeps_the_newest_periods_of_each_endpoint() -> None:
    world, daily = World(), BudgetConfig(bytes=1000, per="day")
    for day in range(service._KEPT_PERIODS + 6):
        world.clock.advance(DAY_MS)
        world.used(day + 1, daily)
        await world.budgets.save()
    kept = world.state.read("SELECT count(*), max(start_ms) FROM budget_used", tuple)
    assert kept == [(service._KEPT_PERIODS, world.clock.ms)]
