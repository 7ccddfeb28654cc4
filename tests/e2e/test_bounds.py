"""The egress is held at 5 000 messages/s, at length for 10 s: the bounds hold, and what each policy promises is kept."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from tests.brokers import Mosquitto, needs_mosquitto
from tests.independent import MqttSide
from tests.lengths import at_length
from tests.process import ROOT, StreamerProcess
from tests.waiting import until

RATE = 5000
HOLD_S = at_length(10, 3)
COUNT = RATE * HOLD_S
QUEUE = 2000
QUEUE_BYTES = 4 * 1024 * 1024
RECEIVE_MAXIMUM = 1000
# What a Python process may grow by for other reasons: remembered ids, caches, buffers, dead letters that wait.
SLACK_BYTES = 48 * 1024 * 1024


def configuration(near: Mosquitto, far: Mosquitto, policy: str) -> dict[str, object]:
    def mqtt(broker: Mosquitto, authority: str) -> dict[str, object]:
        options = {"broker": broker.url, "topics": "off-vehicle", "receive_maximum": RECEIVE_MAXIMUM}
        return {"transport": "mqtt5", "authorities": [authority], "options": options}

    return {
        "authority": "gw",
        "endpoints": {"near": mqtt(near, "cloud"), "far": mqtt(far, "veh1")},
        "routes": [{"from": "near", "to": "far", "name": "down"}],
        "queue_policy": {"queue": {"messages": QUEUE, "bytes": QUEUE_BYTES, "on_full": policy}},
    }


def load(port: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        f"{sys.executable} -m tests.bench.load mqtt-send --port {port} --count {COUNT} --rate {RATE}".split(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.mosquitto
@needs_mosquitto
@pytest.mark.parametrize("policy", ["backpressure", "reject", "evict"])
async def test_egress_held_for_seconds(tmp_path: Path, policy: str) -> None:
    with Mosquitto() as near, Mosquitto() as far:
        async with (
            StreamerProcess(tmp_path, configuration(near, far, policy)) as daemon,
            MqttSide(far.port, "off-vehicle", ["+/veh1"]) as receiver,
            MqttSide(near.port, "off-vehicle", ["gw/cloud"]) as dead_letters,
        ):
            assert daemon.process is not None
            process = psutil.Process(daemon.process.pid)
            before_bytes = process.memory_info().rss
            sender = await asyncio.to_thread(load, near.port)
            try:
                assert sender.stdin is not None
                assert sender.stdout is not None
                assert json.loads(await asyncio.to_thread(sender.stdout.readline))["ready"]
                os.kill(far.pid, signal.SIGSTOP)
                sender.stdin.write("go\n")
                sender.stdin.flush()
                held_until_s = time.monotonic() + HOLD_S
                grown_bytes = 0
                while time.monotonic() < held_until_s:
                    await asyncio.to_thread(check_bounds, daemon)
                    grown_bytes = max(grown_bytes, process.memory_info().rss - before_bytes)
                    await asyncio.sleep(0.2)
                assert receiver.arrived == []
                os.kill(far.pid, signal.SIGCONT)
                assert json.loads(await asyncio.to_thread(sender.stdout.readline))["sent"] == COUNT
            finally:
                sender.kill()
                sender.communicate()
            await until(
                lambda: len(receiver.arrived) + len(dead_letters.arrived) >= COUNT,
                within_s=90,
                what="an account of every message",
            )
            await asyncio.to_thread(check_bounds, daemon)
            arrived = {m.id for m in receiver.arrived}
            lost = {letter_id(m.payload) for m in dead_letters.arrived}
            assert len(arrived) + len(lost) == len(receiver.arrived) + len(dead_letters.arrived) == COUNT
            assert not arrived & lost
            if policy == "backpressure":
                assert not lost
            else:
                assert len(lost) > COUNT // 2
            letters_bytes = sum(len(m.payload) + 600 for m in dead_letters.arrived)
            assert grown_bytes < QUEUE_BYTES + 2 * RECEIVE_MAXIMUM * 1024 + letters_bytes + SLACK_BYTES


def letter_id(payload: bytes) -> bytes:
    letter = ustreamer.DeadLetter.FromString(payload)
    assert letter.status.code == 8  # RESOURCE_EXHAUSTED
    assert letter.route == "down"
    uuid = letter.message.attributes.id
    return uuid.msb.to_bytes(8, "big") + uuid.lsb.to_bytes(8, "big")


def check_bounds(daemon: StreamerProcess) -> None:
    daemon.check_books()
    assert daemon.total("ustreamer_queue_messages", route="down") <= QUEUE
    assert daemon.total("ustreamer_queue_bytes", route="down") <= QUEUE_BYTES
    assert daemon.total("ustreamer_backlog_messages", endpoint="near") <= 2 * RECEIVE_MAXIMUM
