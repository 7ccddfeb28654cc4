"""The trace record: how it is packed while messages flow, and the columns that it becomes. Pure.

A packed record has the fixed size of `RECORD`, so a buffer of records is a numpy array. What the messages of one flow share
is stored once per buffer, as a `TraceFlow`. The columns are those of the nightly jobs' schema in version `layout.VERSION`.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamer import __version__, newer_format
from streamer.delivery.lanes.lane import REDELIVERED, RESTORED
from streamer.features.traces.layout import VERSION
from streamer.routing.outcome import Outcome
from streamer.uprotocol.form import IS_COMPILED
from streamer.uprotocol.message import UMessageType, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri

VERSION_KEY = b"ustreamer.trace.version"
WRITTEN_BY_KEY = b"ustreamer.trace.written_by"

# flow, payload bytes, entered_s, sent_s (0: never sent), settled_s (monotonic), entered_ms (wall clock), id, request id,
# ttl (-1: none), retries, type, priority, outcome, code, flags, traceparent
RECORD: Final = struct.Struct("<IIdddq16s16sqIBBBBB26s")
DTYPE = np.dtype(
    [
        ("flow", "<u4"),
        ("payload_bytes", "<u4"),
        ("entered_s", "<f8"),
        ("sent_s", "<f8"),
        ("settled_s", "<f8"),
        ("entered_ms", "<i8"),
        ("id", "V16"),
        ("req_id", "V16"),
        ("ttl_ms", "<i8"),
        ("retries", "<u4"),
        ("type", "u1"),
        ("priority", "u1"),
        ("outcome", "u1"),
        ("code", "u1"),
        ("flags", "u1"),
        ("traceparent", "V26"),
    ]
)

NO_TTL: Final = -1
_TRACEPARENT_LENGTH = 55  # characters in version 00

OUTCOMES = tuple(Outcome)
OUTCOME_NUMBERS: Final = {outcome: number for number, outcome in enumerate(OUTCOMES)}

_TYPES = pa.array([kind.name.lower() for kind in UMessageType])
_PRIORITIES = pa.array([(priority or UPriority.CS1).name for priority in UPriority])
_OUTCOMES = pa.array([outcome.value for outcome in OUTCOMES])
_CODES = pa.array([code.name for code in UCode])
_CODE_NUMBERS = np.array([code.value for code in UCode])

US = pa.timestamp("us", tz="UTC")
_LAST_US = 253_402_300_799_999_999  # the year 9999: ids come from others, and readers of dates go no further
_INT32_MAX = 0x7FFF_FFFF  # numbers of invalid URIs are cut to it

SCHEMA = pa.schema(
    [
        pa.field("ts", US, nullable=False),
        pa.field("msg_ts", US),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("run_ts", US, nullable=False),
        pa.field("msg_id", pa.binary(), nullable=False),
        pa.field("req_id", pa.binary()),
        pa.field("route", pa.string(), nullable=False),
        pa.field("src_authority", pa.string(), nullable=False),
        pa.field("src_ue_id", pa.int64(), nullable=False),
        pa.field("src_ue_version", pa.int32(), nullable=False),
        pa.field("src_resource_id", pa.int32(), nullable=False),
        pa.field("sink_authority", pa.string()),
        pa.field("sink_ue_id", pa.int64()),
        pa.field("sink_ue_version", pa.int32()),
        pa.field("sink_resource_id", pa.int32()),
        pa.field("msg_type", pa.string(), nullable=False),
        pa.field("priority", pa.string(), nullable=False),
        pa.field("payload_bytes", pa.int64(), nullable=False),
        pa.field("ingress", pa.string()),
        pa.field("egress", pa.string()),
        pa.field("ingress_transport", pa.string()),
        pa.field("egress_transport", pa.string()),
        pa.field("ttl_ms", pa.int64()),
        pa.field("age_us", pa.int64()),
        pa.field("queue_wait_us", pa.int64()),
        pa.field("latency_us", pa.int64()),
        pa.field("retries", pa.int32(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("ucode", pa.string(), nullable=False),
        pa.field("redelivered", pa.bool_(), nullable=False),
        pa.field("traceparent", pa.string()),
        pa.field("version", pa.string()),
        pa.field("compiled", pa.bool_()),
        pa.field("config", pa.string()),
    ],
    metadata={VERSION_KEY: str(VERSION).encode(), WRITTEN_BY_KEY: __version__.encode()},
)


class NewerTraceError(Exception):
    """A newer version of this program wrote the file; the text says which, and what to do."""


def check_version(metadata: Mapping[bytes, bytes] | None) -> None:
    """Raises `NewerTraceError` if a file with this metadata has records that this program would misread."""
    found = metadata or {}
    text = found.get(VERSION_KEY, b"").decode(errors="replace")
    version = int(text) if text.isdecimal() else VERSION
    if version > VERSION:
        written_by = found.get(WRITTEN_BY_KEY, b"").decode(errors="replace")
        raise NewerTraceError(newer_format(version, VERSION, written_by))


class TraceFlow(NamedTuple):
    """The columns that the messages of one flow share, in their order. An empty name means that there is none."""

    route: str
    source: UUri
    sink: UUri | None
    ingress: str
    egress: str
    ingress_transport: str
    egress_transport: str


class Buffer(NamedTuple):
    """Packed records in the order of their outcomes; the first one has ``first_seq``.

    ``offset_us``: Unix time minus the monotonic clock when the buffer was closed. ``config``: of
    `streamer.config.shown.cohort`, empty if unknown.
    """

    packed: bytes | bytearray | memoryview
    flows: Sequence[TraceFlow]
    first_seq: int
    offset_us: int
    config: str = ""

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self.packed) // RECORD.size


def pack_traceparent(text: str | None) -> bytes:
    """A W3C trace context, which is hexadecimal throughout, as 26 bytes; empty if it is invalid.

    Of later versions than 00 it has the fields that they share with it.
    """
    if text is None:
        return b""
    if len(text) > _TRACEPARENT_LENGTH and text[:2] != "00" and text[_TRACEPARENT_LENGTH] == "-":
        text = text[:_TRACEPARENT_LENGTH]
    try:
        packed = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return b""
    return packed if len(packed) == 26 else b""


def to_columns(buffer: Buffer, run_us: int) -> pa.RecordBatch:
    """The columns of a buffer's records. ``run_us``: when this run of the streamer began, Unix µs."""
    rows = np.frombuffer(buffer.packed, DTYPE)
    count = len(rows)
    restored = (rows["flags"] & RESTORED) != 0
    # The monotonic clock has the microseconds. If the wall clock was set meanwhile, its time at ingress counts.
    counted_us = _us(rows["entered_s"]) + buffer.offset_us
    entered_us = rows["entered_ms"] * 1000
    is_counted = ~restored & (np.abs(counted_us - entered_us) < 2000)
    ts = np.where(is_counted, counted_us, entered_us)
    settled_us = _us(rows["settled_s"])
    latency = settled_us - np.where(restored, ts - buffer.offset_us, _us(rows["entered_s"]))
    wait = latency - (settled_us - _us(rows["sent_s"]))
    id_bytes = _bytes_of(rows["id"], 16)
    msg_us = _created_us(id_bytes)
    no_id = ((id_bytes[:, 6] >> 4) != 7) | (msg_us > _LAST_US)
    flow = pa.array(rows["flow"])
    columns = {
        "ts": pa.array(ts).cast(US),
        "msg_ts": pa.array(msg_us, mask=no_id).cast(US),
        "seq": pa.array(np.arange(buffer.first_seq, buffer.first_seq + count, dtype=np.int64)),
        "run_ts": pa.array(np.full(count, run_us, np.int64)).cast(US),
        "msg_id": _binary(id_bytes),
        "req_id": _binary(_bytes_of(rows["req_id"], 16), is_optional=True),
        "msg_type": _TYPES.take(pa.array(rows["type"])),
        "priority": _PRIORITIES.take(pa.array(rows["priority"])),
        "payload_bytes": pa.array(rows["payload_bytes"].astype(np.int64)),
        "ttl_ms": pa.array(rows["ttl_ms"], mask=rows["ttl_ms"] == NO_TTL),
        "age_us": pa.array(ts - msg_us, mask=no_id),
        "queue_wait_us": pa.array(np.maximum(wait, 0), mask=rows["sent_s"] == 0.0),
        "latency_us": pa.array(np.maximum(latency, 0)),
        "retries": pa.array(rows["retries"].astype(np.int32)),
        "outcome": _OUTCOMES.take(pa.array(rows["outcome"])),
        "ucode": _CODES.take(pa.array(np.searchsorted(_CODE_NUMBERS, rows["code"]))),
        "redelivered": pa.array((rows["flags"] & REDELIVERED) != 0),
        "traceparent": _traceparents(rows["traceparent"]),
        "version": pa.repeat(__version__, count),
        "compiled": pa.repeat(IS_COMPILED, count),
        "config": pa.repeat(buffer.config, count) if buffer.config else pa.nulls(count, pa.string()),
        **{name: values.take(flow) for name, values in _of_flows(buffer.flows).items()},
    }
    return pa.record_batch([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def aligned(batch: pa.RecordBatch, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """A batch of another version with the columns of ``schema``; missing ones are null. Raises `pyarrow.ArrowException`."""
    there = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.record_batch(columns, schema=schema)


def _of_flows(flows: Sequence[TraceFlow]) -> dict[str, pa.Array]:
    sinks = [flow.sink for flow in flows]
    columns: dict[str, list[object]] = {
        "route": [flow.route for flow in flows],
        "src_authority": [flow.source.authority for flow in flows],
        "src_ue_id": [flow.source.ue_id for flow in flows],
        "src_ue_version": [min(flow.source.version, _INT32_MAX) for flow in flows],
        "src_resource_id": [min(flow.source.resource, _INT32_MAX) for flow in flows],
        "sink_authority": [None if sink is None else sink.authority for sink in sinks],
        "sink_ue_id": [None if sink is None else sink.ue_id for sink in sinks],
        "sink_ue_version": [None if sink is None else min(sink.version, _INT32_MAX) for sink in sinks],
        "sink_resource_id": [None if sink is None else min(sink.resource, _INT32_MAX) for sink in sinks],
        "ingress": [flow.ingress or None for flow in flows],
        "egress": [flow.egress or None for flow in flows],
        "ingress_transport": [flow.ingress_transport or None for flow in flows],
        "egress_transport": [flow.egress_transport or None for flow in flows],
    }
    return {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}


def _us(seconds: np.ndarray) -> np.ndarray:
    return np.rint(seconds * 1e6).astype(np.int64)


def _bytes_of(column: np.ndarray, width: int) -> np.ndarray:
    return np.ascontiguousarray(column).view(np.uint8).reshape(-1, width)


def _created_us(ids: np.ndarray) -> np.ndarray:
    """The creation times in UUIDv7s, Unix µs: their first 48 bits are milliseconds."""
    padded = np.zeros((len(ids), 8), np.uint8)
    padded[:, 2:] = ids[:, :6]
    return padded.view(">i8").reshape(-1).astype(np.int64) * 1000


def _binary(values: np.ndarray, is_optional: bool = False) -> pa.Array:
    """Rows of bytes. If they are optional, rows of zeros are null."""
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(values.shape[1]), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    ).cast(pa.binary())
    if not is_optional:
        return fixed
    return pc.if_else(pa.array(values.any(axis=1)), fixed, pa.scalar(None, pa.binary()))


def _traceparents(column: np.ndarray) -> pa.Array:
    values = _bytes_of(column, 26)
    found: list[bool] = np.asarray(values.any(axis=1)).tolist()
    if not any(found):
        return pa.nulls(len(values), pa.string())
    texts = (row.tobytes().hex() if is_there else None for row, is_there in zip(values, found, strict=True))
    return pa.array(
        [None if text is None else f"{text[:2]}-{text[2:34]}-{text[34:50]}-{text[50:]}" for text in texts], pa.string()
    )
