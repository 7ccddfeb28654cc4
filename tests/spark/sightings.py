"""Records of messages that streamers saw, and what the audit says of them."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs import clocks, delivery_audit
from tests.spark.traces import DATE, Record, frame, record


def kept(rows: DataFrame) -> DataFrame:
    """As `Batch.keep` does it."""
    return rows.persist().coalesce(1)


def audited(spark: SparkSession, records: Iterable[Record], *dates: dt.date) -> tuple[DataFrame, DataFrame]:
    """Both tables of these dates, or of `DATE`."""
    rows = frame(spark, records).coalesce(1).cache()
    return delivery_audit.transform(rows, clocks.sightings(clocks.alike(rows)), dates or [DATE], kept)


def msg_id(made: dt.datetime, number: int) -> bytes:
    """A UUIDv7 of that time."""
    return round(made.timestamp() * 1000).to_bytes(6) + b"\x70\x00\x80" + number.to_bytes(7)


def seen(streamer: str, made: dt.datetime, number: int, age_us: int = 1_000, latency_us: int = 500, **given: Any) -> Record:
    ts = made + dt.timedelta(microseconds=age_us)
    times = {"msg_ts": made, "age_us": age_us, "latency_us": latency_us}
    about = {"msg_id": msg_id(made, number), "ingress_transport": "mqtt5", "egress_transport": "mqtt5", **times}
    return record(ts, streamer=streamer, **(about | given))


def chain(made: dt.datetime, number: int, **given: Any) -> list[Record]:
    return [seen("a", made, number, 1_000, **given), seen("b", made, number, 4_000, **given)]
