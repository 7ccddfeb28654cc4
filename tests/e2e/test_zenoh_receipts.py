"""Receipts between two of our own streamers, over real Zenoh sessions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streamer.transports.base import UNCONFIRMED
from streamer.transports.errors import LinkLostError
from streamer.transports.zenoh.receipts import RECEIPTS, SERVES
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.uprotocol.message import notification
from streamer.uprotocol.uri import UUri, everything_at
from tests.listeners import RecordingListener
from tests.waiting import until
from tests.zenoh_peers import (
    ANYTHING,
    ENTITY,
    TOPIC,
    Outcomes,
    Parcel,
    PeerProcess,
    RawSubscriber,
    free_endpoint,
    now_ms,
    raw_peer,
    running,
    until_up,
)

ELSEWHERE = UUri.parse("//veh2/1/1/0")


@asynccontextmanager
async def two_streamers(inbox: RecordingListener) -> AsyncIterator[tuple[ZenohTransport, ZenohTransport]]:
    """One that sends, and one that serves the authority ``cloud``, has ``inbox`` listen, and is known to the first."""
    endpoint = free_endpoint()
    async with (
        running(listen=[endpoint], uncertain_s=3) as sender,
        running(connect=[endpoint], uncertain_s=3, serves=("cloud",)) as receiver,
    ):
        await receiver.register_listener(ANYTHING, everything_at("cloud"), inbox)
        await receiver.register_listener(ANYTHING, everything_at("veh2"), inbox)
        await until_up(sender)
        await until_up(receiver)
        await until(lambda: sender._receipts.ledger.is_needed, "the token")
        yield sender, receiver


def parcels(count: int, sink: UUri = ENTITY) -> list[Parcel]:
    return [Parcel(notification(now_ms(), TOPIC, sink, b"%d" % n)) for n in range(count)]


async def test_message_for_a_streamer_is_delivered_when_it_has_acknowledged_it() -> None:
    inbox, outcomes, other = RecordingListener(releases=False), Outcomes(), Outcomes()
    async with two_streamers(inbox) as (sender, _):
        sent, marker = parcels(3), parcels(1, ELSEWHERE)
        sender.submit(sent, outcomes.done)
        sender.submit(marker, other.done)
        await until(lambda: len(inbox.received) == 4, "all messages")
        assert outcomes.reported == []
        await until(lambda: other.reported == [(marker[0], UNCONFIRMED)], "what nobody serves is unconfirmed")
        first, *rest = [received for received in inbox.received if received.message.attributes.sink == ENTITY]
        for received in reversed(rest):
            received.release()
        first.keep()
        await until(lambda: len(outcomes.reported) == 3, "every outcome")
        assert outcomes.reported == [(parcel, None) for parcel in sent]


async def test_many_messages_are_confirmed_in_order() -> None:
    inbox, outcomes = RecordingListener(), Outcomes()
    async with two_streamers(inbox) as (sender, _):
        sent = parcels(5000)
        for start in range(0, 5000, 100):
            sender.submit(sent[start : start + 100], outcomes.done)
        await until(lambda: len(outcomes.reported) == 5000, "every outcome")
        assert outcomes.reported == [(parcel, None) for parcel in sent]
        assert inbox.messages == [parcel.message for parcel in sent]
        assert len(sender._receipts.ledger) == 0


async def test_streamer_that_goes_before_it_has_acknowledged_confirms_nothing() -> None:
    inbox, outcomes = RecordingListener(releases=False), Outcomes()
    async with two_streamers(inbox) as (sender, receiver):
        sent = parcels(10)
        sender.submit(sent, outcomes.done)
        await until(lambda: len(inbox.received) == 10, "all messages")
        inbox.received[1].release()  # behind one that is not safe
        await receiver.stop()
        await until(lambda: len(outcomes.reported) == 10, "every outcome")
        assert [parcel for parcel, _ in outcomes.reported] == sent
        assert all(isinstance(error, LinkLostError) for _, error in outcomes.reported)


async def test_flow_without_receipts_is_given_up_after_three_times_the_uncertain_time() -> None:
    inbox, outcomes, endpoint = RecordingListener(releases=False), Outcomes(), free_endpoint()
    async with (
        running(listen=[endpoint], uncertain_s=0.2) as sender,
        running(connect=[endpoint], serves=("cloud",)) as receiver,
    ):
        await receiver.register_listener(ANYTHING, everything_at("cloud"), inbox)
        await until(lambda: sender._receipts.ledger.is_needed, "the token")
        sent = parcels(2)
        sender.submit(sent, outcomes.done)
        await until(lambda: len(outcomes.reported) == 2, "every outcome")
        assert [parcel for parcel, _ in outcomes.reported] == sent
        assert all(isinstance(error, LinkLostError) for _, error in outcomes.reported)
        # The same messages again, and now they are safe.
        again = Outcomes()
        sender.submit(sent, again.done)
        await until(lambda: len(inbox.received) == 4, "the messages again")
        for received in inbox.received:
            received.release()
        await until(lambda: again.reported == [(parcel, None) for parcel in sent], "the receipts")


async def test_other_nodes_see_no_receipts_unless_they_subscribe_and_send_as_before() -> None:
    endpoint, inbox = free_endpoint(), RecordingListener()
    async with running(listen=[endpoint], serves=("cloud",)) as receiver:
        await receiver.register_listener(ANYTHING, everything_at("cloud"), inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_up(receiver)
            tokens: list[str] = []
            peer.liveliness().declare_subscriber(
                f"{SERVES}/**", lambda sample: tokens.append(str(sample.key_expr)), history=True
            )
            assert receiver._session is not None
            token = f"{SERVES}/{receiver._session.zid()}/cloud"
            await until(lambda: tokens == [token], "the token")
            assert receiver._receipts._has_listener is False
            subscriber = RawSubscriber(peer, key=f"{RECEIPTS}/*")
            await until(lambda: receiver._receipts._has_listener, "somebody listens")
            message = notification(now_ms(), TOPIC, ENTITY)
            async with running(connect=[endpoint]) as sender:
                await until(lambda: sender._receipts.ledger.is_needed, "the token")
                await sender.send(message)
            await until(subscriber.poll, "the receipt")
            assert [sample.payload.to_bytes() for sample in subscriber.samples] == [message.id]


async def test_killed_streamer_loses_what_it_has_not_acknowledged() -> None:
    """Its token goes with its link."""
    endpoint, outcomes = free_endpoint(), Outcomes()
    async with running(listen=[endpoint], uncertain_s=3) as sender:
        async with PeerProcess.running(connect=[endpoint]) as peer, PeerProcess.running(connect=[endpoint]):
            await peer.subscribe("up/**")
            await peer.token(f"{SERVES}/abc/cloud")
            await until(lambda: sender._receipts.ledger.is_needed, "the token")
            sent = parcels(3)
            sender.submit(sent, outcomes.done)
            await until(lambda: len(sender._receipts.ledger) == 3, "the messages are put")
            await peer.kill()
            await until(lambda: len(outcomes.reported) == 3, "every outcome")
        assert [parcel for parcel, _ in outcomes.reported] == sent
        assert all(isinstance(error, LinkLostError) for _, error in outcomes.reported)
