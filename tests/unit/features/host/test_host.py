"""The service host: what happens if the tables cannot be used or a service has a fault."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streamer.clock import SystemClock
from streamer.features.every import FILE
from streamer.features.host import host as module
from streamer.features.host.access import Caller
from streamer.features.host.state import StateError, StateFile
from streamer.features.pause.feature import PauseFeature
from streamer.features.usubscription.feature import UsubscriptionFeature
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import LinkState, TransportContext
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import request
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, PING, USTREAMER
from tests.configurations import config_of, endpoint_of
from tests.hosted import HostOn, one_of, served
from tests.unit.features.host.fake_router import FakeRouter
from tests.unit.features.host.local_transport import RecordingLocalTransport
from tests.waiting import until

RAW = config_of({"inside": endpoint_of("memory", "dev1", "*"), "link": endpoint_of("memory", "far") | {"global": True}}, [])
RULE = PauseRule.parse("//dev1/B/1/8001")
BY = Caller("http", "127.0.0.1")


class World:
    """A service host with its endpoint and router."""

    def __init__(self, **changes: Any) -> None:
        config = FILE.model_validate(RAW | changes)
        self.local = LocalTransport(TransportContext(LOCAL_ENDPOINT, "gw"), served(config))
        self.router = FakeRouter()
        path = None if config.journal is None else config.journal.path
        self.host = HostOn(path, config, self.local, self.router, SystemClock())


async def test_a_service_with_a_fault_is_logged_and_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0)
    world = World()
    world.host.start()
    runs = 0
    again = asyncio.Event()

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise RuntimeError("a fault")
        again.set()
        await asyncio.Event().wait()

    assert one_of(world.host.features, UsubscriptionFeature).service is not None
    monkeypatch.setattr(one_of(world.host.features, UsubscriptionFeature).service, "run", run)
    serving = asyncio.create_task(world.host.run())
    await asyncio.wait_for(again.wait(), 10)
    serving.cancel()
    world.host.close()
    assert sum("service_failed" in record.message for record in caplog.records) == 2


def unreadable(file: StateFile, sql: str) -> None:
    raise StateError("a bad sector")


async def test_tables_that_cannot_be_used_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The local endpoint is down until the services have their state."""
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    changes = {"journal": {"path": str(tmp_path / "journal.db")}}
    before = World(**changes)
    before.host.start()
    await one_of(before.host.features, PauseFeature).service.pause(RULE, BY)
    before.host.close()

    world = World(**changes)
    world.host.wait("no such disk")
    await world.local.start()
    assert world.local.state is LinkState.DOWN
    with pytest.raises(UStatusError, match="its journal") as refused:
        await one_of(world.host.features, PauseFeature).service.resume(RULE, BY)
    assert refused.value.code is UCode.UNAVAILABLE
    serving = asyncio.create_task(world.host.run())
    try:
        with monkeypatch.context() as patched:
            patched.setattr(StateFile, "_select", unreadable)
            world.host.start()
            assert world.local.state is LinkState.DOWN
        await until(lambda: world.local.state is LinkState.UP, "the tables are read")
        assert world.router.pause_rules.rules == (RULE,)
        assert [record.message for record in caplog.records if "state_unavailable" in record.message] == [
            f"state_unavailable error={why} consequence=until the file can be used,"
            " requests wait, and there are neither subscriptions nor pause rules"
            for why in ("no such disk", "a bad sector")
        ]
    finally:
        serving.cancel()
        world.host.close()


async def test_without_usubscription_only_core_ustreamer_is_there() -> None:
    world = World(usubscription=None)
    world.host.start()
    assert one_of(world.host.features, UsubscriptionFeature).service is None
    assert one_of(world.host.features, UsubscriptionFeature).gauges() == {}
    world.host.close()


async def test_everybody_gets_an_answer_to_a_ping(caplog: pytest.LogCaptureFixture) -> None:
    config = FILE.model_validate(RAW | {"usubscription": None})
    local = RecordingLocalTransport("gw", *served(config))
    services = HostOn(None, config, local, FakeRouter(), SystemClock())
    services.open()
    caller, method = UUri.parse("//stranger/1/1/0"), USTREAMER.at("gw", PING)
    asked = request(SystemClock().wall_ms(), caller, method, 1000)
    handled = asyncio.Event()
    assert local.handler is not None
    local.handler(asked, handled.set)
    await asyncio.wait_for(handled.wait(), 10)
    (answer,) = local.said
    assert (answer.attributes.reqid, answer.attributes.commstatus) == (asked.id, None)
    assert pb.PingResponse.FromString(answer.payload or b"") == pb.PingResponse()
    assert "refused" not in caplog.text
    services.close()


def test_the_number_of_ping_is_what_callers_rely_on() -> None:
    assert PING == 4
