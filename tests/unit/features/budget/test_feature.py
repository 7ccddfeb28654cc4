"""A streamer whose endpoint has a budget: what waits, what goes, and who is told."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamer.features.budget.feature import BudgetFeature
from streamer.transports.base import ByteCounts, Report
from streamer.transports.memory import MemoryTransport
from streamer.uprotocol.message import Options, UMessage, UPriority, publish
from streamer.uprotocol.uri import UUri
from tests.clock import FakeClock
from tests.hosted import one_of
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.budget.meter import endpoints
from tests.waiting import until

NOVEMBER = round(datetime(2026, 11, 16, tzinfo=UTC).timestamp()) * 1000
SPEED, DOORS, CLIMATE = (UUri.parse(f"//veh1/A8000/2/{resource}") for resource in ("8A50", "8A51", "8A52"))
BUDGET = {"bytes": 1000, "reserve": "CS5"}


class Meter:
    """What the network of the endpoint has carried."""

    sent = 0


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    found = Meter()

    def report(transport: MemoryTransport) -> Report:
        return Report((), (), (), wire_bytes=ByteCounts(found.sent, 0))

    monkeypatch.setattr(MemoryTransport, "report", report)
    return found


def message(topic: UUri, priority: UPriority, clock: FakeClock) -> UMessage:
    return publish(clock.ms, topic, b"x", Options(priority=priority))


def sent(served: DaemonHarness) -> list[UUri]:
    return [each.attributes.source for each in served.transport("cloud").sent]


def look(served: DaemonHarness) -> None:
    """Let the next second of the tick come."""
    one_of(served.daemon.features, BudgetFeature)._look()


async def test_beyond_its_budget_only_what_is_urgent_is_sent_until_the_next_period(tmp_path: Path, meter: Meter) -> None:
    clock = FakeClock(NOVEMBER)
    async with running(tmp_path, clock=clock, endpoints=endpoints(tmp_path, BUDGET)) as served:
        served.arrive("vehicle", message(SPEED, UPriority.CS1, clock))
        await until(lambda: sent(served) == [SPEED])
        meter.sent = 1000
        look(served)
        served.arrive("vehicle", message(DOORS, UPriority.CS4, clock), message(CLIMATE, UPriority.CS5, clock))
        await until(lambda: sent(served) == [SPEED, CLIMATE])
        state = json.loads((await served.ask("/api/v1")).text)
        assert state["budgets"]["cloud"] == {
            "bytes": 1000,
            "used": 1000,
            "share": 1.0,
            "held_below": "CS5",
            "from": "2026-11-01T00:00:00.000Z",
            "until": "2026-12-01T00:00:00.000Z",
            "lasts_until": "2026-11-16T00:00:00.000Z",
        }
        until_text = "messages below CS5 are paused until 2026-12-01T00:00:00.000Z"
        assert state["notes"] == [f"endpoint cloud: its budget is used up, {until_text}"]
        metrics = (await served.ask("/metrics")).text
        assert 'ustreamer_budget_used_bytes{endpoint="cloud"} 1000.0' in metrics
        assert 'ustreamer_paused_messages{egress="cloud",ingress="vehicle",route="vehicle-cloud"} 1.0' in metrics
        clock.advance(15 * 86_400_000)
        look(served)
        await until(lambda: sent(served) == [SPEED, CLIMATE, DOORS])
        assert json.loads((await served.ask("/api/v1")).text)["notes"] == []


@pytest.mark.parametrize("budget", [None, {"bytes": "1MiB"}, {"bytes": 1000, "reserve": "CS0"}])
async def test_a_reload_that_raises_or_removes_a_budget_lets_everything_go_on(
    tmp_path: Path, meter: Meter, budget: object
) -> None:
    clock, meter.sent = FakeClock(NOVEMBER), 1000
    async with running(tmp_path, clock=clock, endpoints=endpoints(tmp_path, BUDGET)) as served:
        served.arrive("vehicle", message(SPEED, UPriority.CS1, clock), message(DOORS, UPriority.CS6, clock))
        await until(lambda: sent(served) == [DOORS])
        served.raw["endpoints"] = endpoints(tmp_path, budget)
        served.write()
        assert await served.daemon.reload("test", "here") == []
        await until(lambda: sent(served) == [DOORS, SPEED])


async def test_a_used_budget_is_known_before_anything_is_sent_after_a_restart(tmp_path: Path, meter: Meter) -> None:
    clock, meter.sent = FakeClock(NOVEMBER), 1000
    async with running(tmp_path, clock=clock, endpoints=endpoints(tmp_path, BUDGET)):
        pass
    meter.sent = 0  # of the next process
    async with running(tmp_path, clock=clock, endpoints=endpoints(tmp_path, BUDGET)) as served:
        served.arrive("vehicle", message(SPEED, UPriority.CS1, clock), message(DOORS, UPriority.CS6, clock))
        await until(lambda: sent(served) == [DOORS])
        assert one_of(served.daemon.features, BudgetFeature).uses["cloud"].used == 1000
