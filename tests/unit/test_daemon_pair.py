"""Two daemons of a pair under systemd: what it is told, and what a reload does on standby."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.ports import HOST, free_port
from tests.unit.memory_daemon import Process

pytestmark = pytest.mark.long


class Two:
    def __init__(self, folder: Path) -> None:
        self.both = []
        port, key = free_port(), folder / "key"
        key.write_text("k" * 40)
        for name, where in (("a", "listen"), ("b", "connect")):
            (folder / name).mkdir()
            process = Process(folder / name)
            pair = f"pair: {{{where}: '{HOST}:{port}', key_file: {key}}}\n"
            process.file.write_text(process.file.read_text() + f"journal: {{path: {folder / name / 'journal.db'}}}\n" + pair)
            self.both.append(process)

    def active(self) -> Process:
        return next(each for each in self.both if "ustreamer_pair_active 1.0" in each.get("/metrics"))

    def standby(self) -> Process:
        return next(each for each in self.both if each is not self.active())

    async def until_ready(self) -> None:
        for each in self.both:
            await each.until(lambda each=each: '"ready": true' in each.body("/readyz"))  # type: ignore[misc]
        await self.both[0].until(lambda: "ustreamer_pair_protected 1.0" in self.active().get("/metrics"))


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[Two]:
    found = Two(folder)
    try:
        for each in found.both:
            await each.start()
        await found.until_ready()
        yield found
    finally:
        for each in found.both:
            each.process.kill()
            await each.end()
            each.systemd.close()


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
