"""What the Zenoh transport knows about its receivers: who listens, who is lost, and what becomes of what was put."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from streamer.delivery.custody.unconfirmed import MAX_RETURNS
from streamer.transports.base import UNCONFIRMED, LinkState, MessageParcel, Presence
from streamer.transports.errors import LinkLostError
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.uprotocol.message import publish
from streamer.uprotocol.uri import UUri
from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.listeners import RecordingListener
from tests.transport_events import EventLog
from tests.waiting import until
from tests.zenoh_peers import (
    ENTITY,
    LATE_S,
    TOPIC,
    Outcomes,
    PeerProcess,
    free_endpoint,
    has_link,
    now_ms,
    opened,
    raw_peer,
    running,
    until_up,
)

EVERYTHING = "up/**"


class Flow:
    """What a transport tells about one flow."""

    def __init__(self, transport: ZenohTransport, source: UUri = TOPIC, sink: UUri | None = None) -> None:
        self.reaches: list[Presence] = []
        self.reaches.append(transport.receivers.watch(source, sink, self.reaches.append))

    @property
    def now(self) -> Presence:
        return self.reaches[-1]

    async def until(self, reach: Presence) -> None:
        await until(lambda: self.now is reach, f"{reach} instead of {self.reaches}")


@asynccontextmanager
async def transport_and_peer(
    events: EventLog | None = None, lease_ms: int = 2000
) -> AsyncIterator[tuple[ZenohTransport, PeerProcess]]:
    """Our transport, and a node in a process of its own that listens to nothing yet."""
    endpoint = free_endpoint()
    async with (
        running(events, listen=[endpoint], uncertain_s=3) as transport,
        PeerProcess.running(connect=[endpoint], transport__link__tx__lease=lease_ms) as peer,
    ):
        await until_up(transport)
        yield transport, peer


# -- who listens


async def test_flow_is_absent_while_there_is_no_other_node() -> None:
    async with running(listen=[free_endpoint()]) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
        assert Flow(transport).now is Presence.ABSENT


@pytest.mark.parametrize("filter_", [EVERYTHING, "up/*/*/*/*/*/{}/{}/{}/{}/{}", "up/veh1/8000/A/2/8A50/*/*/*/*/*"])
async def test_flow_is_present_while_there_is_a_subscriber(filter_: str) -> None:
    async with transport_and_peer() as (transport, peer):
        flow, other = Flow(transport), Flow(transport, UUri.parse("//other/1/1/8000"), UUri.parse("//nobody/2/1/0"))
        await flow.until(Presence.ABSENT)
        assert flow.reaches == [Presence.UNKNOWN, Presence.ABSENT]
        await peer.subscribe(filter_)
        await flow.until(Presence.PRESENT)
        assert Flow(transport).now is Presence.PRESENT
        await peer.unsubscribe(filter_)
        await flow.until(Presence.ABSENT)
        assert flow.reaches[1:] == [Presence.ABSENT, Presence.PRESENT, Presence.ABSENT]
        assert (Presence.PRESENT in other.reaches) is (filter_ == EVERYTHING)


@pytest.fixture(params=["watched", "asked about"])
def whether_watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flows within the bound, and beyond it."""
    if request.param == "asked about":
        monkeypatch.setattr("streamer.transports.zenoh.presence_watch.MAX_WATCHES", 0)


@pytest.mark.usefixtures("whether_watched")
@pytest.mark.parametrize(
    "filter_", ["up/*/*/*/*/0/*/*/*/*/*", "up/other/*/*/*/*/cloud/1/0/1/0"], ids=["only Requests", "another source"]
)
async def test_who_takes_only_a_part_of_what_goes_to_a_sink_is_no_receiver_of_the_rest(filter_: str) -> None:
    own = "up/*/*/*/*/8A50/cloud/1/0/1/0"
    async with transport_and_peer() as (transport, peer):
        flow = Flow(transport, TOPIC, ENTITY)
        await peer.subscribe(filter_)
        await flow.until(Presence.ABSENT)
        await peer.subscribe(own)
        await flow.until(Presence.PRESENT)
        await peer.unsubscribe(own)
        await flow.until(Presence.ABSENT)
        assert flow.reaches == [Presence.UNKNOWN, Presence.ABSENT, Presence.PRESENT, Presence.ABSENT]


@pytest.mark.usefixtures("whether_watched")
async def test_flows_are_in_doubt_when_a_node_is_lost_until_it_is_known_who_still_listens() -> None:
    async with transport_and_peer() as (transport, peer):
        await peer.subscribe(EVERYTHING)
        flow, topic = Flow(transport, TOPIC, ENTITY), Flow(transport)
        await flow.until(Presence.PRESENT)
        await topic.until(Presence.PRESENT)
        del flow.reaches[:-1], topic.reaches[:-1]  # it may have taken long to find the subscriber
        async with PeerProcess.running(connect=transport.options.listen) as other:
            await until(lambda: transport._opened is not None and len(transport._opened.nodes.present) == 2, "both nodes")
            other.signal(signal.SIGKILL)
            await until(lambda: Presence.UNKNOWN in flow.reaches, "doubt")
            await flow.until(Presence.PRESENT)
            await topic.until(Presence.PRESENT)
            assert Presence.ABSENT not in flow.reaches + topic.reaches


async def test_forgotten_flow_is_not_watched_any_more_and_others_of_its_key_are() -> None:
    async with transport_and_peer() as (transport, peer):
        first, second = Flow(transport), Flow(transport)
        await first.until(Presence.ABSENT)
        transport.receivers.forget(TOPIC, None, first.reaches.append)
        transport.receivers.forget(TOPIC, None, first.reaches.append)  # unknown by now
        await peer.subscribe(EVERYTHING)
        await second.until(Presence.PRESENT)
        transport.receivers.forget(TOPIC, None, second.reaches.append)
        await peer.unsubscribe(EVERYTHING)
        again = Flow(transport)
        await again.until(Presence.ABSENT)
        assert first.reaches == [Presence.UNKNOWN, Presence.ABSENT]
        assert second.reaches[-1] is Presence.PRESENT


async def test_own_subscriptions_do_not_count() -> None:
    async with transport_and_peer() as (transport, _):
        await transport.register_listener(TOPIC, None, RecordingListener())
        flow = Flow(transport)
        await flow.until(Presence.ABSENT)
        assert flow.reaches == [Presence.UNKNOWN, Presence.ABSENT]


async def test_publish_with_the_sink_of_a_streamer_is_the_flow_without() -> None:
    async with transport_and_peer() as (transport, peer):
        await peer.subscribe("up/veh1/8000/A/2/8A50/{}/{}/{}/{}/{}")
        await Flow(transport, TOPIC, UUri.parse("//veh1/FFFFFFFF/FF/FFFF")).until(Presence.PRESENT)


async def test_flows_through_a_router_follow_the_receiver_behind_it() -> None:
    endpoint = free_endpoint()
    async with (
        PeerProcess.running(mode="router", listen=[endpoint]) as router,
        running(mode="client", connect=[endpoint], uncertain_s=3) as transport,
    ):
        await until_up(transport)
        flow = Flow(transport)
        async with PeerProcess.running(mode="client", connect=[endpoint]) as peer:
            await peer.subscribe(EVERYTHING)
            await flow.until(Presence.PRESENT)
        await flow.until(Presence.ABSENT)
        async with PeerProcess.running(mode="client", connect=[endpoint]) as peer:
            await peer.subscribe(EVERYTHING)
            await flow.until(Presence.PRESENT)
            await router.kill()
            await flow.until(Presence.ABSENT)


# -- who is lost


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_receiver_that_is_gone_is_noticed_and_comes_back(number: signal.Signals) -> None:
    events, outcomes, endpoint = EventLog(), Outcomes(), free_endpoint()
    async with running(events, listen=[endpoint], uncertain_s=3) as transport:
        settings = {"connect": [endpoint], "transport__link__tx__lease": 2000}
        async with PeerProcess.running(**settings) as peer:
            await peer.subscribe(EVERYTHING)
            flow = Flow(transport)
            await flow.until(Presence.PRESENT)
            await until(lambda: events.nodes == [True], "the node is known")
            peer.signal(number)
            await flow.until(Presence.ABSENT)
            await until(lambda: events.nodes == [True, False], "the node is lost")
            transport.submit([MessageParcel(publish(now_ms(), TOPIC))], outcomes.done)
            assert isinstance(outcomes.reported[0][1], LinkLostError)
            if number == signal.SIGSTOP:
                peer.signal(signal.SIGCONT)
                await flow.until(Presence.PRESENT)
                await until(lambda: events.nodes[-1], "the node is back")  # it may be lost once more, with its old link
                assert events.nodes[:2] == [True, False]


async def hears(peer: PeerProcess, ids: list[bytes]) -> None:
    """Wait until these are the last messages that ``peer`` got."""

    async def heard() -> None:
        while (await peer.heard(EVERYTHING))[-len(ids) :] != ids:
            await asyncio.sleep(0.02)

    await asyncio.wait_for(heard(), LATE_S)


async def put_until_lost(transport: ZenohTransport, events: EventLog, outcomes: Outcomes) -> list[MessageParcel]:
    """Send as fast as it goes until a node is lost; returns what was submitted."""
    submitted: list[MessageParcel] = []

    async def send() -> None:
        while False not in events.nodes:
            if len(submitted) - len(outcomes.reported) < 500:
                batch = [MessageParcel(publish(now_ms(), TOPIC, bytes(2000))) for _ in range(50)]
                submitted.extend(batch)
                transport.submit(batch, outcomes.done)
            await asyncio.sleep(0.001)

    await asyncio.wait_for(send(), LATE_S)
    return submitted


async def test_receiver_that_stalls_is_lost_as_soon_as_a_put_was_given_up() -> None:
    """Zenoh closes the link without an event: the lease of this receiver is 60 s."""
    events, outcomes = EventLog(), Outcomes()
    async with transport_and_peer(events, lease_ms=60_000) as (transport, peer):
        await peer.subscribe(EVERYTHING)
        flow = Flow(transport)
        await flow.until(Presence.PRESENT)
        peer.signal(signal.SIGSTOP)
        submitted = await put_until_lost(transport, events, outcomes)
        assert flow.now is Presence.ABSENT
        assert transport.state is LinkState.ALONE
        await until(lambda: len(outcomes.reported) == len(submitted), "every outcome")
        assert [parcel for parcel, _ in outcomes.reported] == submitted
        errors = [error for _, error in outcomes.reported]
        unconfirmed = errors.count(UNCONFIRMED)
        assert errors[:unconfirmed] == [UNCONFIRMED] * unconfirmed
        assert all(isinstance(error, LinkLostError) for error in errors[unconfirmed:])
        await until(lambda: not has_link(transport.options.listen[0]), "the link is closed")
        peer.signal(signal.SIGCONT)
        await flow.until(Presence.PRESENT)
        assert await peer.payloads(EVERYTHING) == {bytes(2000)}  # none is made of two
        before = set(await peer.heard(EVERYTHING))
        last = [MessageParcel(publish(now_ms(), TOPIC, b"%d" % n)) for n in range(100)]
        again = Outcomes()
        transport.submit(last, again.done)
        ids = [parcel.message.id for parcel in last]
        await hears(peer, ids)
        assert again.reported == [(parcel, UNCONFIRMED) for parcel in last]
        # Nothing was reported as lost that had arrived, and what arrived was unconfirmed.
        assert before <= {parcel.message.id for parcel in submitted[:unconfirmed]}


async def test_receiver_that_stalls_is_lost_while_the_other_one_goes_on() -> None:
    events, outcomes = EventLog(), Outcomes()
    async with transport_and_peer(events, lease_ms=60_000) as (transport, peer):
        await peer.subscribe(EVERYTHING)
        nodes = opened(transport).nodes
        (endpoint,) = transport.options.listen
        async with PeerProcess.running(connect=[endpoint]) as other:
            await other.subscribe(EVERYTHING)
            flow = Flow(transport)
            await flow.until(Presence.PRESENT)
            await until(lambda: events.nodes == [True, True], "both nodes are known")
            peer.signal(signal.SIGSTOP)
            submitted = await put_until_lost(transport, events, outcomes)
            await until(lambda: len(outcomes.reported) == len(submitted), "every outcome")
            assert [parcel for parcel, _ in outcomes.reported] == submitted
            await flow.until(Presence.PRESENT)  # after a question: who still listens?
            last = MessageParcel(publish(now_ms(), TOPIC, b"last"))
            transport.submit([last], outcomes.done)
            await until(lambda: outcomes.reported[-1] == (last, UNCONFIRMED), "the outcome of the last one")
            await hears(other, [last.message.id])
            heard = await other.heard(EVERYTHING)
            assert heard == [parcel.message.id for parcel, _ in outcomes.reported if parcel.message.id in set(heard)]
            # What waited behind the blocked put is lost too: it is sent again, behind what the first one has missed.
            unconfirmed = {parcel.message.id for parcel, error in outcomes.reported if error is UNCONFIRMED}
            assert unconfirmed <= set(heard)
            assert len(set(heard) - unconfirmed) <= 1  # the one that was blocked
            peer.signal(signal.SIGCONT)
            # Zenoh may report the end of the old link after the new one: then the node is lost once more, and found.
            await until(lambda: events.nodes[-1] and len(nodes.present) == 2, "the node is back")
            assert events.nodes[:3] == [True, True, False]


async def test_without_uncertain_time_nothing_is_watched_and_a_put_counts() -> None:
    events, outcomes, endpoint = EventLog(), Outcomes(), free_endpoint()
    async with running(events, listen=[endpoint], uncertain_s=0) as transport:
        assert transport.unconfirmed_s == 0
        assert Flow(transport).now is Presence.PRESENT
        async with PeerProcess.running(connect=[endpoint]):
            await until_up(transport)
            sent = [MessageParcel(publish(now_ms(), TOPIC))]
            transport.submit(sent, outcomes.done)
            await until(lambda: outcomes.reported == [(sent[0], None)], "delivered")
        await until(lambda: transport.state is LinkState.ALONE, "state ALONE")
    assert events.nodes == []


async def test_node_that_comes_and_goes_for_ever_has_nothing_sent_for_ever() -> None:
    """A device of no importance that restarts again and again, or somebody who wants to keep the streamer busy."""
    listen = free_endpoint()
    first, second = (Plain(4, ("alpha", 1, 1, 0x8000), ("beta", 2, 1, 0), text) for text in (b"first", b"second"))
    options = {"listen": [listen], "uncertain_s": 60, "link_evidence": False}
    async with Topology("mqtt/off-vehicle", "zenoh", second_options=options, shutdown={"drain_s": 0}) as topology:
        arrived = topology.networks[1].side.arrived

        def copies(message: Plain) -> int:
            return sum(each.id == message.id for each in arrived)

        async def come_and_go(number: int, during: Callable[[], bool]) -> None:
            with raw_peer(connect=[listen]):
                await until(during, f"what comes of node {number}")
            await until(lambda: topology.daemon.log.count("zenoh_node_lost") == number, f"the loss of node {number}")

        await topology.exchange(0, [first])
        await come_and_go(1, lambda: topology.daemon.log.count("zenoh_node_found") == 2)
        for number in range(2, MAX_RETURNS + 2):
            await come_and_go(number, lambda: copies(first) == number)  # noqa: B023 - called before the next number
        await topology.exchange(0, [second])
        await come_and_go(MAX_RETURNS + 2, lambda: topology.daemon.log.count("zenoh_node_found") == MAX_RETURNS + 3)
        await come_and_go(MAX_RETURNS + 3, lambda: copies(second) == 2)
        assert copies(first) == 1 + MAX_RETURNS
