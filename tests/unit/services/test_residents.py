"""The services together: where their file is, and that a fault of one does not end the daemon."""

import asyncio
from pathlib import Path

import pytest

from streamer.cli_explain import Memory
from streamer.config import Config
from streamer.router.clock import SystemClock
from streamer.services import residents as module
from streamer.services.core import CORE, Core
from streamer.services.residents import Residents, state_path
from streamer.transports.base import TransportContext

RAW = {
    "authority": "gw",
    "endpoints": {
        "inside": {"transport": "memory", "authorities": ["dev1", "*"]},
        "link": {"transport": "memory", "authorities": ["far"], "global": True},
    },
    "routes": [],
}


def residents(**changes: object) -> Residents:
    return Residents(Config.model_validate(RAW | changes), Core(TransportContext(CORE, "gw")), SystemClock())


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, None),
        ({"journal": {"path": "/var/lib/streamer/journal.db"}}, Path("/var/lib/streamer/journal-state.db")),
        ({"journal": {"path": "/var/lib/j.db"}, "state": {"path": "/elsewhere/s.db"}}, Path("/elsewhere/s.db")),
    ],
    ids=["memory", "beside the journal", "told"],
)
def test_the_file_is_beside_the_journal_unless_told(changes: dict[str, object], path: Path | None):
    assert state_path(Config.model_validate(RAW | changes)) == path


async def test_a_fault_of_a_service_is_logged_and_it_begins_again(monkeypatch, caplog):
    monkeypatch.setattr(module, "_AGAIN_S", 0)
    household = residents()
    household.open(Memory())
    runs = 0
    again = asyncio.Event()

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise RuntimeError("a fault")
        again.set()
        await asyncio.Event().wait()

    assert household.subscriptions is not None
    monkeypatch.setattr(household.subscriptions, "run", run)
    serving = asyncio.create_task(household.run())
    await asyncio.wait_for(again.wait(), 10)
    serving.cancel()
    household.close()
    assert sum("service_failed" in record.message for record in caplog.records) == 2


async def test_without_usubscription_only_control_is_there():
    household = residents(usubscription=None)
    household.open(Memory())
    await household.run()
    assert household.subscriptions is None
    assert household.gauges() == {}
    household.close()
