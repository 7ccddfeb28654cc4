"""The example of a transport in a package of its own: it is installed, the daemon runs with it, messages cross."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.independent.message import Plain
from tests.independent.zenoh import ZenohSide, from_attributes, to_attributes
from tests.process import ROOT, StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

EXAMPLE = ROOT / "examples/udp_transport"
HOST = "127.0.0.1"
PROGRAM = (sys.executable, "-m", "streamer")
"""Started as a user does it: what is installed has to be found."""


class Device(asyncio.DatagramProtocol):
    """A uEntity that speaks UDP: one UMessage is one datagram."""

    def __init__(self) -> None:
        self.arrived: list[Plain] = []
        self._socket: asyncio.DatagramTransport

    async def open(self) -> int:
        """Open the socket on a free port, which is returned."""
        loop = asyncio.get_running_loop()
        self._socket, _ = await loop.create_datagram_endpoint(lambda: self, (HOST, 0))
        port: int = self._socket.get_extra_info("sockname")[1]
        return port

    def send(self, data: bytes, port: int) -> None:
        self._socket.sendto(data, (HOST, port))

    def close(self) -> None:
        self._socket.close()

    def datagram_received(self, data: bytes, addr: object) -> None:
        message = pb.UMessage.FromString(data)
        self.arrived.append(from_attributes(message.attributes, message.payload))


def datagram(message: Plain) -> bytes:
    return pb.UMessage(attributes=to_attributes(message), payload=message.payload).SerializeToString()


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process for which the example is installed."""
    source, target = tmp_path_factory.mktemp("source") / "udp", tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, source)  # a build leaves files beside the source
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", str(target), str(source)], check=True)
    return {"PYTHONPATH": str(target)}


def configuration(**options: dict[str, Any]) -> dict[str, Any]:
    """The example's configuration, with other options for some endpoints."""
    config: dict[str, Any] = yaml.safe_load((EXAMPLE / "streamer.yaml").read_text())
    for name, changed in options.items():
        config["endpoints"][name]["options"] = changed
    return config


def news() -> Plain:
    return Plain(1, ("sensor1", 0xA, 1, 0x8001), payload=b"from the sensor", token="t", priority=3)


def question() -> Plain:
    return Plain(2, ("veh1", 0xB, 1, 0), ("sensor1", 0xA, 1, 7), b"from the vehicle", priority=5, ttl=60_000)


class Crossing:
    """The daemon, a device on UDP, and an application on Zenoh."""

    def __init__(self, daemon: StreamerProcess, device: Device, port: int, app: ZenohSide) -> None:
        self.daemon = daemon
        self.device = device
        self.port = port
        self.app = app


@pytest_asyncio.fixture
async def crossing(environ: dict[str, str], tmp_path: Path) -> AsyncIterator[Crossing]:
    device, endpoint, port = Device(), free_endpoint(), free_udp_port()
    peer_port = await device.open()
    config = configuration(vehicle={"connect": [endpoint], "uncertain_s": 1}, device={"port": port, "peer_port": peer_port})
    try:
        async with ZenohSide(listen=[endpoint]) as app, StreamerProcess(tmp_path, config, environ, PROGRAM) as daemon:
            yield Crossing(daemon, device, port, app)
    finally:
        device.close()


async def test_messages_cross_in_both_directions_with_every_attribute(crossing: Crossing) -> None:
    asked, told = question(), news()
    await crossing.app.send([asked])
    await until(lambda: crossing.device.arrived, "the Request at the device")
    crossing.device.send(datagram(told), crossing.port)
    await until(lambda: crossing.app.arrived, "the Publish on Zenoh")
    assert crossing.device.arrived == [asked]
    assert crossing.app.arrived == [told]


async def test_a_datagram_that_is_not_a_message_is_counted_and_harms_nothing(crossing: Crossing) -> None:
    for garbage in (b"\xff" * 100, pb.UMessage(payload=b"no attributes").SerializeToString()):
        crossing.device.send(garbage, crossing.port)
    told = news()
    crossing.device.send(datagram(told), crossing.port)
    await until(lambda: crossing.app.arrived, "the Publish on Zenoh")
    assert crossing.app.arrived == [told]
    await crossing.daemon.until_total(2, "ustreamer_malformed_packets_total", endpoint="device")


async def test_a_message_that_does_not_fit_into_a_datagram_is_a_dead_letter(crossing: Crossing) -> None:
    large = Plain(4, ("veh1", 0xB, 1, 0x8001), ("sensor1", 0xA, 1, 0), payload=bytes(65_508))
    asked = question()
    await crossing.app.send([large, asked])
    await until(lambda: crossing.device.arrived, "the Request at the device")
    assert crossing.device.arrived == [asked]
    labels = {"route": "vehicle-device", "outcome": "dead_lettered", "code": "RESOURCE_EXHAUSTED"}
    await crossing.daemon.until_total(1, "ustreamer_outcomes_total", **labels)


def test_the_installed_transport_is_checked_and_described(environ: dict[str, str], tmp_path: Path) -> None:
    def streamer(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*PROGRAM, *arguments]
        return subprocess.run(command, cwd=ROOT, env=os.environ | environ, capture_output=True, text=True, check=False)

    schema = json.loads(streamer("schema").stdout)
    assert {"host", "port", "peer_host", "peer_port"} == schema["$defs"]["udp.options"]["properties"].keys()
    file = tmp_path / "streamer.yaml"
    file.write_text(yaml.safe_dump(configuration(device={"port": 0, "peer_port": 5001})))
    found = streamer("check", "--config", str(file))
    assert found.returncode == 78
    assert "endpoints.device.options.port: expected at least 1, found 0" in found.stderr
