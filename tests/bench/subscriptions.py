"""``python -m tests.bench.subscriptions``: what many subscriptions cost, beside few.

A journal with so many subscriptions is made through the service itself. Then the streamer starts on it, and forwards
messages of 16 of the topics from Zenoh to MQTT: no route lists any of them.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from streamer.clock import SystemClock
from streamer.features.every import FILE
from streamer.features.judge.command_explain import Remembered
from streamer.transports.base import TransportContext
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import Options, UMessage, UPayloadFormat, request
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USUBSCRIPTION
from tests.bench.load import VEHICLE
from tests.bench.run import Figures, measure
from tests.configurations import config_of, endpoint_of
from tests.hosted import HostOn, served

SERVICE = {
    "local": ["veh1"],
    "max_subscriptions": 1_000_000,
    "subscribe": [{"from": "//cloud/FFFFFFFF/FF/0", "topics": ["//veh1/FFFFFFFF/FF/FFFF"]}],
}
"""The subscribers are in the cloud: that is permitted."""

FEW = 10  # beside the 16 that are measured
_AT_ONCE = 500


def wishes(subscriptions: int, subscribers: int, topics: int) -> list[tuple[UUri, UUri]]:
    """Subscriber and topic of each subscription: the measured topics first, each once; then all combinations in turn."""
    names = [UUri("veh1", 0x1000 + number // 100, 1, 0x8000 + number % 100) for number in range(topics - len(VEHICLE))]
    every = [*VEHICLE, *names]
    pairs = [(UUri("cloud", 0x2000, 1, 0), topic) for topic in VEHICLE]
    for number in range(subscriptions - len(pairs)):
        topic = every[(number * 7919 + number // len(every)) % len(every)]  # all combinations, in turn
        pairs.append((UUri("cloud", 0x3000 + number % subscribers, 1, 0), topic))
    return pairs


async def remember(path: Path, pairs: list[tuple[UUri, UUri]]) -> tuple[float, float]:
    """Subscribe to all of it; seconds for the requests, and for a restore of the file."""
    config = FILE.model_validate(
        config_of({"vehicle": endpoint_of("memory", "veh1")}, authority="gateway", usubscription=SERVICE)
    )
    core = LocalTransport(TransportContext(LOCAL_ENDPOINT, "gateway"), served(config))
    service_host = HostOn(path, config, core, Remembered(), SystemClock())
    service_host.start()
    serving = asyncio.create_task(service_host.run())
    begin_s = time.perf_counter()
    for start in range(0, len(pairs), _AT_ONCE):
        left = pairs[start : start + _AT_ONCE]
        done = asyncio.Semaphore(0)
        for subscriber, topic in left:
            core._handlers[USUBSCRIPTION](_subscribe(subscriber, topic), done.release)
        for _ in left:
            await done.acquire()
    asked_s = time.perf_counter() - begin_s
    serving.cancel()
    await service_host.state.write(
        [("DELETE FROM usubscription_outbox", ())]
    )  # there is no router that would send the Updates
    service_host.close()

    local = LocalTransport(TransportContext(LOCAL_ENDPOINT, "gateway"), served(config))
    again = HostOn(path, config, local, Remembered(), SystemClock())
    begin_s = time.perf_counter()
    again.start()
    restored_s = time.perf_counter() - begin_s
    again.close()
    return asked_s, restored_s


def _subscribe(subscriber: UUri, topic: UUri) -> UMessage:
    payload = pb.SubscriptionRequest(topic=uri_to_proto(topic)).SerializeToString()
    options = Options(payload_format=UPayloadFormat.PROTOBUF)
    return request(SystemClock().wall_ms(), subscriber, UUri("veh1", 0, 3, 1), 600_000, payload, options)


def changes(path: Path) -> dict[str, Any]:
    """The streamer's configuration: it forwards what is subscribed to in that file, and nothing else."""
    routes = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]
    return {"routes": routes, "journal": {"path": str(path)}, "usubscription": SERVICE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--count", type=int, default=100_000, help="messages of each run")
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    cases = {
        "few": wishes(len(VEHICLE) + FEW, FEW, len(VEHICLE) + FEW),
        "many": wishes(a.subscriptions, a.subscribers, a.topics),
    }
    runs: dict[str, list[Figures]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as directory:
        configs = {}
        for name, pairs in cases.items():
            path = Path(directory) / f"{name}.db"
            asked_s, restored_s = asyncio.run(remember(path, pairs))
            print(
                f"{name:<6}{len(set(pairs)):>7} subscriptions, {len({topic for _, topic in pairs})} topics: asked for in "
                f"{asked_s:.2f} s ({asked_s / len(pairs) * 1e6:.0f} µs each), restored in {restored_s * 1e3:.0f} ms"
            )
            configs[name] = changes(path)
        for _ in range(a.rounds):
            for name, results in runs.items():
                results.append(measure("streamer", "up", a.count, 0, 256, has_journal=True, **configs[name]))
    print(f"{'':<6}{'ready s':>9}{'RSS MB':>9}{'messages/s':>12}{'CPU µs/msg':>12}")
    for name, results in runs.items():
        median = [
            statistics.median(values)
            for values in zip(*((r.ready_s, r.rss_mb, r.rate, r.cpu_us) for r in results), strict=True)
        ]
        print(f"{name:<6}{median[0]:>9.2f}{median[1]:>9.0f}{median[2]:>12,.0f}{median[3]:>12.1f}")
    ratios = [many.cpu_us / few.cpu_us for few, many in zip(runs["few"], runs["many"], strict=True)]
    print(f"ratio: CPU per message {statistics.median(ratios):.2f} times ({min(ratios):.2f}–{max(ratios):.2f})")


if __name__ == "__main__":
    main()
