"""Queries the tables for the report, by DuckDB over their Parquet files: each query of Spark's has its price.

`ReportTables` is the only place of the report that reads tables. `collect` returns plain rows under the names of `TABLE_OF`,
without those whose table was not written. A fleet's tables can be large: every query is either a sum over few groups or the
top of a ranking, with the number of all rows in `TOTAL`. Where there are more than `FEW` streamers, routes of the same name
are summed up over all of them.
"""

import datetime
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

import duckdb

from spark_jobs import tables
from spark_jobs.batch import days
from spark_jobs.ddl import over_files, quoted
from spark_jobs.schema import OUTCOMES
from spark_jobs.slo_file import regex
from spark_jobs.table_store import TableStore

TOTAL = "total_rows"
"""Column of a ranking: the number of rows before the ranking was cut."""
COUNTED = f"count(*) OVER () AS {TOTAL}"

ROUTES = 20
HOURLY_ROUTES = 6
PAIRS = 10
REASONS = 12
EXAMPLES = 3
OBJECTIVES = 40
ANOMALIES = 20
STREAMERS = 30
FEW = 8
"""More streamers than these are a fleet: it is told by route over all of them, and by those that are not well."""
FLEET_ROWS = 10
"""Of a ranking of single routes in a fleet, where it is one of many."""
FAULTS = ("files_left_out", "records_missing", "records_impossible")
"""Of traces, as the table streamer_health counts them."""
CLOCKS = 3
CLOCK_MS = 1000
"""A clock that is so far from the others is told: what has a time to live expires too early or too late there."""

Rows = list[dict[str, Any]]
Collected = dict[str, Rows]


class ReportTables:
    """The published tables of a date and the `TREND_DAYS` days before it, each as a view of its name; and of the date alone,
    without that column, as a view in the schema ``today``. A table that was not written is a view without rows.

    With ``streamer``, only the rows about that one: those of its own, and findings at it. Tables without either are as if
    they were not written. ``retired``: patterns of streamers that are not expected to write. Ascending order has nulls
    first, descending order has them last, as in Spark.
    """

    def __init__(
        self, store: TableStore, date: datetime.date, streamer: str | None = None, retired: Sequence[str] = ()
    ) -> None:
        self.date, self.streamer, self.retired = date, streamer, "|".join(map(regex, retired)) or "^$"
        self._ends = ExitStack()
        folder = Path(self._ends.enter_context(TemporaryDirectory(prefix="ustreamer-report-")))
        self._database = self._ends.enter_context(duckdb.connect(config={"temp_directory": str(folder)}))
        self._database.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        self._database.execute("SET TimeZone = 'UTC'; CREATE SCHEMA today; CREATE TABLE written (name TEXT, date DATE)")
        self._written: set[tuple[str, datetime.date]] = set()
        wanted = set(days(date, -tables.TREND_DAYS, 0))
        of_rollup: set[datetime.date] = set()
        for table in _EVERY.values():
            found = wanted.intersection(store.dates(table)) if self._is_about(table) else set()
            if table is tables.ROLLUP:
                of_rollup = found
            elif table.query:  # what is stored is of an earlier version
                found -= of_rollup
            self._see(table, [path for each in sorted(found) for path in store.files(table, each, folder)])
            if table.query and self._is_about(table):
                found |= of_rollup
            self._written |= {(table.name, each) for each in found}
        for each in self._written:
            self._database.execute("INSERT INTO written VALUES (?, ?)", each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _is_about(self, table: tables.Table) -> bool:
        return self.streamer is None or table.name in ABOUT_STREAMERS

    def _see(self, table: tables.Table, files: Sequence[str]) -> None:
        # Without their zone, which is UTC: for times that have one, DuckDB would ask for another library.
        columns = ", ".join(
            f'CAST("{name}" AS TIMESTAMP) AS "{name}"' if kind == "TIMESTAMP" else f'"{name}"'
            for name, kind in table.columns.items()
        )
        rows = f"SELECT {columns} FROM ({over_files(table, files)}) WHERE {self._about(table)}"
        if table.query:
            rows += f" UNION ALL BY NAME ({table.query.format(rollup='rollup')})"
        kept = "TABLE" if table is tables.ROUTE_HOURLY else "VIEW"  # a dozen questions are about it
        self._database.execute(f"CREATE {kept} {table.name} AS {rows}")
        today = f"SELECT * EXCLUDE (date) FROM main.{table.name} WHERE date = DATE '{self.date}'"
        self._database.execute(f"CREATE VIEW today.{table.name} AS {today}")

    def _about(self, table: tables.Table) -> str:
        if self.streamer is None or not self._is_about(table):
            return "true"
        if "streamer" in table.columns:
            return f"streamer = {quoted(self.streamer)}"
        lists = ("streamers", "missing_at")  # of names, as text
        return " OR ".join(f"contains(concat(',', {name}, ','), {quoted(f',{self.streamer},')})" for name in lists)

    def has(self, table: tables.Table) -> bool:
        """Whether the table was written for the report's date, even without rows."""
        return (table.name, self.date) in self._written

    def rows(self, query: str, *values: Any) -> Rows:
        """The rows of a query, with values for its question marks."""
        found = self._database.execute(query, values)
        names = [each[0] for each in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def keep(self, name: str, query: str, *values: Any) -> None:
        """Keep the rows of a query as a table of that name, for others."""
        self._database.execute(f"CREATE TABLE {name} AS {query}", values)

    @cached_property
    def streamers(self) -> list[str]:
        """The names of those with records that day, or with trace files that were left out, in order."""
        every = "SELECT streamer FROM today.route_hourly UNION SELECT streamer FROM today.streamer_health"
        return [row["streamer"] for row in self.rows(f"FROM ({every}) WHERE streamer IS NOT NULL ORDER BY streamer")]

    @property
    def is_fleet(self) -> bool:
        return len(self.streamers) > FEW


_EVERY = tables.TABLES | tables.VIEWS

ABOUT_STREAMERS = {
    name: table for name, table in _EVERY.items() if "streamer" in table.columns or table is tables.DELIVERY_AUDIT_DETAIL
}
"""Those from which the page of one streamer is made."""


def known(store: TableStore, date: datetime.date, streamer: str) -> bool:
    """Whether the streamer wrote anything on the date or on the 14 days before, as far as the tables say."""
    with ReportTables(store, date, streamer) as report:
        return bool(report.rows("SELECT 1 FROM route_hourly UNION SELECT 1 FROM streamer_health"))


def sums(*names: str) -> str:
    """Sums of columns under their own names."""
    return ", ".join(f"sum({name}) AS {name}" for name in names)


_CARRIED = sums("messages", "bytes", *OUTCOMES)


def _routes(report: ReportTables) -> Rows:
    """One row per streamer and route, with its messages by hour. In a fleet per route, with the number of its streamers."""
    streamer, many = ("NULL", "count(DISTINCT streamer)") if report.is_fleet else ("streamer", "NULL")
    return report.rows(
        f"WITH hours AS (SELECT {streamer} AS streamer, route, hour, {_CARRIED} FROM today.route_hourly GROUP BY ALL), "
        f"counted AS (SELECT route, {many} AS streamers FROM today.route_hourly GROUP BY route) "
        f"SELECT streamer, route, {_CARRIED}, list({{'hour': hour, 'messages': messages}}) AS by_hour, "
        "any_value(streamers) AS streamers FROM hours JOIN counted USING (route) GROUP BY streamer, route"
    )


def _streamers(report: ReportTables) -> Rows:
    """The first names, with the number of all in `TOTAL`."""
    return [{"streamer": name, TOTAL: len(report.streamers)} for name in report.streamers[:STREAMERS]]


_LATENCIES = "SELECT streamer, route, {} FROM today.latency_daily GROUP BY ALL HAVING latency_messages > 0".format(
    ", ".join(
        f"max({name}) FILTER (measure = '{measure}') AS {measure}_{name}"
        for measure in ("latency", "queue_wait")
        for name in ("messages", "p50_us", "p90_us", "p99_us", "max_us")
    )
)
"""One row per streamer and route, both measures side by side."""


def _latency(report: ReportTables, order: str, most: int) -> Rows:
    return report.rows(
        f"SELECT *, {COUNTED} FROM ({_LATENCIES}) ORDER BY {order}latency_messages DESC, streamer, route LIMIT {most}"
    )


_AUDIT_PAIRS = (
    "SELECT src_authority, sink_authority, {}, {} FROM today.delivery_audit GROUP BY ALL HAVING lost + unknown > 0 "
    "ORDER BY lost DESC, unknown DESC, src_authority, sink_authority LIMIT {}"
).format(
    ", ".join(f"coalesce(sum(messages) FILTER (status = '{status}'), 0) AS {status}" for status in tables.STATUSES),
    COUNTED,
    PAIRS,
)
"""The pairs of authorities between which messages were lost, or whose messages are unknown."""

_AUDIT_UNKNOWN = (
    f"SELECT missing_at, sum(messages) AS messages, min(hour) AS first, max(hour) AS last, {COUNTED} "
    "FROM today.delivery_audit WHERE status = 'unknown' GROUP BY missing_at ORDER BY messages DESC, missing_at LIMIT 3"
)
"""The streamers whose records are missing of unknown messages, with the first and the last hour."""

_FINDINGS = (
    f"SELECT *, count(*) OVER (PARTITION BY finding) AS {TOTAL} FROM today.delivery_audit_detail "
    f"QUALIFY row_number() OVER (PARTITION BY finding ORDER BY msg_ts, msg_id) <= {EXAMPLES} "
    "ORDER BY finding, msg_ts, msg_id"
)
"""The first messages of each finding, with the number of all in `TOTAL`."""

MANY = 20
LACKED = (
    "(SELECT *, count(*) OVER (PARTITION BY hour, src_authority, src_ue_id, src_resource_id) AS many "
    f"FROM today.fan_out_missing QUALIFY many <= {MANY})"
)
"""What gateways lack of broadcasts. What more than `MANY` of them lack of a topic is one fault, of none of them."""

_ROUTE_MISSING = """
SELECT route, sum(missing) AS missing FROM today.fan_out JOIN (
    SELECT src_authority, src_ue_id, route FROM today.rollup WHERE outcome = 'delivered'
    GROUP BY src_authority, src_ue_id, route
    QUALIFY row_number() OVER (PARTITION BY src_authority, src_ue_id ORDER BY sum(messages) DESC, route) = 1
) USING (src_authority, src_ue_id) GROUP BY route
"""
"""The missing deliveries of broadcasts, by the route that delivers most of their source."""

QUERIES: dict[str, tuple[tables.Table, str | Callable[[ReportTables], Rows]]] = {
    "days": (tables.ROUTE_HOURLY, f"SELECT date, {_CARRIED}, {sums('redelivered')} FROM route_hourly GROUP BY date"),
    "routes": (tables.ROUTE_HOURLY, _routes),
    "dead_letter_days": (
        tables.DEAD_LETTERS,
        "SELECT date, outcome, ucode, sum(messages) AS messages FROM dead_letters GROUP BY ALL",
    ),
    "audit_days": (
        tables.DELIVERY_AUDIT,
        f"SELECT date, status, {sums('messages', 'copies')}, coalesce(sum(messages) FILTER (src_authority IS NULL), 0) AS "
        "crowded, max(latency_max_us) AS latency_max_us FROM delivery_audit GROUP BY ALL",
    ),
    "audit_pairs": (tables.DELIVERY_AUDIT, _AUDIT_PAIRS),
    "audit_unknown": (tables.DELIVERY_AUDIT, _AUDIT_UNKNOWN),
    "findings": (tables.DELIVERY_AUDIT_DETAIL, _FINDINGS),
    "health_totals": (
        tables.STREAMER_HEALTH,
        f"SELECT {sums('records', 'restarts', 'gaps', *FAULTS)}, count(*) AS streamers, "
        + ", ".join(f"count(*) FILTER ({name} > 0) AS {name}_at" for name in FAULTS)
        + " FROM today.streamer_health",
    ),
    "health_days": (
        tables.STREAMER_HEALTH,
        "SELECT date, count(*) AS streamers, count(*) FILTER (records_missing + coalesce(files_left_out, 0) > 0) AS "
        "incomplete FROM streamer_health GROUP BY date",
    ),
    "unusual_at": (tables.ANOMALIES, "SELECT count(DISTINCT streamer) AS streamers FROM today.anomalies"),
    "fan_out_totals": (tables.FAN_OUT, f"SELECT {sums('publishes', 'expected', 'missing')} FROM today.fan_out"),
    "lacking": (
        tables.FAN_OUT_MISSING,
        f"SELECT streamer, sum(missing) AS missing, {COUNTED} FROM {LACKED} GROUP BY streamer "
        f"ORDER BY missing DESC, streamer LIMIT {PAIRS}",
    ),
    "lost_between": (
        tables.DELIVERY_AUDIT_DETAIL,
        f"SELECT last_streamer, missing_at, count(*) AS messages, {COUNTED} FROM today.delivery_audit_detail "
        f"WHERE finding = 'lost' GROUP BY ALL ORDER BY messages DESC, last_streamer, missing_at LIMIT {PAIRS}",
    ),
    "route_missing": (tables.FAN_OUT, _ROUTE_MISSING),
    "slo_met": (tables.SLO, "SELECT count(*) FILTER (met) AS objectives FROM today.slo"),
}


class Ranking(NamedTuple):
    """The first ``rows`` of a table by ``order``, of those for which ``where`` is so.

    ``by``: an expression that the ranking is by first. A fleet's report is without rows of which it is 0, and has
    `FLEET_ROWS` of the others.
    """

    table: tables.Table
    rows: int
    order: str
    where: str = "true"
    by: str = ""

    def of(self, report: ReportTables) -> Rows:
        """The ranking of the report's date."""
        order = f"{self.by} DESC, {self.order}" if self.by else self.order
        where, rows = (f"{self.by} > 0", FLEET_ROWS) if self.by and report.is_fleet else (self.where, self.rows)
        return report.rows(f"SELECT *, {COUNTED} FROM today.{self.table.name} WHERE {where} ORDER BY {order} LIMIT {rows}")


RANKINGS = {
    "dead_letters": Ranking(
        tables.DEAD_LETTERS,
        PAIRS,
        "messages DESC, streamer, route, outcome, ucode, src_authority, src_ue_id, sink_authority, sink_ue_id",
    ),
    "health": Ranking(
        tables.STREAMER_HEALTH,
        STREAMERS,
        ", ".join(f"{name} DESC" for name in (*FAULTS, "restarts", "abs(clock_skew_ms)")) + ", streamer",
    ),
    "clocks": Ranking(
        tables.STREAMER_HEALTH, CLOCKS, "abs(clock_skew_ms) DESC, streamer", f"abs(clock_skew_ms) >= {CLOCK_MS}"
    ),
    "fan_out": Ranking(
        tables.FAN_OUT, PAIRS, "missing DESC, hour, src_authority, src_ue_id, src_resource_id", "missing > 0"
    ),
    "slo": Ranking(
        tables.SLO,
        OBJECTIVES,
        "met, (budget_left IS NOT NULL) DESC, budget_left, streamer, route, objective, name",
    ),
    "anomalies": Ranking(tables.ANOMALIES, ANOMALIES, "abs(score) DESC, hour, streamer, route, metric"),
    "ttl_margin": Ranking(
        tables.TTL_MARGIN, ROUTES, "messages DESC, streamer, route", "messages + expired > 0", "expired + late + under_10"
    ),
}

TABLE_OF = (
    {name: table for name, (table, _) in QUERIES.items()}
    | {name: each.table for name, each in RANKINGS.items()}
    | {"latency": tables.LATENCY_DAILY, "slowest": tables.LATENCY_DAILY, "health_hours": tables.ROUTE_HOURLY}
)
"""The table behind each name in the result of `collect`."""


def asked(report: ReportTables, queries: dict[str, tuple[tables.Table, str | Callable[[ReportTables], Rows]]]) -> Collected:
    """The rows of every query whose table was written for the date."""
    return {
        name: report.rows(query) if isinstance(query, str) else query(report)
        for name, (table, query) in queries.items()
        if report.has(table)
    }


def collect(report: ReportTables) -> Collected:
    """The rows of every query whose table was written for the date."""
    rows = asked(report, QUERIES)
    if report.has(tables.ROUTE_HOURLY) or report.has(tables.STREAMER_HEALTH):
        rows["streamers"] = _streamers(report)
    rows |= {name: ranking.of(report) for name, ranking in RANKINGS.items() if report.has(ranking.table)}
    if report.has(tables.LATENCY_DAILY):
        rows["latency"] = _latency(report, "", HOURLY_ROUTES if report.is_fleet else ROUTES)
        if report.is_fleet:
            rows["slowest"] = _latency(report, "latency_p99_us DESC, ", FLEET_ROWS)
    if "health" in rows and report.has(tables.ROUTE_HOURLY):
        query = "SELECT streamer, count(DISTINCT hour) AS hours FROM today.route_hourly WHERE list_contains(?, streamer)"
        rows["health_hours"] = report.rows(f"{query} GROUP BY streamer", [row["streamer"] for row in rows["health"]])
    return plain(rows)


def plain(rows: Collected) -> Collected:
    """With times as text."""
    return {name: [{key: _plain(value) for key, value in row.items()} for row in found] for name, found in rows.items()}


def _plain(value: Any) -> Any:
    if not isinstance(value, datetime.datetime):
        return value
    return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
