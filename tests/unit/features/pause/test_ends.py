"""Pause rules that end by themselves: in time, after a restart, with clocks that are set, and when the disk fails."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from streamer.features.pause.service import PAUSE
from streamer.routing.pause_rules import PauseRule
from tests.clock import FakeClock
from tests.unit.features.pause.harness import BY, CLOUD_APP, DOORS, SPEED, PauseHarness, on_disk, pause_request
from tests.waiting import until

RULE = PauseRule(SPEED)
HOUR_MS = 3_600_000


def rules(harness: PauseHarness) -> tuple[PauseRule, ...]:
    return harness.router.pause_rules.rules


def ends_on_disk(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM dispatch_stop_ends").fetchone()[0])


async def test_a_rule_ends_when_its_time_has_passed_and_not_before(tmp_path: Path) -> None:
    clock = FakeClock()
    harness = PauseHarness(tmp_path / "state.db", clock=clock)
    assert await harness.service.pause(RULE, BY, for_ms=2 * HOUR_MS)
    await harness.service.pause(PauseRule(DOORS), BY)
    clock.advance(2 * HOUR_MS - 1)
    await harness.service.end_due()
    assert rules(harness) == (RULE, PauseRule(DOORS))
    clock.advance(1)
    await harness.service.end_due()
    assert rules(harness) == harness.router.applied[-1] == (PauseRule(DOORS),)
    assert on_disk(tmp_path / "state.db") == [PauseRule(DOORS)]
    assert ends_on_disk(tmp_path / "state.db") == 0


async def test_the_time_that_is_left_is_listed() -> None:
    clock = FakeClock()
    harness = PauseHarness(clock=clock)
    await harness.service.pause(RULE, BY, for_ms=HOUR_MS)
    await harness.service.pause(PauseRule(DOORS), BY)
    clock.advance(HOUR_MS // 4)
    assert [each.left_s for each in harness.service.rules()] == [2700.0, None]


async def test_pausing_again_sets_another_end_or_none() -> None:
    clock = FakeClock()
    harness = PauseHarness(clock=clock)
    assert await harness.service.pause(RULE, BY)
    assert await harness.service.pause(RULE, BY, for_ms=HOUR_MS)
    assert await harness.service.pause(RULE, BY, for_ms=2 * HOUR_MS)
    assert [each.left_s for each in harness.service.rules()] == [7200.0]
    assert await harness.service.pause(RULE, BY)
    assert not await harness.service.pause(RULE, BY)
    clock.advance(3 * HOUR_MS)
    await harness.service.end_due()
    assert rules(harness) == (RULE,)


async def test_a_pause_over_uprotocol_has_no_end_and_takes_one_away() -> None:
    harness = PauseHarness()
    await harness.service.pause(PauseRule(SPEED, CLOUD_APP), BY, for_ms=HOUR_MS)
    await harness.ask(PAUSE, pause_request(SPEED, CLOUD_APP))
    assert [each.left_s for each in harness.service.rules()] == [None]


async def test_a_rule_that_was_resumed_and_paused_again_does_not_end_with_the_first() -> None:
    clock = FakeClock()
    harness = PauseHarness(clock=clock)
    await harness.service.pause(RULE, BY, for_ms=HOUR_MS)
    await harness.service.resume(RULE, BY)
    await harness.service.pause(RULE, BY)
    clock.advance(HOUR_MS)
    await harness.service.end_due()
    assert rules(harness) == (RULE,)


@pytest.mark.parametrize(
    ("passed_ms", "left_s"),
    [
        (HOUR_MS // 2, 1800.0),
        (-50 * 365 * 24 * HOUR_MS, 3600.0),  # the device boots in 1970: no longer than was asked for
        (HOUR_MS - 1, 0.001),
    ],
)
async def test_after_a_restart_the_rest_of_the_time_counts(tmp_path: Path, passed_ms: int, left_s: float) -> None:
    path, clock = tmp_path / "state.db", FakeClock()
    first = PauseHarness(path, clock=clock)
    await first.service.pause(RULE, BY, for_ms=HOUR_MS)
    first.state.close()
    later = PauseHarness(path, clock=FakeClock(clock.ms + passed_ms))
    assert [(each.rule, each.left_s) for each in later.service.rules()] == [(RULE, pytest.approx(left_s))]


async def test_a_rule_whose_end_passed_while_the_daemon_was_down_does_not_apply(tmp_path: Path) -> None:
    path, clock = tmp_path / "state.db", FakeClock()
    first = PauseHarness(path, clock=clock)
    await first.service.pause(RULE, BY, for_ms=HOUR_MS)
    await first.service.pause(PauseRule(DOORS), BY)
    first.state.close()
    later = PauseHarness(path, clock=FakeClock(clock.ms + HOUR_MS))
    assert rules(later) == (PauseRule(DOORS),)
    await later.service.end_due()
    assert on_disk(path) == [PauseRule(DOORS)]


@pytest.mark.parametrize("jump_ms", [50 * 365 * 24 * HOUR_MS, -10 * HOUR_MS])
async def test_setting_the_wall_clock_neither_ends_a_pause_nor_makes_it_longer(jump_ms: int) -> None:
    clock = FakeClock()
    harness = PauseHarness(clock=clock)
    await harness.service.pause(RULE, BY, for_ms=HOUR_MS)
    clock.ms += jump_ms
    await harness.service.end_due()
    assert rules(harness) == (RULE,)
    clock.advance(HOUR_MS)
    await harness.service.end_due()
    assert rules(harness) == ()


async def test_a_disk_that_fails_keeps_nothing_paused_and_is_tried_again(tmp_path: Path) -> None:
    path, clock = tmp_path / "state.db", FakeClock()
    harness = PauseHarness(path, clock=clock)
    await harness.service.pause(RULE, BY, for_ms=1000)
    harness.state.fails = True
    clock.advance(1000)
    await harness.service.end_due()
    assert rules(harness) == ()
    assert on_disk(path) == [RULE]
    harness.state.fails = False
    clock.advance(60_000)
    await harness.service.end_due()
    assert on_disk(path) == []


async def test_while_the_service_runs_rules_end_without_being_asked() -> None:
    clock = FakeClock()
    harness = PauseHarness(clock=clock)
    task = asyncio.create_task(harness.service.run())
    await harness.service.pause(RULE, BY, for_ms=24 * HOUR_MS)
    clock.advance(24 * HOUR_MS)
    await harness.service.pause(PauseRule(DOORS), BY, for_ms=HOUR_MS)  # it looks at all of them
    await until(lambda: rules(harness) == (PauseRule(DOORS),))
    task.cancel()


async def test_a_file_of_the_version_before_gets_room_for_ends(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first = PauseHarness(path)
    await first.service.pause(RULE, BY)
    first.state.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE dispatch_stop_ends")
        connection.commit()
    later = PauseHarness(path)
    assert rules(later) == (RULE,)
    assert await later.service.pause(RULE, BY, for_ms=HOUR_MS)
    assert ends_on_disk(path) == 1
