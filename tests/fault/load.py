"""The load: numbered messages of random size in several flows, at a rate, and the book in which they are written down.

It shares no code with the daemon (`tests.independent`). A message counts as acknowledged, that is, has to arrive,

- over MQTT when the broker has confirmed it (PUBACK, and not "no matching subscribers"; `tests.fault.mqtt_node`);
- over Zenoh, where nothing is confirmed, when the daemon has counted it as received (`tests.fault.zenoh_load`).
"""

import itertools
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from tests.fault.ledger import Ledger, Sent, digest_of
from tests.independent.message import Plain, Uri, uuid7

GATEWAY = "gw"
DEAD_LETTERS = (GATEWAY, 4, 1, 0x8001)
PUBLISH, REQUEST, RESPONSE, NOTIFICATION = 1, 2, 3, 4
TOPIC_SIDES = {0x8001: "veh", 0x8002: "plant", 0x8003: "cloud"}
"""Where a Publish of a topic goes: the routes of the harness say the same."""


@dataclass(frozen=True)
class Flow:
    """One source and one sink. ``to`` is the side where its messages come out."""

    type: int
    source: Uri
    sink: Uri | None
    to: str
    priority: int = 0
    ttl_ms: int | None = None
    age_ms: int = 0

    @property
    def name(self) -> str:
        kind = {PUBLISH: "publish", REQUEST: "request", NOTIFICATION: "notification"}[self.type]
        return f"{self.source[0]}→{self.to} {kind} {self.source[1]:x}"


def flows(origin: str, to: str, resource: int, ttl_ms: int = 600_000, age_ms: int = 0) -> list[Flow]:
    """A few of each kind. ``resource`` is the topic of the Publishes, by which the daemon's routes tell them apart."""
    return [
        *(Flow(NOTIFICATION, (origin, 0x100 + n, 1, 0x8100), (to, 0x1 + n, 1, 0), to, 2) for n in range(3)),
        Flow(NOTIFICATION, (origin, 0x110, 1, 0x8100), (to, 0x1, 1, 0), to, 4),
        *(Flow(PUBLISH, (origin, 0x200 + n, 1, resource), None, to) for n in range(2)),
        Flow(REQUEST, (origin, 0x300, 1, 0), (to, 0x5, 1, 7), to, 5, ttl_ms, age_ms),
    ]


class Book:
    """Makes messages and writes down what became of them. ``random`` decides on flows, sizes and payloads."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self.ledger = ledger
        self.seed = seed
        self._start_s = time.monotonic()

    def generator(self, flows: list[Flow], most_bytes: int) -> Iterator[Plain]:
        """Endless: messages of these flows, in the ledger from here on."""
        chance = random.Random(f"{self.seed} {flows[0].name}")
        counters = {flow: itertools.count() for flow in flows}
        while True:
            flow = chance.choice(flows)
            size = chance.choice((0, 1, 64, 256, 256, 1024, most_bytes))
            yield self.message(flow, next(counters[flow]), chance.randbytes(min(chance.randint(0, size), most_bytes)))

    def message(self, flow: Flow, number: int, payload: bytes) -> Plain:
        message_id = uuid7(time.time_ns() // 1_000_000 - flow.age_ms)
        sent_s = self.now_s
        is_request = flow.type == REQUEST
        self.ledger.sent(Sent(message_id, flow.name, number, flow.to, digest_of(payload), sent_s, is_request))
        return Plain(flow.type, flow.source, flow.sink, payload, flow.priority, flow.ttl_ms, id=message_id)

    @property
    def now_s(self) -> float:
        """Seconds since the start of the load."""
        return time.monotonic() - self._start_s

    def take(self, side: str, message: Plain, at_s: float | None = None) -> None:
        """A message came out on a side, now or at a time of the monotonic clock."""
        if message.source == DEAD_LETTERS:
            letter = ustreamer.DeadLetter.FromString(message.payload)
            uuid = letter.message.attributes.id
            original = uuid.msb.to_bytes(8, "big") + uuid.lsb.to_bytes(8, "big")
            self.ledger.dead_lettered(side, original, digest_of(letter.message.payload), letter.status.code)
        elif message.type == RESPONSE and message.commstatus:
            assert message.reqid is not None
            self.ledger.answered(message.reqid, message.commstatus)
        else:
            since_start_s = (time.monotonic() if at_s is None else at_s) - self._start_s
            self.ledger.arrived(side, message.id, digest_of(message.payload), since_start_s)


class Pump:
    """How many messages are due, at a rate that can be changed; probes go at once."""

    def __init__(self) -> None:
        self._generator: Iterator[Plain] | None = None
        self._rate = 0.0
        self._since_s = 0.0
        self._done = 0
        self._probes: deque[Plain] = deque()

    def start(self, generator: Iterator[Plain], rate: float) -> None:
        self._generator, self._rate, self._since_s, self._done = generator, rate, time.monotonic(), 0

    def stop(self) -> None:
        self._rate = 0.0

    def probe(self, message: Plain) -> None:
        self._probes.append(message)

    @property
    def is_behind(self) -> bool:
        """Whether single messages wait to be sent."""
        return bool(self._probes)

    def next(self) -> Plain | None:
        """A message that is due, if any. What could not be sent in time is not made up for."""
        if self._probes:
            return self._probes.popleft()
        if not self._rate or self._generator is None:
            return None
        due = int((time.monotonic() - self._since_s) * self._rate)
        if self._done >= due:
            return None
        self._done = max(self._done + 1, due - 50)
        return next(self._generator)
