"""A daemon whose process did not run for a while: paused, frozen with its machine, or blocked."""

import asyncio
import time
from pathlib import Path

import pytest

from streamer.clock import SystemClock
from streamer.config.load import load
from streamer.daemon import Daemon
from streamer.features.every import FILE
from streamer.transports.memory import MemoryReceived, MemoryTransport
from streamer.uprotocol.message import notification
from streamer.uprotocol.uri import UUri
from tests.unit.memory_daemon import Process
from tests.waiting import until

UNCONFIRMED_S = 1.5


@pytest.mark.parametrize("delayed_s", [2.5, 0.0])
async def test_a_message_does_not_count_as_delivered_by_time_in_which_nothing_could_be_heard_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, delayed_s: float
) -> None:
    monkeypatch.setattr("streamer.daemon.daemon._DELAYED_S", 2.0 if delayed_s else 600.0)
    process = Process(tmp_path)
    process.systemd.close()
    process.file.write_text(process.file.read_text().replace("bus: cloud", f"bus: stalls, unconfirmed_s: {UNCONFIRMED_S}"))
    daemon = Daemon(load(process.file, kind=FILE), process.file)
    running = asyncio.create_task(daemon.run())
    await until(lambda: daemon.has_started, "the start")
    vehicle, store = daemon.transports["vehicle"], daemon.router.egresses["cloud"].store
    assert isinstance(vehicle, MemoryTransport)
    assert store is not None
    message = notification(SystemClock().wall_ms(), UUri("veh1", 1, 1, 0x8000), UUri("far", 2, 1, 0), b"x")
    vehicle.inject(MemoryReceived(message))
    await until(lambda: not store.has_unstored and store.may_confirm, "that it was sent")
    sent_s = time.monotonic()
    time.sleep(delayed_s)  # the loop is to stand still
    await until(lambda: not store.may_confirm, "that it counts as delivered")
    assert time.monotonic() - sent_s >= delayed_s + UNCONFIRMED_S - 0.5  # a batch is made a moment earlier
    assert ("tick_delayed seconds=" in caplog.text) is (delayed_s > 0)
    daemon.stop()
    assert await running == 0
