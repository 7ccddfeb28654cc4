"""Whole devices on memory networks: a streamer with its services, uEntities that speak raw protobuf, and other devices.

    uEntities of dev1 ── near ── gw1 ── far ──┬── far ── gw2 ── near ── uEntities of dev2
                                              └── a remote uSubscription service that a test plays itself (`RemoteService`)

The clock moves only when a test advances it. Tests wait for conditions, never for a time.
"""

import asyncio
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamer.delivery.router import Router
from streamer.features.every import FILE, built
from streamer.features.record import additions_of
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.transports.base import TransportContext, UTransport
from streamer.transports.local import LocalTransport
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.well_known import LOCAL_ENDPOINT
from tests.clock import FakeClock
from tests.constants import with_constants
from tests.flow.uentities import Client, RemoteService
from tests.hosted import HostOn, served
from tests.transport_events import StateEvents

_runs = itertools.count()

PEERS = [{"from": f"//gw{number}/0/3/0", "topics": [f"//dev{3 - number}/FFFFFFFF/FF/FFFF"]} for number in (1, 2)]
"""The services of two devices may subscribe to each other's topics."""


class Devices:
    """The clock and the networks that devices share. Stops at its end whatever was started in it."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.run = f"devices-{next(_runs)}"
        self.folder = folder
        self.changes: dict[str, Any] = {}
        """Sections of the configuration that devices started from now on have instead of their own."""
        self.devices: dict[str, Device] = {}
        self._joined: list[MemoryTransport] = []

    async def __aenter__(self) -> "Devices":
        return self

    async def __aexit__(self, *exc: object) -> None:
        for device in self.devices.values():
            await device.stop()
        for transport in self._joined:
            await transport.stop()

    async def device(self, number: int, **usubscription: Any) -> "Device":
        """Start device ``number``: streamer gw<number> with the uEntities of dev<number>; again if it was stopped."""
        device = self.devices[f"gw{number}"] = Device(self, number, usubscription)
        await device.start()
        return device

    async def restart(self, device: "Device") -> "Device":
        """Stop a device as a kill would, and start it with what it has on disk."""
        await device.stop()
        return await self.device(device.number, **device.options)

    async def client(self, number: int, ue_id: int) -> "Client":
        """A uEntity of dev<number>."""
        uri = UUri(f"dev{number}", ue_id, 1, 0)
        client = Client(self.clock, uri)
        client.transport = await self.join(f"near-{number}", uri.authority)
        await client.transport.register_listener(everything_at("*"), uri, client)
        return client

    async def remote(self, authority: str, versions: Iterable[int] = (3, 4)) -> "RemoteService":
        """A uSubscription service of another device, played by the test, which knows these versions."""
        remote = RemoteService(self.clock, authority)
        remote.transport = await self.join("far", authority)
        for version in versions:
            await remote.transport.register_listener(everything_at("*"), UUri(authority, 0, version, 0xFFFF), remote)
        return remote

    async def join(self, network: str, authority: str) -> MemoryTransport:
        context = TransportContext(network, authority, now_ms=self.clock.wall_ms)
        transport = MemoryTransport(context, MemoryOptions(bus=f"{self.run}-{network}"))
        await transport.authenticate(UUri(authority, 1, 1, 0))
        await transport.start()
        self._joined.append(transport)
        return transport

    def pass_time(self, ms: int) -> None:
        """Advance the clock; routers and services act on it."""
        self.clock.advance(ms)
        for device in self.devices.values():
            device.tick()


class Device:
    """A streamer as the daemon builds it, with memory transports and a file for its services."""

    def __init__(self, devices: Devices, number: int, usubscription: dict[str, object]) -> None:
        self.number = number
        self.options = usubscription
        self.authority = f"gw{number}"
        self.raw: dict[str, Any] = {
            "authority": self.authority,
            "endpoints": {
                "near": {"transport": "memory", "authorities": [f"dev{number}"]},
                "far": {"transport": "memory", "authorities": ["*"]},
            },
            "routes": [{"from": "near", "to": "far"}, {"from": "far", "to": "near"}],
            "usubscription": with_constants(
                UsubscriptionConfig, **{"local": [f"dev{number}"], "subscribe": PEERS} | usubscription
            ),
        } | devices.changes
        self.config = FILE.model_validate(self.raw)
        self.near, self.far = (
            MemoryTransport(
                self._context(devices, name),
                self.config.endpoints[name].options.model_copy(update={"bus": f"{devices.run}-{bus}"}),
            )
            for name, bus in (("near", f"near-{number}"), ("far", "far"))
        )
        local = LocalTransport(self._context(devices, LOCAL_ENDPOINT), served(self.config))
        transports: dict[str, UTransport] = {"near": self.near, "far": self.far, LOCAL_ENDPOINT: local}
        self.features = features = built(self.config, devices.clock)
        self.router = Router(
            self.config, transports, devices.clock, lambda: 0.5, lambda after_s, call: None, additions=additions_of(features)
        )
        path = devices.folder / f"{self.authority}.db"
        self.service_host = HostOn(path, self.config, local, self.router, devices.clock, self.features)
        self._tasks: list[asyncio.Task[None]] = []

    def _context(self, devices: Devices, name: str) -> TransportContext:
        return TransportContext(
            name,
            self.authority,
            events=StateEvents(lambda state: self.router.link_changed(name, state)),
            now_ms=devices.clock.wall_ms,
        )

    async def start(self) -> None:
        self.service_host.start()
        await self.router.start()
        self._tasks = [asyncio.create_task(work) for work in (self.service_host.run(), self.router.listening.run())]

    async def stop(self) -> None:
        """Stop at once, as a kill would: what is not on disk is lost."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await self.near.stop()
            await self.far.stop()
            self.service_host.close()

    def tick(self) -> None:
        self.router.tick()
