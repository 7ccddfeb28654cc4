"""SIGTERM while a receiver is away and a Zenoh vehicle goes on sending: what the daemon's session has taken is not lost.

The sender keeps the ledger. It puts only while it sees a subscription, and everything that it has put has to arrive, at the
latest after the next start; except for what was on the wire while the subscription ended, which no session has taken.
"""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zenoh

from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, attachment_of, is_matched, until_subscribed, zenoh_key
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint, raw_peer

pytestmark = pytest.mark.mosquitto

WAITING = 250
SENT = 200
ON_THE_WIRE_S = 0.5
"""What was put longer than this before the sender saw the subscription end was not on the wire then."""
DISPLAY = ("veh", 0x7F, 1, 0)
"""Who is away."""
CLOUD = ("cloud", 0x80, 1, 0)


class Vehicle:
    """Puts messages at a pace, in a thread of its own, for as long as somebody has subscribed. ``puts``: when, and which."""

    def __init__(self, session: zenoh.Session, messages: list[Plain], pace_s: float) -> None:
        self.puts: list[tuple[float, bytes]] = []
        self.unmatched_s = float("inf")
        self._session = session
        self._messages = messages
        self._pace_s = pace_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        publishers: dict[str, zenoh.Publisher] = {}
        for message in self._messages:
            key = zenoh_key(message)
            if key not in publishers:
                publishers[key] = self._session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)
            if not is_matched(publishers[key]):
                break
            self.puts.append((time.monotonic(), message.id))
            publishers[key].put(message.payload, attachment=attachment_of(message))
            if self._pace_s:
                time.sleep(self._pace_s)
        watches = list(publishers.values())
        while not self._ends.is_set() and any(is_matched(publisher) for publisher in watches):
            time.sleep(0.001)
        self.unmatched_s = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join(10)

    def owed(self, taken: int) -> "Owed":
        """What has to arrive, if the daemon says that it took so many."""
        before_s = self.unmatched_s - ON_THE_WIRE_S
        early = frozenset(message_id for put_s, message_id in self.puts if put_s < before_s)
        return Owed(early, frozenset(message_id for _, message_id in self.puts), taken)


class Owed(NamedTuple):
    """What has to arrive of ``put``: all that is ``early``, and ``taken`` in all.

    Which ones are taken last cannot be told: subscriptions end one after the other, and what is on the wire of one is older
    than what another one has taken.
    """

    early: frozenset[bytes]
    put: frozenset[bytes]
    taken: int

    def missing(self, arrived: set[bytes]) -> int:
        """How many have not arrived."""
        return max(len(self.early - arrived), self.taken - len(self.put & arrived))


class Scene:
    """A broker for the cloud, a Zenoh network for the vehicle, and the daemon."""

    def __init__(
        self, daemon: StreamerProcess, broker: Mosquitto, cloud: MqttSide, session: zenoh.Session, display_at: dict[str, Any]
    ) -> None:
        self.broker = broker
        self.daemon = daemon
        self.cloud = cloud
        self.session = session
        self.display_at = display_at

    async def wait_for_nobody(self) -> list[Plain]:
        """Messages for the display, which is away: they wait."""
        waiting = [Plain(4, ("cloud", 0x80, 1, 0x8100), DISPLAY, b"%d" % number) for number in range(WAITING)]
        await self.cloud.send(waiting)
        await self.daemon.until_total(WAITING, "ustreamer_queue_messages", route="cloud-veh")
        return waiting

    def taken(self) -> int:
        """How many messages the daemon says that it took from the vehicle before it was told to stop and after."""
        ended = [line for line in self.events("receiving_ended") if line["endpoint"] == "veh"]
        return sum(int(line["received"]) for line in ended)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The daemon's log lines of one kind."""
        lines = [json.loads(line) for line in self.daemon.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == name]

    async def terminate(self) -> None:
        self.daemon.signal(signal.SIGTERM)
        assert await self.daemon.ended() == 0, self.daemon.log

    def missing(self, owed: Owed) -> int:
        """How many messages of the vehicle have not arrived in the cloud."""
        return owed.missing({each.id for each in self.cloud.arrived})

    async def arrive(self, owed: Owed, waiting: list[Plain]) -> None:
        """After the next start everything is there, also for the display."""
        self.daemon.start()
        await self.daemon.until_up()
        ids = {message.id for message in waiting}
        keys = {zenoh_key(message) for message in waiting}
        async with ZenohSide(**self.display_at, keys=keys) as display:
            await until(lambda: ids <= {each.id for each in display.arrived}, "what waited for the display")
        try:
            await until(lambda: not self.missing(owed), "what the vehicle has sent")
        except AssertionError:
            raise AssertionError(f"{self.missing(owed)} messages are lost:\n{self.daemon.log[-3000:]}") from None


@asynccontextmanager
async def scene(directory: Path, through_router: bool = False, **changes: Any) -> AsyncIterator[Scene]:
    """``through_router``: vehicle, display and daemon are clients of a Zenoh router."""
    at, display = free_endpoint(), free_endpoint()
    mode = "client" if through_router else "peer"
    with Mosquitto() as broker, _vehicle_session(at, through_router) as session:
        config = (
            config_of(
                {
                    "veh": endpoint_of("zenoh", "veh", mode=mode, connect=[at] if through_router else [at, display]),
                    "cloud": endpoint_of("mqtt5", "cloud", broker=broker.url, topics="in-vehicle"),
                },
                [{"from": "veh", "to": "cloud", "publish": ["//veh/FFFFFFFF/FF/FFFF"]}, {"from": "cloud", "to": "veh"}],
                shutdown={"drain_s": 8},
            )
            | changes
        )
        display_at = {"connect": [at], "settings": {"mode": mode}} if through_router else {"listen": [display]}
        async with (
            MqttSide(broker.port, "in-vehicle", ["veh/#", "gw/#"]) as cloud,
            StreamerProcess(directory, config) as daemon,
        ):
            yield Scene(daemon, broker, cloud, session, display_at)


@contextmanager
def _vehicle_session(at: str, through_router: bool) -> Iterator[zenoh.Session]:
    if through_router:
        with raw_peer(mode="router", listen=[at]), raw_peer(mode="client", connect=[at]) as session:
            yield session
    else:
        with raw_peer(listen=[at]) as session:
            yield session


def journal(directory: Path) -> dict[str, Any]:
    return {"journal": {"path": str(directory / "journal.db")}}


def paced(number: int) -> Plain:
    """A notification of one flow."""
    return Plain(4, ("veh", 0x100, 1, 0x8100), CLOUD, b"%d" % number)


def scattered(number: int) -> Plain:
    """A Publish on one of many topics."""
    return Plain(1, ("veh", 0x200, 1, 0x8001 + number % 50), payload=b"%d" % number)


async def stop_midway(here: Scene, message: Callable[[int], Plain], count: int, pace_s: float) -> Owed:
    """Have the vehicle send, and the daemon stop when half of it was put; what has to arrive is returned."""
    await until_subscribed(here.session, zenoh_key(message(0)))
    vehicle = Vehicle(here.session, [message(number) for number in range(count)], pace_s)
    vehicle.start()
    try:
        await until(lambda: len(vehicle.puts) >= count // 2, "half of the messages")
        await here.terminate()
    finally:
        await asyncio.to_thread(vehicle.end)
    return vehicle.owed(here.taken())


@pytest.mark.parametrize("through_router", [False, True], ids=["peer", "client of a router"])
async def test_stop_while_a_receiver_is_away_loses_nothing(tmp_path: Path, through_router: bool) -> None:
    async with scene(tmp_path, through_router, **journal(tmp_path)) as here:
        waiting = await here.wait_for_nobody()
        owed = await stop_midway(here, paced, SENT, 0.01)
        await here.arrive(owed, waiting)


async def test_stop_during_a_burst_on_many_subscriptions_loses_nothing(tmp_path: Path) -> None:
    """More topics than have a thread: both kinds of subscription, and their buffers are full when the stop comes."""
    topics = [f"//veh/200/1/{resource:X}" for resource in range(0x8001, 0x8001 + 50)]
    routes = [{"from": "veh", "to": "cloud", "publish": topics}, {"from": "cloud", "to": "veh"}]
    async with scene(tmp_path, routes=routes, **journal(tmp_path)) as here:
        for number in range(50):
            await until_subscribed(here.session, zenoh_key(scattered(number)))
        waiting = await here.wait_for_nobody()
        owed = await stop_midway(here, scattered, 3000, 0.001)
        await here.arrive(owed, waiting)


async def test_stop_under_back_pressure_loses_nothing(tmp_path: Path) -> None:
    """The cloud's broker has stopped, the queue is full, and reading from Zenoh pauses when the stop comes."""
    changes: dict[str, Any] = {
        "queue_policy": {"window": 10, "queue": {"messages": 20, "stalled_factor": 0}},
        "shutdown": {"drain_s": 1},
    }
    async with scene(tmp_path, **journal(tmp_path), **changes) as here:
        os.kill(here.broker.pid, signal.SIGSTOP)
        try:
            owed = await stop_midway(here, paced, 5000, 0.001)
        finally:
            os.kill(here.broker.pid, signal.SIGCONT)
        await here.arrive(owed, [])


async def test_stop_without_a_journal_reports_what_it_cannot_deliver(tmp_path: Path) -> None:
    """It waits for the display for as long as it may. Then each message for it is a dead letter on the cloud's network."""
    async with scene(tmp_path, shutdown={"drain_s": 2}) as here:
        waiting = await here.wait_for_nobody()
        owed = await stop_midway(here, paced, SENT, 0.01)
        assert here.missing(owed) == 0
        await until(lambda: sum(each.source[0] == "gw" for each in here.cloud.arrived) == len(waiting), "the dead letters")


async def test_readyz_says_that_it_drains_and_a_second_sigterm_changes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path, shutdown={"drain_s": 3}) as here:  # no journal: it waits for the display
        await here.wait_for_nobody()
        assert here.daemon.get("/readyz")[0] == 200
        here.daemon.signal(signal.SIGTERM)
        await until(lambda: here.events("drain_began"), "the drain")
        assert (
            here.events("drain_began")[0] | {"waits_for": "veh:250", "left_in_journal": "nothing"}
            == here.events("drain_began")[0]
        )
        status, body = await asyncio.to_thread(here.daemon.get, "/readyz")
        assert (status, json.loads(body)["reasons"]) == (503, ["draining"])
        assert here.daemon.get("/healthz")[0] == 200
        here.daemon.signal(signal.SIGTERM)
        assert await here.daemon.ended() == 0
        assert len(here.events("drain_began")) == 1
