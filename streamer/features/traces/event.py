"""Events: what happens to the streamer and its links, and the columns that this becomes. Pure.

They stand beside the records: who was offline when, since when a version or a configuration has been in use.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from streamer import __version__
from streamer.features.traces.record import SCHEMA, US
from streamer.uprotocol.form import IS_COMPILED

STARTED: Final = "started"
STOPPED: Final = "stopped"
CONFIGURED: Final = "configured"
UP: Final = "up"
DOWN: Final = "down"

_REASON_LENGTH = 200

EVENT_SCHEMA = pa.schema(
    [
        pa.field("ts", US, nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("run_ts", US, nullable=False),
        pa.field("event", pa.string(), nullable=False),
        pa.field("endpoint", pa.string()),
        pa.field("transport", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("version", pa.string()),
        pa.field("compiled", pa.bool_()),
        pa.field("config", pa.string()),
    ],
    metadata=SCHEMA.metadata,
)


class Event(NamedTuple):
    """One event, at a Unix time in µs. An empty text means that there is none."""

    ts_us: int
    seq: int
    event: str
    endpoint: str
    transport: str
    reason: str
    config: str


def to_event_columns(events: Sequence[Event], run_us: int) -> pa.RecordBatch:
    """The columns of events. ``run_us``: when this run of the streamer began, Unix µs."""
    columns: dict[str, list[object]] = {
        "ts": [each.ts_us for each in events],
        "seq": [each.seq for each in events],
        "run_ts": [run_us for _ in events],
        "event": [each.event for each in events],
        "endpoint": [each.endpoint or None for each in events],
        "transport": [each.transport or None for each in events],
        "reason": [each.reason.encode(errors="replace").decode()[:_REASON_LENGTH] or None for each in events],
        "version": [__version__ for _ in events],
        "compiled": [IS_COMPILED for _ in events],
        "config": [each.config or None for each in events],
    }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in EVENT_SCHEMA], schema=EVENT_SCHEMA)
