"""A gateway as the README describes it: a vehicle on Zenoh where the streamer listens, a cloud behind a broker. No tests."""

import asyncio
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.brokers import BrokerProcess, any_broker
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.pages import DOCS, block
from tests.preloaded import ForkedStreamer
from tests.process import ROOT, StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

DAY_MS = 86_400_000
EVERYTHING = "FFFFFFFF/FF/FFFF"


class Gateway:
    """The streamer ``gateway.veh1``, its networks, and a client on each that does not use our code: ``car``, ``cloud``."""

    def __init__(
        self, broker: BrokerProcess, locator: str, daemon: StreamerProcess, car: ZenohSide, cloud: MqttSide
    ) -> None:
        self.broker = broker
        self.locator = locator
        self.daemon = daemon
        self.car = car
        self.cloud = cloud

    @property
    def connections(self) -> int:
        """How often the streamer has connected to the broker."""
        return sum('"event": "connected"' in line for line in self.daemon.log.splitlines())

    @property
    def by_file(self) -> tuple[str, str]:
        return "--config", str(self.daemon.path)


@asynccontextmanager
async def gateway(
    broker: BrokerProcess | None = None, cloud: dict[str, Any] | None = None, **sections: Any
) -> AsyncIterator[Gateway]:
    """Run one. ``cloud``: further options of its endpoint there; ``sections``: of its configuration."""
    locator = free_endpoint()
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-")))
        broker = stack.enter_context(broker or any_broker())
        options = {"broker": broker.url, "topics": "off-vehicle"} | (cloud or {})
        daemon = StreamerProcess(
            directory,
            {
                "authority": "gateway.veh1",
                "endpoints": {
                    "vehicle": {"transport": "zenoh", "authorities": ["veh1"], "options": {"listen": [locator]}},
                    "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": options},
                },
                "routes": [
                    {"from": "vehicle", "to": "cloud", "publish": [f"//veh1/{EVERYTHING}"], "publish_to": ["cloud"]},
                    {"from": "cloud", "to": "vehicle", "publish": [f"//cloud/{EVERYTHING}"]},
                ],
                # without a journal a stop waits for receivers that have left before Zenoh had evidence, as clients do here
                "shutdown": {"drain_s": 0.5},
                "permissions": {
                    "endpoints": {
                        "vehicle": {"rules": [{"allow": {}}]},
                        "cloud": {"rules": [{"allow": {"from": f"//cloud/{EVERYTHING}"}}]},
                    }
                },
            }
            | sections,
        )
        daemon.start()
        stack.push_async_exit(daemon)
        await until(lambda: "zenoh_session_open" in daemon.log, "the Zenoh session")
        car = await stack.enter_async_context(ZenohSide(connect=[locator]))
        await daemon.until_up()
        user = (str(options["username"]), "word") if "username" in options else None
        side = await stack.enter_async_context(MqttSide(broker.port, "off-vehicle", ["+/cloud"], user=user))
        yield Gateway(broker, locator, daemon, car, side)


def of_page(heading: str, kind: str, broker: BrokerProcess) -> str:
    """The code of docs/first-message.md below a heading, for this broker."""
    return re.sub(r"\b1883\b", str(broker.port), block(DOCS / "first-message.md", heading, kind))


async def run_to_its_end(*argv: str | Path, environ: Mapping[str, str] | None = None) -> None:
    """Run a program that has to succeed."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environ
    )
    try:
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode()


async def arrives_in_the_car(running: Gateway) -> None:
    """The message of that page arrives, once."""
    await until(lambda: bool(running.car.arrived), "the message")
    (message,) = running.car.arrived
    source, sink = ("cloud", 0xC0, 1, 0x8001), ("veh1", 0xA8000, 2, 0)
    assert message == Plain(4, source, sink, b"hello", payload_format=7, priority=message.priority, id=message.id)
    assert abs(int.from_bytes(message.id[:6], "big") - time.time() * 1000) < DAY_MS
    running.daemon.check_books()


class RunningCommand:
    """``streamer ARGV`` as a process; ``out`` and ``err`` are what it has printed so far."""

    def __init__(self, directory: Path, argv: Sequence[str | Path]) -> None:
        number = len(list(directory.iterdir()))
        self._out, self._err = directory / f"{number}.out", directory / f"{number}.err"
        self.process = ForkedStreamer([str(word) for word in argv], ROOT, self._out, os.environ, self._err)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text() if self._err.exists() else ""

    async def until_listening(self) -> None:
        await until(lambda: self.process.poll() is not None or "listening on" in self.err, "a listener")
        assert self.process.poll() is None, self.err

    async def until_out(self, text: str, times: int = 1) -> None:
        await until(lambda: self.process.poll() is not None or self.out.count(text) >= times, f"{times} times {text}")
        assert self.out.count(text) == times, (self.out, self.err)

    async def ended(self, within_s: float = 30) -> int:
        await until(lambda: self.process.poll() is not None, "the end of the command", within_s)
        try:
            return self.process.wait(1)
        except subprocess.TimeoutExpired as exc:
            raise AssertionError("it goes on") from exc

    async def interrupted(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return await self.ended()
