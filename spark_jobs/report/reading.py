"""What the report asks of the tables: Spark sums and ranks, only bounded results are collected.

`collect` is the only place of the report that runs Spark. It returns plain rows under the names of `QUERIES`; a query whose
table has not been written is not among them. A fleet's tables can be large, so every query is either a sum over few groups or
the first of a ranking, with the number of all rows in `TOTAL`.
"""

import datetime
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from spark_jobs import records, tables
from spark_jobs.schema import OUTCOMES
from spark_jobs.storage import Storage

TREND_DAYS = 14
TOTAL = "total_rows"
"""Column of a ranking: how many rows the table has, before the ranking was cut."""

ROUTES = 20
HOURLY_ROUTES = 6
PAIRS = 12
REASONS = 12
MATRIX = 15
EXAMPLES = 5
OBJECTIVES = 40
ANOMALIES = 20
TALKERS = 10
STREAMERS = 30

Rows = list[dict[str, Any]]
Collected = dict[str, Rows]
_THREADS = 4  # a small query is mostly waiting: for the file listing, the planner, the scheduler


class Night:
    """The tables of one output folder as one night's report sees them."""

    def __init__(self, spark: SparkSession, output: str, date: datetime.date) -> None:
        self._spark = spark
        self._output = output.rstrip("/")
        self.date = date

    def has(self, table: tables.Table) -> bool:
        """Whether the table was written for the report's date; a day without rows was."""
        return Storage(self._spark).exists(f"{self._output}/{table.name}/date={self.date}")

    def day(self, table: tables.Table) -> DataFrame:
        """The rows of the report's date."""
        return records.read_table(self._spark, self._output, table, [self.date])

    def trend(self, table: tables.Table) -> DataFrame:
        """The rows of the report's date and of the 14 days before it."""
        days = [self.date - datetime.timedelta(days=back) for back in range(TREND_DAYS, -1, -1)]
        return records.read_table(self._spark, self._output, table, days)


def _sums(*names: str) -> list[Column]:
    return [F.sum(name).alias(name) for name in names]


def _first(frame: DataFrame, rows: int, *order: Column, within: str | None = None) -> DataFrame:
    """The first ``rows`` by ``order`` (of each ``within``), each with the number of all in `TOTAL`."""
    group = Window.partitionBy(F.lit(0) if within is None else F.col(within))
    ranked = frame.withColumn(TOTAL, F.count(F.lit(1)).over(group)).withColumn("_place", F.row_number().over(group.orderBy(*order)))
    return ranked.where(F.col("_place") <= rows).orderBy(*([within] if within else []), "_place").drop("_place", "date")


def _days(night: Night) -> DataFrame:
    measures = _sums("messages", "bytes", *OUTCOMES, "retries", "redelivered")
    return night.trend(tables.ROUTE_HOURLY).groupBy("date").agg(*measures)


def _routes(night: Night) -> DataFrame:
    """One row per streamer and route, with its messages by hour."""
    by_hour = F.collect_list(F.struct("hour", "messages")).alias("by_hour")
    measures = _sums("messages", "bytes", *OUTCOMES, "retries", "redelivered")
    return night.day(tables.ROUTE_HOURLY).groupBy("streamer", "route").agg(*measures, by_hour)


def _latency(night: Night) -> DataFrame:
    frame = night.day(tables.LATENCY_DAILY).groupBy("streamer", "route").pivot("measure", ["latency", "queue_wait"])
    columns = ("messages", "p50_us", "p90_us", "p99_us", "max_us")
    frame = frame.agg(*(F.first(name).alias(name) for name in columns)).where("latency_messages > 0")
    return _first(frame, ROUTES, F.desc("latency_messages"), F.asc("streamer"), F.asc("route"))


def _latency_hourly(night: Night) -> DataFrame:
    """The hours of the busiest routes."""
    frame = night.day(tables.LATENCY)
    total = frame.groupBy("streamer", "route").agg(F.sum("messages").alias("all_messages")).where("all_messages > 0")
    busiest = total.orderBy(F.desc("all_messages"), "streamer", "route").limit(HOURLY_ROUTES)
    return frame.join(F.broadcast(busiest), ["streamer", "route"]).select(
        "streamer", "route", "hour", "all_messages", "messages", "latency_p50_us", "latency_p99_us"
    )


def _changes(night: Night) -> DataFrame:
    """What differs most from its usual, in messages; only where there is a usual."""
    frame = night.day(tables.OUTCOMES_TABLE).where("usual IS NOT NULL AND messages <> usual")
    return _first(frame, PAIRS, F.desc(F.abs(F.col("messages") - F.col("usual"))), *_names("route", "src_authority"))


def _names(*names: str) -> list[Column]:
    """Ties are broken by name, so that two runs give the same page."""
    return [F.asc(name) for name in ("streamer", *names)]


def _dead_letter_days(night: Night) -> DataFrame:
    return night.trend(tables.DEAD_LETTERS).groupBy("date", "outcome", "ucode").agg(*_sums("messages", "bytes"))


def _dead_letters(night: Night) -> DataFrame:
    order = [F.desc("messages"), *_names("route", "outcome", "ucode", "src_authority", "src_ue_id", "sink_authority", "sink_ue_id")]
    return _first(night.day(tables.DEAD_LETTERS), PAIRS, *order)


def _authorities(column: str) -> Callable[[Night], DataFrame]:
    def query(night: Night) -> DataFrame:
        frame = night.day(tables.TRAFFIC_MATRIX).groupBy(column).agg(*_sums("messages"))
        return _first(frame, MATRIX, F.desc("messages"), F.asc(column))

    return query


def _matrix(night: Night) -> DataFrame:
    """Messages between the first sources and the first sinks; the other authorities are one row and one column."""
    frame = night.day(tables.TRAFFIC_MATRIX)
    for column in ("src_authority", "sink_authority"):
        total = frame.groupBy(column).agg(F.sum("messages").alias("_all")).orderBy(F.desc("_all"), F.asc(column)).limit(MATRIX)
        named = total.select(F.col(column).alias("_name"), F.lit(True).alias(f"{column}_named"))
        frame = frame.join(F.broadcast(named), F.col(column).eqNullSafe(F.col("_name")), "left").drop("_name")
        known = F.coalesce(F.col(f"{column}_named"), F.lit(False))
        frame = frame.withColumn(f"{column}_named", known).withColumn(column, F.when(known, F.col(column)))
    keys = ("src_authority", "src_authority_named", "sink_authority", "sink_authority_named")
    return frame.groupBy(*keys).agg(*_sums("messages", "bytes", "delivered", "failed"))


def _audit_days(night: Night) -> DataFrame:
    measures = [*_sums("messages", "copies"), F.max("latency_max_us").alias("latency_max_us")]
    return night.trend(tables.DELIVERY_AUDIT).groupBy("date", "status").agg(*measures)


def _audit_pairs(night: Night) -> DataFrame:
    """Between whom messages were lost."""
    frame = night.day(tables.DELIVERY_AUDIT).groupBy("src_authority", "sink_authority").pivot("status", list(tables.STATUSES))
    frame = frame.agg(F.sum("messages")).where("lost > 0")
    return _first(frame, PAIRS, F.desc("lost"), F.asc("src_authority"), F.asc("sink_authority"))


def _findings(night: Night) -> DataFrame:
    return _first(night.day(tables.DELIVERY_AUDIT_DETAIL), EXAMPLES, F.asc("msg_ts"), F.asc("msg_id"), within="finding")


def _health(night: Night) -> DataFrame:
    worst = (F.desc("records_missing"), F.desc("restarts"), F.desc(F.abs(F.col("clock_skew_ms"))))
    return _first(night.day(tables.STREAMER_HEALTH), STREAMERS, *worst, *_names())


def _health_totals(night: Night) -> DataFrame:
    frame = night.day(tables.STREAMER_HEALTH)
    return frame.groupBy().agg(*_sums("records", "restarts", "gaps", "records_missing"), F.count(F.lit(1)).alias("streamers"))


def _slo(night: Night) -> DataFrame:
    frame = night.day(tables.SLO)
    kept = frame.withColumn("met_rows", F.sum(F.when(F.col("met"), 1).otherwise(0)).over(Window.partitionBy(F.lit(0))))
    return _first(kept, OBJECTIVES, F.asc("met"), F.asc_nulls_last("budget_left"), *_names("route", "objective", "name"))


def _anomalies(night: Night) -> DataFrame:
    order = (F.desc(F.abs(F.col("score"))), F.asc("hour"), *_names("route", "metric"))
    return _first(night.day(tables.ANOMALIES), ANOMALIES, *order)


def _ttl_margin(night: Night) -> DataFrame:
    endangered = F.col("expired") + F.col("late") + F.col("under_10")
    frame = night.day(tables.TTL_MARGIN).where("messages + expired > 0")
    return _first(frame, ROUTES, F.desc(endangered), F.desc("messages"), *_names("route"))


def _redelivery(night: Night) -> DataFrame:
    order = (F.desc(F.col("redelivered") + F.col("duplicates") + F.col("retried")), F.desc("messages"), *_names("route"))
    return _first(night.day(tables.REDELIVERY), ROUTES, *order)


def _talkers(night: Night) -> DataFrame:
    size = F.when(F.col("by") == "bytes", F.col("bytes")).otherwise(F.col("messages"))
    order = (F.desc(size), *_names("src_authority", "src_ue_id"))
    return _first(night.day(tables.TOP_TALKERS), TALKERS, *order, within="by")


QUERIES: dict[str, tuple[tables.Table, Callable[[Night], DataFrame]]] = {
    "days": (tables.ROUTE_HOURLY, _days),
    "routes": (tables.ROUTE_HOURLY, _routes),
    "latency": (tables.LATENCY_DAILY, _latency),
    "latency_hourly": (tables.LATENCY, _latency_hourly),
    "changes": (tables.OUTCOMES_TABLE, _changes),
    "dead_letter_days": (tables.DEAD_LETTERS, _dead_letter_days),
    "dead_letters": (tables.DEAD_LETTERS, _dead_letters),
    "sources": (tables.TRAFFIC_MATRIX, _authorities("src_authority")),
    "sinks": (tables.TRAFFIC_MATRIX, _authorities("sink_authority")),
    "matrix": (tables.TRAFFIC_MATRIX, _matrix),
    "audit_days": (tables.DELIVERY_AUDIT, _audit_days),
    "audit_pairs": (tables.DELIVERY_AUDIT, _audit_pairs),
    "findings": (tables.DELIVERY_AUDIT_DETAIL, _findings),
    "health": (tables.STREAMER_HEALTH, _health),
    "health_totals": (tables.STREAMER_HEALTH, _health_totals),
    "slo": (tables.SLO, _slo),
    "anomalies": (tables.ANOMALIES, _anomalies),
    "ttl_margin": (tables.TTL_MARGIN, _ttl_margin),
    "redelivery": (tables.REDELIVERY, _redelivery),
    "talkers": (tables.TOP_TALKERS, _talkers),
}


def collect(spark: SparkSession, output: str, date: datetime.date) -> Collected:
    """Every query's rows; those whose table was not written for the date are left out."""
    night = Night(spark, output, date)
    written = {table.name for table in {table.name: table for table, _ in QUERIES.values()}.values() if night.has(table)}
    wanted = {name: query for name, (table, query) in QUERIES.items() if table.name in written}

    def run(query: Callable[[Night], DataFrame]) -> Rows:
        return [row.asDict(recursive=True) for row in _utc_texts(query(night)).collect()]

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="report") as pool:
        return dict(zip(wanted, pool.map(run, wanted.values()), strict=True))


def _utc_texts(frame: DataFrame) -> DataFrame:
    """Timestamps as text: collected as they are, they would come in the zone of this process."""
    stamps = [field.name for field in frame.schema.fields if field.dataType == TimestampType()]
    return frame.withColumns({name: F.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'") for name in stamps})
