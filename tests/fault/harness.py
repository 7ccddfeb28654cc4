"""What faults are tried on: three networks, the daemon between them, a proxy on every link.

``cloud`` lives on a broker with off-vehicle topics, ``plant`` on a broker with in-vehicle topics, ``veh`` on Zenoh: a source
in this process and a receiver in a process of its own, both reached through proxies. Load runs cloud→veh, veh→cloud,
cloud→plant and plant→cloud, as far as the networks are there.
"""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.brokers import BrokerProcess, Mosquitto
from tests.configurations import endpoint_of
from tests.fault.ledger import Allowance, Breach, Ledger, Verdict
from tests.fault.load import GATEWAY, NOTIFICATION, Book, Flow, flows
from tests.fault.mqtt_node import MqttNode
from tests.fault.mqtt_tap import MqttTap
from tests.fault.proxy import Proxy
from tests.fault.scripted import ScriptedBroker
from tests.fault.setup import RECEIVE_MAXIMUM, TOPICS, FaultSetup
from tests.fault.zenoh_load import ZenohNode, ZenohSource
from tests.ports import free_port
from tests.process import StreamerProcess
from tests.waiting import until

ALIVE_S = 5.0
SETTLE_S = 60.0
QUIET_S = 3.0
JOURNALED_S = 0.25
"""After this long, what the daemon has counted as received is in its journal: many times its flush interval."""
UNORDERED = 64
"""So many of the last Zenoh messages before a kill need not have been the last: priorities overtake each other."""
NOTHING = Allowance()


class FaultHarness:
    """An asynchronous context manager; the daemon runs when it is entered, unless ``starts_daemon`` is False."""

    def __init__(self, directory: Path, seed: int, setup: FaultSetup, starts_daemon: bool = True) -> None:
        self.directory = directory
        self.setup = setup
        self.ledger = Ledger()
        self.book = Book(self.ledger, seed)
        self.brokers: dict[str, BrokerProcess] = {}
        self.proxies: dict[str, Proxy] = {}
        self.taps = {"cloud": MqttTap(), "plant": MqttTap()}
        self.nodes: dict[str, MqttNode] = {}
        self.source: ZenohSource | None = None
        self.receiver: ZenohNode | None = None
        self.router: ZenohNode | None = None
        self.scripted: ScriptedBroker | None = None
        self.daemon: StreamerProcess
        self.source_link_is_whole = True
        self._starts_daemon = starts_daemon
        self._probes = 0
        self._stack = AsyncExitStack()

    # -- building and tearing down ------------------------------------------------------------------------------------

    async def __aenter__(self) -> "FaultHarness":
        async with AsyncExitStack() as stack:
            endpoints: dict[str, Any] = {}
            for side in self.setup.sides:
                opened = await (self._open_zenoh(stack) if side == "veh" else self._open_broker(stack, side))
                endpoints[side] = opened
            self.daemon = StreamerProcess(self.directory, self.setup.configuration(endpoints))
            stack.callback(self._end_daemon)
            if self._starts_daemon:
                self.daemon.start()
                await self.until_ready()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.dump()
        await self._stack.aclose()

    def _end_daemon(self) -> None:
        """SIGKILL: the verdict stands, and a drain would only take time."""
        if self.daemon.process is not None:
            self.daemon.process.kill()
            self.daemon.process.wait()

    async def _open_broker(self, stack: AsyncExitStack, side: str) -> dict[str, Any]:
        setup = self.setup
        is_cloud = side == "cloud"
        if side == "plant" and setup.plant_script is not None:
            self.scripted = ScriptedBroker(side, self.ledger, setup.plant_script)
            await stack.enter_async_context(self.scripted.running())
            self.proxies[side] = await stack.enter_async_context(Proxy(self.scripted.port, self.taps[side]))
            return self._mqtt_endpoint(side, "in-vehicle", setup.plant_options)
        broker = Mosquitto(**(setup.cloud_broker if is_cloud else setup.plant_broker))
        self.brokers[side] = stack.enter_context(broker)
        self.proxies[side] = await stack.enter_async_context(Proxy(broker.port, self.taps[side]))
        structure = "off-vehicle" if is_cloud else "in-vehicle"
        topics = [f"+/{side}"] if is_cloud else ["cloud/#", f"{GATEWAY}/#"]
        node = self.nodes[side] = MqttNode(side, broker.port, structure, topics, self.book)
        node.start()
        stack.callback(node.close)
        return self._mqtt_endpoint(side, structure, setup.cloud_options if is_cloud else setup.plant_options)

    def _mqtt_endpoint(self, side: str, structure: str, changes: dict[str, Any]) -> dict[str, Any]:
        options = {
            "broker": f"mqtt://127.0.0.1:{self.proxies[side].port}",
            "topics": structure,
            "keep_alive_s": 2,
            "ack_timeout_s": 4,
            "connect_timeout_s": 4,
            "receive_maximum": RECEIVE_MAXIMUM,
            "reconnect": {"initial_ms": 100, "max_ms": 500},
        } | changes
        return {"transport": "mqtt5", "authorities": [side], "options": options}

    async def _open_zenoh(self, stack: AsyncExitStack) -> dict[str, Any]:
        ports = {name: free_port() for name in ("source", "receiver", "router")}
        for name in ("source", "router" if self.setup.through_router else "receiver"):
            self.proxies[name] = await stack.enter_async_context(Proxy(ports[name]))
        self.source = ZenohSource("veh", self.book, listen=[f"tcp/127.0.0.1:{ports['source']}"])
        await asyncio.to_thread(self.source.start)
        stack.callback(self.source.close)
        lease = [] if self.setup.lease_ms is None else ["--lease-ms", str(self.setup.lease_ms)]
        keys = [part for side in ("cloud", "plant", GATEWAY) for key in everything_from(side) for part in ("--key", key)]
        if self.setup.through_router:
            at = f"tcp/127.0.0.1:{ports['router']}"
            self.router = ZenohNode(self.directory, "--mode", "router", "--listen", at, *lease)
            stack.callback(self.router.kill)
            await asyncio.to_thread(self.router.start)
            # a router passes nothing on between peers that it takes for connected
            where = ["--mode", "client", "--connect", at]
        else:
            where = ["--listen", f"tcp/127.0.0.1:{ports['receiver']}"]
        self.receiver = ZenohNode(self.directory, *where, *keys, *lease)
        stack.callback(self.receiver.kill)
        if self.setup.has_receiver:
            await asyncio.to_thread(self.receiver.start)
        connect = [f"tcp/127.0.0.1:{proxy.port}" for name, proxy in self.proxies.items() if name not in self.brokers]
        return endpoint_of("zenoh", "veh", **{"mode": "peer", "connect": connect} | self.setup.veh_options)

    @property
    def ways(self) -> list[tuple[str, str]]:
        return [way for way in self.setup.ways if set(way) <= set(self.setup.sides)]

    # -- load ---------------------------------------------------------------------------------------------------------

    def pump(self, side: str) -> Any:
        if side == "veh":
            assert self.source is not None
            return self.source.pump
        return self.nodes[side].pump

    def load(self, rate: float, *ways: tuple[str, str], most_bytes: int = 4096) -> None:
        """Start sending so many messages a second from every side (or on these ways only)."""
        chosen = ways or tuple(self.ways)
        for origin in dict.fromkeys(here for here, _ in chosen):
            kinds = [f for here, there in chosen if here == origin for f in self.flows(here, there)]
            self.pump(origin).start(self.book.generator(kinds, most_bytes), rate)

    def flows(self, here: str, there: str) -> list[Flow]:
        return flows(here, there, TOPICS[there], self.setup.ttl_ms, self.setup.age_ms)

    def send(self, here: str, there: str, entity: int, number: int) -> bytes:
        """One Notification from an entity of one's own choice; its id."""
        flow = Flow(NOTIFICATION, (here, entity, 1, 0x8100), (there, 0x7F, 1, 0), there, 2)
        message = self.book.message(flow, number, b"%d" % number)
        self.pump(here).probe(message)
        return message.id

    def stop_load(self) -> None:
        for here in {here for here, _ in self.ways}:
            self.pump(here).stop()

    async def until_ready(self, within_s: float = 30) -> None:
        """The daemon says that it is ready, and it and the uEntities have found each other."""
        await self.daemon.until_up(within_s)
        await self.until_linked(within_s)

    async def until_linked(self, within_s: float = 30) -> None:
        """The same for a daemon that is not ready: its journal fails."""
        for side in self.setup.sides:
            await self.daemon.until_total(1, "ustreamer_endpoint_up", endpoint=side)
        await until(lambda: all(node.is_ready for node in self.nodes.values()), within_s=within_s, what="the MQTT clients")
        if self.source is not None:
            source = self.source
            await until(
                lambda: source.is_matched, within_s=within_s, what="the Zenoh source to see the daemon's subscription"
            )

    # -- the daemon ---------------------------------------------------------------------------------------------------

    async def hand_over(self, unordered: int = 0) -> None:
        """What the daemon has received over Zenoh so far has to arrive from now on."""
        if self.source is not None:
            await asyncio.to_thread(self._hand_over, unordered)

    def _hand_over(self, unordered: int) -> None:
        assert self.source is not None
        status, _ = self.daemon.get("/healthz")
        if status == 200:
            held = self.daemon.total("ustreamer_backlog_messages", endpoint="veh")
            received = self.daemon.total("ustreamer_received_messages_total", endpoint="veh")
            self.source.hand_over(int(received - held), unordered)

    async def kill_daemon(self) -> None:
        """SIGKILL, at once. What came in over Zenoh in the last moments had not been handed over."""
        await self.hand_over(UNORDERED)
        await asyncio.sleep(JOURNALED_S)
        process = self.daemon.process
        assert process is not None
        process.kill()
        await asyncio.to_thread(process.wait)

    async def start_daemon(self) -> None:
        """Start the daemon again, after it has ended."""
        if self.source is not None:
            source = self.source
            await until(lambda: source.is_alone, within_s=10, what="the Zenoh source to see that the daemon is gone")
            source.new_daemon()
        self.daemon.start()

    async def restart_daemon(self) -> None:
        """The same, and wait until everybody has found each other again."""
        await self.start_daemon()
        await self.until_ready()

    async def stop_receiver(self, seconds: float) -> None:
        """SIGSTOP for the Zenoh receiver, then SIGCONT."""
        assert self.receiver is not None
        self.receiver.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.receiver.signal(signal.SIGCONT)

    # -- the end ------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Take what the Zenoh receiver has written."""
        if self.receiver is not None:
            self.receiver.poll(lambda message, at_s: self.book.take("veh", message, at_s))

    def queued(self) -> int:
        """Messages that the daemon says it holds."""
        return int(self.daemon.total("ustreamer_queue_messages") + self.daemon.total("ustreamer_backlog_messages"))

    async def settle(self, within_s: float = SETTLE_S) -> None:
        """Wait until everything has arrived; or until the daemon holds nothing any more; or for ``within_s``."""
        deadline_s = time.monotonic() + within_s
        quiet_since_s = time.monotonic()
        progress: tuple[int, int] | None = None
        while time.monotonic() < deadline_s and not self._has_ended():
            self.read()
            await self.hand_over()
            missing = len(self.ledger.missing())
            unconfirmed = sum(len(node.unconfirmed) for node in self.nodes.values())
            if not missing and not unconfirmed:
                return
            now = missing, unconfirmed
            if now != progress or await asyncio.to_thread(self.queued) > 0:
                progress, quiet_since_s = now, time.monotonic()
            if time.monotonic() - quiet_since_s > QUIET_S:
                return
            await asyncio.sleep(0.05)

    async def until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait for something that the ledger tells."""

        def true_now() -> bool:
            self.read()
            return condition()

        await until(true_now, within_s=within_s, what=what)

    async def until_flowing(self) -> None:
        """Wait until something that is sent from now on has arrived on every way: the load gets through."""
        so_far = len(self.ledger.entries())
        await self.until(lambda: self.ledger.crossed(so_far) >= set(self.ways), SETTLE_S, "traffic on every way")

    async def settle_sends(self, within_s: float = 20) -> None:
        """Wait until the brokers have confirmed what was to be sent."""
        nodes = self.nodes.values()
        await until(
            lambda: not any(n.unconfirmed or n.pump.is_behind for n in nodes), within_s=within_s, what="the brokers' PUBACKs"
        )

    async def finish(self, allowance: Allowance = NOTHING, within_s: float = SETTLE_S) -> Verdict:
        """Stop the load, wait for the rest, see that new messages cross, and compare."""
        self.stop_load()
        await self.settle(within_s)
        dead = [self._last_words()] if self._has_ended() else await self._probe_all()
        await self._until_all_received()
        self.read()
        queued = await asyncio.to_thread(self.queued)
        verdict = self.ledger.verdict(allowance, queued)
        verdict.add(Breach.DEAD, dead)
        if not self._has_ended():
            try:
                await asyncio.to_thread(self.daemon.check_books)
            except AssertionError as exc:
                verdict.add(Breach.BOOKS, [str(exc) or "no answer on the admin port"])
        errors = [f"{node.side}: {node.error!r}" for node in self.nodes.values() if node.error is not None]
        if self.source is not None and self.source.error is not None:
            errors.append(f"veh: {self.source.error!r}")
        assert not errors, errors
        return verdict

    def _has_ended(self) -> bool:
        return self.daemon.process is not None and self.daemon.process.poll() is not None

    def _last_words(self) -> str:
        assert self.daemon.process is not None
        lines = [line.strip(" |+-") for line in self.daemon.log.splitlines()]
        return f"the daemon has ended, exit status {self.daemon.process.poll()}: {next(filter(None, reversed(lines)), '')}"

    async def _until_all_received(self) -> None:
        """Where nothing happened to the source's link, everything that this daemon's subscription matched has to arrive."""
        if self.source is None or not self.source_link_is_whole:
            return
        self.source.hand_over(self.source.since_start())
        deadline_s = time.monotonic() + ALIVE_S
        while self.ledger.missing() and time.monotonic() < deadline_s:
            self.read()
            await asyncio.sleep(0.05)

    async def _probe_all(self) -> list[str]:
        """Ways on which a new message does not cross in time."""
        return await unanswered({way: self._probe(*way) for way in self.ways}, self.ledger, self.read)

    def _probe(self, here: str, there: str) -> bytes:
        self._probes += 1
        return self.send(here, there, 0x400 + self._probes, 0)

    def dump(self) -> None:
        """Leave the ledger beside log and configuration, for who wants to know what happened."""
        (self.directory / "ledger.json").write_text(json.dumps(self.ledger.dump(), indent=1))
        for side, tap in self.taps.items():
            for name, ids in (("received", tap.received), ("sent", tap.sent)):
                (self.directory / f"{side}.{name}").write_text("".join(f"{each.hex()}\n" for each in ids))


def everything_from(authority: str) -> list[str]:
    """Keys that together match every message from an authority once, and do not look like those of a recorder."""
    source = f"up/{authority}/*/*/*"
    return [f"{source}/*/{{}}/{{}}/{{}}/{{}}/{{}}", f"{source}/0/*/*/*/*/*", f"{source}/*/*/*/*/*/0"]


async def unanswered(probes: Mapping[tuple[str, str], bytes], ledger: Ledger, read: Callable[[], object]) -> list[str]:
    """The ways (from, to) whose probe, a message id, does not arrive in time. ``read`` brings the ledger up to date."""
    deadline_s = time.monotonic() + ALIVE_S
    while time.monotonic() < deadline_s:
        read()
        if all(map(ledger.has_arrived, probes.values())):
            return []
        await asyncio.sleep(0.02)
    return [f"{here}→{there}" for (here, there), probe in probes.items() if not ledger.has_arrived(probe)]
