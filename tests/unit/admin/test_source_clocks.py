"""A source whose clock is wrong, as an operator finds out: metric, explain, and what a failure says."""

import asyncio
from pathlib import Path
from typing import Any

from streamer.uprotocol.message import Options, publish
from tests.clock import FakeClock
from tests.flow.harness import SPEED
from tests.unit.admin.daemon import DaemonHarness, running
from tests.waiting import POLL_S

HOUR_MS = 3_600_000
OTHER = SPEED._replace(authority="veh2")


async def explained(served: DaemonHarness, source: str) -> list[str]:
    answer: Any = (await served.ask("/api/v1/explain", type="publish", source=source)).json
    return [reason for reason in answer["why"] if "clock" in reason]


async def test_an_hour_behind(tmp_path: Path) -> None:
    clock = FakeClock()
    authorities = {
        "vehicle": {"transport": "memory", "authorities": ["veh1", "veh2"], "options": {"bus": f"{tmp_path}-v"}},
        "cloud": {"transport": "memory", "authorities": ["*"], "options": {"bus": f"{tmp_path}-c"}},
    }
    routes = [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF", "//veh2/FFFFFFFF/FF/FFFF"]}]
    async with running(tmp_path, clock=clock, endpoints=authorities, routes=routes) as served:
        behind, right = clock.wall_ms() - HOUR_MS, clock.wall_ms()
        served.arrive("vehicle", publish(behind, SPEED, b"x", Options(ttl=10_000)), publish(right, OTHER, b"x"))
        text = (await served.ask("/metrics")).text
        assert 'ustreamer_source_clock_behind_seconds{authority="veh1",endpoint="vehicle"} 3600.0' in text
        assert 'ustreamer_source_clock_behind_seconds{authority="veh2",endpoint="vehicle"} 0.0' in text
        assert await explained(served, str(SPEED)) == [
            "the clock of veh1 is 3 600 s behind ours, or its messages are under way for that long "
            "(by the ids of its messages)"
        ]
        assert await explained(served, str(OTHER)) == []

        async with asyncio.timeout(30):
            while not (letters := (await served.ask("/api/v1/dead-letters")).json["dead_letters"]):
                await asyncio.sleep(POLL_S)
        assert [each["text"] for each in letters] == ["its TTL had passed 3590.000 s before it arrived"]
