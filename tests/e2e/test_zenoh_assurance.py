"""What the Zenoh transport knows of its receivers: who listens, who is lost, and what becomes of that which was put."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from streamer.transports.base import LinkState, Reach
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.uprotocol.uri import UUri
from tests.zenoh_peers import (
    TOPIC,
    PeerProcess,
    Seen,
    free_endpoint,
    running,
    until,
    until_up,
)

EVERYTHING = "up/**"


class Flow:
    """What a transport says of one flow."""

    def __init__(self, transport: ZenohTransport, source: UUri = TOPIC, sink: UUri | None = None) -> None:
        self.reaches: list[Reach] = []
        self.reaches.append(transport.watch_flow(source, sink, self.reaches.append))

    @property
    def now(self) -> Reach:
        return self.reaches[-1]

    async def until(self, reach: Reach) -> None:
        await until(lambda: self.now is reach, f"{reach} instead of {self.reaches}")


@asynccontextmanager
async def stage(seen: Seen | None = None, lease_ms: int = 2000) -> AsyncIterator[tuple[ZenohTransport, PeerProcess]]:
    """Our transport, and a node in a process of its own that listens to nothing yet."""
    endpoint = free_endpoint()
    async with (
        running(seen, listen=[endpoint], uncertain_s=3) as transport,
        PeerProcess.running(connect=[endpoint], transport__link__tx__lease=lease_ms) as peer,
    ):
        await until_up(transport)
        yield transport, peer


# -- who listens


async def test_flow_reaches_nobody_while_there_is_no_other_node() -> None:
    async with running(listen=[free_endpoint()]) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        assert Flow(transport).now is Reach.NOBODY


@pytest.mark.parametrize("filter_", [EVERYTHING, "up/*/*/*/*/*/{}/{}/{}/{}/{}", "up/veh1/8000/A/2/8A50/*/*/*/*/*"])
async def test_flow_reaches_somebody_while_there_is_a_subscriber(filter_: str) -> None:
    async with stage() as (transport, peer):
        flow, other = Flow(transport), Flow(transport, UUri.parse("//other/1/1/8000"), UUri.parse("//nobody/2/1/0"))
        await flow.until(Reach.NOBODY)
        assert flow.reaches == [Reach.UNKNOWN, Reach.NOBODY]
        await peer.subscribe(filter_)
        await flow.until(Reach.SOMEBODY)
        assert Flow(transport).now is Reach.SOMEBODY
        await peer.unsubscribe(filter_)
        await flow.until(Reach.NOBODY)
        assert flow.reaches[1:] == [Reach.NOBODY, Reach.SOMEBODY, Reach.NOBODY]
        assert (Reach.SOMEBODY in other.reaches) is (filter_ == EVERYTHING)
