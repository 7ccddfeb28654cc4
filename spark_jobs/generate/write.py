"""Writes what was played as the daemon writes its traces, and the truth to ``_truth``, which Spark ignores.

Records get their seq in the order of their outcomes, per run of the streamer. Files go by the ingress time on its clock.
"""

import datetime as dt
import json
import shutil
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spark_jobs.arrow import arrow_schema
from spark_jobs.generate.plan import DAY_US, HOUR_US, Plan, endpoints
from spark_jobs.generate.simulate import LOST, OWN_ROUTE, REDELIVERED, TO_ORIGIN, UCODES, Played, Player, Records, ucode_of
from spark_jobs.schema import OUTCOMES, TRACE, VERSION, VERSION_KEY

_ROWS_PER_FILE = 1_000_000
_HELD = "_held"


def schema() -> pa.Schema:
    """`schema.TRACE` as the daemon writes it: µs in UTC, with the version in the file's metadata."""
    return arrow_schema(TRACE).with_metadata({VERSION_KEY: str(VERSION)})


def generate(plan: Plan, output: Path) -> dict[str, Any]:
    """Play a plan and write it below `output`. Returns the truth, which is also written to ``_truth/truth.json``."""
    played = Player(plan).play()
    health: dict[str, Any] = {}
    written = 0
    with ThreadPoolExecutor(2, "parquet") as pool:
        for number, name in enumerate(plan.streamers):
            writer = _Writer(plan, played, number, output, pool)
            health[name] = writer.write()
            written += writer.written
    truth = _truth(plan, played) | {"health": health, "records": written}
    (output / "_truth").mkdir(parents=True, exist_ok=True)
    (output / "_truth" / "truth.json").write_text(json.dumps(truth))
    return truth


def release(output: Path) -> int:
    """Move files that were held back to where they belong, as if they came late. Returns how many."""
    held = sorted((output / _HELD).rglob("*.parquet"))
    for path in held:
        target = output / path.relative_to(output / _HELD)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    shutil.rmtree(output / _HELD, ignore_errors=True)
    return len(held)


def _truth(plan: Plan, played: Played) -> dict[str, Any]:
    """Message ids by finding, statuses by date of the message, and the streamer that lacks each lost message."""
    messages = played.messages

    def hex_of(row: int) -> str:
        return f"{int(messages.id_high[row]):016x}{int(messages.id_low[row]):016x}"

    day = (messages.made_us - plan.start_us) // DAY_US
    names = [*OUTCOMES, "lost"]
    assert names[LOST] == "lost"  # both lists have one numbering
    findings = {
        finding: [[str(plan.first + dt.timedelta(days=int(day[row]))), hex_of(row)] for row in rows]
        for finding, rows in played.truth.items()
    }
    statuses: dict[str, dict[str, int]] = {}
    for number in np.unique(day):
        counts = np.bincount(played.status[day == number], minlength=len(names))
        date = str(plan.first + dt.timedelta(days=int(number)))
        statuses[date] = {name: int(count) for name, count in zip(names, counts, strict=True) if count}
    missing_at = {hex_of(row): plan.streamers[at] for row, at in played.missing_at.items()}
    return {"findings": findings, "statuses": statuses, "missing_at": missing_at, "skew_ms": plan.faults.skew_ms}


class _Writer:
    """Writes the files of one streamer."""

    def __init__(self, plan: Plan, played: Played, number: int, output: Path, pool: ThreadPoolExecutor) -> None:
        self.plan, self.played, self.number, self.output, self.pool = plan, played, number, output, pool
        self.name = plan.streamers[number]
        self.skew_us = plan.faults.skew_ms.get(self.name, 0) * 1000
        self.schema = schema()
        self.written = 0
        self.rng = np.random.default_rng([plan.seed, number])

    def write(self) -> dict[str, Any]:
        """Write the files. Returns the truth about the streamer's health, by date."""
        records = self.played.records[self.number]
        done = records.ts_us + records.latency_us
        order = np.argsort(done, kind="stable")
        records, done = records.taken(order), done[order]
        starts = self._run_starts()
        run = np.searchsorted(starts, done, side="right") - 1
        seq = np.arange(len(done)) - np.searchsorted(run, run, side="left")
        records.ts_us += self.skew_us
        hour = (records.ts_us // HOUR_US).astype(np.int64)
        kept = np.flatnonzero(~records.dropped)
        health = self._health(records.taken(kept), starts[run[kept]], seq[kept])
        by_hour = kept[np.argsort((hour[kept] - hour.min()).astype(np.int16), kind="stable")]
        hours, first = np.unique(hour[by_hour], return_index=True)
        pending = []
        for at, begin, end in zip(hours, first, [*first[1:], len(by_hour)], strict=True):
            for start in range(begin, end, _ROWS_PER_FILE):
                rows = by_hour[start : min(start + _ROWS_PER_FILE, end)]
                part = f"part-{uuid.UUID(bytes=self.rng.bytes(16), version=4)}.parquet"
                table = self._table(records.taken(rows), seq[rows], starts[run[rows]])
                pending.append(self.pool.submit(self._write_file, table, self._folder(int(at)) / part))
                self.written += len(rows)
        for future in pending:
            future.result()
        return health

    def _run_starts(self) -> NDArray[np.int64]:
        faults = self.plan.faults
        base = self.plan.start_us
        ends = [
            base + day * DAY_US + (hour + 1) * HOUR_US - self.skew_us for s, day, hour in faults.outages if s == self.name
        ]
        restarts = [base + day * DAY_US + minute * 60_000_000 for s, day, minute in faults.restarts if s == self.name]
        return np.array([base - HOUR_US, *sorted(ends + restarts)], np.int64)

    def _folder(self, hour: int) -> Path:
        at = dt.datetime.fromtimestamp(hour * 3600, dt.UTC)
        day = (at.date() - self.plan.first).days
        root = self.output / _HELD if (self.name, day, at.hour) in self.plan.faults.held else self.output
        return root / f"date={at.date()}" / f"hour={at.hour}" / f"streamer={self.name}"

    def _write_file(self, table: pa.Table, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        strings = [f.name for f in self.schema if pa.types.is_string(f.type)]
        with pq.ParquetWriter(
            hidden, table.schema, compression="zstd", use_dictionary=strings, store_schema=False
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({VERSION_KEY: str(VERSION)})  # without the Arrow schema, it would not be kept
        hidden.rename(path)

    def _health(self, records: Records, run_us: NDArray[np.int64], seq: NDArray[np.int64]) -> dict[str, Any]:
        """By date: records, gaps in seq (by the date of the outcome before the gap), hours without a record, runs."""
        date = records.ts_us // DAY_US
        gap = np.append(np.where(run_us[1:] == run_us[:-1], seq[1:] - seq[:-1] - 1, 0), 0)
        done_on = (records.ts_us + records.latency_us) // DAY_US
        truth = {}
        for day in np.unique(date):
            of_day = date == day
            hours = np.unique(records.ts_us[of_day] // HOUR_US % 24)
            runs = np.unique(run_us[of_day])
            truth[str(dt.date(1970, 1, 1) + dt.timedelta(days=int(day)))] = {
                "records": int(of_day.sum()),
                "records_missing": int(gap[done_on == day].sum()),
                "gaps": int((gap[done_on == day] > 0).sum()),
                "missing_hours": [int(h) for h in range(hours[0], hours[-1]) if h not in hours],
                "runs": len(runs),
            }
        return truth

    def _table(self, records: Records, seq: NDArray[np.int64], run_us: NDArray[np.int64]) -> pa.Table:
        messages, flows = self.played.messages, self.played.flows
        rows, count = records.message, len(records.message)
        flow = messages.flow[rows]
        made_us = messages.made_us[rows] // 1000 * 1000
        request = messages.request[rows]
        own_route = (records.way & OWN_ROUTE) > 0
        to_origin = (records.way & TO_ORIGIN) > 0
        ends = endpoints(self.number, len(self.plan.streamers))
        names, kinds = [each[0] for each in ends], [each[1] for each in ends]
        ingress = np.array([names.index(f.entry) if f.entry and f.path[0] == self.number else int(f.upward) for f in flows])[
            flow
        ]
        egress = np.array([names.index(f.exit) if f.exit and f.path[-1] == self.number else 1 - f.upward for f in flows])[
            flow
        ]
        none = np.zeros(count, np.bool_)
        sink = np.array([f.sink is None for f in flows])[flow]
        ttl = np.array([-1 if f.ttl_ms is None else f.ttl_ms for f in flows])[flow]
        payload = np.array([f.payload_bytes for f in flows])[flow] + messages.id_low[rows].astype(np.int64) % 32
        coin = messages.id_low[rows] >> np.uint64(20) & np.uint64(1023)  # randomness without another column
        retried = np.where(records.outcome == OUTCOMES.index("dead_lettered"), 10, np.where(coin < 4, 1 + coin % 3, 0))
        delivered_late = (coin == 9) & (records.outcome == 0)

        def text(values: Sequence[str], codes: NDArray[Any], null: NDArray[np.bool_]) -> pa.DictionaryArray:
            return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int16), mask=null), pa.array(values, pa.string()))

        def of_flow(value: Any, kind: pa.DataType, null: NDArray[np.bool_] = none) -> pa.Array:
            values = [value(f) if f.sink or null is none else None for f in flows]
            if pa.types.is_string(kind):
                distinct = sorted({v for v in values if v is not None})
                codes = np.array([distinct.index(v) if v is not None else 0 for v in values])[flow]
                return text(distinct, codes, null)
            return pa.array(np.array([0 if v is None else v for v in values])[flow], kind, mask=null)

        def stamp(us: NDArray[np.int64]) -> pa.Array:
            return pa.array(us, pa.timestamp("us", "UTC"))

        def ids(of: NDArray[np.int64], null: NDArray[np.bool_]) -> pa.Array:
            of = of[~null]
            packed = np.stack([messages.id_high[of], messages.id_low[of]], axis=1).astype(">u8")
            offsets = np.concatenate([[0], np.cumsum(np.where(null, 0, 16))]).astype(np.int32)
            validity = pa.array(~null).buffers()[1] if null.any() else None
            return pa.Array.from_buffers(pa.binary(), count, [validity, pa.py_buffer(offsets), pa.py_buffer(packed)])

        route_names = sorted({f.route for f in flows} | {"none"})
        route = np.array([route_names.index(f.route) for f in flows])[flow]
        # a dead letter is one only at the streamer that made it; to the next one it is a Publish that no route forwards
        letter = np.array([f.route == "dead-letter" for f in flows])[flow]
        unrouted = own_route | (letter & ~to_origin)
        route = np.where(letter, len(route_names) + egress, route)
        route_names += [f"dead-letter/{name}" for name in names]
        route = np.where(unrouted, route_names.index("none"), route)
        wait = records.wait_us
        columns = {
            "ts": stamp(records.ts_us),
            "msg_ts": stamp(made_us),
            "seq": pa.array(seq),
            "run_ts": stamp(run_us + self.skew_us),
            "msg_id": ids(rows, none),
            "req_id": ids(request, request < 0),
            "route": text(route_names, route, none),
            "src_authority": of_flow(lambda f: f.source.authority, pa.string()),
            "src_ue_id": of_flow(lambda f: f.source.ue_id, pa.int64()),
            "src_ue_version": of_flow(lambda f: f.source.version, pa.int32()),
            "src_resource_id": of_flow(lambda f: f.source.resource_id, pa.int32()),
            "sink_authority": of_flow(lambda f: f.sink.authority, pa.string(), sink),
            "sink_ue_id": of_flow(lambda f: f.sink.ue_id, pa.int64(), sink),
            "sink_ue_version": of_flow(lambda f: f.sink.version, pa.int32(), sink),
            "sink_resource_id": of_flow(lambda f: f.sink.resource_id, pa.int32(), sink),
            "msg_type": of_flow(lambda f: f.kind, pa.string()),
            "priority": of_flow(lambda f: f.priority, pa.string()),
            "payload_bytes": pa.array(payload),
            "ingress": text(names, ingress, to_origin),
            "egress": text(names, egress, unrouted),
            "ingress_transport": text(kinds, ingress, to_origin),
            "egress_transport": text(kinds, egress, unrouted),
            "ttl_ms": pa.array(ttl, mask=ttl < 0),
            "age_us": pa.array(records.ts_us - made_us),
            "queue_wait_us": pa.array(wait, mask=wait < 0),
            "latency_us": pa.array(records.latency_us),
            "retries": pa.array(retried.astype(np.int32)),
            "outcome": text(OUTCOMES, records.outcome, none),
            "ucode": text(UCODES, ucode_of(records.outcome), none),
            "redelivered": pa.array(((records.way & REDELIVERED) > 0) | delivered_late),
            "traceparent": pa.nulls(count, pa.string()),
        }
        fields = [pa.field(f.name, columns[f.name].type, f.nullable) for f in self.schema]
        return pa.table([columns[f.name] for f in self.schema], schema=pa.schema(fields, self.schema.metadata))
