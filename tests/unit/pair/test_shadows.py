"""What the standby keeps of what it hears, and what the active one tells about it."""

import pytest

from streamer.pair.shadows import Settled, Shadows
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage, publish
from tests.flow.harness import CLOUD_APP, SPEED, VEHICLE_APP, RouterHarness, configuration


def heard(shadows: Shadows) -> dict[str, list[bytes | None]]:
    return {name: [each.message.payload for each in batch] for name, batch in shadows.take().items()}


def messages(*payloads: bytes) -> list[UMessage]:
    return [publish(1_700_000_000_000, SPEED, payload) for payload in payloads]


def test_what_is_heard_is_kept_until_it_is_settled() -> None:
    shadows, (one, two, three) = Shadows(), messages(b"one", b"two", b"three")
    shadows.hear("vehicle", [MemoryReceived(one), MemoryReceived(two)])
    shadows.hear("phone", [MemoryReceived(three)])
    shadows.hear("vehicle", [MemoryReceived(one)])
    shadows.settle(two.id)
    assert len(shadows) == 2
    assert shadows.bytes == one.size + three.size
    assert heard(shadows) == {"vehicle": [b"one"], "phone": [b"three"]}
    assert (len(shadows), shadows.bytes) == (0, 0)
    assert list(shadows.settled()) == [two.id]


def test_what_was_settled_before_it_was_heard_is_not_kept() -> None:
    shadows, (one, two) = Shadows(), messages(b"one", b"two")
    shadows.settle(one.id + two.id)
    shadows.hear("vehicle", [MemoryReceived(one)])
    assert heard(shadows) == {}


def test_bounds_forget_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.pair.shadows._MAX_BYTES", 3000)
    monkeypatch.setattr("streamer.pair.shadows._MAX_SETTLED", 2)
    shadows, sent = Shadows(), messages(*(bytes([n]) * 1000 for n in range(4)))
    shadows.hear("vehicle", [MemoryReceived(each) for each in sent])
    assert shadows.bytes <= 3000
    assert shadows.forgotten == len(sent) - len(shadows) > 0
    assert heard(shadows) == {"vehicle": [each.payload for each in sent[shadows.forgotten :]]}
    shadows.settle(b"".join(each.id for each in sent))
    assert list(shadows.settled()) == [each.id for each in sent[2:]]


async def test_every_outcome_is_told_with_the_id_of_its_message() -> None:
    settled = Settled()
    async with RouterHarness(configuration(), unconfirmed_s=5) as harness:
        harness.router.replace_observer(None, settled)
        assert settled.take() == b""
        delivered = harness.speed()
        harness.arrive("vehicle", delivered)
        assert settled.take() == delivered.id
        unrouted = harness.speed(ttl=100)
        harness.clock.advance(1000)
        harness.arrive("vehicle", unrouted)
        assert settled.take().startswith(unrouted.id)  # and its dead letter, which has left
        unconfirmed = harness.notify(sink=VEHICLE_APP, source=CLOUD_APP._replace(resource=0x8001))
        harness.arrive("cloud", unconfirmed)
        assert settled.take() == unconfirmed.id
        failed = harness.speed(ttl=100)
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", failed)
        assert settled.take() == b""
        harness.pass_time(200)
        assert failed.id in settled.take()
