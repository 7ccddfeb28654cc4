"""A daemon whose egress is held under load: the far broker is stopped, and goes on once every bound was reached."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from tests.brokers import Mosquitto
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.lengths import at_length
from tests.process import ROOT, StreamerProcess
from tests.waiting import until

RATE = 5000
COUNT = RATE * at_length(10, 2)
QUEUE = 2000
QUEUE_BYTES = 4 * 1024 * 1024
RECEIVE_MAXIMUM = 1000


@dataclass
class HeldEgress:
    """What came of it: ids of the messages that arrived, and of those of which a dead letter came instead."""

    arrived: list[bytes]
    letters: list[Plain]

    @property
    def lost(self) -> list[bytes]:
        return [letter_id(letter.payload) for letter in self.letters]


def configuration(near: Mosquitto, far: Mosquitto, policy: str) -> dict[str, object]:
    def mqtt(broker: Mosquitto, authority: str) -> dict[str, object]:
        options = {"broker": broker.url, "topics": "off-vehicle", "receive_maximum": RECEIVE_MAXIMUM}
        return {"transport": "mqtt5", "authorities": [authority], "options": options}

    return {
        "authority": "gw",
        "endpoints": {"near": mqtt(near, "cloud"), "far": mqtt(far, "veh1")},
        "routes": [{"from": "near", "to": "far", "name": "down"}],
        "queue_policy": {"queue": {"messages": QUEUE, "bytes": QUEUE_BYTES, "on_full": policy}},
        # All may fail before the first letter is confirmed: PUBACKs come behind the messages that the broker has for us.
        "dead_letter": {"queue": {"messages": COUNT}},
    }


async def hold_egress(directory: Path, policy: str, look: Callable[[StreamerProcess], None]) -> HeldEgress:
    """Send `COUNT` messages; ``look`` is called again and again while the egress is held, and once at the end."""
    async with AsyncExitStack() as stack:
        near, far = stack.enter_context(Mosquitto()), stack.enter_context(Mosquitto())
        daemon = await stack.enter_async_context(StreamerProcess(directory, configuration(near, far, policy)))
        receiver = await stack.enter_async_context(MqttSide(far.port, "off-vehicle", ["+/veh1"]))
        dead_letters = await stack.enter_async_context(MqttSide(near.port, "off-vehicle", ["gw/cloud"]))
        sender = stack.enter_context(load(near.port))
        stack.callback(sender.kill)
        assert json.loads(await line_of(sender))["ready"]
        os.kill(far.pid, signal.SIGSTOP)
        try:
            assert sender.stdin is not None
            sender.stdin.write(json.dumps({"count": COUNT, "rate": RATE}) + "\n")
            sender.stdin.flush()
            assert json.loads(await line_of(sender))["begun"]
            sent = asyncio.create_task(line_of(sender))
            while not is_at_bound(daemon, policy, sent.done()):
                await asyncio.to_thread(look, daemon)
                await asyncio.sleep(0.05)
            assert receiver.arrived == []
        finally:
            os.kill(far.pid, signal.SIGCONT)
        assert json.loads(await sent)["sent"] == COUNT
        await until(
            lambda: len(receiver.arrived) + len(dead_letters.arrived) >= COUNT,
            within_s=90,
            what="an account of every message",
        )
        await asyncio.to_thread(look, daemon)
        return HeldEgress([message.id for message in receiver.arrived], list(dead_letters.arrived))


def is_at_bound(daemon: StreamerProcess, policy: str, is_sent: bool) -> bool:
    """With backpressure the source has to wait; otherwise the daemon takes everything, and gives up what does not fit."""
    if policy == "backpressure":
        return daemon.total("ustreamer_backlog_messages", endpoint="near") >= RECEIVE_MAXIMUM
    return is_sent and daemon.total("ustreamer_received_messages_total", endpoint="near") >= COUNT


def load(port: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        f"{sys.executable} -m tests.bench.load mqtt-send --port {port}".split(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return await asyncio.to_thread(process.stdout.readline)


def letter_id(payload: bytes) -> bytes:
    letter = ustreamer.DeadLetter.FromString(payload)
    assert letter.status.code == 8  # RESOURCE_EXHAUSTED
    assert letter.route == "down"
    uuid = letter.message.attributes.id
    return uuid.msb.to_bytes(8, "big") + uuid.lsb.to_bytes(8, "big")
