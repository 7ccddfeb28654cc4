"""What the standby keeps of what it hears, and what the active one tells about it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from streamer.delivery.lanes.lane import Delivery
from streamer.delivery.seen import key_of, tail_of
from streamer.features.pair.shadows import Settled, Shadows
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from tests.flow.harness import CLOUD_APP, SPEED, VEHICLE_APP, RouterHarness, configuration

SPEED_ATTRIBUTES = publish(1_700_000_000_000, SPEED, b"").attributes


def heard(shadows: Shadows) -> dict[str, list[bytes | None]]:
    return {name: [each.message.payload for each in batch] for name, batch in shadows.take().items()}


def settled_of(*those: UMessage, counts_as_seen: bool = True) -> pb.Settled:
    flows = [pb.Settled.Flow(tail=tail_of(each.attributes), ids=each.id, counts_as_seen=counts_as_seen) for each in those]
    return pb.Settled(flows=flows)


def told(settled: Settled, now_s: float = 0.0) -> dict[bytes, bool]:
    """The ids that are told, and whether they count as seen."""
    found = settled.take(now_s)
    flows = [] if found is None else found.flows
    return {flow.ids[at : at + 16]: flow.counts_as_seen for flow in flows for at in range(0, len(flow.ids), 16)}


def messages(*payloads: bytes) -> list[UMessage]:
    return [publish(1_700_000_000_000, SPEED, payload) for payload in payloads]


def test_what_is_heard_is_kept_until_it_is_settled() -> None:
    shadows, (one, two, three) = Shadows(), messages(b"one", b"two", b"three")
    shadows.hear("vehicle", [MemoryReceived(one), MemoryReceived(two)])
    shadows.hear("phone", [MemoryReceived(three)])
    shadows.hear("vehicle", [MemoryReceived(one)])
    shadows.settle(settled_of(two))
    assert len(shadows) == 2
    assert shadows.bytes == one.size + three.size
    assert heard(shadows) == {"vehicle": [b"one"], "phone": [b"three"]}
    assert (len(shadows), shadows.bytes) == (0, 0)
    assert list(shadows.settled()) == [key_of(two)]


def test_what_was_settled_before_it_was_heard_is_not_kept() -> None:
    shadows, (one, two) = Shadows(), messages(b"one", b"two")
    shadows.settle(settled_of(one, two))
    shadows.hear("vehicle", [MemoryReceived(one)])
    assert heard(shadows) == {}


def test_bounds_forget_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.features.pair.shadows._MAX_BYTES", 3000)
    monkeypatch.setattr("streamer.features.pair.shadows._MAX_SETTLED", 2)
    shadows, sent = Shadows(), messages(*(bytes([n]) * 1000 for n in range(4)))
    shadows.hear("vehicle", [MemoryReceived(each) for each in sent])
    assert shadows.bytes <= 3000
    assert shadows.forgotten == len(sent) - len(shadows) > 0
    assert heard(shadows) == {"vehicle": [each.payload for each in sent[shadows.forgotten :]]}
    shadows.settle(settled_of(*sent))
    assert list(shadows.settled()) == [key_of(each) for each in sent[2:]]


def test_what_waits_in_the_journal_or_was_rejected_is_not_kept_and_does_not_count_as_seen() -> None:
    shadows, (one, two, three) = Shadows(), messages(b"one", b"two", b"three")
    shadows.hear("vehicle", [MemoryReceived(each) for each in (one, two, three)])
    shadows.drop([one])
    shadows.settle(settled_of(two, counts_as_seen=False))
    assert heard(shadows) == {"vehicle": [b"three"]}
    assert list(shadows.settled()) == []


def test_copies_of_a_publish_for_several_authorities_are_messages_of_their_own() -> None:
    """They have the same id."""
    copies = [replace(SPEED_ATTRIBUTES, sink=UUri(authority, 0, 0, 0)) for authority in ("cloud", "phone")]
    one, two = (UMessage(b"i" * 16, attributes, b"x") for attributes in copies)
    shadows = Shadows()
    shadows.hear("vehicle", [MemoryReceived(one), MemoryReceived(two)])
    shadows.settle(settled_of(one))
    assert len(shadows) == 1
    assert list(shadows.settled()) == [key_of(one)]


async def test_every_outcome_is_told_with_the_key_of_its_message() -> None:
    settled = Settled()
    async with RouterHarness(configuration(), unconfirmed_s=5) as harness:
        harness.router.replace_observer(None, settled)
        assert told(settled) == {}
        delivered = harness.speed()
        harness.arrive("vehicle", delivered)
        assert told(settled) == {delivered.id: True}
        unrouted = harness.speed(ttl=100)
        harness.clock.advance(1000)
        harness.arrive("vehicle", unrouted)
        assert told(settled)[unrouted.id] is False
        failed = harness.speed(ttl=100)
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", failed)
        assert told(settled) == {}
        harness.pass_time(200)
        assert told(settled)[failed.id] is True


async def test_what_was_sent_and_is_not_confirmed_is_told_later_and_does_not_count_as_seen() -> None:
    settled = Settled()
    async with RouterHarness(configuration(), unconfirmed_s=5) as harness:
        harness.router.replace_observer(None, settled)
        sent = harness.notify(sink=VEHICLE_APP, source=CLOUD_APP._replace(resource=0x8001))
        harness.arrive("cloud", sent)
        assert told(settled, 10.0) == {}
        assert told(settled, 14.9) == {}
        assert told(settled, 15.1) == {sent.id: False}


async def test_what_was_told_lately_is_told_again_on_a_new_link() -> None:
    settled, shadows = Settled(), Shadows()
    async with RouterHarness(configuration()) as harness:
        harness.router.replace_observer(None, settled)
        early, late = harness.speed(), harness.speed()
        harness.arrive("vehicle", early)
        assert told(settled, 10.0) == {early.id: True}
        harness.arrive("vehicle", late)
        assert told(settled, 24.0) == {late.id: True}
        shadows.hear("vehicle", [MemoryReceived(early), MemoryReceived(late)])  # before there is a link
        for each in settled.again(24.9):
            shadows.settle(each)
        assert len(shadows) == 0
        assert [flow.ids for each in settled.again(25.1) for flow in each.flows] == [late.id]


async def test_a_copy_of_a_message_that_waits_does_not_settle_it() -> None:
    settled = Settled()
    async with RouterHarness(configuration(), unconfirmed_s=5) as harness:
        harness.router.replace_observer(None, settled)
        harness.transports["cloud"].lose_link()
        waiting = harness.speed()
        harness.arrive("vehicle", waiting, waiting)
        assert told(settled) == {}


def test_a_message_of_several_deliveries_is_settled_with_the_last_outcome() -> None:
    settled, received = Settled(), MemoryReceived(messages(b"x")[0])
    received.key, received.holders = key_of(received.message), 2
    delivery = cast("Delivery", SimpleNamespace(received=received))
    settled.delivered([delivery], 0.0, 0)
    assert told(settled) == {}
    received.holders = 1
    settled.delivered([delivery], 0.0, 0)
    assert told(settled) == {received.message.id: True}
