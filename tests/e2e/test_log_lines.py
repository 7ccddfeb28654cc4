"""What the daemon writes while a broker comes and goes: bounded in number, and true in the end."""

import json
from typing import Any

import pytest

from streamer.logs.output import CHANGES
from tests.e2e.topology import Topology
from tests.process import StreamerProcess
from tests.waiting import until

FLAPS = CHANGES  # each of two changes
REPEAT_S = 120.0
"""Longer than the test: nothing that it leaves out is written before the end of the process."""

SOON = {"reconnect": {"initial_ms": 20, "max_ms": 20}}

pytestmark = pytest.mark.mosquitto


def said(daemon: StreamerProcess, event: str) -> list[dict[str, Any]]:
    """The lines of one event about the second endpoint."""
    lines = [json.loads(line) for line in daemon.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event and line["endpoint"] == "second"]


async def flap(topology: Topology) -> None:
    """The second broker ends and starts, and the daemon notices both, so many times. In the end it is away."""
    broker = topology.networks[1].broker
    assert broker is not None
    for _ in range(FLAPS):
        broker.kill()
        await topology.daemon.until_down("second")
        broker.start()
        await topology.daemon.until_up()
    broker.kill()
    await topology.daemon.until_down("second")


@pytest.mark.parametrize("repeat_s", [2.0, REPEAT_S], ids=["while it runs", "at its end"])
async def test_last_line_about_a_link_that_flaps_is_true(repeat_s: float) -> None:
    log = {"level": "info", "repeat_s": repeat_s}
    kinds = "mosquitto/off-vehicle", "mosquitto/in-vehicle"
    async with Topology(*kinds, second_options=SOON, log=log, shutdown={"drain_s": 0}) as topology:
        daemon = topology.daemon
        await flap(topology)
        if repeat_s == REPEAT_S:
            assert len(said(daemon, "endpoint_state")) == CHANGES
            await daemon.__aexit__()

        def counted() -> int:
            return sum(1 + line.get("left_out", 0) for line in said(daemon, "endpoint_state"))

        await until(lambda: counted() >= 2 * FLAPS + 1, what="every change to be written or counted")
        assert said(daemon, "endpoint_state")[-1]["state"] == "down"
