"""How soon present values arrive after an outage in which very many messages have piled up.

    python -m tests.bench.outage [--rounds 7200] [--slow BYTES_PER_S] [--policy POLICY...] [--journal 1 0]

100 topics are published on Zenoh while the streamer cannot reach its MQTT broker, ``rounds`` times each: once a second, two
hours make 720 000 messages. Then the link is back. Prints, for each policy, after how many seconds from the connection on
the last of the 100 present values was there, when everything was, and how much memory the streamer took while it waited.
"""

import argparse
import asyncio
import tempfile
import time
from contextlib import ExitStack

import zenoh

from streamer.transports.zenoh import wire as zenoh_wire
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.bench.forms import NAMES, streamers
from tests.bench.load import MqttPeer
from tests.bench.run import Streamer, configuration
from tests.brokers import Mosquitto
from tests.fault.proxy import Direction, Proxy
from tests.independent.zenoh import until_subscribed
from tests.ports import free_port
from tests.zenoh_peers import free_endpoint, open_peer

TOPICS = [UUri("veh1", 0x100 + number, 1, 0x8001) for number in range(100)]
ALL = "//veh1/FFFFFFFF/FF/FFFF"
POLICIES: dict[str, list[dict[str, str]]] = {"no policy": [], "keep: latest": [{"topic": ALL, "keep": "latest"}]}
WARM_ROUNDS = 200
PADDING = bytes(56)
IDLE_S = 60.0


class Connections:
    """When the streamer has connected last."""

    def __init__(self) -> None:
        self.opened_s = 0.0

    def opened(self, link: int) -> None:
        self.opened_s = time.monotonic()

    def passed(self, link: int, direction: Direction, data: bytes) -> None:
        """What passes does not matter."""


class Arrivals:
    """Counts messages, and notes when the present value of each topic has come, which is the one of round ``last``."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, last: int) -> None:
        self.last = last
        self.count = 0
        self.before = 0
        self.present: dict[int, float] = {}
        self.last_s = time.monotonic()

    def add(self, payload: bytes) -> None:
        self.last_s = time.monotonic()
        self.count += 1
        if int.from_bytes(payload[4:8], "big") == self.last:
            self.present.setdefault(int.from_bytes(payload[:4], "big"), self.last_s)
            if len(self.present) == len(TOPICS) and not self.before:
                self.before = self.count

    async def until(self, count: int) -> None:
        while self.count < count:
            if time.monotonic() - self.last_s > IDLE_S:
                raise RuntimeError(f"{self.count} of {count} messages arrived")
            await asyncio.sleep(0.01)


class Vehicle:
    """Publishes all topics in turn, from a thread."""

    def __init__(self, session: zenoh.Session) -> None:
        self._session = session
        self._attributes = [publish(0, topic).attributes for topic in TOPICS]
        self._names = [zenoh_wire.key_for(each, "veh1") for each in self._attributes]
        self._keys = [session.declare_keyexpr(name) for name in self._names]

    async def until_heard(self) -> None:
        """Wait until the streamer's subscriptions to all topics are known here."""
        for name in self._names:
            await until_subscribed(self._session, name)

    def publish(self, begin: int, end: int) -> None:
        for second in range(begin, end):
            for number, (attributes, key) in enumerate(zip(self._attributes, self._keys, strict=True)):
                payload = number.to_bytes(4, "big") + second.to_bytes(4, "big") + PADDING
                message = UMessage(new_id(time.time_ns() // 1_000_000), attributes, payload)
                self._session.put(
                    key,
                    payload,
                    attachment=zenoh_wire.encode_attachment(message),
                    congestion_control=zenoh.CongestionControl.BLOCK,
                )


async def _receiver(port: int, arrivals: Arrivals) -> MqttPeer:
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: MqttPeer(arrivals, "veh1/#"), "127.0.0.1", port)  # type: ignore[arg-type]
    await peer.ready.wait()
    return peer


async def measure(form: str, topics: list[dict[str, str]], rounds: int, has_journal: bool, slow: float | None) -> str:
    """One outage. Returns what came of it."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        broker = stack.enter_context(Mosquitto(max_inflight=1000))
        endpoint, connections, arrivals = free_endpoint(), Connections(), Arrivals()
        session = open_peer(listen=[endpoint])
        stack.callback(session.close)
        vehicle = Vehicle(session)
        async with Proxy(broker.port, connections) as proxy:
            place = {"port": proxy.port, "endpoints": [endpoint], "admin": free_port()}
            queue = {"messages": 2 * rounds * len(TOPICS), "bytes": "8GiB"}
            changes = {"queue_policy": {"queue": queue, "topics": topics}}
            config = configuration(directory, place, is_traced=False, has_journal=has_journal, **changes)
            config["endpoints"]["cloud"]["options"] |= {"topics": "in-vehicle", "reconnect": {"max_ms": 500}}
            if has_journal:
                config["journal"]["max_bytes"] = "8GiB"
            subject = await asyncio.to_thread(Streamer, form, directory, config)
            stack.callback(subject.end)
            await _receiver(broker.port, arrivals)
            await vehicle.until_heard()
            for number in range(WARM_ROUNDS):
                await asyncio.to_thread(vehicle.publish, number, number + 1)
            await arrivals.until(1)
            while time.monotonic() - arrivals.last_s < 1:
                await asyncio.sleep(0.1)
            await proxy.sever()
            await asyncio.to_thread(vehicle.publish, WARM_ROUNDS, WARM_ROUNDS + rounds)
            was = await _settled(subject)
            rss_mb = subject.rss_mb()
            arrivals.begin(WARM_ROUNDS + rounds - 1)
            await proxy.heal()
            if slow:
                proxy.slow(slow)
            await (arrivals.until(was["waiting"]) if not slow else _all_present(arrivals))
            up_s = connections.opened_s
            last_s = max(arrivals.present.values()) - up_s
            text = (
                f"{was['waiting']} wait, {rss_mb:.0f} MB; present values after {last_s:.3f} s, as number {arrivals.before}"
            )
            return text if slow else f"{text}; everything after {arrivals.last_s - up_s:.1f} s"


async def _all_present(arrivals: Arrivals) -> None:
    while len(arrivals.present) < len(TOPICS):
        await asyncio.sleep(0.01)


async def _settled(subject: Streamer) -> dict[str, int]:
    """Wait until the streamer has taken everything; return its account."""
    before: dict[str, int] = {}
    while True:
        now = dict(await asyncio.to_thread(subject.account))
        if now == before:
            return now
        before = now
        await asyncio.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7200, help="messages of each topic")
    parser.add_argument("--slow", type=float, help="bytes a second that the link carries; everything does not arrive then")
    parser.add_argument("--form", nargs="+", default=streamers()[:1], choices=streamers())
    parser.add_argument("--policy", nargs="+", default=list(POLICIES), choices=POLICIES)
    parser.add_argument("--journal", nargs="+", type=int, default=[1, 0], choices=(0, 1))
    a = parser.parse_args()
    for form in a.form:
        for name in a.policy:
            for has_journal in map(bool, a.journal):
                result = asyncio.run(measure(form, POLICIES[name], a.rounds, has_journal, a.slow))
                print(f"{NAMES[form]}, {'journal' if has_journal else 'in memory'}, {name}: {result}", flush=True)


if __name__ == "__main__":
    main()
