"""Nobody without the key talks a streamer into holding messages back, or into calling them delivered."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import zenoh

from streamer.transports.base import UNCONFIRMED, MessageParcel
from streamer.transports.errors import Malformed
from streamer.transports.zenoh.receipt_proofs import RECEIPTS, ReceiptKey, Streamer
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.uprotocol.uri import everything_at
from tests.e2e.conftest import KEY
from tests.listeners import RecordingListener
from tests.transport_events import EventLog
from tests.waiting import until
from tests.zenoh_peers import (
    ANYTHING,
    FAR,
    OWN,
    Outcomes,
    expects_receipts,
    free_endpoint,
    opened,
    parcels,
    raw_peer,
    receipts_of,
    running,
    until_up,
)

TO_CLOUD = "up/*/*/*/*/*/cloud/*/*/*/*"


class Liar:
    """A node that knows everything but the key. It subscribes to what is sent to ``cloud``."""

    def __init__(self, session: zenoh.Session) -> None:
        self.session = session
        self.declared: list[object] = [session.declare_subscriber(TO_CLOUD, lambda sample: None)]
        self.receipts: list[tuple[str, bytes]] = []
        self.tokens: list[str] = []

    def claim(self, token: str) -> None:
        """Declare a token."""
        self.declared.append(self.session.liveliness().declare_token(token))

    def record(self) -> None:
        """Write down every token and every receipt."""
        self.declared += [
            self.session.liveliness().declare_subscriber(
                "ustreamer/**", lambda sample: self.tokens.append(str(sample.key_expr)), history=True
            ),
            self.session.declare_subscriber(
                f"{RECEIPTS}/**", lambda sample: self.receipts.append((str(sample.key_expr), sample.payload.to_bytes()))
            ),
        ]


@contextmanager
def liar_at(endpoint: str) -> Iterator[Liar]:
    with raw_peer(connect=[endpoint]) as session:
        yield Liar(session)


@contextmanager
def recording_router(endpoint: str) -> Iterator[Liar]:
    """What connects the streamers lies, and has written down all that they told each other."""
    with raw_peer(listen=[endpoint], mode="router") as session:
        liar = Liar(session)
        liar.record()
        yield liar


@asynccontextmanager
async def sender_and_liar(events: EventLog, key_file: Path, named: str = FAR) -> AsyncIterator[tuple[ZenohTransport, Liar]]:
    endpoint = free_endpoint()
    async with running(events, listen=[endpoint], uncertain_s=3, receipts=receipts_of(key_file, named)) as sender:
        with liar_at(endpoint) as liar:
            await until_up(sender)
            yield sender, liar


async def until_noticed(sender: ZenohTransport, events: EventLog, number: int) -> None:
    """Wait until so many tokens and receipts were refused."""
    await until(lambda: len(events.malformed) >= number, "they are counted")
    assert [error.reason for error in events.malformed] == [Malformed.RECEIPT] * number


FORGED: dict[str, Callable[[Streamer], str]] = {
    "the token of version 1": lambda own: "ustreamer/1/serves/x/cloud",
    "another key": lambda own: ReceiptKey(b"x" * 16).serves(Streamer(FAR, "0" * 32), own, "cloud"),
    "no proof": lambda own: f"ustreamer/2/serves/{FAR}/{'0' * 32}/{own.path}/cloud/0",
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_token_without_the_key_holds_no_message_back(forged: Callable[[Streamer], str], key_file: Path) -> None:
    events, outcomes = EventLog(), Outcomes()
    async with sender_and_liar(events, key_file) as (sender, liar):
        token = forged(opened(sender).receipts._own)
        liar.claim(token)
        if token.startswith("ustreamer/2"):
            await until_noticed(sender, events, 1)
        sent = parcels(20)
        sender.submit(sent, outcomes.done)
        await until(lambda: len(outcomes.reported) == 20, "every result")
        assert outcomes.reported == [(parcel, UNCONFIRMED) for parcel in sent]
        assert not expects_receipts(sender)


async def test_streamer_that_the_configuration_does_not_name_is_not_believed_although_it_has_the_key(key_file: Path) -> None:
    events, outcomes = EventLog(), Outcomes()
    async with sender_and_liar(events, key_file, named="another") as (sender, liar):
        key = ReceiptKey(KEY)
        liar.claim(key.serves(Streamer(FAR, "0" * 32), opened(sender).receipts._own, "cloud"))
        liar.claim(key.hello(Streamer(FAR, "0" * 32)))
        await until(lambda: len(events.malformed) >= 1, "it is counted")
        sent = parcels(3)
        sender.submit(sent, outcomes.done)
        await until(lambda: outcomes.reported == [(parcel, UNCONFIRMED) for parcel in sent], "every result")


def sender_at(
    endpoint: str, key_file: Path, events: EventLog | None = None, uncertain_s: float = 3
) -> AbstractAsyncContextManager[ZenohTransport]:
    receipts = receipts_of(key_file, FAR)
    return running(events, mode="client", connect=[endpoint], uncertain_s=uncertain_s, receipts=receipts)


def cloud_streamer(endpoint: str, key_file: Path) -> AbstractAsyncContextManager[ZenohTransport]:
    receipts = receipts_of(key_file, OWN)
    return running(authority=FAR, mode="client", connect=[endpoint], serves=("cloud",), receipts=receipts)


async def crosses(sender: ZenohTransport, receiver: ZenohTransport, liar: Liar) -> list[MessageParcel]:
    """Have a message confirmed by its receipt, and the liar record it."""
    outcomes, sent = Outcomes(), parcels(1)
    await receiver.register_listener(ANYTHING, everything_at("cloud"), RecordingListener())
    await until(lambda: expects_receipts(sender), "the token")
    sender.submit(sent, outcomes.done)
    await until(lambda: outcomes.reported == [(sent[0], None)] and liar.receipts, "the receipt")
    return sent


async def test_receipts_that_are_forged_or_repeated_confirm_nothing(key_file: Path) -> None:
    events, outcomes, inbox, endpoint = EventLog(), Outcomes(), RecordingListener(releases=False), free_endpoint()
    with recording_router(endpoint) as liar:
        async with sender_at(endpoint, key_file, events) as sender, cloud_streamer(endpoint, key_file) as receiver:
            await receiver.register_listener(ANYTHING, everything_at("cloud"), inbox)
            await until(lambda: expects_receipts(sender), "the token")
            first, second = parcels(1), parcels(1)
            sender.submit(first, outcomes.done)
            await until(lambda: len(inbox.received) == 1, "the message")
            inbox.received[0].release()
            await until(lambda: len(outcomes.reported) == 1 and liar.receipts, "the receipt")
            sender.submit(second, outcomes.done)
            await until(lambda: len(inbox.received) == 2, "the second message")
            own, far = opened(sender).receipts._own, opened(receiver).receipts._own
            uuid = second[0].message.id
            key, payload = liar.receipts[0]
            forgeries = [
                (key, payload),  # repeated
                (key, payload[:8] + uuid + payload[-32:]),
                (key, (99).to_bytes(8, "big") + uuid + bytes(32)),
                ReceiptKey(b"x" * 16).receipt(far, own, 99, uuid),
                (f"{RECEIPTS}/x/y/{own.path}", payload),
                (key, uuid),
                (key, b""),
            ]
            for forged_key, forged in forgeries:
                liar.session.put(forged_key, forged)
            await until_noticed(sender, events, len(forgeries))
            assert [error for _, error in outcomes.reported] == [None]
            inbox.received[1].release()
            await until(lambda: len(outcomes.reported) == 2, "the true receipt")
            assert [error for _, error in outcomes.reported] == [None, None]


async def test_what_was_recorded_before_the_sender_restarted_confirms_nothing_to_it(key_file: Path) -> None:
    events, outcomes, endpoint = EventLog(), Outcomes(), free_endpoint()
    with recording_router(endpoint) as liar:
        async with sender_at(endpoint, key_file) as sender, cloud_streamer(endpoint, key_file) as receiver:
            sent = await crosses(sender, receiver, liar)
        async with sender_at(endpoint, key_file, events) as sender:
            await until_up(sender)
            own = opened(sender).receipts._own
            await until(lambda: any(own.path in token for token in liar.tokens), "it expects receipts")
            for token in set(liar.tokens):
                liar.claim(token)
            recorded = list(liar.receipts)
            for key, payload in recorded:
                liar.session.put(key, payload)  # to its earlier session: it does not even arrive
                liar.session.put("/".join([*key.split("/")[:6], own.session]), payload)
            await until_noticed(sender, events, len(recorded))
            sender.submit(sent, outcomes.done)
            await until(lambda: outcomes.reported == [(sent[0], UNCONFIRMED)], "the result")


async def test_what_was_recorded_before_the_other_streamer_went_confirms_nothing(key_file: Path) -> None:
    """Its token holds messages back once, for three times the uncertain time."""
    events, outcomes, endpoint = EventLog(), Outcomes(), free_endpoint()
    with recording_router(endpoint) as liar:
        async with sender_at(endpoint, key_file, events, uncertain_s=0.2) as sender:
            async with cloud_streamer(endpoint, key_file) as receiver:
                sent = await crosses(sender, receiver, liar)
            await until(lambda: not expects_receipts(sender), "it is gone")
            for token in set(liar.tokens):
                liar.claim(token)
            await until(lambda: expects_receipts(sender), "its token is back")
            sender.submit(sent, outcomes.done)
            await until(lambda: len(opened(sender).receipts.ledger) == 1, "the message waits")
            liar.session.put(*liar.receipts[0])
            await until_noticed(sender, events, 1)
            await until(lambda: outcomes.reported == [(sent[0], UNCONFIRMED)], "the result")
            more = parcels(20)
            sender.submit(more, outcomes.done)
            await until(lambda: outcomes.reported[1:] == [(parcel, UNCONFIRMED) for parcel in more], "no more is held back")
