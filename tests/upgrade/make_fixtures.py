"""Makes ``tests/fixtures/0.1``: what a killed streamer of the released version leaves behind.

    python -m tests.upgrade.make_fixtures

A gateway of that version stands between an MQTT broker (``backend``) and Zenoh (``veh1``). It gets messages that wait for an
absent receiver, messages that are paused, messages that were sent and are not confirmed, and messages that end as dead
letters; a subscription, an observer, a pause rule and a registration for multicast; and traces, half of them compacted. Then
it is killed. ``expected.json`` says what was sent, by the clients' own books.
"""

import asyncio
import json
import shutil
import signal
import subprocess
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.proto import usubscription_v3_pb2 as subscriptions
from tests.brokers import Mosquitto
from tests.e2e.roles import at_streamer, call
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.process import StreamerProcess
from tests.upgrade.release import ROOT, program
from tests.usubscription_client import REGISTER, SUBSCRIBED, Refused, UsubscriptionClient, proto_uri, until_heard
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

FIXTURES = ROOT / "tests" / "fixtures" / "0.1"
REGISTER_MULTICAST = 0x10
ABSENT, PAUSED, HEARD, GONE = (("veh1", entity, 1, 0) for entity in (0xB1, 0xC1, 0xA1, 0xD1))
ORDERS, BACKEND = ("backend", 0x10, 1, 0x9000), ("backend", 0x10, 1, 0)
TOPIC, SPEED = ("veh1", 0xA8000, 2, 0x8A50), ("veh1", 0xA8000, 2, 0x8A51)
DOORS = "//veh1/A8000/2/0/doorOpened"
LONG_MS = 0xFFFF_FFFF
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FILES = ("journal.db", "journal-state.db", "journal-state.db-wal")


def configuration(directory: Path, broker: str, endpoint: str) -> dict[str, Any]:
    """In the words of the released version."""
    return {
        "authority": "gw",
        "endpoints": {
            "vehicle": {
                "transport": "zenoh",
                "authorities": ["veh1"],
                "options": {"listen": [endpoint], "uncertain_s": 3600},
            },
            "cloud": {
                "transport": "mqtt5",
                "authorities": ["backend"],
                "options": {"broker": broker, "topics": "off-vehicle"},
            },
        },
        "routes": [
            {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/8A51"], "publish_to": ["backend"]},
            {"from": "cloud", "to": "vehicle"},
        ],
        "dispatch": {"absent_s": 3600},
        "journal": {"path": str(directory / "journal.db")},
        "trace": {"path": str(directory / "traces"), "rotate_s": 5},
        "usubscription": {"local": ["veh1", "backend"]},
        "multicast": [{"provider": DOORS.rpartition("/")[0], "broadcast": "doorOpened", "partitions": {"boot": 0x8013}}],
    }


def notifications(sink: Uri, count: int) -> list[Plain]:
    return [Plain(4, ORDERS, sink, b"order %d for %x" % (n, sink[1]), priority=1 + n % 7) for n in range(count)]


def waiting_messages() -> list[Plain]:
    """Every attribute that a message can have, on several flows."""
    return [
        *notifications(ABSENT, 12),
        Plain(4, ORDERS, ABSENT, b"", payload_format=3),
        Plain(4, ORDERS, ABSENT, bytes(range(256)), priority=7, ttl=LONG_MS, traceparent=TRACEPARENT, payload_format=2),
        Plain(
            2, BACKEND, (*ABSENT[:3], 7), b"ask", priority=5, ttl=LONG_MS, token="secret of the caller", permission_level=3
        ),
        Plain(3, (*ORDERS[:3], 9), ABSENT, b"answer", priority=5, ttl=LONG_MS, reqid=Plain(2, ABSENT).id, commstatus=5),
    ]


async def make(directory: Path) -> dict[str, Any]:
    """Run the gateway in ``directory`` and kill it; what it had to do is returned."""
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(Mosquitto())
        endpoint = free_endpoint()
        daemon = StreamerProcess(directory, configuration(directory, broker.url, endpoint), program=program())
        daemon.start()
        assert daemon.process is not None
        stack.callback(daemon.process.kill)
        backend = await stack.enter_async_context(MqttSide(broker.port, "off-vehicle", ["+/backend"]))
        keys = ["up/*/*/*/*/*/veh1/A1/0/1/0"]
        vehicle = await stack.enter_async_context(ZenohSide(connect=[endpoint], keys=keys))
        await daemon.until_up()

        asked = subscriptions.NotificationsRequest(topic=proto_uri(TOPIC))
        client = UsubscriptionClient(backend, BACKEND, "veh1")
        assert await client.subscribe(TOPIC, sample_period_ms=250) == SUBSCRIBED
        assert not isinstance(await client.call(REGISTER, asked, subscriptions.NotificationsResponse), Refused)
        register = at_streamer(
            BACKEND, "gw", REGISTER_MULTICAST, pb.RegisterMulticastReceiverRequest(multicast_id=f"{DOORS}/*")
        )
        assert not isinstance(await call(backend, register, pb.RegisterMulticastReceiverResponse), Refused)
        rule = [
            *(daemon.program or ()),
            "pause",
            "--config",
            str(daemon.path),
            "--topic",
            "//backend/10/1/9000",
            "--sink",
            "//veh1/C1/1/0",
        ]
        await asyncio.to_thread(subprocess.run, rule, check=True)

        first, second = (
            [Plain(1, SPEED, payload=b"%s %d" % (name, n)) for n in range(20)] for name in (b"first", b"second")
        )
        dead = [
            Plain(4, ORDERS, GONE, b"too late", ttl=1500),
            Plain(2, BACKEND, (*GONE[:3], 7), b"too late, too", priority=5, ttl=1500, token="secret of another caller"),
            Plain(2, BACKEND, (*GONE[:3], 7), b"breaks the rules", priority=1, ttl=LONG_MS),
        ]
        unconfirmed = notifications(HEARD, 15)
        queued, paused = waiting_messages(), notifications(PAUSED, 8)
        await backend.send([*queued, *paused, *dead, *unconfirmed])
        await until(lambda: len(vehicle.arrived) == len(unconfirmed), "what is heard")
        await daemon.until_total(3, "ustreamer_dead_letters_total")

        await until_heard(vehicle, first[0], zenoh_key)
        await vehicle.send(first)
        await until(lambda: sum(each.source == SPEED for each in backend.arrived) == len(first), "the first publishes")
        traces = directory / "traces"
        await until(lambda: list(traces.glob("date=*/*/*/*.parquet")), "a Parquet file")
        written = daemon.total("ustreamer_trace_written_records_total")
        await vehicle.send(second)
        await daemon.until_total(written + len(second), "ustreamer_trace_written_records_total")
        assert list(traces.glob(".spool/gw/*.open")), "the spool was rotated just now: try again"
        daemon.signal(signal.SIGKILL)
        await daemon.ended()
    return {
        "version": "0.1.0",
        "queued": [as_json(each) for each in queued],
        "paused": [as_json(each) for each in paused],
        "unconfirmed": [as_json(each) for each in unconfirmed],
        "dead": [as_json(each) for each in dead],
        "traced": [each.id.hex() for each in first],
        "traced_in_spool": [each.id.hex() for each in second],
    }


def as_json(message: Plain) -> dict[str, Any]:
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(message).items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        expected = asyncio.run(make(directory))
        shutil.rmtree(FIXTURES, ignore_errors=True)
        FIXTURES.mkdir(parents=True)
        for file in FILES:
            shutil.copy(directory / file, FIXTURES / file)
        shutil.copytree(directory / "traces", FIXTURES / "traces", ignore=shutil.ignore_patterns("*.lock", "lock"))
    (FIXTURES / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
