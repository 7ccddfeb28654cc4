"""Receipts between two of our own streamers, over real Zenoh sessions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from streamer.transports.base import UNCONFIRMED, Presence
from streamer.transports.errors import LinkLostError
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import publish
from streamer.uprotocol.uri import UUri, everything_at
from tests.listeners import RecordingListener
from tests.waiting import until
from tests.zenoh_peers import (
    ANYTHING,
    ENTITY,
    FAR,
    OWN,
    TOPIC,
    Outcomes,
    PeerProcess,
    expects_receipts,
    free_endpoint,
    now_ms,
    opened,
    parcels,
    put,
    raw_peer,
    receipts_of,
    running,
    until_matched,
    until_up,
)

ELSEWHERE = UUri.parse("//veh2/1/1/0")


@asynccontextmanager
async def two_streamers(
    inbox: RecordingListener, key_file: Path, uncertain_s: float = 3
) -> AsyncIterator[tuple[ZenohTransport, ZenohTransport]]:
    """One that sends, and one that serves the authority ``cloud``, has ``inbox`` listen, and is known to the first."""
    endpoint = free_endpoint()
    async with (
        running(listen=[endpoint], uncertain_s=uncertain_s, receipts=receipts_of(key_file, FAR)) as sender,
        running(
            authority=FAR, connect=[endpoint], uncertain_s=3, serves=("cloud",), receipts=receipts_of(key_file, OWN)
        ) as receiver,
    ):
        await receiver.register_listener(ANYTHING, everything_at("cloud"), inbox)
        await receiver.register_listener(ANYTHING, everything_at("veh2"), inbox)
        await until_up(sender)
        await until_up(receiver)
        await until(lambda: expects_receipts(sender), "the token")
        yield sender, receiver


async def test_message_for_a_streamer_is_delivered_when_it_has_acknowledged_it(key_file: Path) -> None:
    inbox, outcomes, other = RecordingListener(releases=False), Outcomes(), Outcomes()
    async with two_streamers(inbox, key_file) as (sender, _):
        sent, marker = parcels(3), parcels(1, ELSEWHERE)
        sender.submit(sent, outcomes.done)
        sender.submit(marker, other.done)
        await until(lambda: len(inbox.received) == 4, "all messages")
        assert outcomes.reported == []
        await until(lambda: other.reported == [(marker[0], UNCONFIRMED)], "what nobody serves is unconfirmed")
        first, *rest = [received for received in inbox.received if received.message.attributes.sink == ENTITY]
        for received in reversed(rest):
            received.release()
        first.take_custody()
        await until(lambda: len(outcomes.reported) == 3, "every outcome")
        assert outcomes.reported == [(parcel, None) for parcel in sent]


async def test_many_messages_are_confirmed_in_order(key_file: Path) -> None:
    inbox, outcomes = RecordingListener(), Outcomes()
    async with two_streamers(inbox, key_file) as (sender, _):
        sent = parcels(5000)
        for start in range(0, 5000, 100):
            sender.submit(sent[start : start + 100], outcomes.done)
        await until(lambda: len(outcomes.reported) == 5000, "every outcome")
        assert outcomes.reported == [(parcel, None) for parcel in sent]
        assert inbox.messages == [parcel.message for parcel in sent]
        assert len(opened(sender).receipts.ledger) == 0


async def test_streamer_that_goes_before_it_has_acknowledged_confirms_nothing(key_file: Path) -> None:
    inbox, outcomes = RecordingListener(releases=False), Outcomes()
    async with two_streamers(inbox, key_file) as (sender, receiver):
        sent = parcels(10)
        sender.submit(sent, outcomes.done)
        await until(lambda: len(inbox.received) == 10, "all messages")
        inbox.received[1].release()  # behind one that is not safe
        await receiver.stop()
        await until(lambda: len(outcomes.reported) == 10, "every outcome")
        assert [parcel for parcel, _ in outcomes.reported] == sent
        assert all(isinstance(error, LinkLostError) for _, error in outcomes.reported)


async def test_message_without_receipt_is_unconfirmed_after_three_times_the_uncertain_time(key_file: Path) -> None:
    inbox, outcomes = RecordingListener(releases=False), Outcomes()
    async with two_streamers(inbox, key_file, uncertain_s=0.2) as (sender, _):
        sent = parcels(2)
        sender.submit(sent, outcomes.done)
        await until(lambda: len(outcomes.reported) == 2, "every outcome")
        assert outcomes.reported == [(parcel, UNCONFIRMED) for parcel in sent]
        late, after = Outcomes(), parcels(2)
        sender.submit(after[:1], late.done)
        await until(lambda: late.reported == [(after[0], UNCONFIRMED)], "a silent streamer is not waited for")
        await until(lambda: len(inbox.received) == 3, "the messages")
        for received in inbox.received:
            received.release()
        await until(lambda: not opened(sender).receipts.ledger._silent, "a receipt, although too late")
        sender.submit(after[1:], late.done)
        await until(lambda: len(inbox.received) == 4, "the last message")
        inbox.received[-1].release()
        await until(lambda: late.reported[1:] == [(after[1], None)], "the receipt of the last message")


async def test_what_a_streamer_serves_changes_without_a_new_session(key_file: Path) -> None:
    inbox, outcomes = RecordingListener(), Outcomes()
    async with two_streamers(inbox, key_file) as (sender, receiver):
        receiver.set_served(["veh2"])
        ledger = opened(sender).receipts.ledger
        await until(lambda: set(ledger._streamers) == {"veh2"}, "the other token")
        here, elsewhere = parcels(1), parcels(1, ELSEWHERE)
        sender.submit(here, outcomes.done)
        sender.submit(elsewhere, outcomes.done)
        await until(lambda: len(outcomes.reported) == 2, "both outcomes")
        results = [next(error for parcel, error in outcomes.reported if parcel is each[0]) for each in (here, elsewhere)]
        assert results == [UNCONFIRMED, None]
        receiver.set_served([])
        await until(lambda: not ledger.is_needed, "no token")


async def test_streamer_whose_link_comes_back_confirms_again(key_file: Path) -> None:
    """The token comes back for the same session, and the counter goes on."""
    inbox, outcomes, endpoint = RecordingListener(), Outcomes(), free_endpoint()
    link: dict[str, Any] = {"mode": "client", "connect": [endpoint], "uncertain_s": 3}
    async with (
        running(**link, receipts=receipts_of(key_file, FAR)) as sender,
        running(**link, authority=FAR, serves=("cloud",), receipts=receipts_of(key_file, OWN)) as receiver,
    ):
        await receiver.register_listener(ANYTHING, everything_at("cloud"), inbox)
        for number in (1, 2):
            async with PeerProcess.running(mode="router", listen=[endpoint]):
                await until(lambda: expects_receipts(sender), "the token")
                sender.submit(parcels(1), outcomes.done)
                await until(lambda: len(outcomes.reported) >= number, "the result")  # noqa: B023  # awaited in here
            await until(lambda: not expects_receipts(sender), "it is gone")
        assert [error for _, error in outcomes.reported] == [None, None]


async def test_without_a_key_there_are_no_tokens_and_nothing_waits() -> None:
    endpoint, inbox, outcomes = free_endpoint(), RecordingListener(), Outcomes()
    async with running(listen=[endpoint], authority=FAR, serves=("cloud",)) as receiver:
        await receiver.register_listener(ANYTHING, everything_at("cloud"), inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_up(receiver)
            async with running(connect=[endpoint]) as sender:
                await until_up(sender)
                sent = parcels(1)
                sender.submit(sent, outcomes.done)
                await until(lambda: outcomes.reported == [(sent[0], UNCONFIRMED)], "the result")
            assert list(peer.liveliness().get("ustreamer/**")) == []


async def test_what_is_said_before_the_session_is_open_holds_once_it_is(key_file: Path) -> None:
    endpoint, inbox, told = free_endpoint(), RecordingListener(), list[Presence]()
    message = publish(now_ms(), TOPIC)
    async with running(listen=[endpoint], receipts=receipts_of(key_file, FAR)) as transport:
        transport.set_served(["veh7"])
        transport.set_receiving(False)
        assert transport.receivers.watch(TOPIC, None, told.append) is Presence.ABSENT
        assert transport.receivers.watch(TOPIC._replace(resource=0x8001), None, told.append) is Presence.ABSENT
        transport.receivers.forget(TOPIC._replace(resource=0x8001), None, told.append)
        await transport.register_listener(TOPIC, None, inbox)
        assert transport._opened is None
        assert set(transport.report().figures.values()) == {0}
        with raw_peer(connect=[endpoint]) as peer:
            subscriber = peer.declare_subscriber("up/**")
            await until(lambda: told[-1:] == [Presence.PRESENT], "the listener")
            assert opened(transport).receipts.serves == {"veh7"}
            await until_matched(peer, key_for(message.attributes, ""))
            put(peer, message)
            await until(lambda: opened(transport).intake._gate._waiting, "the message")
            assert inbox.messages == []
            transport.set_receiving(True)
            await until(lambda: inbox.messages == [message], "the message")
            del subscriber


async def test_while_a_streamer_is_away_a_recorder_is_no_receiver_of_what_it_serves(key_file: Path) -> None:
    endpoint, inbox, told = free_endpoint(), RecordingListener(), list[Presence]()
    far = {"authority": FAR, "connect": [endpoint], "uncertain_s": 3, "serves": ("cloud",)}
    async with running(listen=[endpoint], uncertain_s=3, receipts=receipts_of(key_file, FAR)) as sender:
        with raw_peer(connect=[endpoint]) as peer:
            recorder = peer.declare_subscriber("up/**", lambda sample: None)
            told.append(sender.receivers.watch(TOPIC, ENTITY, told.append))
            elsewhere = list[Presence]()
            elsewhere.append(sender.receivers.watch(TOPIC, ELSEWHERE, elsewhere.append))
            await until(lambda: told[-1] is elsewhere[-1] is Presence.PRESENT, "the recorder: nothing was learned yet")
            for _ in range(2):
                async with running(**far, receipts=receipts_of(key_file, OWN)) as receiver:  # type: ignore[arg-type]
                    await receiver.register_listener(ANYTHING, everything_at("cloud"), inbox)
                    await until(lambda: expects_receipts(sender), "the token")
                    await until(lambda: told[-1] is Presence.PRESENT, "the streamer")
                await until(lambda: told[-1] is Presence.ABSENT, "it is away")
                await until(lambda: elsewhere[-1] is Presence.PRESENT, "what nobody serves")
            recorder.undeclare()


async def test_an_authority_that_a_streamer_gives_up_while_it_is_there_is_everybodys_again(key_file: Path) -> None:
    inbox, told = RecordingListener(), list[Presence]()
    async with two_streamers(inbox, key_file) as (sender, receiver):
        told.append(sender.receivers.watch(TOPIC, ENTITY, told.append))
        await until(lambda: told[-1] is Presence.PRESENT, "the streamer")
        receiver.set_served(["veh2"])
        await until(lambda: Presence.ABSENT in told and told[-1] is Presence.PRESENT, "it listens, and gives no receipts")
