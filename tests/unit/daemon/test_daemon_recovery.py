"""A daemon whose journal has messages when it starts: it serves while it puts them into their lanes."""

import asyncio
import json
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from streamer.config.load import load
from streamer.daemon import Daemon
from streamer.delivery.router import Router
from streamer.features.every import FILE
from streamer.journal import codec
from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch, Row
from streamer.journal.store import Store
from streamer.uprotocol.message import Options, notification
from streamer.uprotocol.uri import UUri
from tests.unit.memory_daemon import SECOND_ROUTE, Process, running
from tests.waiting import until

pytestmark = pytest.mark.long

MESSAGES = 600
NOW_MS = 1_700_000_000_000


@pytest.fixture
def process(tmp_path: Path) -> Process:
    """An earlier process has left messages to an authority that nobody routes to now, so that they stay."""
    process = Process(tmp_path)
    text = process.file.read_text().replace("drain_s: 3600", "drain_s: 0")
    process.file.write_text(text + f"journal: {{path: {tmp_path / 'journal.db'}}}\n")
    store = Store(tmp_path / "journal.db", LetterBounds(1, 1, 1, 1))
    store.open()
    sent = [notification(NOW_MS, UUri("veh1", 1, 1, 0x8000), UUri("far", 2, 1, 0), b"x", Options()) for _ in range(MESSAGES)]
    rows = [
        Row(at, "vehicle-cloud", "vehicle", "cloud", NOW_MS, 0, "=", codec.pack(each)) for at, each in enumerate(sent, 1)
    ]
    store.apply(Batch(rows=rows))
    store.close()
    return process


class Gate:
    """Holds a recovery in the middle, after its first slice, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = False
        self.slices = 0
        recover = Router.recover

        def held(router: Router) -> Generator[None]:
            for _ in recover(router):
                self.slices += 1
                yield
                while not self.is_open:
                    yield

        monkeypatch.setattr(Router, "recover", held)


async def test_the_port_answers_in_the_middle_of_a_recovery(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    monkeypatch.setenv("NOTIFY_SOCKET", str(process.file.parent / "notify"))
    daemon = Daemon(load(process.file, kind=FILE), process.file)
    run = asyncio.create_task(daemon.run())
    await until(lambda: gate.slices == 1, "the first slice")
    assert await asyncio.to_thread(process.get, "/healthz") == "ok\n"
    told = json.loads(await asyncio.to_thread(process.body, "/readyz"))
    assert not told["ready"]
    assert told["reasons"][-1] == "recovering 256 of 600 journal entries"
    await until(lambda: process.told("STATUS=recovering 256 of 600 journal entries") >= 1, "word to systemd")
    assert process.told("EXTEND_TIMEOUT_USEC=60000000") >= 1
    assert process.told("READY=1") == 0
    gate.is_open = True
    await until(lambda: daemon.has_started, "the start")
    assert json.loads(await asyncio.to_thread(process.body, "/readyz"))["reasons"] == []
    daemon.stop()
    await run
    process.systemd.close()


async def test_a_stop_in_the_middle_of_a_recovery_leaves_everything_in_the_journal(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(monkeypatch)
    process.systemd.close()
    daemon = Daemon(load(process.file, kind=FILE), process.file)
    run = asyncio.create_task(daemon.run())
    await until(lambda: gate.slices == 1, "the first slice")
    signal.raise_signal(signal.SIGTERM)
    assert await run == 256
    assert "recovery_stopped progress=recovering 256 of 600 journal entries" in caplog.text
    gate.is_open = True
    again = Daemon(load(process.file, kind=FILE), process.file)
    run = asyncio.create_task(again.run())
    await until(lambda: again.has_started, "the start")
    again.stop()
    assert gate.slices == 1 + 2
    await run


async def test_a_reload_in_the_middle_of_a_recovery_is_done_after_it(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    process.systemd.close()
    daemon = Daemon(load(process.file, kind=FILE), process.file)
    run = asyncio.create_task(daemon.run())
    await until(lambda: gate.slices == 1, "the first slice")
    process.file.write_text(process.file.read_text().replace("routes:\n", SECOND_ROUTE))
    signal.raise_signal(signal.SIGHUP)
    assert await daemon.reload("test", "here") == ["the daemon is starting or stopping"]
    gate.is_open = True
    await until(lambda: "down" in {route.name for route in daemon.config.routes}, "the reload")
    daemon.stop()
    await run


async def test_a_process_delivers_what_an_earlier_one_has_left(process: Process) -> None:
    async with running(process):
        await process.ready()
        assert process.told("EXTEND_TIMEOUT_USEC=60000000") >= 1
        (recovered,) = process.events("recovered")
        assert recovered["waiting"] == MESSAGES
        await process.until(lambda: sum(process.samples("ustreamer_queued_messages").values()) == 0)
        delivered = process.samples("ustreamer_outcomes_total")
        assert sum(delivered.values()) == MESSAGES


async def test_a_journal_that_can_be_used_only_later_is_recovered_while_the_daemon_works(process: Process) -> None:
    lock = process.file.parent / "journal.db.lock"
    lock.unlink()
    lock.mkdir()
    async with running(process):
        await process.ready()
        assert "Is a directory" in process.body("/readyz")
        assert process.events("recovered") == []
        lock.rmdir()
        await process.until(lambda: bool(process.events("recovered")))
        await process.until(lambda: sum(process.samples("ustreamer_outcomes_total").values()) == MESSAGES)
        await process.until(lambda: json.loads(process.body("/readyz"))["reasons"] == [])
