"""Two networks with the daemon between them, for peers that bring their own clients."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zenoh

from tests.brokers import Mosquitto
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import EVERYTHING, ZenohSide, is_matched, zenoh_key
from tests.interop.peers import Peer, python_peer, rust_peer
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint, open_peer

STREAMER = "gw"
KINDS = ("in-vehicle", "off-vehicle", "zenoh")


@dataclass
class Network:
    """One network of a kind: its authority, and how to reach it."""

    kind: str
    authority: str
    reach: dict[str, Any]
    endpoint: dict[str, Any]

    def entity(self, ue_id: int) -> Uri:
        return self.authority, ue_id, 1, 0


@dataclass
class Between:
    """The daemon and its networks. The first has ``alpha``, the second ``beta``."""

    daemon: StreamerProcess
    networks: tuple[Network, Network]
    watchers: dict[str, zenoh.Session]
    _stack: AsyncExitStack

    async def rust(self, side: int, ue_id: int) -> Peer:
        """The SDK for Rust as a uEntity on one side."""
        network = self.networks[side]
        return await self._stack.enter_async_context(rust_peer(network.entity(ue_id), network.reach))

    async def up_python(self, side: int, ue_id: int) -> Peer:
        """The SDK for Python as a uEntity on one side, which is an in-vehicle broker."""
        network = self.networks[side]
        return await self._stack.enter_async_context(python_peer(network.entity(ue_id), network.reach))

    async def python(self, side: int, *keys: str) -> MqttSide | ZenohSide:
        """A client in Python that does not use our code; ``keys`` are what it listens to."""
        network = self.networks[side]
        if network.kind == "zenoh":
            addresses = network.reach["zenoh"]["connect/endpoints"]
            return await self._stack.enter_async_context(
                ZenohSide(connect=addresses, keys=keys or EVERYTHING, settings={"mode": "client"})
            )
        port = int(network.endpoint["options"]["broker"].rpartition(":")[2])
        return await self._stack.enter_async_context(MqttSide(port, network.kind, keys))

    async def until_wanted(self, side: int, message: Plain, is_wanted: bool = True) -> None:
        """On Zenoh: somebody listens for such a message (nobody does)."""
        session = self.watchers.get(self.networks[side].kind + self.networks[side].authority)
        if session is None:
            return
        publisher = session.declare_publisher(zenoh_key(message), allowed_destination=zenoh.Locality.REMOTE)
        try:
            await until(lambda: is_matched(publisher) is is_wanted, f"{message.source} is wanted: {is_wanted}")
        finally:
            publisher.undeclare()


@asynccontextmanager
async def between(directory: Path, first: str, second: str, publish: bool = True, **changes: Any) -> AsyncIterator[Between]:
    """The daemon between two networks; with ``publish`` every topic crosses, without it those that are subscribed to."""
    async with AsyncExitStack() as stack:
        watchers: dict[str, zenoh.Session] = {}
        networks = tuple(
            _network(stack, watchers, kind, authority) for kind, authority in ((first, "alpha"), (second, "beta"))
        )
        everything = "FFFFFFFF/FF/FFFF"
        config = {
            "authority": STREAMER,
            "endpoints": {"first": networks[0].endpoint, "second": networks[1].endpoint},
            "routes": [
                {"from": "first", "to": "second"} | ({"publish": [f"//alpha/{everything}"]} if publish else {}),
                {"from": "second", "to": "first"} | ({"publish": [f"//beta/{everything}"]} if publish else {}),
            ],
        } | changes
        daemon = await stack.enter_async_context(StreamerProcess(directory, config))
        one, two = networks
        yield Between(daemon, (one, two), watchers, stack)
        await daemon.__aexit__()  # before its neighbours, or it would wait for them


def _network(stack: AsyncExitStack, watchers: dict[str, zenoh.Session], kind: str, authority: str) -> Network:
    if kind == "zenoh":
        address = free_endpoint()
        watchers[kind + authority] = session = open_peer(mode="router", listen=[address])
        stack.callback(session.close)
        reach = {"zenoh": {"mode": "client", "connect/endpoints": [address], "scouting/multicast/enabled": False}}
        options: dict[str, Any] = {"mode": "peer", "connect": [address], "uncertain_s": 1}
        return Network(kind, authority, reach, {"transport": "zenoh", "authorities": [authority], "options": options})
    broker = stack.enter_context(Mosquitto())
    reach = {"mqtt5": {"broker": broker.url, "off_vehicle": kind == "off-vehicle"}}
    options = {"broker": broker.url, "topics": kind}
    return Network(kind, authority, reach, {"transport": "mqtt5", "authorities": [authority], "options": options})
