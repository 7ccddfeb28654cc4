"""The tables that the jobs write, and the views of one of them: the schema of each, and the question that it answers.

Every table is partitioned by ``date`` and consists of Parquet files; a date of a table is replaced as a whole. The date is
that of the record (its ingress time), except in the two tables of the audit, where it is that of the message (`msg_ts`).
`columns.meaning` says what each column is.
"""

from collections.abc import Iterable
from typing import NamedTuple

from spark_jobs.schema import FAILURES, OUTCOMES

TREND_DAYS = 14
"""How many days before a date its trend tables look back on."""


class Table(NamedTuple):
    """One output table: its folder, its question, and its columns with Spark's types (``date``, the partition, first).

    ``query``: of a view of `ROLLUP`, in SQL that Spark, DuckDB and Trino understand. ``{rollup}`` stands for that table.
    """

    name: str
    question: str
    columns: dict[str, str]
    query: str = ""

    @property
    def ddl(self) -> str:
        """The schema as a DDL string."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())


TABLES: dict[str, Table] = {}
VIEWS: dict[str, Table] = {}


def _table(name: str, question: str, columns: str, query: str = "") -> Table:
    parsed = dict(column.rsplit(" ", 1) for column in f"date DATE, {columns}".split(", "))
    table = (VIEWS if query else TABLES)[name] = Table(name, question, parsed, query)
    return table


_BY_OUTCOME = ", ".join(f"{outcome} BIGINT" for outcome in OUTCOMES)
MARGINS = ("late", "under_10", "under_25", "under_50", "over_50")
"""Classes of the share of the TTL that was left at the outcome: none, less than 10, 25 and 50 %, and 50 % or more."""

ROLLUP = _table(
    "rollup",
    "How much went from whom to whom in each hour, over which route, and what became of it?",
    "hour INT, streamer STRING, route STRING, ingress STRING, egress STRING, src_authority STRING, src_ue_id BIGINT, "
    "sink_authority STRING, sink_ue_id BIGINT, outcome STRING, ucode STRING, messages BIGINT, bytes BIGINT, retries BIGINT, "
    "retried BIGINT, max_retries INT, redelivered BIGINT, first_ts TIMESTAMP, last_ts TIMESTAMP, least_margin_us BIGINT, "
    + ", ".join(f"{name} BIGINT" for name in MARGINS),
)
LATENCY = _table(
    "latency",
    "How long did messages take in each hour? Sketches can be merged over hours, routes and days.",
    "hour INT, streamer STRING, route STRING, messages BIGINT, latency_sketch BINARY, queue_wait_sketch BINARY, "
    "latency_p50_us BIGINT, latency_p99_us BIGINT, queue_wait_p50_us BIGINT, queue_wait_p99_us BIGINT",
)
LATENCY_DAILY = _table(
    "latency_daily",
    "How long did messages take on each route that day, exactly?",
    "streamer STRING, route STRING, measure STRING, messages BIGINT, min_us BIGINT, p50_us BIGINT, p90_us BIGINT, "
    "p95_us BIGINT, p99_us BIGINT, p999_us BIGINT, max_us BIGINT",
)
DELIVERY_AUDIT = _table(
    "delivery_audit",
    "Of the messages made that day, seen from all streamers together: what became of each?",
    "src_authority STRING, sink_authority STRING, msg_type STRING, status STRING, missing_at STRING, hour INT, "
    "messages BIGINT, copies BIGINT, latency_p50_us BIGINT, latency_p99_us BIGINT, latency_max_us BIGINT",
)
"""One row per status, and of lost and unknown messages one per `missing_at`, the streamers behind the hand-over that lack
them; of unknown ones, per `hour` of the hand-over, from the beginning of the date. Every message counts once. Without
authorities: flows that were too many to be told apart (`flows`), whose copies are estimated. ``status``: see `STATUSES`.
``copies``: further copies of these messages that were delivered or set aside. Latency: end to end, from msg_ts to the last
confirmation, of delivered messages, by skew-corrected clocks."""
DELIVERY_AUDIT_DETAIL = _table(
    "delivery_audit_detail",
    "Which messages are behind each finding?",
    "finding STRING, msg_id BINARY, msg_ts TIMESTAMP, msg_type STRING, src_authority STRING, src_ue_id BIGINT, "
    "src_resource_id INT, sink_authority STRING, sink_ue_id BIGINT, sink_resource_id INT, streamers STRING, "
    "last_streamer STRING, last_route STRING, missing_at STRING, ucode STRING, copies INT",
)
STREAMER_HEALTH = _table(
    "streamer_health",
    "Can the traces of each streamer be trusted?",
    "streamer STRING, records BIGINT, runs INT, restarts INT, gaps BIGINT, records_missing BIGINT, missing_hours STRING, "
    "first_ts TIMESTAMP, last_ts TIMESTAMP, clock_skew_ms DOUBLE, skew_against STRING, skew_messages BIGINT, "
    "files_left_out BIGINT, records_impossible BIGINT",
)
COMPLETENESS = _table(
    "completeness",
    "Of which hours are all records of a streamer there?",
    "hour INT, streamer STRING, expected BIGINT, seen BIGINT, files_left_out BIGINT, complete_until TIMESTAMP",
)
FAN_OUT = _table(
    "fan_out",
    "Did all gateways get what is published to many, of those that usually do?",
    "hour INT, src_authority STRING, src_ue_id BIGINT, src_resource_id INT, publishes BIGINT, gateways BIGINT, "
    "unknown BIGINT, expected BIGINT, missing BIGINT, share DOUBLE, lacking BIGINT",
)
FAN_OUT_MISSING = _table(
    "fan_out_missing",
    "Which gateways lack what is published to many?",
    "hour INT, src_authority STRING, src_ue_id BIGINT, src_resource_id INT, streamer STRING, publishes BIGINT, "
    "missing BIGINT",
)
COHORTS = _table(
    "cohorts",
    "Did a version or a configuration make it worse?",
    f"version STRING, compiled BOOLEAN, config STRING, route STRING, streamers BIGINT, messages BIGINT, bytes BIGINT, "
    f"{_BY_OUTCOME}, lost BIGINT, redelivered BIGINT, latency_p50_us BIGINT, latency_p99_us BIGINT",
)
LINK_SESSIONS = _table(
    "link_sessions",
    "Which links were down, for how long, and what had piled up?",
    "streamer STRING, endpoint STRING, transport STRING, down_ts TIMESTAMP, up_ts TIMESTAMP, offline_s DOUBLE, "
    "reason STRING, version STRING, config STRING, piled_up BIGINT, piled_up_bytes BIGINT, drain_s DOUBLE",
)
SLO = _table(
    "slo",
    "Did each route keep what was promised?",
    "name STRING, streamer STRING, route STRING, objective STRING, target DOUBLE, actual DOUBLE, met BOOLEAN, "
    "budget_left DOUBLE, messages BIGINT",
)
ANOMALIES = _table(
    "anomalies",
    "Which hours were unlike the same hour of the 14 days before?",
    "hour INT, streamer STRING, route STRING, metric STRING, value DOUBLE, median DOUBLE, mad DOUBLE, score DOUBLE, "
    "days INT",
)


def _sums(*names: str) -> str:
    return ", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in names)


def _of(outcomes: Iterable[str], name: str, column: str = "messages") -> str:
    """The sum of a column over the rows with one of these outcomes."""
    listed = ", ".join(f"'{outcome}'" for outcome in outcomes)
    return f"CAST(sum(CASE WHEN outcome IN ({listed}) THEN {column} ELSE 0 END) AS BIGINT) AS {name}"


def _grouped(keys: str, columns: str, where: str = "") -> str:
    return f"SELECT {keys}, {columns} FROM {{rollup}} {where} GROUP BY {keys}"


ROUTE_HOURLY = _table(
    "route_hourly",
    "How much did each route carry in each hour, and what became of it?",
    f"hour INT, streamer STRING, route STRING, ingress STRING, egress STRING, messages BIGINT, bytes BIGINT, {_BY_OUTCOME}, "
    "retries BIGINT, redelivered BIGINT",
    _grouped(
        "date, hour, streamer, route, ingress, egress",
        _sums("messages", "bytes", "retries", "redelivered") + "".join(f", {_of([each], each)}" for each in OUTCOMES),
    ),
)
DEAD_LETTERS = _table(
    "dead_letters",
    "What failed, why, and between whom?",
    "streamer STRING, route STRING, outcome STRING, ucode STRING, src_authority STRING, src_ue_id BIGINT, "
    "sink_authority STRING, sink_ue_id BIGINT, messages BIGINT, bytes BIGINT, first_ts TIMESTAMP, last_ts TIMESTAMP",
    _grouped(
        "date, streamer, route, outcome, ucode, src_authority, src_ue_id, sink_authority, sink_ue_id",
        _sums("messages", "bytes") + ", min(first_ts) AS first_ts, max(last_ts) AS last_ts",
        f"WHERE outcome IN {FAILURES}",
    ),
)
TTL_MARGIN = _table(
    "ttl_margin",
    "How close to expiry do messages arrive?",
    "streamer STRING, route STRING, messages BIGINT, expired BIGINT, late BIGINT, under_10 BIGINT, under_25 BIGINT, "
    "under_50 BIGINT, over_50 BIGINT, least_margin_ms BIGINT",
    "SELECT * FROM ("
    + _grouped(
        "date, streamer, route",
        f"{_of(['delivered'], 'messages', ' + '.join(MARGINS))}, {_of(['expired'], 'expired')}, "
        + ", ".join(_of(["delivered"], name, name) for name in MARGINS)
        + ", CAST(floor(min(CASE WHEN outcome = 'delivered' THEN least_margin_us END) / 1000.0) AS BIGINT) AS "
        "least_margin_ms",
    )
    + ") AS margins WHERE messages > 0 OR expired > 0",
)
STATUSES = (
    *("delivered", "lost", "unknown", "expired", "dead_lettered", "rejected"),
    *("unheard", "sampled_out", "unwanted", "local", "unconfirmed", "superseded"),
)
"""What became of a message across all streamers. Lost: handed over by one, expected at another, never seen there. Unknown:
not seen there either, but not all records of that hour are there."""

FINDINGS = ("lost", "expired", "dead_lettered", "rejected", "delivered_twice", "duplicate", "untraced")
"""What is listed with message ids. delivered_twice: the same streamer delivered it more than once over the same route.
duplicate: a further copy was set aside. untraced: seen before and after a streamer on its path, but not by that streamer."""
