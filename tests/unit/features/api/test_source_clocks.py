"""A source whose clock is wrong, as an operator finds out: metric, explain, and what a failure says."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streamer.uprotocol.message import Options, UMessage, publish
from streamer.uprotocol.uri import UUri
from tests.clock import FakeClock
from tests.flow.harness import SPEED
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.waiting import POLL_S

HOUR_MS = 3_600_000
OTHER = SPEED._replace(authority="veh2")

pytestmark = pytest.mark.needs("judge")  # explain


async def explained(served: DaemonHarness, source: str) -> list[str]:
    answer: Any = (await served.ask("/api/v1/explain", type="publish", source=source)).json
    return [reason for reason in answer["why"] if "clock" in reason]


def behind(clock: FakeClock, source: UUri, ttl_ms: int = 10_000) -> UMessage:
    """A message whose source's clock is an hour behind."""
    return publish(clock.wall_ms() - HOUR_MS, source, b"x", Options(ttl=ttl_ms))


async def test_an_hour_behind(tmp_path: Path) -> None:
    clock = FakeClock()
    authorities = {
        "vehicle": {"transport": "memory", "authorities": ["veh1", "veh2"], "options": {"bus": f"{tmp_path}-v"}},
        "cloud": {"transport": "memory", "authorities": ["*"], "options": {"bus": f"{tmp_path}-c"}},
    }
    routes = [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF", "//veh2/FFFFFFFF/FF/FFFF"]}]
    async with running(tmp_path, clock=clock, endpoints=authorities, routes=routes) as served:
        served.arrive("vehicle", behind(clock, SPEED), publish(clock.wall_ms(), OTHER, b"x"))
        text = (await served.ask("/metrics")).text
        assert 'ustreamer_source_clock_behind_seconds{authority="veh1",endpoint="vehicle"} 3600.0' in text
        assert 'ustreamer_source_clock_behind_seconds{authority="veh2",endpoint="vehicle"} 0.0' in text
        assert await explained(served, str(SPEED)) == [
            "the clock of //veh1/A8000 is 3 600 s behind ours, or its messages are under way for that long "
            "(by the ids of its messages)"
        ]
        assert await explained(served, str(OTHER)) == []

        async with asyncio.timeout(30):
            while not (letters := (await served.ask("/api/v1/dead-letters")).json["dead_letters"]):
                await asyncio.sleep(POLL_S)
        assert [each["text"] for each in letters] == ["its TTL had passed 3590.000 s before it arrived"]


def figures(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith("ustreamer_source_"))
    return {name.partition("{")[0]: float(value) for name, _, value in lines}


async def test_one_right_message_does_not_hide_another_program_at_the_same_authority(tmp_path: Path) -> None:
    clock, neighbour = FakeClock(), SPEED._replace(ue_id=0xB)
    async with running(tmp_path, clock=clock) as served:
        served.arrive("vehicle", publish(clock.wall_ms(), neighbour, b"x"))
        served.arrive("vehicle", behind(clock, SPEED))  # within the same tick: what expires is looked at nevertheless
        assert (await explained(served, str(SPEED)))[0].startswith("the clock of //veh1/A8000 is 3 600 s behind ours")
        assert await explained(served, str(neighbour)) == []
        assert figures((await served.ask("/metrics")).text) == {
            "ustreamer_source_clock_behind_seconds": 3600.0,
            "ustreamer_source_oldest_message_seconds": 3600.0,
        }


async def test_nor_two_programs_with_one_address(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as served:
        served.arrive("vehicle", publish(clock.wall_ms(), SPEED, b"x"), behind(clock, SPEED))
        (text,) = await explained(served, str(SPEED))
        assert text.startswith("a message of //veh1/A8000 was 3 600 s old when it arrived, 0 s ago; others were not")
        assert figures((await served.ask("/metrics")).text) == {
            "ustreamer_source_clock_behind_seconds": 0.0,
            "ustreamer_source_oldest_message_seconds": 3600.0,
        }


async def test_it_still_shows_where_ttls_count_from_the_arrival(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as served:
        served.arrive("vehicle", publish(clock.wall_ms(), SPEED._replace(ue_id=0xB), b"x"), behind(clock, SPEED))
        assert len(await explained(served, str(SPEED))) == 1
        served.raw["endpoints"]["vehicle"]["ttl_clock"] = "arrival"
        served.write()
        assert await served.daemon.reload("test", "test") == []
        assert len(await explained(served, str(SPEED))) == 1
        clock.advance(700_000)  # what was seen before the reload is forgotten
        served.daemon.router.tick()
        served.arrive("vehicle", behind(clock, SPEED))
        assert (await explained(served, str(SPEED)))[0].startswith("the clock of //veh1/A8000 is 3 600 s behind ours")
