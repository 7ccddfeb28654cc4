"""The wall clock is stepped by an hour while a daemon with a real broker, or real Zenoh, holds messages."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.config.load import load
from streamer.config.models import Config
from streamer.features.every import FILE
from streamer.transports.base import LinkState
from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.fault.clock_steps import HOUR_MS, LONG_MS, STEPS
from tests.fault.stepped_daemon import SteppedClock, running
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.waiting import until
from tests.zenoh_peers import free_endpoint


def configured(directory: Path, far: dict[str, Any]) -> Config:
    path = directory / "streamer.yaml"
    config = config_of(
        {"vehicle": endpoint_of("memory", "veh1", bus=str(directory)), "far": {"authorities": ["far"], **far}},
        authority="gateway.veh1",
        journal={"path": str(directory / "journal.db")},
        metrics=None,
        shutdown={"drain_s": 1},
    )
    path.write_text(yaml.safe_dump(config))
    return load(path, kind=FILE)


def through_mqtt(broker: Mosquitto) -> dict[str, Any]:
    options = {"broker": broker.url, "topics": "in-vehicle", "reconnect": {"initial_ms": 50, "max_ms": 100}}
    return {"transport": "mqtt5", "options": options}


@pytest.mark.mosquitto
@STEPS
async def test_mqtt_broker_that_comes_back_after_the_clock_was_stepped_gets_what_has_not_expired(
    tmp_path: Path, step_ms: int
) -> None:
    clock = SteppedClock()
    with Mosquitto(persistence=True) as broker:
        config = configured(tmp_path, through_mqtt(broker))
        async with MqttSide(broker.port, "in-vehicle", ["veh1/#"]) as app, running(config, clock) as run:
            await run.until_far(LinkState.UP)
            broker.stop()
            await run.until_far(LinkState.DOWN)
            run.send("a", "b")
            run.send("short", ttl=600_000)
            run.send("long", ttl=LONG_MS)
            clock.ahead_ms = step_ms
            run.send("new", ttl=600_000)
            expected = ["a", "b", "long", "new"] if step_ms > 0 else ["a", "b", "short", "long", "new"]
            broker.start()
            await app.reconnect()
            await until(lambda: len(app.arrived) >= len(expected), within_s=20, what="arrival")
            await until(lambda: sum(run.outcomes().values()) == 5, within_s=20, what="an outcome of everything")
            assert [message.payload.decode() for message in app.arrived] == expected
            assert len(run.dead_letters()) == 5 - len(expected)
            assert run.outcomes() == ({"delivered": 4, "expired": 1} if step_ms > 0 else {"delivered": 5})
            # The source of what has expired is told when the dead letter is on disk.
            await until(
                lambda: all(received.acknowledged for received in run.received), within_s=20, what="acknowledgements"
            )
            run.check()


@pytest.mark.mosquitto
async def test_restart_with_the_clock_set_back_sends_the_old_before_the_new(tmp_path: Path) -> None:
    clock = SteppedClock()
    with Mosquitto(persistence=True) as broker:
        config = configured(tmp_path, through_mqtt(broker))
        async with MqttSide(broker.port, "in-vehicle", ["veh1/#"]) as app:
            broker.stop()
            async with running(config, clock) as first:
                await until(lambda: first.vehicle.state is LinkState.UP, what="the memory network")
                first.send("1", "2", "3", ttl=LONG_MS)
            clock.ahead_ms = -HOUR_MS
            async with running(config, clock) as second:
                await until(lambda: second.vehicle.state is LinkState.UP, what="the memory network")
                second.send("4", "5", ttl=LONG_MS)
                broker.start()
                await app.reconnect()
                await until(lambda: len(app.arrived) >= 5, within_s=20, what="arrival")
                assert [message.payload.decode() for message in app.arrived] == ["1", "2", "3", "4", "5"]
                second.check()


@STEPS
async def test_zenoh_receiver_that_comes_after_the_clock_was_stepped_gets_what_has_not_expired(
    tmp_path: Path, step_ms: int
) -> None:
    clock = SteppedClock()
    here = free_endpoint()
    far = {"transport": "zenoh", "options": {"mode": "peer", "listen": [here], "uncertain_s": 1}}
    async with running(configured(tmp_path, far), clock) as run:
        await run.until_far(LinkState.ALONE)
        run.send("short", ttl=600_000)
        run.send("long", ttl=LONG_MS)
        clock.ahead_ms = step_ms
        expected = ["long"] if step_ms > 0 else ["short", "long"]
        async with ZenohSide(connect=[here]) as app:
            await until(lambda: len(app.arrived) >= len(expected), within_s=20, what="arrival")
            await until(lambda: sum(run.outcomes().values()) == 2, within_s=20, what="an outcome of everything")
            assert [message.payload.decode() for message in app.arrived] == expected
        run.check()
