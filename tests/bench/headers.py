"""What Requests cost that carry something of their own, beside others. ``python -m tests.bench.headers``.

The whole way without sockets: bytes from the wire are decoded, routed between two networks in memory, and encoded for the
other wire. Each figure is the fastest of `ROUNDS`; all kinds take turns, so that a slow minute hits each of them.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamer.transports.memory import MemoryReceived
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.publish import read
from streamer.transports.mqtt5.wire import Encoder, encode, topic_for
from streamer.transports.zenoh.wire import SampleDecoder, encode_attachment, key_for
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPriority
from streamer.uprotocol.uuid import new_id
from tests.flow.harness import CLIMATE, CLOUD_APP, CLOUD_METHOD, GATEWAY, VEHICLE_APP, RouterHarness

MESSAGES = 2000
ROUNDS = 7
BATCH = 50

KINDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "nothing": lambda n: {},
    "the same token": lambda n: {"token": "token"},
    "a token of its own": lambda n: {"token": f"token {n}"},
    "token and traceparent": lambda n: {"token": f"token {n}", "traceparent": f"00-{n + 1:032x}-{n + 1:016x}-01"},
}


def requests(harness: RouterHarness, like: Attributes, kind: str, start: int) -> list[UMessage]:
    now_ms = harness.clock.wall_ms()
    return [UMessage(new_id(now_ms), replace(like, **KINDS[kind](start + n)), b"payload") for n in range(MESSAGES)]


def from_mqtt(messages: list[UMessage], flows: Flows) -> Callable[[], list[UMessage]]:
    topic = topic_for(messages[0].attributes, "off-vehicle", GATEWAY)
    packets = [encode(message, topic, 7) for message in messages]
    decoder = PublishDecoder("off-vehicle", GATEWAY, 1024, flows)
    return lambda: [decoder.decode(read(packet, 8192)) for packet in packets]


def from_zenoh(messages: list[UMessage], flows: Flows) -> Callable[[], list[UMessage]]:
    key = key_for(messages[0].attributes, GATEWAY)
    attachments = [encode_attachment(message) for message in messages]
    decoder = SampleDecoder(GATEWAY, 8192, 1024, flows)
    return lambda: [decoder.decode(key, 6, b"payload", attachment) for attachment in attachments]


async def measure() -> None:
    encoder = Encoder("off-vehicle", GATEWAY)
    async with RouterHarness(is_observed=False) as harness:
        down = Attributes(UMessageType.REQUEST, CLOUD_APP, CLIMATE, UPriority.CS4, ttl=60_000)
        up = Attributes(UMessageType.REQUEST, VEHICLE_APP, CLOUD_METHOD, UPriority.CS4, ttl=60_000)
        best: dict[tuple[str, str], float] = {}
        start = 0
        for _ in range(ROUNDS):
            for kind in KINDS:
                for name, endpoint, like, source in (
                    ("MQTT to Zenoh", "cloud", down, from_mqtt),
                    ("Zenoh to MQTT", "vehicle", up, from_zenoh),
                ):
                    arriving = source(requests(harness, like, kind, start), harness.transports[endpoint].context.flows)
                    start += MESSAGES
                    far = harness.transports["vehicle" if endpoint == "cloud" else "cloud"]
                    far.sent.clear()
                    began_s = time.thread_time()
                    decoded = arriving()
                    for n in range(0, MESSAGES, BATCH):
                        harness.transports[endpoint].inject(*map(MemoryReceived, decoded[n : n + BATCH]))
                    for sent in far.sent:
                        if endpoint == "cloud":
                            encode_attachment(sent)
                        else:
                            encoder.encode(sent, 7, False)
                    took_us = (time.thread_time() - began_s) * 1e6 / MESSAGES
                    assert len(far.sent) == MESSAGES
                    best[name, kind] = min(took_us, best.get((name, kind), took_us))
    for (name, kind), took_us in sorted(best.items()):
        print(f"{name}  {kind:24} {took_us:7.1f} µs  {took_us / best[name, 'nothing']:5.2f}")  # its purpose


if __name__ == "__main__":
    asyncio.run(measure())
