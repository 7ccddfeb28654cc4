"""Buffers of trace records for tests, each record with a message id of its own."""

from datetime import UTC, datetime

from streamer.delivery.lanes.lane import RESTORED
from streamer.features.traces.event import Event
from streamer.features.traces.record import NO_TTL, RECORD, Buffer, TraceFlow
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000
FLOW = TraceFlow("up", UUri("veh1", 0xA, 2, 0x8A50), None, "vehicle", "cloud", "zenoh", "mqtt5")


def buffer(first_seq: int, entered_ms: list[int]) -> Buffer:
    """One record for each time of entry."""
    packed = b"".join(
        RECORD.pack(0, 7, 0.0, 0.5, 1.0, each, new_id(each), b"", NO_TTL, 0, 1, 2, 0, 0, RESTORED, b"")
        for each in entered_ms
    )
    return Buffer(packed, [FLOW], first_seq, 0)


def event(seq: int, ts_ms: int = NOON_MS, kind: str = "down") -> Event:
    """A link that went down."""
    return Event(ts_ms * 1000, seq, kind, "cloud", "mqtt5", "gone", "0123456789ab")


def noon_buffer(first_seq: int, count: int) -> Buffer:
    """Records that all came in at noon."""
    return buffer(first_seq, [NOON_MS] * count)
