"""Traces of a daemon of its own: they begin, move and end with reloads, and no event is lost in a kill."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.features.traces.recorded import events_below
from tests.unit.memory_daemon import SECOND_ROUTE, Process, running

pytestmark = pytest.mark.long


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Process]:
    async with running(Process(tmp_path)) as process:
        await process.ready()
        yield process


async def test_traces_begin_change_their_folder_and_end(daemon: Process, tmp_path: Path) -> None:
    plain = daemon.file.read_text()
    for sections, is_up in (
        (f"trace: {{path: {tmp_path}/one, rotate_s: 60}}\n", {(): 1.0}),
        (f"trace: {{path: {tmp_path}/one, rotate_s: 90}}\n", {(): 1.0}),
        (f"trace: {{path: {tmp_path}/two}}\n", {(): 1.0}),
        ("", {}),
    ):
        daemon.file.write_text(plain + sections)
        assert await asyncio.to_thread(daemon.reload) == 200
        assert await asyncio.to_thread(daemon.samples, "ustreamer_trace_up") == is_up
    daemon.signal(signal.SIGTERM)
    assert await daemon.end() == 0
    assert not daemon.events("trace_not_written")


async def test_reloads_links_and_the_end_are_in_the_events_and_a_kill_loses_none(daemon: Process, tmp_path: Path) -> None:
    plain = daemon.file.read_text()
    traced = plain + f"trace: {{path: {tmp_path}/traces}}\n"
    for text in (traced, traced.replace("routes:\n", SECOND_ROUTE), traced.replace("bus: cloud", "bus: cloud2")):
        daemon.file.write_text(text)
        assert await asyncio.to_thread(daemon.reload) == 200
    begun = [("started", None), ("up", "vehicle"), ("up", "cloud")]
    reloaded = [*begun, ("configured", None), ("down", "cloud"), ("up", "cloud"), ("configured", None)]
    await daemon.until(lambda: len(events_below(tmp_path / "traces", "gateway.veh1")) >= len(reloaded))
    daemon.signal(signal.SIGKILL)
    await daemon.end()
    assert sorted(events_below(tmp_path / "traces", "gateway.veh1"), key=str) == sorted(reloaded, key=str)
    heard = daemon.told("READY=1")
    await daemon.start()
    await daemon.until(lambda: daemon.told("READY=1") > heard)
    daemon.signal(signal.SIGTERM)
    assert await daemon.end() == 0
    again = [("started", None), ("down", "vehicle"), ("down", "cloud"), ("up", "vehicle"), ("up", "cloud")]
    ended = [("down", "vehicle"), ("down", "cloud"), ("stopped", None)]
    found = events_below(tmp_path / "traces", "gateway.veh1")
    assert sorted(found[: len(reloaded)], key=str) == sorted(reloaded, key=str)
    assert sorted(found[len(reloaded) :], key=str) == sorted([*again, *ended], key=str)
    assert found[len(reloaded)] == again[0]
    assert found[-1] == ended[-1]
