"""Two networks with a uEntity on each, and the daemon between them: what most end-to-end tests run on.

``alpha`` lives on the first network, ``beta`` on the second. Each network is a real broker (mosquitto or rumqttd, with
in-vehicle or off-vehicle topics) or a real Zenoh network; the uEntities are clients that do not use our code.
"""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from tests.brokers import BrokerProcess, Mosquitto, Rumqttd, any_broker
from tests.fault.proxy import Proxy, Tap
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.ports import HOST
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

T = TypeVar("T")
AUTHORITIES = ("alpha", "beta")
BROKER_CLASSES: dict[str, Callable[..., BrokerProcess]] = {"mosquitto": Mosquitto, "rumqttd": Rumqttd, "mqtt": any_broker}


class Network:
    """One network: ``kind`` is ``zenoh`` or ``BROKER/STRUCTURE``, such as ``mqtt/off-vehicle`` (any broker)."""

    def __init__(
        self,
        kind: str,
        authority: str,
        far: str,
        broker_options: dict[str, Any],
        tap: Tap | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self._broker_options = broker_options
        self._options = options or {}
        self._tap = tap
        self._url = ""
        self.kind = kind
        self.authority = authority
        self.far = far
        self.broker: BrokerProcess | None = None
        self.proxy: Proxy | None = None
        self.structure = kind.partition("/")[2]
        self.endpoint = free_endpoint()
        self.side: MqttSide | ZenohSide

    @property
    def is_mqtt(self) -> bool:
        return self.kind != "zenoh"

    @property
    def is_addressed(self) -> bool:
        return self.structure == "off-vehicle"

    async def open(self, stack: AsyncExitStack) -> None:
        """Start the broker, if it takes one, and the uEntity's client."""
        if self.is_mqtt:
            self.broker = BROKER_CLASSES[self.kind.partition("/")[0]](**self._broker_options)
            stack.enter_context(self.broker)
            self._url = self.broker.url
            if self._tap is not None:
                self.proxy = await stack.enter_async_context(Proxy(self.broker.port, self._tap))
                self._url = f"mqtt://{HOST}:{self.proxy.port}"
            topics = [f"+/{self.authority}", "+/elsewhere", "gw/*"] if self.is_addressed else [f"{self.far}/#", "gw/#"]
            self.side = await stack.enter_async_context(MqttSide(self.broker.port, self.structure, topics))
        else:
            self.side = await stack.enter_async_context(ZenohSide(listen=[self.endpoint]))

    def configuration(self, **options: Any) -> dict[str, Any]:
        """This network as an endpoint of the daemon's configuration."""
        options = self._options | options
        if self.broker is not None:
            options = {"broker": self._url, "topics": self.structure} | options
            return {"transport": "mqtt5", "authorities": [self.authority], "options": options}
        options = {"mode": "peer", "connect": [self.endpoint], "uncertain_s": 1} | options
        return {"transport": "zenoh", "authorities": [self.authority], "options": options}

    def as_sent(self, message: Plain) -> Plain:
        """How a message goes onto this network: a Publish is addressed where the topics want it."""
        return message.addressed_to(self.far) if message.type == 1 and self.is_addressed else message

    def as_arriving(self, message: Plain) -> Plain:
        """How a message arrives on this network."""
        return message.addressed_to(self.authority) if message.type == 1 and self.is_addressed else message


class Topology:
    """The two networks and the daemon; an asynchronous context manager.

    ``broker`` are options of the brokers, ``tap`` reads along between the daemon and the second broker, ``second_options``
    are those of the second endpoint, ``changes`` replace top-level keys of the daemon's configuration.
    """

    def __init__(
        self,
        first: str,
        second: str,
        broker: dict[str, Any] | None = None,
        tap: Tap | None = None,
        second_options: dict[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        self.networks = [
            Network(first, "alpha", "beta", broker or {}),
            Network(second, "beta", "alpha", broker or {}, tap, second_options),
        ]
        self._changes = changes
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Topology":
        async with AsyncExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for network in self.networks:
                await network.open(stack)
            self.daemon = await stack.enter_async_context(StreamerProcess(directory, self.configuration()))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def configuration(self) -> dict[str, Any]:
        everything = "FFFFFFFF/FF/FFFF"
        return {
            "authority": "gw",
            "endpoints": {"first": self.networks[0].configuration(), "second": self.networks[1].configuration()},
            "routes": [
                {"from": "first", "to": "second", "publish": [f"//alpha/{everything}"]},
                {"from": "second", "to": "first", "publish": [f"//beta/{everything}"]},
            ],
        } | self._changes

    async def exchange(self, direction: int, messages: list[Plain], within_s: float = 60) -> list[Plain]:
        """Send from one side (0: alpha → beta, 1: the other way) and return what arrived, once all of it has."""
        here, there = self.networks[direction], self.networks[1 - direction]
        before = len(there.side.arrived)
        await here.side.send(here.as_sent(message) for message in messages)
        await until(
            lambda: len(there.side.arrived) - before >= len(messages),
            within_s=within_s,
            what=f"arrival of {len(messages)} messages",
        )
        return there.side.arrived[before:]


class TopologyThread:
    """A `Topology` on an event loop of its own thread, for tests that are not asynchronous (hypothesis)."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="topology_thread")

    def __enter__(self) -> "TopologyThread":
        self._thread.start()
        try:
            self.run(self.topology.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.run(self.topology.__aexit__())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(180)
