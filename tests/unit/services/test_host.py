"""The services together: where their file is, and that a fault of one does not end the daemon."""

import asyncio
from pathlib import Path

import pytest

from streamer.cli.explain import Memory
from streamer.clock import SystemClock
from streamer.config.models import Config
from streamer.routing.pause_rules import PauseRule
from streamer.services import host as module
from streamer.services.host import ServiceHost, state_path
from streamer.transports.base import LinkState, TransportContext
from streamer.transports.local import LOCAL_ENDPOINT, LocalTransport
from streamer.uprotocol.status import UCode, UStatusError

RAW = {
    "authority": "gw",
    "endpoints": {
        "inside": {"transport": "memory", "authorities": ["dev1", "*"]},
        "link": {"transport": "memory", "authorities": ["far"], "global": True},
    },
    "routes": [],
}
RULE = PauseRule.parse("//dev1/B/1/8001")


def service_host(**changes: object) -> ServiceHost:
    return ServiceHost(
        Config.model_validate(RAW | changes), LocalTransport(TransportContext(LOCAL_ENDPOINT, "gw")), SystemClock()
    )


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, None),
        ({"journal": {"path": "/var/lib/streamer/journal.db"}}, Path("/var/lib/streamer/journal-state.db")),
        ({"journal": {"path": "/var/lib/j.db"}, "state": {"path": "/elsewhere/s.db"}}, Path("/elsewhere/s.db")),
    ],
    ids=["memory", "beside the journal", "told"],
)
def test_the_file_is_beside_the_journal_unless_told(changes: dict[str, object], path: Path | None) -> None:
    assert state_path(Config.model_validate(RAW | changes)) == path


async def test_a_fault_of_a_service_is_logged_and_it_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0)
    household = service_host()
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


async def test_a_file_that_cannot_be_used_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Where its directory should be is a file. The services' endpoint is down until they know what they have to know."""
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    place = tmp_path / "place"
    changes = {"state": {"path": str(place / "state.db")}}
    place.mkdir()
    before = service_host(**changes)
    before.open(Memory())
    await before.control.pause(RULE)
    before.close()
    place.rename(tmp_path / "away")
    place.write_text("in the way")

    core = LocalTransport(TransportContext(LOCAL_ENDPOINT, "gw"))
    household = ServiceHost(Config.model_validate(RAW | changes), core, SystemClock())
    household.open(Memory())
    await core.start()
    assert core.state is LinkState.DOWN
    with pytest.raises(UStatusError, match="state file") as refused:
        await household.control.resume(RULE)
    assert refused.value.code is UCode.UNAVAILABLE
    serving = asyncio.create_task(household.run())
    try:
        place.unlink()
        (tmp_path / "away").rename(place)
        async with asyncio.timeout(10):
            while core.state is LinkState.DOWN:
                await asyncio.sleep(0.01)
        assert household.pause_rules.rules == (RULE,)
        assert [record.message for record in caplog.records if "state_unavailable" in record.message] == [
            f"state_unavailable error={place / 'state.db'}: Not a directory consequence=until the file can be used the"
            " services answer nobody, and know neither subscriptions nor what is stopped"
        ]
    finally:
        serving.cancel()
        household.close()


async def test_a_file_that_is_there_is_opened_without_writing(tmp_path: Path) -> None:
    """Or a full disk would keep the services from what they know."""
    path = tmp_path / "state.db"
    before = service_host(state={"path": str(path)})
    before.open(Memory())
    await before.control.pause(RULE)
    before.close()
    content = path.read_bytes()
    household = service_host(state={"path": str(path)})
    household.open(Memory())
    try:
        assert household.pause_rules.rules == (RULE,)
        assert path.read_bytes() == content
        assert path.with_name("state.db-wal").stat().st_size == 0
    finally:
        household.close()


async def test_without_usubscription_only_control_is_there() -> None:
    household = service_host(usubscription=None)
    household.open(Memory())
    await household.run()
    assert household.subscriptions is None
    assert household.gauges() == {}
    household.close()
