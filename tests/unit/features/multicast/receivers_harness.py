"""Multicast receivers with tables and a stand-in for the router. No tests."""

from pathlib import Path

from google.protobuf.message import Message

from streamer.features.host.access import Access, SubscribeRule
from streamer.features.multicast.service import MulticastReceivers, Registration
from streamer.uprotocol.multicast import Catalogue, MulticastId
from streamer.uprotocol.uri import UUri, everything_at
from tests.hosted import StateOn
from tests.unit.features.host.fake_router import FakeRouter
from tests.unit.features.host.patterns import entities_at

ACCESS = Access(
    "gw",
    frozenset({"gw", "veh1"}),
    published={"cloud": (everything_at("veh1"),)},
    subscribe=(SubscribeRule(entities_at("*"), (everything_at("veh1"),)),),
)
"""The cloud is named; everybody may receive what the vehicle fires."""

DOORS = "//veh1/A8000/2/0/doorOpened"
FRONT, LEFT, RIGHT = (UUri("veh1", 0xA8000, 2, resource) for resource in (0x8001, 0x8002, 0x8003))
APP, OTHER_APP, PHONE = UUri("cloud", 0xA, 1, 0), UUri("cloud", 0xB, 1, 0), UUri("phone", 0xA, 1, 0)


def known(**partitions: int) -> Catalogue:
    return Catalogue(
        {MulticastId.parse(f"{DOORS}/{name.replace('_', '/')}"): resource for name, resource in partitions.items()}
    )


CATALOGUE = known(front=0x8001, front_left=0x8002, front_right=0x8003)


class ReceiversHarness:
    def __init__(self, path: Path | None, catalogue: Catalogue = CATALOGUE, access: Access = ACCESS) -> None:
        self.router = FakeRouter()
        self.state = StateOn(path, MulticastReceivers.TABLES)
        self.state.open()
        self.receivers = MulticastReceivers(self.state, self.router, catalogue, access, 2)
        self.receivers.restore()

    async def register(self, receiver: UUri, partition: str) -> frozenset[UUri]:
        return await self.receivers.register(Registration(receiver, MulticastId.parse(f"{DOORS}/{partition}")))

    async def unregister(self, receiver: UUri, partition: str) -> None:
        await self.receivers.unregister(Registration(receiver, MulticastId.parse(f"{DOORS}/{partition}")))

    async def call(self, method: int, caller: UUri, request: Message) -> Message:
        return await self.receivers.methods()[method].call(caller, request)
