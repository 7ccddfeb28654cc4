"""The pull buffer, without any wire."""

import pytest

from streamer.transports.listeners import PullBuffer
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import Options, UMessage, publish
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

NOW_MS = 1_700_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)


def buffered(*messages: UMessage, size: int = 10, now_ms: int = NOW_MS) -> tuple[PullBuffer, list[MemoryReceived]]:
    buffer = PullBuffer(lambda: now_ms, size)
    batch = [MemoryReceived(message) for message in messages]
    buffer.on_receive_batch(batch)
    return buffer, batch


def test_pull_hands_out_the_earliest_first_and_then_finds_nothing() -> None:
    messages = [publish(NOW_MS, TOPIC, bytes([n])) for n in range(3)]
    buffer, batch = buffered(*messages)
    assert not any(received.acknowledged for received in batch)
    assert [buffer.pull() for _ in messages] == messages
    assert all(received.acknowledged for received in batch)
    with pytest.raises(UStatusError) as caught:
        buffer.pull()
    assert caught.value.code is UCode.NOT_FOUND


def test_pull_passes_over_what_has_waited_for_its_ttl_whatever_its_id_says() -> None:
    ahead_ms = NOW_MS + 2 * 86_400_000
    buffer, _ = buffered(publish(ahead_ms, TOPIC, b"late", Options(ttl=999)), publish(ahead_ms, TOPIC, b"in time"))
    buffer._waiting[0].since_s -= 1
    assert buffer.pull().payload == b"in time"


def test_pull_passes_over_what_has_expired() -> None:
    late = [publish(NOW_MS - 1000, TOPIC, b"late", Options(ttl=999)) for _ in range(2)]
    in_time = publish(NOW_MS - 1000, TOPIC, b"in time", Options(ttl=1000))
    buffer, batch = buffered(*late, in_time)
    assert buffer.pull() == in_time
    assert all(received.acknowledged for received in batch)


def test_full_buffer_lets_the_oldest_go() -> None:
    messages = [publish(NOW_MS, TOPIC, bytes([n])) for n in range(5)]
    buffer, batch = buffered(*messages, size=3)
    assert [received.acknowledged for received in batch] == [True, True, False, False, False]
    assert [buffer.pull() for _ in range(3)] == messages[2:]
