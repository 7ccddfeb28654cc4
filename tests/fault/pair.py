"""A pair of streamers under load: one active, one on standby, each with a supervisor that starts it again when it ends.

    uEntities at veh (Zenoh) ⇄ gateway a or b ⇄ broker ⇄ uEntity at cloud
                                                  ⇄ far streamer ⇄ another broker → uEntity at plant

Between the two is a proxy, and so on every link of each of them. Load runs cloud→veh and veh→cloud, and veh→plant if there
is a plant: ``cloud`` and ``veh`` are plain receivers, which get what comes twice; ``plant`` is behind a streamer that drops
it, or on a broker of its own. `PairSetup` says what else there may be.

What was put on Zenoh has to arrive, as long as one of the two was there to hear it. On a machine that is so busy that the
harness itself does not run, both may lose their links to the source at once, and with them what was on its way: that is
counted (`unheard`), and need not arrive.
"""

import asyncio
import itertools
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing, contextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.brokers import Mosquitto
from tests.fault.hanging_disk import WHILE
from tests.fault.harness import QUIET_S, SETTLE_S, everything_from, unanswered
from tests.fault.ledger import Allowance, Breach, Ledger, Verdict
from tests.fault.load import GATEWAY, NOTIFICATION, Book, Flow, flows
from tests.fault.mqtt_node import MqttNode
from tests.fault.pair_tap import IdTap, PairTap
from tests.fault.proxy import Direction, Proxy, SpeakingTap, Tap
from tests.fault.setup import RECEIVE_MAXIMUM, TOPICS, ZENOH_OPTIONS, PairSetup
from tests.fault.zenoh_load import ZenohNode, ZenohSource, restless_node
from tests.independent.message import Plain
from tests.ports import HOST, free_port
from tests.process import ROOT, StreamerProcess
from tests.waiting import until

FAR = "far"
NAMES = ("a", "b")
PROGRAM = (sys.executable, "-m", "streamer")
AGAIN_S = 0.2
"""How long a supervisor waits before it starts a daemon again."""
WITHIN_S = 40.0
_READ_EVENTS = (b'"starting"', b'"pair_role"', b'"zenoh_session_open"', b'"zenoh_node_found"', b'"zenoh_node_lost"')
IN_TIME_S = 2.0
"""A message that takes longer has not arrived in time."""
ZENOHS_LEASE_MS = 10_000
AT_ONCE_MS = 500.0
PLANT_CLIENT_ID = "the-pair-at-plant"


class Gateway:
    """One of the two. Its log says which role it has."""

    def __init__(self, name: str, directory: Path, disk: Path, config: dict[str, Any], environ: dict[str, str]) -> None:
        directory.mkdir(exist_ok=True)
        disk.mkdir(exist_ok=True)
        self.name = name
        self.disk = disk
        self.copied_disk = directory / "copied disk"
        self.process = StreamerProcess(directory, config, environ | {WHILE: str(directory / "hangs")}, program=PROGRAM)
        self.is_active = False
        self.has_begun = False
        """It has started, and its handlers of signals are there."""
        self.nodes: set[str] = set()
        """The Zenoh ids of those that it is linked to."""
        self.lost_ms: dict[str, list[float]] = {}
        """When it has lost its links, by Zenoh id."""
        self.take_overs = 0
        self.reasons: list[str] = []
        """Why its role has changed, each time."""
        self.ends: list[int] = []
        """Exit statuses."""
        self._read = 0
        self._is_wanted = asyncio.Event()

    @property
    def is_running(self) -> bool:
        process = self.process.process
        return process is not None and process.poll() is None

    @property
    def unexpected_ends(self) -> list[str]:
        """Ends that nobody outside has caused, and that were no orderly ones."""
        return [f"{self.name} has ended with status {each}" for each in self.ends if each not in (0, -signal.SIGKILL)]

    async def supervise(self) -> None:
        """Start it, and again whenever it has ended, while it is wanted."""
        while True:
            await self._is_wanted.wait()
            self.process.start()
            await until(lambda: not self.is_running, f"the end of {self.name}", within_s=1e6)
            assert self.process.process is not None
            assert self.process.process.returncode is not None
            self.ends.append(self.process.process.returncode)
            self.is_active = self.has_begun = False
            await asyncio.sleep(AGAIN_S)

    def start(self) -> None:
        """Have it run from now on."""
        self._is_wanted.set()

    def signal(self, number: signal.Signals, stays: bool = False) -> None:
        """``stays``: if it ends, its supervisor does not start it again before `start`."""
        if stays:
            self._is_wanted.clear()
        if self.is_running:
            self.process.signal(number)

    def end(self) -> None:
        """SIGKILL, for good."""
        self._is_wanted.clear()
        if (process := self.process.process) is not None:
            process.kill()
            process.wait()

    def empty_disk(self) -> None:
        """Replace its disk by an empty one; it must not run."""
        assert not self.is_running
        shutil.rmtree(self.disk)
        self.disk.mkdir()

    def copy_disk(self) -> None:
        """Copy its disk as it is at a moment. Whoever is its pair does not notice."""
        self.signal(signal.SIGSTOP)
        shutil.copytree(self.disk, self.copied_disk)
        self.signal(signal.SIGCONT)

    @contextmanager
    def hanging_disk(self) -> Iterator[None]:
        """Its disk hangs for a while (`hanging_disk`)."""
        file = self.copied_disk.with_name("hangs")
        file.touch()
        try:
            yield
        finally:
            file.unlink()

    def read_log(self) -> None:
        """Learn its role, and which nodes it has on Zenoh."""
        if not self.process.log_path.exists():
            return
        with self.process.log_path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._read += end
        for line in data[:end].splitlines():
            if not any(event in line for event in _READ_EVENTS):
                continue
            said = json.loads(line)
            match said["event"]:
                case "starting":
                    self.is_active, self.has_begun = False, True
                    self.nodes.clear()
                case "zenoh_session_open":
                    self.nodes.clear()
                case "zenoh_node_found":
                    self.nodes.add(said["zid"])
                case "zenoh_node_lost":
                    self.nodes.discard(said["zid"])
                    at_ms = datetime.fromisoformat(said["ts"]).timestamp() * 1000
                    self.lost_ms.setdefault(said["zid"], []).append(at_ms)
                case "pair_role":
                    self.is_active = said["role"] == "active"
                    self.take_overs += self.is_active
                    self.reasons.append(said["reason"])

    async def command(self, *words: str) -> tuple[int, str]:
        """Run a command of the program for this one: exit status and output."""
        argv = [*PROGRAM, *words, "--config", str(self.process.path)]
        done = await asyncio.to_thread(subprocess.run, argv, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S)
        return done.returncode, done.stdout + done.stderr

    def is_ready(self) -> bool:
        """Whether it says so: on standby, that it could take over without a loss."""
        return self.process.get("/readyz")[0] == HTTPStatus.OK

    def refused(self, what: str) -> float:
        """How often it has refused strangers, frames or heartbeats, by its own count."""
        return self.process.total("ustreamer_pair_refused_total", what=what)

    def entries(self, table: str) -> int:
        """How many entries its journal has in a table."""
        with closing(sqlite3.connect(f"file:{self.disk / 'journal.db'}?mode=ro", uri=True)) as file:
            return int(file.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def left(self) -> list[str]:
        """What waits in its journal, and what it has heard on standby and keeps."""
        counts = {table: self.entries(table) for table in ("rows", "segments")}
        counts["messages overheard"] = int(self.process.total("ustreamer_pair_overheard_messages"))
        return [f"{count} {what} at {self.name}" for what, count in counts.items() if count]

    def count(self, event: str) -> int:
        """How often its log has an event."""
        return self.process.log.count(f'"event": "{event}"')


class PairHarness:
    """An asynchronous context manager. When it is entered, one is active and the other has a copy of everything."""

    def __init__(self, directory: Path, seed: int, setup: PairSetup | None = None) -> None:
        self.directory = directory
        self.setup = setup or PairSetup()
        self.ledger = Ledger()
        self.book = Book(self.ledger, seed)
        self.tap = PairTap()
        self.said = {name: IdTap() for name in NAMES}
        """What each has said to the receiver on Zenoh."""
        self.to_broker = {name: SpeakingTap() for name in NAMES}
        self.gateways: dict[str, Gateway] = {}
        self.proxies: dict[tuple[str, str], Proxy] = {}
        """Of each gateway those to the ``broker``, the ``source`` and the ``receiver``, and to the broker of ``plant``."""
        self.link: Proxy
        self.near: Proxy | None = None
        """Between the two over Zenoh, if there is such a link: FORWARD is from b to a."""
        self.link_port = 0
        """Where the one of the two listens, past the proxy."""
        self.broker: Mosquitto
        self.key_file = directory / "key"
        self._disks = self.setup.disks or {name: directory / name / "disk" for name in NAMES}
        self._zenoh_ports = {name: free_port() for name in NAMES}
        """Where they listen, if programs connect to them."""
        self._generators: dict[str, Iterator[Plain]] = {}
        self._nodes: dict[str, MqttNode] = {}
        self._source: ZenohSource
        self.receiver: ZenohNode
        self.router: ZenohNode | None = None
        self.plant_port = 0
        self._probes = 0
        self._took_s: list[float] = []
        self._measured: list[tuple[float, float, float]] = []
        self._wrong_signs: list[str] = []
        self._named: set[bytes] = set()
        self._lease_ms = ZENOHS_LEASE_MS if self.setup.is_readme else ZENOH_OPTIONS["lease_ms"]
        self._accepted = 0  # of the source's puts
        self._unheard = 0
        self._stack = AsyncExitStack()

    # -- building and tearing down ------------------------------------------------------------------------------------

    async def __aenter__(self) -> "PairHarness":
        async with AsyncExitStack() as stack:
            self.key_file.write_text("k" * 40)
            self.key_file.chmod(0o600)
            self.broker = stack.enter_context(Mosquitto())
            self._add_node(stack, "cloud", self.broker, "off-vehicle", ["+/cloud"])
            self.link_port = free_port()
            self.link = await stack.enter_async_context(Proxy(self.link_port, self.tap))
            if self.setup.plant is not None:
                await self._open_plant(stack)
            await self._open_vehicle(stack)
            for name in NAMES:
                config = self._configuration(name)
                gateway = Gateway(name, self.directory / name, self._disks[name], config, self.setup.environ)
                self.gateways[name] = gateway
                task = asyncio.create_task(gateway.supervise(), name=f"supervisor-{name}")
                stack.callback(gateway.end)
                stack.callback(task.cancel)
                gateway.start()
            await self.until_pair()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        (self.directory / "ledger.json").write_text(json.dumps(self.ledger.dump(), indent=1))
        (self.directory / "named").write_text("".join(f"{each.hex()}\n" for each in self.tap.named))
        await self._stack.aclose()

    def _add_node(self, stack: AsyncExitStack, side: str, broker: Mosquitto, structure: str, topics: list[str]) -> None:
        node = self._nodes[side] = MqttNode(side, broker.port, structure, topics, self.book)
        node.start()
        stack.callback(node.close)

    async def _open_plant(self, stack: AsyncExitStack) -> None:
        broker = stack.enter_context(Mosquitto())
        self.plant_port = broker.port
        self._add_node(stack, "plant", broker, "in-vehicle", ["veh/#"])
        if self.setup.plant == "broker":
            return
        config = {
            "authority": FAR,
            "endpoints": {
                "near": _mqtt(self.broker.port, "off-vehicle", ["veh"]),
                "plant": _mqtt(broker.port, "in-vehicle", ["plant"]),
            },
            "routes": [{"from": "near", "to": "plant"}],
        }
        far = StreamerProcess(self.directory, config)
        await stack.enter_async_context(far)

    async def _open_vehicle(self, stack: AsyncExitStack) -> None:
        """A source and a receiver on Zenoh, and a proxy on every link of the two: who connects depends on the setup."""
        programs = {"source": free_port(), "receiver": free_port()}
        targets = {name: dict(programs) for name in NAMES}
        where = {what: {"listen": [_tcp(port)]} for what, port in programs.items()}
        if self.setup.through_router:
            port = free_port()
            self.router = ZenohNode(self.directory, "--mode", "router", "--listen", _tcp(port))
            stack.callback(self.router.kill)
            await asyncio.to_thread(self.router.start)
            targets = {name: {"router": port} for name in NAMES}
            where = {what: {"connect": [_tcp(port)]} for what in programs}
        elif self.setup.is_readme:
            targets = {name: dict.fromkeys(programs, self._zenoh_ports[name]) for name in NAMES}
            self.near = await stack.enter_async_context(Proxy(self._zenoh_ports["a"]))
        for name in NAMES:
            more = {"plant": self.plant_port} if self.setup.plant == "broker" else {}
            for what, port in (targets[name] | more | {"broker": self.broker.port}).items():
                taps: dict[str, Tap] = {"receiver": self.said[name], "broker": self.to_broker[name]}
                tap = taps.get(what)
                self.proxies[name, what] = await stack.enter_async_context(Proxy(port, tap))
        if self.near is not None:
            where = {what: {"connect": [_tcp(self.proxies[name, what].port) for name in NAMES]} for what in programs}
        mode = "peer" if self.router is None else "client"
        self._source = ZenohSource("veh", self.book, mode=mode, **where["source"])
        await asyncio.to_thread(self._source.start)
        stack.callback(self._source.close)
        at = [part for how, places in where["receiver"].items() for place in places for part in (f"--{how}", place)]
        keys = [part for key in everything_from("cloud") for part in ("--key", key)]
        lease = [] if self.setup.is_readme else ["--lease-ms", "2000"]
        self.receiver = ZenohNode(self.directory, "--mode", mode, *at, *lease, *keys)
        stack.callback(self.receiver.kill)
        await asyncio.to_thread(self.receiver.start)

    def _configuration(self, name: str) -> dict[str, Any]:
        where = {"listen": f"{HOST}:{self.link_port}"} if name == "a" else {"connect": f"{HOST}:{self.link.port}"}
        zenoh: dict[str, Any]
        if self.router is not None:
            zenoh = {"connect": [_tcp(self.proxies[name, "router"].port)]}
        elif self.near is not None:
            zenoh = {"listen": [_tcp(self._zenoh_ports[name])], "connect": [_tcp(self.near.port)] if name == "b" else []}
        else:
            zenoh = {"connect": [_tcp(self.proxies[name, what].port) for what in ("source", "receiver")]} | ZENOH_OPTIONS
        at_cloud = ["*"] if self.setup.is_readme else ["cloud", *(["plant"] if self.setup.plant == "far streamer" else [])]
        topics = [f"//veh/FFFFFFFF/FF/{TOPICS['cloud']:X}"]
        endpoints = {
            "cloud": _mqtt(self.proxies[name, "broker"].port, "off-vehicle", at_cloud),
            "veh": {"transport": "zenoh", "authorities": ["veh"], "options": {"mode": "peer"} | zenoh},
        }
        routes = [
            {"from": "veh", "to": "cloud", "publish": topics, "publish_to": ["cloud"]},
            {"from": "cloud", "to": "veh", "publish": [f"//cloud/FFFFFFFF/FF/{TOPICS['veh']:X}"]},
        ]
        times = {} if self.setup.is_readme else {"wait_s": 2}
        if self.setup.plant == "broker":
            endpoints["plant"] = _mqtt(self.proxies[name, "plant"].port, "in-vehicle", ["plant"], PLANT_CLIENT_ID)
            routes.append({"from": "veh", "to": "plant"})
        return {
            "authority": GATEWAY,
            "endpoints": endpoints,
            "routes": routes,
            "journal": {"path": str(self._disks[name] / "journal.db")},
            "shutdown": {"drain_s": 20},
            "pair": {**where, "key_file": str(self.key_file), **times, **self.setup.pair},
        } | self.setup.changes

    @property
    def ways(self) -> list[tuple[str, str]]:
        return [("cloud", "veh"), ("veh", "cloud"), *([("veh", "plant")] if self.setup.plant else [])]

    # -- load ---------------------------------------------------------------------------------------------------------

    def load(self, rate: float, origins: Iterable[str] = ("cloud", "veh")) -> None:
        """Start sending so many messages a second, each way, or from these sides only."""
        for origin in origins:
            if origin not in self._generators:
                kinds = [f for here, there in self.ways if here == origin for f in self._flows(here, there)]
                self._generators[origin] = self.book.generator(kinds, 1024)
            self._pump(origin).start(self._generators[origin], rate)

    def stop_load(self) -> None:
        for origin in ("cloud", "veh"):
            self._pump(origin).stop()

    @contextmanager
    def measured(self, least: float) -> Iterator[None]:
        """Measure how much of this time the routes between cloud and veh work; ``least``: in per cent (`Ledger.worked`)."""
        began_s = self.book.now_s
        yield
        self._measured.append((began_s, self.book.now_s, least))

    def sign_was_wrong(self, what: str) -> None:
        """Something that one of the two has said is not so."""
        self._wrong_signs.append(what)

    def _pump(self, side: str) -> Any:
        return self._source.pump if side == "veh" else self._nodes[side].pump

    def _flows(self, here: str, there: str) -> list[Flow]:
        found = flows(here, there, TOPICS[there])
        has_publishes = self.setup.has_publishes and there != "plant"  # an off-vehicle Publish has one place
        return [each for each in found if has_publishes or each.sink is not None]

    def _probe(self, here: str, there: str) -> bytes:
        self._probes += 1
        flow = Flow(NOTIFICATION, (here, 0x400 + self._probes, 1, 0x8100), (there, 0x7F, 1, 0), there, 2)
        message = self.book.message(flow, 0, b"probe")
        self._pump(here).probe(message)
        return message.id

    # -- the two ------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> Gateway:
        """The one that says it is active; raises AssertionError unless there is exactly one."""
        found = self._active()
        assert len(found) == 1, f"{len(found)} are active"
        return found[0]

    @property
    def standby(self) -> Gateway:
        """The other one."""
        return self.other(self.active)

    @property
    def take_overs(self) -> int:
        """How often the roles have changed."""
        self._active()
        return sum(each.take_overs for each in self.gateways.values()) - 1

    def other(self, one: Gateway) -> Gateway:
        return next(each for each in self.gateways.values() if each is not one)

    def _active(self) -> list[Gateway]:
        for each in self.gateways.values():
            each.read_log()
        return [each for each in self.gateways.values() if each.is_active and each.is_running]

    async def until_active(self, gateway: Gateway) -> None:
        """Wait until it is active, and the other one is not."""
        await self.until(lambda: self._active() == [gateway], f"{gateway.name} active alone")

    async def until_roles(self) -> tuple[Gateway, Gateway]:
        """Wait until one of the two is active and the other is not; return both."""
        await self.until(lambda: len(self._active()) == 1, "one active")
        return self.active, self.standby

    async def until_takes_over(self, gateway: Gateway) -> None:
        """Wait until it is active, whatever the other one does."""
        await self.until(lambda: gateway in self._active(), f"{gateway.name} active")

    async def until_pair(self) -> tuple[Gateway, Gateway]:
        """Wait until one of the two is active and has its links, and the other one has a copy of everything and hears.

        Return the active one and the standby.
        """

        def found() -> Gateway | None:
            active = self._active()
            is_pair = len(active) == 1 and self.other(active[0]).has_begun and self.link.open_links > 0 and self.tap.is_whole
            programs = [self._source.zid, self.receiver.zid] if self.router is None else [self.router.zid]
            nodes = set(filter(None, programs))
            return active[0] if is_pair and all(nodes <= each.nodes for each in self.gateways.values()) else None

        def is_linked(active: Gateway) -> bool:
            return self._is_up(active, "veh", "cloud") and self._is_up(self.other(active), "veh")

        deadline_s = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline_s:
            await self.until(
                lambda: found() is not None, "an active one, a standby with a whole copy, and both linked to veh"
            )
            if (active := found()) is not None and await asyncio.to_thread(is_linked, active) and found() is active:
                await self.until(lambda: self._source.is_matched, "a subscription")
                await self.until(lambda: all(node.is_ready for node in self._nodes.values()), "the MQTT clients")
                return active, self.other(active)
            await asyncio.sleep(0.05)
        raise AssertionError("the two do not have their links")

    async def until_linked_anew(self, links: int) -> None:
        """Wait until there have been more than so many connections of the two, and the last one has copied everything."""

        def is_linked() -> bool:
            return self.link.links > links and self.tap.is_whole and len(self.tap.beats) == len(Direction)

        await self.until(is_linked, "a new link, a whole copy, and heartbeats")

    async def until_whole(self) -> None:
        """Wait until the standby has a copy of everything that waits."""
        await self.until(lambda: self.link.open_links > 0 and self.tap.is_whole, "a whole copy")

    async def happens(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Whether something that is asked of a daemon becomes true in time."""
        deadline_s = time.monotonic() + within_s
        while not (is_true := await asyncio.to_thread(condition)) and time.monotonic() < deadline_s:
            self.read()
            await asyncio.sleep(0.05)
        return is_true

    def delay(self, seconds: float) -> None:
        """Make the way between the two longer, and between them and the vehicle, in each direction."""
        vehicle = [self.proxies[name, what] for name in NAMES for what in ("source", "receiver")]
        for proxy in (self.link, *vehicle, *([] if self.near is None else [self.near])):
            proxy.delay(seconds)

    def restless_node(self) -> AbstractAsyncContextManager[None]:
        """A node that joins both on Zenoh once a second, and leaves; programs have to connect to them."""
        return restless_node(*(_tcp(port) for port in self._zenoh_ports.values()))

    async def receiver_leaves(self) -> None:
        """Nobody listens at veh any more, and both know, unless there is a router between."""
        await asyncio.to_thread(self.receiver.kill)
        ways = [proxy for (_, what), proxy in self.proxies.items() if what == "receiver"]
        await self.until(lambda: not any(way.open_links for way in ways), "the end of the receiver's links")

    async def receiver_returns(self) -> None:
        await asyncio.to_thread(self.receiver.start)

    async def until_received(self) -> None:
        """Wait until the active one receives nothing more from cloud and does not wait for the standby; without a load."""
        await until(lambda: not any(node.unconfirmed for node in self._nodes.values()), "the broker's PUBACKs")
        process = (await self.until_roles())[0].process
        totals: deque[float] = deque(maxlen=10)

        def has_received() -> bool:
            totals.append(process.total("ustreamer_received_messages_total", endpoint="cloud"))
            is_quiet = len(totals) == totals.maxlen and len(set(totals)) == 1
            return is_quiet and process.total("ustreamer_pair_waiting_bytes") == 0

        assert await self.happens(has_received, WITHIN_S), "not everything has been received"

    async def pile_up_on_both(self, rate: float, seconds: float) -> None:
        """Have messages from cloud wait on both disks; nobody takes them."""
        self.load(rate, ["cloud"])
        await asyncio.sleep(seconds)
        self.stop_load()
        await self.until_received()

        def is_on_both() -> bool:
            counts = [{table: each.entries(table) for table in ("rows", "segments")} for each in self.gateways.values()]
            return counts[0] == counts[1] and any(counts[0].values())

        assert await self.happens(is_on_both, WITHIN_S), "the two do not have the same"

    def took(self, since_s: float) -> None:
        """Report how long something took, since a time of the monotonic clock."""
        self._took_s.append(time.monotonic() - since_s)

    async def pile_up(self, gateway: Gateway, seconds: float) -> None:
        """Cut its link to the broker, and have messages wait for that."""
        await self.proxies[gateway.name, "broker"].sever()
        await gateway.process.until_down("cloud")
        await asyncio.sleep(seconds)

    async def until_journaled(self, gateway: Gateway) -> None:
        """Wait until the journal of this one has what has come from veh and has not arrived; the load has been stopped.

        While the other one may still answer, it is not written.
        """
        await until(lambda: not any(node.unconfirmed for node in self._nodes.values()), "the broker's PUBACKs")
        self.accept_all()

        def is_journaled() -> bool:
            self.read()
            return gateway.entries("rows") >= sum(1 for entry in self.ledger.missing() if entry.origin == "veh")

        deadline_s = time.monotonic() + WITHIN_S
        while not await asyncio.to_thread(is_journaled):
            assert time.monotonic() < deadline_s, f"{gateway.name} has not written everything"
            await asyncio.sleep(0.05)

    async def deafen(self, gateway: Gateway) -> None:
        """Have one of them hear nothing on Zenoh; the other one does."""
        await self.until_hears(self.other(gateway))
        await self.proxies[gateway.name, "source"].sever()

    async def undeafen(self, gateway: Gateway) -> None:
        """End that."""
        await self.proxies[gateway.name, "source"].heal()
        await self.until_hears(gateway)

    async def until_hears(self, gateway: Gateway) -> None:
        """Wait until it has got something over Zenoh, under load."""

        def heard() -> float:
            return gateway.process.total("ustreamer_received_packets_total", endpoint="veh")

        before = await asyncio.to_thread(heard)
        deadline_s = time.monotonic() + WITHIN_S
        while await asyncio.to_thread(heard) <= before:
            assert time.monotonic() < deadline_s, f"{gateway.name} hears nothing"
            self.read()
            await asyncio.sleep(0.05)

    @staticmethod
    def _is_up(gateway: Gateway, *endpoints: str) -> bool:
        return all(gateway.process.total("ustreamer_endpoint_up", endpoint=each) == 1 for each in endpoints)

    # -- the end ------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Take what the Zenoh receiver has written."""
        self.receiver.poll(lambda message, at_s: self.book.take("veh", message, at_s))

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
        """Wait for something that the ledger or the two tell."""

        def true_now() -> bool:
            self.read()
            return condition()

        await until(true_now, within_s=within_s, what=what)

    async def until_flowing(self, ways: list[tuple[str, str]] | None = None, since_s: float | None = None) -> None:
        """Wait until something that is sent from now on has arrived on these ways, on every one if none are named.

        ``since_s``: report how long that was after a time of the monotonic clock.
        """
        so_far = len(self.ledger.entries())
        wanted = set(ways or self.ways)
        await self.until(lambda: self.ledger.crossed(so_far) >= wanted, f"traffic on {wanted}", SETTLE_S)
        if since_s is not None:
            self.took(since_s)

    def note_named(self) -> None:
        """What has been named to the other one so far, and has come once, must not come twice over MQTT."""
        self._named |= self.tap.named - self.ledger.copied("cloud").keys()

    def accept_all(self) -> None:
        """Everything that was put on Zenoh so far has to arrive, unless both have lost the source just after that."""
        for gateway in self.gateways.values():
            gateway.read_log()
        losses = (gateway.lost_ms.get(self._source.zid, []) for gateway in self.gateways.values())
        at_once = [sorted(pair) for pair in itertools.product(*losses) if abs(pair[0] - pair[1]) < AT_ONCE_MS]
        for message_id in self._source.puts[self._accepted :]:
            put_ms = int.from_bytes(message_id[:6])
            if any(first_ms - self._lease_ms <= put_ms <= last_ms for first_ms, last_ms in at_once):
                self._unheard += 1
            else:
                self.ledger.acknowledged(message_id)
            self._accepted += 1

    async def settle(self) -> None:
        """Wait until everything has arrived; or until nothing has changed for a while and the two hold nothing any more."""
        deadline_s = time.monotonic() + SETTLE_S
        quiet_since_s, progress = time.monotonic(), (-1, -1)
        while time.monotonic() < deadline_s:
            self.read()
            self.accept_all()
            now = len(self.ledger.missing()), sum(len(node.unconfirmed) for node in self._nodes.values())
            if now == (0, 0):
                return
            if now != progress or await asyncio.to_thread(self._queued) > 0:
                progress, quiet_since_s = now, time.monotonic()
            if time.monotonic() - quiet_since_s > QUIET_S:
                return
            await asyncio.sleep(0.05)

    def _queued(self) -> int:
        names = ("ustreamer_queue_messages", "ustreamer_backlog_messages")
        return int(sum(each.process.total(name) for each in self.gateways.values() for name in names))

    async def finish(self, twice: dict[str, int] | None = None, *, inversions: bool = False) -> Verdict:
        """Stop the load, wait for the rest and for both to be a pair again, and compare.

        ``twice``: how many messages may arrive more than once, by side; none at those that are not named. ``inversions``:
        whether what one has accepted alone may arrive late.
        """
        self.stop_load()
        await self.settle()
        wrong = []
        try:
            await self.until_pair()
        except AssertionError as exc:
            wrong.append(f"no pair in the end: {exc}")
        wrong += await self._probe_all()
        left = [] if wrong or self.ledger.missing() else await self._left()
        unbalanced = [] if wrong else await asyncio.to_thread(self._unbalanced)
        self.read()
        verdict = self.ledger.verdict(Allowance(duplicates=1 << 60, inversions=inversions))
        for side in dict.fromkeys(there for _, there in self.ways):
            copied = self.ledger.copied(side)
            verdict.figures[f"twice_{side}"] = sum(copied.values())
            if sum(copied.values()) > (twice or {}).get(side, 0):
                verdict.add(Breach.DUPLICATES, [str(self.ledger.entry(each)) for each in copied])
            if side != "veh" and (again := copied.keys() & self._named):
                verdict.add(Breach.DUPLICATES, [f"was named to the other one: {self.ledger.entry(each)}" for each in again])
        verdict.add(Breach.LEFT, left)
        verdict.add(Breach.BOOKS, unbalanced)
        verdict.figures["take_overs"] = self.take_overs
        if self._unheard:
            verdict.figures["unheard"] = self._unheard
        verdict.took_s = self._took_s
        for since_s, until_s, least in self._measured:
            worked = {way: self.ledger.worked(way, since_s, until_s, IN_TIME_S) for way in self.ways if "plant" not in way}
            verdict.worked += worked.values()
            late = [
                f"{here}→{there}: {share:.0f} % of {until_s - since_s:.0f} s"
                for (here, there), share in worked.items()
                if share < least
            ]
            verdict.add(Breach.LATE, late)
        verdict.add(Breach.SIGN, self._wrong_signs)
        for each in self.gateways.values():
            wrong += each.unexpected_ends
            if "Traceback" in each.process.log:
                wrong.append(f"{each.name} has logged a traceback")
        verdict.add(Breach.DEAD, wrong)
        errors = [node.error for node in self._nodes.values()] + [self._source.error]
        assert not any(errors), errors
        return verdict

    async def _left(self) -> list[str]:
        """What is left in the two after a while: entries of the journals, and messages that the standby keeps."""
        deadline_s = time.monotonic() + WITHIN_S
        while left := await asyncio.to_thread(lambda: [each for one in self.gateways.values() for each in one.left()]):
            if time.monotonic() > deadline_s:
                return left
            await asyncio.sleep(0.2)
        return []

    def _unbalanced(self) -> list[str]:
        """What does not balance in the metrics of the active one."""
        try:
            self.active.process.check_books()
        except AssertionError as exc:
            return [str(exc) or "no answer on the admin port"]
        return []

    async def _probe_all(self) -> list[str]:
        """Ways on which a new message does not cross in time."""
        return await unanswered({way: self._probe(*way) for way in self.ways}, self.ledger, self.read)


def _tcp(port: int) -> str:
    return f"tcp/{HOST}:{port}"


def _mqtt(port: int, structure: str, authorities: list[str], client_id: str | None = None) -> dict[str, Any]:
    options = {
        "broker": f"mqtt://{HOST}:{port}",
        "topics": structure,
        "keep_alive_s": 2,
        "ack_timeout_s": 4,
        "connect_timeout_s": 4,
        "receive_maximum": RECEIVE_MAXIMUM,
        "reconnect": {"initial_ms": 100, "max_ms": 500},
    } | ({} if client_id is None else {"client_id": client_id})
    return {"transport": "mqtt5", "authorities": authorities, "options": options}
