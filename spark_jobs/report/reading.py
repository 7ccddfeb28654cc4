"""Queries the tables for the report: Spark sums and ranks, and only bounded results are collected.

`collect` is the only place of the report that runs Spark. It returns plain rows under the names of `TABLE_OF`, without those
whose table was not written. A fleet's tables can be large, so every query is either a sum over few groups or the top of a
ranking, with the number of all rows in `TOTAL`.
"""

import datetime
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from spark_jobs import records, tables
from spark_jobs.job import TREND_DAYS
from spark_jobs.schema import OUTCOMES
from spark_jobs.storage import Storage

TOTAL = "total_rows"
"""Column of a ranking: the number of rows before the ranking was cut."""

ROUTES = 20
HOURLY_ROUTES = 6
PAIRS = 10
CHANGES = 8
REASONS = 12
MATRIX = 15
EXAMPLES = 3
OBJECTIVES = 40
ANOMALIES = 20
TALKERS = 10
STREAMERS = 30

Rows = list[dict[str, Any]]
Collected = dict[str, Rows]
_THREADS = 4  # a small query mostly waits: for the file listing, the planner, the scheduler


_WITH_TREND = (tables.ROUTE_HOURLY, tables.DEAD_LETTERS, tables.DELIVERY_AUDIT)


class ReportTables:
    """The tables below one output folder, for the report of one date."""

    def __init__(self, spark: SparkSession, output: str, date: datetime.date) -> None:
        self._spark = spark
        self._output = output.rstrip("/")
        self.date = date

        self._frames = {table.name: self._read(table) for table in tables.TABLES.values() if self._has(table)}

    def _has(self, table: tables.Table) -> bool:
        return Storage(self._spark).exists(f"{self._output}/{table.name}/date={self.date}")

    def _read(self, table: tables.Table) -> DataFrame:
        before = TREND_DAYS if table in _WITH_TREND else 0
        days = [self.date - datetime.timedelta(days=back) for back in range(before, -1, -1)]
        return records.read_table(self._spark, self._output, table, days)

    def has(self, table: tables.Table) -> bool:
        """Whether the table was written for the report's date, even without rows."""
        return table.name in self._frames

    def day(self, table: tables.Table) -> DataFrame:
        """The rows of the report's date."""
        return self._frames[table.name].where(sf.col("date") == sf.lit(self.date))

    def trend(self, table: tables.Table) -> DataFrame:
        """The rows of the report's date and of the 14 days before it."""
        return self._frames[table.name]


def _sums(*names: str) -> list[Column]:
    return [sf.sum(name).alias(name) for name in names]


def _names(*names: str) -> tuple[Column, ...]:
    """Ties are broken by name, so that two runs give the same page."""
    return tuple(sf.asc(name) for name in ("streamer", *names))


class Ranking(NamedTuple):
    """The first ``rows`` of a frame by ``order``. The totals of all rankings are counted by one query."""

    table: tables.Table
    rows: int
    order: tuple[Column, ...]
    frame: Callable[[DataFrame], DataFrame] = lambda day: day


def _days(report: ReportTables) -> DataFrame:
    measures = _sums("messages", "bytes", *OUTCOMES, "redelivered")
    return report.trend(tables.ROUTE_HOURLY).groupBy("date").agg(*measures)


def _routes(report: ReportTables) -> DataFrame:
    """One row per streamer and route, with its messages by hour."""
    by_hour = sf.collect_list(sf.struct("hour", "messages")).alias("by_hour")
    return report.day(tables.ROUTE_HOURLY).groupBy("streamer", "route").agg(*_sums("messages", "bytes", *OUTCOMES), by_hour)


def _latency(day: DataFrame) -> DataFrame:
    """One row per streamer and route, both measures side by side."""

    def column(measure: str, name: str) -> Column:
        return sf.max(sf.when(sf.col("measure") == measure, sf.col(name))).alias(f"{measure}_{name}")

    names = ("messages", "p50_us", "p90_us", "p99_us", "max_us")
    columns = [column(measure, name) for measure in ("latency", "queue_wait") for name in names]
    return day.groupBy("streamer", "route").agg(*columns).where("latency_messages > 0")


def _latency_hourly(report: ReportTables) -> DataFrame:
    """The hours of the busiest routes."""
    hours = sf.collect_list(sf.struct("hour", "latency_p50_us", "latency_p99_us")).alias("by_hour")
    frame = report.day(tables.LATENCY).where("messages > 0").groupBy("streamer", "route").agg(*_sums("messages"), hours)
    return frame.orderBy(sf.desc("messages"), *_names("route")).limit(HOURLY_ROUTES)


def _dead_letter_days(report: ReportTables) -> DataFrame:
    return report.trend(tables.DEAD_LETTERS).groupBy("date", "outcome", "ucode").agg(*_sums("messages"))


def _authorities(column: str) -> Callable[[ReportTables], DataFrame]:
    """All authorities, one short row each; `collect` keeps the first."""
    return lambda report: report.day(tables.TRAFFIC_MATRIX).groupBy(sf.col(column).alias("name")).agg(*_sums("messages"))


def _matrix(report: ReportTables, named: dict[str, Rows]) -> DataFrame:
    """Messages between the named authorities. All others are one row and one column; the columns ``…_named`` tell."""
    frame = report.day(tables.TRAFFIC_MATRIX)
    for column, axis in named.items():
        names = [row["name"] for row in axis]
        known = sf.coalesce(sf.col(column).isin([name for name in names if name is not None]), sf.lit(None in names))
        frame = frame.withColumn(f"{column}_named", known).withColumn(column, sf.when(known, sf.col(column)))
    keys = [name for column in named for name in (column, f"{column}_named")]
    return frame.groupBy(*keys).agg(*_sums("messages", "failed"))


def _audit_days(report: ReportTables) -> DataFrame:
    measures = [*_sums("messages", "copies"), sf.max("latency_max_us").alias("latency_max_us")]
    return report.trend(tables.DELIVERY_AUDIT).groupBy("date", "status").agg(*measures)


def _audit_pairs(day: DataFrame) -> DataFrame:
    """The pairs of authorities between which messages were lost."""
    statuses = [
        sf.sum(sf.when(sf.col("status") == name, sf.col("messages")).otherwise(0)).alias(name) for name in tables.STATUSES
    ]
    return day.groupBy("src_authority", "sink_authority").agg(*statuses).where("lost > 0")


def _findings(report: ReportTables) -> DataFrame:
    """The first messages of each finding, with the number of all in `TOTAL`."""
    within = Window.partitionBy("finding")
    place = sf.row_number().over(within.orderBy("msg_ts", "msg_id"))
    placed = report.day(tables.DELIVERY_AUDIT_DETAIL).withColumns({TOTAL: sf.count(sf.lit(1)).over(within), "_place": place})
    return placed.where(sf.col("_place") <= EXAMPLES).orderBy("finding", "_place").drop("_place", "date")


def _health_totals(report: ReportTables) -> DataFrame:
    sums = _sums("records", "restarts", "gaps", "records_missing")
    return report.day(tables.STREAMER_HEALTH).agg(*sums, sf.count(sf.lit(1)).alias("streamers"))


def _talkers(report: ReportTables) -> DataFrame:
    day, names = report.day(tables.TOP_TALKERS), _names("src_authority", "src_ue_id")
    first = (day.where(sf.col("by") == by).orderBy(sf.desc(by), *names).limit(TALKERS) for by in ("messages", "bytes"))
    return reduce(DataFrame.unionByName, first)


QUERIES: dict[str, tuple[tables.Table, Callable[[ReportTables], DataFrame]]] = {
    "days": (tables.ROUTE_HOURLY, _days),
    "routes": (tables.ROUTE_HOURLY, _routes),
    "latency_hourly": (tables.LATENCY, _latency_hourly),
    "dead_letter_days": (tables.DEAD_LETTERS, _dead_letter_days),
    "sources": (tables.TRAFFIC_MATRIX, _authorities("src_authority")),
    "sinks": (tables.TRAFFIC_MATRIX, _authorities("sink_authority")),
    "audit_days": (tables.DELIVERY_AUDIT, _audit_days),
    "findings": (tables.DELIVERY_AUDIT_DETAIL, _findings),
    "health_totals": (tables.STREAMER_HEALTH, _health_totals),
    "talkers": (tables.TOP_TALKERS, _talkers),
}


TABLE_OF = {name: table for name, (table, _) in QUERIES.items()} | {
    "latency": tables.LATENCY_DAILY,
    "changes": tables.OUTCOMES_TABLE,
    "dead_letters": tables.DEAD_LETTERS,
    "audit_pairs": tables.DELIVERY_AUDIT,
    "health": tables.STREAMER_HEALTH,
    "slo": tables.SLO,
    "anomalies": tables.ANOMALIES,
    "ttl_margin": tables.TTL_MARGIN,
    "redelivery": tables.REDELIVERY,
}
"""The table behind each name in the result of `collect`."""


def _rankings() -> dict[str, Ranking]:
    """Created when needed: columns need a running Spark."""
    away = sf.abs(sf.col("messages") - sf.col("usual"))
    endangered = sf.col("expired") + sf.col("late") + sf.col("under_10")
    repeated = sf.col("redelivered") + sf.col("duplicates") + sf.col("retried")
    letter = _names("route", "outcome", "ucode", "src_authority", "src_ue_id", "sink_authority", "sink_ue_id")
    health = (sf.desc("records_missing"), sf.desc("restarts"), sf.desc(sf.abs(sf.col("clock_skew_ms"))))
    budget = (sf.asc("met"), sf.asc_nulls_last("budget_left"))
    lost = (sf.desc("lost"), sf.asc("src_authority"), sf.asc("sink_authority"))
    score = (sf.desc(sf.abs(sf.col("score"))), sf.asc("hour"))
    return {
        "latency": Ranking(tables.LATENCY_DAILY, ROUTES, (sf.desc("latency_messages"), *_names("route")), _latency),
        "changes": Ranking(
            tables.OUTCOMES_TABLE,
            CHANGES,
            (sf.desc(away), *_names("route", "src_authority", "sink_authority", "outcome", "ucode")),
            lambda day: day.where("messages <> usual"),
        ),
        "dead_letters": Ranking(tables.DEAD_LETTERS, PAIRS, (sf.desc("messages"), *letter)),
        "audit_pairs": Ranking(tables.DELIVERY_AUDIT, PAIRS, lost, _audit_pairs),
        "health": Ranking(tables.STREAMER_HEALTH, STREAMERS, (*health, *_names())),
        "slo": Ranking(tables.SLO, OBJECTIVES, (*budget, *_names("route", "objective", "name"))),
        "slo_met": Ranking(tables.SLO, 1, (sf.asc("name"),), lambda day: day.where("met")),
        "anomalies": Ranking(tables.ANOMALIES, ANOMALIES, (*score, *_names("route", "metric"))),
        "ttl_margin": Ranking(
            tables.TTL_MARGIN,
            ROUTES,
            (sf.desc(endangered), sf.desc("messages"), *_names("route")),
            lambda day: day.where("messages + expired > 0"),
        ),
        "redelivery": Ranking(tables.REDELIVERY, ROUTES, (sf.desc(repeated), sf.desc("messages"), *_names("route"))),
    }


def collect(spark: SparkSession, output: str, date: datetime.date) -> Collected:
    """The rows of every query whose table was written for the date."""
    report = ReportTables(spark, output, date)
    rankings = {name: ranking for name, ranking in _rankings().items() if report.has(ranking.table)}
    counted = {name: ranking.frame(report.day(ranking.table)) for name, ranking in rankings.items()}
    frames = {name: query(report) for name, (table, query) in QUERIES.items() if report.has(table)}
    frames |= {
        name: counted[name].orderBy(*ranking.order).limit(ranking.rows).drop("date") for name, ranking in rankings.items()
    }
    counts = [frame.agg(sf.lit(name).alias("name"), sf.count(sf.lit(1)).alias("rows")) for name, frame in counted.items()]
    if counts:
        frames["counts"] = reduce(DataFrame.unionAll, counts)
    frames.pop("slo_met", None)  # only its count is needed
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="report") as pool:
        rows = dict(zip(frames, pool.map(_rows, frames.values()), strict=True))
    totals = {row["name"]: row["rows"] for row in rows.pop("counts", [])}
    for name in counted.keys() & rows.keys():
        rows[name] = [row | {TOTAL: totals[name]} for row in rows[name]]
    if "slo" in rows:
        rows["slo_met"] = [{"objectives": totals["slo_met"]}]
    if "sources" in rows:
        axes = {f"{end}_authority": _first(rows[query]) for end, query in (("src", "sources"), ("sink", "sinks"))}
        rows |= {"sources": axes["src_authority"], "sinks": axes["sink_authority"], "matrix": _rows(_matrix(report, axes))}
    return rows


def _first(axis: Rows) -> Rows:
    """The authorities with the most messages, with the number of all in `TOTAL`."""
    ranked = sorted(axis, key=lambda row: (-row["messages"], row["name"] is not None, row["name"] or ""))
    return [row | {TOTAL: len(axis)} for row in ranked[:MATRIX]]


def _rows(frame: DataFrame) -> Rows:
    """Collect rows, with timestamps as text: otherwise they would be in the time zone of this process."""
    stamps = [field.name for field in frame.schema.fields if field.dataType == TimestampType()]
    texts = frame.withColumns({name: sf.date_format(name, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'") for name in stamps})
    return [row.asDict(recursive=True) for row in texts.collect()]
