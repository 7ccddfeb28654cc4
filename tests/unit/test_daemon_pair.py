"""Two daemons of a pair under systemd: what it is told, and what a reload does on standby."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.unit.memory_pair import two

pytestmark = pytest.mark.long


async def test_a_standby_and_one_that_hands_over_stay_services_that_run(tmp_path: Path) -> None:
    """They answer the watchdog, and none is stopping: systemd would wait for its end, and then kill it."""
    async with two(tmp_path) as pair:
        first, second = pair.active(), pair.standby()
        for each in (first, second):
            assert each.told("READY=1") >= 1
        pings = second.told("WATCHDOG=1")
        await second.until(lambda: second.told("WATCHDOG=1") > pings + 2)
        pid, ready = first.process.pid, first.told("READY=1")
        assert await asyncio.to_thread(first.post, "pair/handover") == 202
        await first.until(lambda: first.told("READY=1") > ready)
        await pair.until_ready()
        assert pair.active() is second
        assert first.told("STOPPING=1") == 0
        os.kill(pid, 0)
        assert second.told("STOPPING=1") == 0  # and there is room for more
        second.signal(signal.SIGTERM)
        assert await second.end() == 0
        assert second.told("STOPPING=1") == 1
        await second.start()
        await pair.until_ready()


async def test_a_standby_takes_a_new_file_by_starting_anew_and_refuses_a_wrong_one(tmp_path: Path) -> None:
    async with two(tmp_path) as pair:
        standby = pair.standby()
        good, ready = standby.file.read_text(), standby.told("READY=1")
        standby.file.write_text("authority: [")
        standby.signal(signal.SIGHUP)
        await standby.until(lambda: bool(standby.events("reload_refused")))
        assert standby.told("READY=1") == ready
        standby.file.write_text(good.replace("log: {repeat_s: 0}", "log: {repeat_s: 1}"))
        standby.signal(signal.SIGHUP)
        await standby.until(lambda: standby.told("READY=1") > ready)
        await pair.until_ready()
        assert pair.standby() is standby
        standby.file.write_text(good.replace("name: up", "name: another").replace("to: cloud}", "to: cloud, name: another}"))
        standby.signal(signal.SIGHUP)
        await standby.until(lambda: "ustreamer_pair_differs 1.0" in standby.get("/metrics"))
