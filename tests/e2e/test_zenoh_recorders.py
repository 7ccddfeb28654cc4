"""Who listens to everything is not the receiver of a message for somebody else, and no message counts as delivered by it."""

import pytest

from streamer.transports.base import Presence
from streamer.uprotocol.uri import UUri
from tests.e2e.test_zenoh_unconfirmed import Flow
from tests.waiting import until
from tests.zenoh_peers import ENTITY, TOPIC, PeerProcess, free_endpoint, running, until_up

RECORDERS = [
    "up/**",
    "**",
    "up/*/*/*/*/*/*/*/*/*/*",
    "up/*/*/*/*/*/**",
    "up/veh1/**",
    "up/**/cloud/**",
    "up/veh1/8000/A/2/8A50/*/*/*/*/*",
]
RECEIVERS = [
    "up/*/*/*/*/*/cloud/1/0/1/0",  # the entity, from anybody
    "up/*/*/*/*/*/cloud/**",
    "up/*/*/*/*/*/cloud/*/*/*/*",  # everything at its authority, as another streamer does
    "up/veh1/8000/A/2/8A50/cloud/1/0/1/0",  # from this topic only
    "up/veh1/*/*/*/*/cloud/1/0/1/*",
    "up/*/*/*/*/*/*/*/*/*/0",  # notifications and responses to anybody, as a streamer with the wildcard authority does
]


@pytest.mark.parametrize("mode", ["peer", "client"])
@pytest.mark.parametrize("recorder", RECORDERS)
async def test_recorder_is_no_receiver_and_a_receiver_is_seen_beside_it(recorder: str, mode: str) -> None:
    endpoint, receiver = free_endpoint(), "up/*/*/*/*/*/cloud/1/0/1/0"
    async with PeerProcess.running(mode="router" if mode == "client" else "peer", listen=[endpoint]) as peer:
        await peer.subscribe(recorder)
        async with running(mode=mode, connect=[endpoint], uncertain_s=3) as transport:
            await until_up(transport)
            flow = Flow(transport, TOPIC, ENTITY)
            await flow.until(Presence.ABSENT)
            assert Presence.PRESENT not in flow.reaches
            for _ in range(2):
                await peer.subscribe(receiver)
                await flow.until(Presence.PRESENT)
                await peer.unsubscribe(receiver)
                await flow.until(Presence.ABSENT)


@pytest.mark.parametrize("receiver", RECEIVERS)
async def test_receiver_with_wildcards_of_its_own_is_one(receiver: str) -> None:
    endpoint = free_endpoint()
    async with PeerProcess.running(listen=[endpoint]) as peer, PeerProcess.running(connect=[endpoint]) as recorder:
        await recorder.subscribe("up/**")
        async with running(connect=[endpoint], uncertain_s=3) as transport:
            await until_up(transport)
            flow = Flow(transport, TOPIC, ENTITY)
            await flow.until(Presence.ABSENT)
            await peer.subscribe(receiver)
            await flow.until(Presence.PRESENT)


async def test_receiver_of_another_source_is_none() -> None:
    endpoint = free_endpoint()
    async with PeerProcess.running(listen=[endpoint]) as peer:
        await peer.subscribe("up/veh2/*/*/*/*/cloud/1/0/1/0")
        async with running(connect=[endpoint], uncertain_s=3) as transport:
            await until_up(transport)
            mine, others = Flow(transport, TOPIC, ENTITY), Flow(transport, UUri.parse("//veh2/1/1/8000"), ENTITY)
            await others.until(Presence.PRESENT)
            await mine.until(Presence.ABSENT)
            assert Presence.PRESENT not in mine.reaches


async def test_recorder_of_a_publish_is_a_receiver() -> None:
    endpoint = free_endpoint()
    async with PeerProcess.running(listen=[endpoint]) as peer:
        await peer.subscribe("up/**")
        async with running(connect=[endpoint], uncertain_s=3) as transport:
            await until_up(transport)
            await Flow(transport, TOPIC).until(Presence.PRESENT)


async def test_killed_receiver_is_missed_although_a_recorder_stays() -> None:
    endpoint = free_endpoint()
    async with running(listen=[endpoint], uncertain_s=3) as transport, PeerProcess.running(connect=[endpoint]) as recorder:
        await recorder.subscribe("up/**")
        async with PeerProcess.running(connect=[endpoint]) as peer:
            await peer.subscribe("up/*/*/*/*/*/cloud/1/0/1/0")
            flow = Flow(transport, TOPIC, ENTITY)
            await flow.until(Presence.PRESENT)
            await peer.kill()
            await flow.until(Presence.ABSENT)
            await until(lambda: flow.now is Presence.ABSENT, "it stays so")
