"""Folders of traces as the daemon leaves them: records, Parquet files, spool files. No tests."""

import io
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from streamer.features.traces.record import SCHEMA
from streamer.uprotocol.uuid import new_id

HOUR_US = 3_600_000_000
NOW_US = int(datetime(2026, 11, 21, 12, 30, tzinfo=UTC).timestamp()) * 1_000_000
RUN_US = NOW_US - 5 * HOUR_US
NAME = "gateway.veh1"

Row = dict[str, Any]


def row(seq: int, ago_us: Any = 0, latency_us: Any = 1000, **other: Any) -> Row:
    """A record of a message that arrived ``ago_us`` before now, with defaults for the rest."""
    ts = NOW_US - ago_us
    plain: Row = {
        "ts": ts, "msg_ts": ts - 2000, "seq": seq, "run_ts": RUN_US, "msg_id": new_id((ts - 2000) // 1000), "req_id": None,
        "route": "vehicle-cloud", "src_authority": "veh1", "src_ue_id": 0xA8000, "src_ue_version": 2,
        "src_resource_id": 0x8A50, "sink_authority": None, "sink_ue_id": None, "sink_ue_version": None,
        "sink_resource_id": None, "msg_type": "publish", "priority": "CS1", "payload_bytes": 10, "ingress": "vehicle",
        "egress": "cloud", "ingress_transport": "zenoh", "egress_transport": "mqtt5", "ttl_ms": None, "age_us": 2000,
        "queue_wait_us": 200, "latency_us": latency_us, "retries": 0, "outcome": "delivered", "ucode": "OK",
        "redelivered": False, "traceparent": None,
    }  # fmt: skip
    return plain | other


def failed(seq: int, ago_us: int = 0, **other: Any) -> Row:
    return row(seq, ago_us, outcome="expired", ucode="DEADLINE_EXCEEDED", queue_wait_us=None, **other)


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def write_part(folder: Path, rows: Sequence[Row], streamer: str = NAME, without: Sequence[str] = ()) -> list[Path]:
    """Write rows as Parquet: one file per hour, as old as its last outcome."""
    paths = []
    for hour_us in sorted({r["ts"] // HOUR_US * HOUR_US for r in rows}):
        of_hour = [r for r in rows if r["ts"] // HOUR_US * HOUR_US == hour_us]
        hour = datetime.fromtimestamp(hour_us // 1_000_000, UTC)
        place = folder / f"date={hour:%Y-%m-%d}" / f"hour={hour.hour}" / f"streamer={quote(streamer, safe='')}"
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"part-{len(list(place.iterdir())):08}.parquet"
        pq.write_table(table(of_hour).drop_columns(list(without)), path)
        ended_us = max(r["ts"] + (r["latency_us"] or 0) for r in of_hour)
        os.utime(path, ns=(ended_us * 1000, ended_us * 1000))
        paths.append(path)
    return paths


class SpoolFileWriter:
    """A file of the spool, as the daemon writes it. It is not kept open: a test may leave it as a killed daemon would."""

    def __init__(self, folder: Path, name: str = "1-1", streamer: str = NAME) -> None:
        self.path = folder / ".spool" / quote(streamer, safe="") / f"{name}.arrows.open"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._sink = io.BytesIO()
        self._saved = 0
        self._writer = pa.ipc.new_stream(self._sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd"))
        self._save()

    def write(self, *rows: Row) -> int:
        """One batch; returns how long the file is now."""
        self._writer.write_batch(table(rows).combine_chunks().to_batches()[0])
        self._save()
        return self._saved

    def close(self) -> Path:
        self._writer.close()
        self._save()
        return self.path.rename(self.path.with_suffix(""))

    def _save(self) -> None:
        """Append what is new, for a reader that follows the file."""
        written = self._sink.getvalue()
        with self.path.open("ab") as file:
            file.write(written[self._saved :])
        self._saved = len(written)


def numbers(out: str) -> list[int]:
    return [json.loads(line)["seq"] for line in out.splitlines()]
