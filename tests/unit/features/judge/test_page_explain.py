"""What ``explain`` of a running daemon says of the links that a message needs: API and command."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from streamer.journal.moments import as_moment
from streamer.transports.base import LinkFailure, LinkState
from tests.clock import START_MS, FakeClock
from tests.flow.harness import SPEED
from tests.unit.features.api.daemon import DaemonHarness, running

SINCE = as_moment(START_MS + 60_000)


async def explained(served: DaemonHarness) -> Any:
    return (await served.ask("/api/v1/explain", type="publish", source=str(SPEED))).json


async def command(served: DaemonHarness) -> tuple[int | None, str]:
    words = ("explain", "--config", str(served.file), "--running", "--type", "publish", "--source", str(SPEED))
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "streamer", *words, stdout=asyncio.subprocess.PIPE)
    output = (await process.communicate())[0].decode()
    return process.returncode, output


def break_off(served: DaemonHarness, clock: FakeClock, name: str) -> None:
    clock.advance(60_000)
    transport = served.transport(name)
    transport.link_failed(LinkFailure.RESET, "closed by the broker", "b:1883")
    transport.lose_link()
    clock.advance(1000)
    transport.link_failed(LinkFailure.REFUSED, "connection refused", "b:1883")
    transport.retry_in(2.0)


async def test_a_destination_that_is_down_is_said_with_time_and_cause(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as served:
        (hop,) = (await explained(served))["hops"]
        assert (hop["link"]["state"], hop["link"]["why"]) == ("up", None)
        break_off(served, clock, "cloud")
        answer = await explained(served)
        (hop,) = answer["hops"]
        assert answer["goes"]
        assert (hop["link"]["state"], hop["link"]["since"]) == ("down", SINCE)
        assert [hop["link"][which]["reason"] for which in ("first_error", "last_error")] == ["reset", "refused"]
        why = f"is not connected since {SINCE}: b:1883: closed by the broker; now b:1883: connection refused"
        assert hop["link"]["why"] == why
        status, shown = await command(served)
        assert status == 0  # that is about the route, not about the link
        again = as_moment(START_MS + 63_000)
        assert f"  and waits there: cloud {why}; next attempt {again}\n" in shown


async def test_a_destination_that_is_alone_and_a_source_that_is_down_are_said_as_well(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as served:
        break_off(served, clock, "vehicle")
        served.transport("cloud").set_state(LinkState.ALONE)
        answer = await explained(served)
        assert answer["why"][-1].startswith(f"vehicle, where it arrives, is not connected since {SINCE}: b:1883: closed by")
        since = as_moment(START_MS + 61_000)
        assert answer["hops"][0]["link"]["why"] == f"is alone: no other node is connected to it since {since}"


@pytest.mark.needs("pause")
async def test_a_pause_is_said_beside_it(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as served:
        break_off(served, clock, "cloud")
        assert (await served.ask("/api/v1/pause", {"topic": str(SPEED)})).status == 200
        (hop,) = (await explained(served))["hops"]
        assert hop["paused_by"] is not None
        assert hop["link"]["why"] is not None
