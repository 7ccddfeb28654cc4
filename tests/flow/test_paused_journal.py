"""Paused flows with a journal: over a restart, over a kill, and in a drain."""

import asyncio
from pathlib import Path

from streamer.delivery.lifecycle.departure import Drain
from streamer.routing.pause_rules import PauseRule
from tests.flow.harness import ORDERS, VEHICLE_APP
from tests.flow.journaled_run import journaled_run
from tests.flow.pausing import pause, resume, waiting


async def test_rules_hold_over_a_restart_with_what_the_journal_has_kept(tmp_path: Path) -> None:
    """As the daemon does it: the rules are there before the router recovers."""
    async with journaled_run(tmp_path / "j.db", pause_rules=[PauseRule(ORDERS)]) as run:
        kept = [run.harness.notify(b"%d" % number, sink=VEHICLE_APP, source=ORDERS) for number in range(3)]
        batch = run.harness.arrive("cloud", *kept)
        await run.flush()
        assert all(received.acknowledged for received in batch)
    async with journaled_run(tmp_path / "j.db", pause_rules=[PauseRule(ORDERS)]) as run:
        newer = run.harness.notify(b"newer", sink=VEHICLE_APP, source=ORDERS)
        run.harness.arrive("cloud", newer)
        run.harness.pass_time(1000)
        assert run.harness.sent("vehicle") == []
        assert waiting(run.harness.router) == 4
        resume(run.harness.router, ORDERS)
        assert run.harness.sent("vehicle") == [*kept, newer]


async def test_unconfirmed_messages_of_before_a_crash_wait_packed_while_they_are_paused(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10) as run:
        left = [run.harness.notify(b"%d" % number, sink=VEHICLE_APP, source=ORDERS) for number in range(3)]
        run.harness.arrive("cloud", *left)
        await run.flush()
        assert run.harness.sent("vehicle") == left
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10, pause_rules=[PauseRule(ORDERS)]) as run:
        run.harness.pass_time(1000)
        assert run.harness.sent("vehicle") == []
        assert waiting(run.harness.router) == 3
        resume(run.harness.router, ORDERS)
        assert run.harness.sent("vehicle") == left


async def test_a_drain_with_a_journal_does_not_wait_for_what_is_paused(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        pause(run.harness.router, ORDERS)
        run.harness.arrive("cloud", run.harness.notify(sink=VEHICLE_APP, source=ORDERS))
        await run.flush()
        async with asyncio.timeout(30):
            assert await Drain(run.harness.router).run(600) == 1
