"""Hand-made traces: records with sensible defaults, written as the daemon does, into its folders, with pyarrow."""

import datetime as dt
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, BooleanType, DataType, IntegerType, LongType, StringType, TimestampType

from spark_jobs import records
from spark_jobs.schema import EVENT, TRACE, VERSION, VERSION_KEY

DATE = dt.date(2026, 11, 20)
_ARROW: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}
SCHEMA = pa.schema(
    [pa.field(field.name, _ARROW[type(field.dataType)], field.nullable) for field in TRACE],
    metadata={VERSION_KEY: str(VERSION)},
)

_WITH_PARTITIONS = pa.schema(
    [*SCHEMA, pa.field("date", pa.date32()), pa.field("hour", pa.int32()), pa.field("streamer", pa.string())]
)

Record = dict[str, Any]


def at(clock: str = "07:00", date: dt.date = DATE) -> dt.datetime:
    """A time of day of `date`, in UTC: ``at("07:30:00.000123")``."""
    return dt.datetime.combine(date, dt.time.fromisoformat(clock), dt.UTC)


def record(ts: dt.datetime | str = "07:00", **given: Any) -> Record:
    """One delivered Publish, with whatever is given instead. `streamer` may be given; its default is ``gateway``."""
    ts = at(ts) if isinstance(ts, str) else ts
    made: Record = {
        "ts": ts,
        "msg_ts": ts.replace(microsecond=ts.microsecond // 1000 * 1000),
        "seq": 0,
        "run_ts": dt.datetime.combine(ts.date(), dt.time(0), dt.UTC),
        "msg_id": uuid.uuid4().bytes,
        "req_id": None,
        "route": "up",
        "src_authority": "veh1",
        "src_ue_id": 1,
        "src_ue_version": 1,
        "src_resource_id": 0x8000,
        "sink_authority": None,
        "sink_ue_id": None,
        "sink_ue_version": None,
        "sink_resource_id": None,
        "msg_type": "publish",
        "priority": "CS1",
        "payload_bytes": 100,
        "ingress": "vehicle",
        "egress": "cloud",
        "ingress_transport": "zenoh",
        "egress_transport": "mqtt5",
        "ttl_ms": None,
        "age_us": 0,
        "queue_wait_us": 100,
        "latency_us": 1000,
        "retries": 0,
        "outcome": "delivered",
        "ucode": "OK",
        "redelivered": False,
        "traceparent": None,
        "version": "1.0.0",
        "compiled": False,
        "config": "0123456789ab",
        "streamer": "gateway",
    }
    if unknown := given.keys() - made.keys():
        raise AssertionError(f"no such columns: {sorted(unknown)}")
    return made | given


def write(
    root: Path, records: Iterable[Record], *, without: Sequence[str] = (), extra: pa.Field | None = None
) -> list[Path]:
    """Write a file per date, hour and streamer below `root`, and return them.

    `without`: columns that an older writer lacked; `extra`: one that only a newer one has.
    """
    groups: dict[tuple[dt.date, int, str], list[Record]] = defaultdict(list)
    for each in records:
        groups[each["ts"].date(), each["ts"].hour, each["streamer"]].append(each)
    written = []
    for (date, hour, streamer), rows in sorted(groups.items()):
        schema = pa.schema([field for field in SCHEMA if field.name not in without], metadata=SCHEMA.metadata)
        plain = [{name: row[name] for name in schema.names} for row in rows]
        table = pa.Table.from_pylist(plain, schema=schema)
        if extra is not None:
            table = table.append_column(extra, pa.nulls(len(rows), extra.type))
        folder = root / f"date={date}" / f"hour={hour}" / f"streamer={streamer}"
        folder.mkdir(parents=True, exist_ok=True)
        written.append(folder / f"part-{uuid.uuid4()}.parquet")
        pq.write_table(table, written[-1], compression="zstd")
    return written


def write_events(root: Path, streamer: str, *told: tuple[dt.datetime, str, str], run: int = 0) -> Path:
    """Write a file of events of one streamer and date: time, event and endpoint. `run`: which of its runs."""
    schema = to_arrow_schema(EVENT, timezone="UTC")
    rows = [
        {
            "ts": ts,
            "seq": seq,
            "run_ts": dt.datetime(2026, 11, 1, run, tzinfo=dt.UTC),
            "event": event,
            "endpoint": endpoint or None,
            "transport": "mqtt5" if endpoint else None,
            "reason": "gone" if event == "down" else None,
            "version": "1.0.0",
            "compiled": False,
            "config": "0123456789ab",
        }
        for seq, (ts, event, endpoint) in enumerate(told)
    ]
    path = root / "_events" / f"date={told[0][0].date()}" / f"streamer={streamer}" / f"events-{uuid.uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def frame(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    """The records as a job reads them (`schema.PARTITIONED`), without files."""
    rows = [{**each, "date": each["ts"].date(), "hour": each["ts"].hour} for each in records]
    # Through Arrow: from a list, Spark would start Python workers, which takes longer than most of the tests.
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=_WITH_PARTITIONS))


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings."""
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, former in before.items():
        assert former is not None, f"{key} has no value to return to"
        spark.conf.set(key, former)


def read(spark: SparkSession, traces: Path, dates: Iterable[dt.date], left_out: records.LeftOut | None = None) -> DataFrame:
    """All records of these dates, each file by itself, but for copies and what is left out."""
    found = records.files(spark, str(traces), dates, strict=left_out is None)
    copies, without = records.copies(spark, str(traces), found), left_out or {}
    wanted = {date: found[date].keys() - {*copies.get(date, ()), *without.get(date, ())} for date in found}
    return records.read(spark, str(traces), wanted)
