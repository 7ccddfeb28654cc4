"""The wall clock runs in 2046, is set back to today, and runs on, under load: nothing dies, and nothing lives for ever."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from streamer.config.load import load
from streamer.config.models import Config
from streamer.features.every import FILE
from streamer.features.traces import tracing
from streamer.features.traces.config import TraceConfig
from streamer.journal.letters import LetterFilter, open_letters
from streamer.transports.base import LinkState
from streamer.transports.errors import PermanentError
from streamer.transports.memory import MemoryReceived, MemoryTransport
from streamer.uprotocol.message import Options, UMessage, UMessageType, notification, publish, request
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import DAY_MS
from tests.fault.stepped_daemon import Running, SteppedClock, running
from tests.ports import free_port
from tests.tokens import AUDIENCE, DOORS_URI, ISSUER, token, write_keys
from tests.unit.features.utwin.found import utwin_of
from tests.waiting import until

YEARS_MS = 20 * 365 * DAY_MS
SHORT_MS, LONG_MS = 3000, 3_600_000
SPEED, DOORS, LIGHTS = (UUri("veh1", 0xA, 1, 0x8000 + number) for number in range(3))
AWAY, DRIVER, UNLOCK = UUri("away", 2, 1, 0), UUri("far", 3, 1, 0), UUri.parse(DOORS_URI)
EVERYTHING: dict[str, Any] = {"rules": [{"allow": {}}]}


def configured(directory: Path, **changes: Any) -> Config:
    names = {"vehicle": "veh1", "far": "far", "away": "away"}
    tap = {"jwks_file": str(write_keys(directory / "jwks.json")), "issuer": ISSUER, "audience": AUDIENCE}
    config = {
        "authority": "gateway.veh1",
        "endpoints": {
            name: {"transport": "memory", "authorities": [each], "options": {"bus": f"{directory}-{name}"}}
            for name, each in names.items()
        },
        "routes": [
            {"from": "vehicle", "to": "far", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
            {"from": "vehicle", "to": "away"},
            {"from": "far", "to": "vehicle"},
        ],
        "permissions": {
            "endpoints": dict.fromkeys(names, EVERYTHING),
            "methods": [{"method": DOORS_URI, "tap": True}],
            "tap": {"verifier": "jwt", "options": tap},
        },
        "journal": {"path": str(directory / "journal.db")},
        "trace": {"path": str(directory / "traces")},
        "utwin": {},
        "metrics": {"listen": f"127.0.0.1:{free_port()}"},
        "shutdown": {"drain_s": 1},
    } | changes
    path = directory / "streamer.yaml"
    path.write_text(yaml.safe_dump(config))
    return load(path, kind=FILE)


class Load:
    """Publishes without a pause; each has an hour to live."""

    def __init__(self, run: Running) -> None:
        self.sent: list[bytes] = []
        self._run = run
        self._numbers = itertools.count()

    async def go_on(self) -> None:
        while True:
            now_ms = self._run.clock.wall_ms()
            payload = b"%d" % next(self._numbers)
            self.sent.append(payload)
            self._run.vehicle.inject(MemoryReceived(publish(now_ms, SPEED, payload, Options(ttl=LONG_MS))))
            await asyncio.sleep(0.01)

    def arrived(self) -> list[bytes | None]:
        return [message.payload for message in transport(self._run, "far").sent if message.attributes.source == SPEED]


@asynccontextmanager
async def under_load(run: Running) -> AsyncIterator[Load]:
    load = Load(run)
    going = asyncio.create_task(load.go_on())
    try:
        yield load
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
    await until(lambda: load.arrived() == load.sent, within_s=30, what="everything, in order, once")


def transport(run: Running, name: str) -> MemoryTransport:
    found = run.daemon.transports[name]
    assert isinstance(found, MemoryTransport)
    return found


async def more(load: Load) -> None:
    """Messages that were sent from now on arrive."""
    number = len(load.sent) + 50
    await until(lambda: len(load.arrived()) >= number, within_s=30, what="fifty more messages")


def outcomes(run: Running, route: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for account in run.daemon.router.accounts():
        if account.name == route:
            for (outcome, _), number in account.stats.outcomes.items():
                found[outcome.value] = found.get(outcome.value, 0) + number
    return found


def queued(run: Running, route: str) -> int:
    return sum(account.queued for account in run.daemon.router.accounts() if account.name == route)


def known(run: Running) -> set[UUri]:
    """The topics whose last message uTwin would answer with."""
    twin = utwin_of(run.daemon.service_host.features)
    assert twin is not None
    return {topic for topic, _ in twin.fresh()}


def call(run: Running, text: str) -> UMessage:
    asked = request(run.clock.wall_ms(), DRIVER, UNLOCK, 10_000, b"", Options(token=text))
    transport(run, "far").inject(MemoryReceived(asked))
    return asked


def refusals(run: Running) -> dict[bytes | None, UCode | None]:
    answers = (message.attributes for message in transport(run, "far").sent)
    return {each.reqid: each.commstatus for each in answers if each.type is UMessageType.RESPONSE}


def wait_for_away(run: Running, ttl: int) -> None:
    """Send a message to the endpoint whose link is down."""
    sent = notification(run.clock.wall_ms(), DOORS, AWAY, b"%d" % ttl, Options(ttl=ttl))
    run.vehicle.inject(MemoryReceived(sent))


def letters(run: Running, **selected: Any) -> set[UUri]:
    """The sources of the dead letters that the command would find."""
    config = run.daemon.config
    assert config.journal is not None
    assert config.journal.path is not None
    with open_letters(config.journal.path) as file:
        found = file.find(LetterFilter(ahead_ms=run.clock.wall_ms() + DAY_MS, **selected))
        return {UUri.parse(letter.source) for letter in found}


async def history(run: Running) -> Any:
    metrics = run.daemon.config.metrics
    assert metrics is not None
    listen = f"127.0.0.1:{metrics.port}"
    async with aiohttp.ClientSession() as session, session.get(f"http://{listen}/api/v1/history") as answer:
        return await answer.json()


def year(ahead_ms: int) -> str:
    return time.strftime("%Y", time.gmtime(time.time() + ahead_ms / 1000))


def trace_dates(directory: Path) -> list[str]:
    return sorted(folder.name for folder in (directory / "traces").glob("date=*"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SteppedClock:
    """The clock of the daemon, which begins in 2046; also of its traces."""
    stepped = SteppedClock()
    stepped.ahead_ms = YEARS_MS
    monkeypatch.setattr(tracing, "_STOP_S", 100.0)  # the process that compacts takes long to start
    monkeypatch.setattr(tracing, "_now_us", lambda: stepped.wall_ms() * 1000)
    monkeypatch.setattr(tracing, "_offset_us", lambda: stepped.wall_ms() * 1000 - time.monotonic_ns() // 1000)
    return stepped


async def test_clock_that_runs_in_2046_is_set_back_to_today_and_runs_on(tmp_path: Path, clock: SteppedClock) -> None:
    config = configured(tmp_path)
    async with running(config, clock) as run:
        await until(lambda: run.vehicle.state is LinkState.UP, what="the networks")
        transport(run, "far").refuse = lambda message: (
            PermanentError(UCode.PERMISSION_DENIED, "no") if message.attributes.source == LIGHTS else None
        )
        transport(run, "away").lose_link()
        driver = token(time.time(), exp=int(time.time()) + 3600)
        async with under_load(run) as load:
            # -- in 2046
            for ttl in (SHORT_MS, LONG_MS, 0):
                wait_for_away(run, ttl)
            for topic in (DOORS, LIGHTS):
                run.vehicle.inject(MemoryReceived(publish(clock.wall_ms(), topic, b"x", Options(ttl=SHORT_MS))))
            expired = call(run, driver)
            await until(lambda: refusals(run).get(expired.id) is UCode.UNAUTHENTICATED, what="the refusal of its token")
            await until(lambda: LIGHTS in letters(run), what="the dead letter")
            assert LIGHTS not in letters(run, until_ms=clock.wall_ms() - DAY_MS)
            await more(load)

            # -- today
            clock.ahead_ms = 0
            wait_for_away(run, LONG_MS)
            await until(lambda: outcomes(run, "vehicle-away") == {"expired": 1}, within_s=30, what="the end of its TTL")
            assert queued(run, "vehicle-away") == 3
            await until(lambda: known(run) == {SPEED}, within_s=30, what="the end of the other last values")
            assert run.daemon.router.set_backs == 1
            good = call(run, driver)
            await until(lambda: good in run.vehicle.sent, what="the call with a token that is good today")
            assert LIGHTS in letters(run, until_ms=clock.wall_ms() - DAY_MS)
            await more(load)
            deadline_s = time.monotonic() + 60
            while (await history(run))["start"][:4] != year(0):
                assert time.monotonic() < deadline_s, "the history stays in 2046"
                await asyncio.sleep(0.2)

            # -- and on: what came today expires by the wall clock, what came in 2046 when it has waited for an hour
            clock.ahead_ms = 2 * LONG_MS
            await until(lambda: outcomes(run, "vehicle-away") == {"expired": 2}, within_s=30, what="the end of an hour")
            await more(load)
            transport(run, "away").set_state(LinkState.UP)
            await until(lambda: outcomes(run, "vehicle-away").get("delivered") == 2, within_s=30, what="what waited")
        run.check()
    # Its traces have both times (today's are of two dates after 22 o'clock); once they are too many, those of 2046 go first.
    *now, ahead = trace_dates(tmp_path)
    assert {date[5:9] for date in now} <= {year(0), year(2 * LONG_MS)}
    assert ahead[5:9] == year(YEARS_MS)
    filler = next((tmp_path / "traces" / ahead).glob("*/*")) / "part-filler.parquet"
    filler.write_bytes(bytes(60_000))
    traces = config.section(TraceConfig)
    assert traces is not None
    bound = traces.model_copy(update={"max_bytes": 60_000})
    async with running(config.model_copy(update={"trace": bound}), clock) as again:
        await until(lambda: known(again) == {SPEED}, within_s=30, what="the last value of today")
        assert {LIGHTS, DOORS} <= letters(again)
        assert queued(again, "vehicle-away") == 0
    assert trace_dates(tmp_path)[: len(now)] == now
    assert not filler.exists()
