"""A month with two reloads, a power cut and a clock that is wrong for a while; a pair; and what ``streamer top`` shows."""

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamer.tools.running import DaemonAddress
from streamer.tools.top import Gateway
from tests.clock import FakeClock
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.budget.meter import Carried, endpoints, feature
from tests.unit.features.pair.daemons import pair

DAY_MS = 86_400_000
A_DAY = 40


def ms(year: int, month: int) -> int:
    return round(datetime(year, month, 1, tzinfo=UTC).timestamp()) * 1000


def is_held(served: DaemonHarness) -> bool:
    return feature(served).uses["cloud"].is_held


async def reload(served: DaemonHarness, folder: Path, most: int) -> None:
    served.raw["endpoints"] = endpoints(folder, {"bytes": most})
    served.write()
    assert await served.daemon.reload("test", "here") == []


@pytest.mark.parametrize(("year", "month", "days"), [(2027, 2, 28), (2028, 2, 29), (2027, 4, 30), (2027, 12, 31)])
async def test_a_month_with_two_reloads_a_power_cut_and_a_wrong_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, year: int, month: int, days: int
) -> None:
    clock = FakeClock(ms(year, month))
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
    async with running(before, clock=clock, endpoints=endpoints(tmp_path, {"bytes": 5 * A_DAY})) as served:
        carried = Carried(served, monkeypatch)
        for day in range(1, 13):
            assert carried.count(A_DAY) == day * A_DAY
            assert is_held(served) is (day == 5)
            if day == 5:
                await reload(served, tmp_path, 25 * A_DAY)
                assert not is_held(served)
            clock.advance(DAY_MS)
        await feature(served).budgets.save()
        assert carried.count(7) == 12 * A_DAY + 7
        for file in before.glob("journal.db*"):  # as a power cut leaves the disk
            shutil.copy(file, after)
    right_ms, clock.ms = clock.ms, 3_000  # the time is not known yet
    async with running(after, clock=clock, endpoints=endpoints(tmp_path, {"bytes": 25 * A_DAY})) as served:
        carried = Carried(served, monkeypatch)
        assert carried.count(3) == 3  # of 1970
        clock.ms = right_ms
        assert carried.count(0) == 12 * A_DAY  # what was written at the last save
        for day in range(13, days + 1):
            assert carried.count(A_DAY) == day * A_DAY
            assert is_held(served) is (day >= (25 if day < 26 else 27))
            if day == 25:
                await reload(served, tmp_path, 27 * A_DAY)
                assert not is_held(served)
            clock.advance(DAY_MS)
        assert clock.ms == ms(year + month // 12, month % 12 + 1)
        assert (carried.count(1), is_held(served)) == (1, False)


async def test_a_pair_shares_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"endpoints": endpoints(tmp_path, {"bytes": 1000})}
    async with pair(tmp_path, a=changes, b=changes) as both:
        first, second = both.active, both.standby
        assert Carried(first, monkeypatch).count(1000) == 1000
        await feature(first).budgets.save()
        index = both.harnesses.index(first)
        assert (await first.ask("/api/v1/pair/handover", {})).status == 202
        await both.start_anew(index)
        await both.until_ready()
        assert both.active is second
        carried = Carried(second, monkeypatch)
        assert (carried.count(0), is_held(second)) == (1000, True)
        assert carried.count(5) == 1005


async def test_top_shows_used_share_and_how_long_it_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(ms(2027, 2))
    async with running(tmp_path, clock=clock, endpoints=endpoints(tmp_path, {"bytes": 1000})) as served:
        gateway = Gateway("it", DaemonAddress(served.url, "it", lambda: None))

        async def shown() -> list[str]:
            await asyncio.to_thread(gateway.read)
            lines = list(gateway.lines())
            head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["budget", "bytes"])
            return lines[head + 1].split()

        assert await shown() == ["cloud", "1000", "unknown", "its", "end,", "2027-03-01T00:00:00.000Z"]
        carried = Carried(served, monkeypatch)
        clock.advance(7 * DAY_MS)
        carried.count(250)
        assert await shown() == ["cloud", "1000", "250", "25%", "its", "end,", "2027-03-01T00:00:00.000Z"]
        carried.count(250)
        assert await shown() == ["cloud", "1000", "500", "50%", "2027-02-15T00:00:00.000Z"]
