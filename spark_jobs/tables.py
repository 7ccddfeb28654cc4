"""The tables that the jobs write: the schema of each, and the question that it answers.

Every table is partitioned by ``date`` and consists of Parquet files; a date of a table is replaced as a whole. The date is
that of the record (its ingress time), except in the two tables of the audit, where it is that of the message (`msg_ts`).
"""

from typing import NamedTuple

from spark_jobs.schema import OUTCOMES

TREND_DAYS = 14
"""How many days before a date its trend tables look back on."""


class Table(NamedTuple):
    """One output table: its folder, its question, and its columns with Spark's types (``date``, the partition, first)."""

    name: str
    question: str
    columns: dict[str, str]

    @property
    def ddl(self) -> str:
        """The schema as a DDL string."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())


_TABLES: dict[str, Table] = {}


def _table(name: str, question: str, columns: str) -> Table:
    parsed = dict(column.rsplit(" ", 1) for column in f"date DATE, {columns}".split(", "))
    table = _TABLES[name] = Table(name, question, parsed)
    return table


_BY_OUTCOME = ", ".join(f"{outcome} BIGINT" for outcome in OUTCOMES)

ROUTE_HOURLY = _table(
    "route_hourly",
    "How much did each route carry in each hour, and what became of it?",
    f"hour INT, streamer STRING, route STRING, ingress STRING, egress STRING, messages BIGINT, bytes BIGINT, {_BY_OUTCOME}, "
    "retries BIGINT, redelivered BIGINT",
)
LATENCY = _table(
    "latency",
    "How long did messages take in each hour? Sketches can be merged over hours, routes and days.",
    # KLL sketches (k = 800) of delivered messages in µs; the percentiles come from the sketches
    "hour INT, streamer STRING, route STRING, messages BIGINT, latency_sketch BINARY, queue_wait_sketch BINARY, "
    "latency_p50_us BIGINT, latency_p99_us BIGINT, queue_wait_p50_us BIGINT, queue_wait_p99_us BIGINT",
)
LATENCY_DAILY = _table(
    "latency_daily",
    "How long did messages take on each route that day, exactly?",
    # a percentile is the smallest observed value that at least that share of the values does not exceed
    "streamer STRING, route STRING, measure STRING, messages BIGINT, min_us BIGINT, p50_us BIGINT, p90_us BIGINT, "
    "p95_us BIGINT, p99_us BIGINT, p999_us BIGINT, max_us BIGINT",
)
"""``measure``: latency or queue_wait."""
OUTCOMES_TABLE = _table(
    "outcomes",
    "What became of the messages between whom, and is that usual?",
    "streamer STRING, route STRING, src_authority STRING, sink_authority STRING, outcome STRING, ucode STRING, "
    "messages BIGINT, bytes BIGINT, usual DOUBLE, days INT, change DOUBLE",
)
"""``usual``: mean per day over those of the 14 days before on which the streamer wrote anything; a day without such a row
counts as 0; null if there are no such days. ``days``: how many there are. ``change``: messages / usual − 1; null if usual is
null or 0."""
DEAD_LETTERS = _table(
    "dead_letters",
    "What failed, why, between whom, and is that usual?",
    "streamer STRING, route STRING, outcome STRING, ucode STRING, src_authority STRING, src_ue_id BIGINT, "
    "sink_authority STRING, sink_ue_id BIGINT, messages BIGINT, bytes BIGINT, first_ts TIMESTAMP, last_ts TIMESTAMP, "
    "usual DOUBLE, days INT, change DOUBLE",
)
TRAFFIC_MATRIX = _table(
    "traffic_matrix",
    "Who talks to whom, and how much of it arrives?",
    # sink_authority null: Publishes
    "streamer STRING, src_authority STRING, sink_authority STRING, messages BIGINT, bytes BIGINT, delivered BIGINT, "
    "failed BIGINT",
)
TOP_TALKERS = _table(
    "top_talkers",
    "Which uEntities send the most?",
    # the first 50 by messages and the first 50 by bytes, per streamer; share: of all that the streamer received
    "streamer STRING, by STRING, rank INT, src_authority STRING, src_ue_id BIGINT, messages BIGINT, bytes BIGINT, "
    "share DOUBLE",
)
TTL_MARGIN = _table(
    "ttl_margin",
    "How close to expiry do messages arrive?",
    # messages with a TTL that were delivered, by the share of the TTL that was left (late: none), and those that expired
    "streamer STRING, route STRING, messages BIGINT, expired BIGINT, late BIGINT, under_10 BIGINT, under_25 BIGINT, "
    "under_50 BIGINT, over_50 BIGINT, least_margin_ms BIGINT",
)
REDELIVERY = _table(
    "redelivery",
    "How often were messages sent more than once?",
    "streamer STRING, route STRING, messages BIGINT, redelivered BIGINT, duplicates BIGINT, retried BIGINT, retries BIGINT, "
    "max_retries INT",
)
DELIVERY_AUDIT = _table(
    "delivery_audit",
    "Of the messages made that day, seen from all streamers together: what became of each?",
    "src_authority STRING, sink_authority STRING, msg_type STRING, status STRING, messages BIGINT, copies BIGINT, "
    "latency_p50_us BIGINT, latency_p99_us BIGINT, latency_max_us BIGINT",
)
"""One row per status; every message counts once. Without authorities: flows that were too many to be told apart (`flows`),
whose copies are estimated. ``status``: see `STATUSES`. ``copies``: further copies of these messages that were delivered or
set aside. Latency: end to end, from msg_ts to the last confirmation, of delivered messages, by skew-corrected clocks."""
DELIVERY_AUDIT_DETAIL = _table(
    "delivery_audit_detail",
    "Which messages are behind each finding?",
    "finding STRING, msg_id BINARY, msg_ts TIMESTAMP, msg_type STRING, src_authority STRING, src_ue_id BIGINT, "
    "src_resource_id INT, sink_authority STRING, sink_ue_id BIGINT, sink_resource_id INT, streamers STRING, "
    "last_streamer STRING, last_route STRING, missing_at STRING, ucode STRING, copies INT",
)
"""One row per message and finding (`FINDINGS`). ``streamers``: those that saw it, in order, separated by commas."""
STREAMER_HEALTH = _table(
    "streamer_health",
    "Can the traces of each streamer be trusted?",
    # gaps: gaps in seq; records_missing: their sizes together; restarts: runs that began that day after another;
    # missing_hours: hours without a record between hours with some, as text "3,4"; clock_skew_ms: its clock minus that of
    # skew_against; files_left_out: trace files that could not be used (`quarantine`), whose streamer may have no records
    "streamer STRING, records BIGINT, runs INT, restarts INT, gaps BIGINT, records_missing BIGINT, missing_hours STRING, "
    "first_ts TIMESTAMP, last_ts TIMESTAMP, clock_skew_ms DOUBLE, skew_against STRING, skew_messages BIGINT, "
    "files_left_out BIGINT",
)
COMPLETENESS = _table(
    "completeness",
    "Of which hours are all records of a streamer there?",
    # each hour of a streamer with records near the date. seen: records of the hour, by ingress; expected: with those that
    # lack, by the hour of the outcome before the gap; files_left_out: of the hour; complete_until: until when in the hour
    # every outcome has its record, as far as seq and runs tell: its end if none is missing and a later record is there;
    # null if it is not known for any of the hour
    "hour INT, streamer STRING, expected BIGINT, seen BIGINT, files_left_out BIGINT, complete_until TIMESTAMP",
)
FAN_OUT = _table(
    "fan_out",
    "Did all gateways get what is published to many, of those that usually do?",
    # by topic and hour of msg_ts; gateways: those that usually get it and can be judged; unknown: those without records from
    # that time; expected: publishes × gateways; missing: how many of these deliveries; incomplete: Publishes that a gateway
    # lacks; lacking: gateways that lack one; least_share: of the Publish that the fewest got
    "hour INT, src_authority STRING, src_ue_id BIGINT, src_resource_id INT, publishes BIGINT, gateways BIGINT, "
    "unknown BIGINT, expected BIGINT, missing BIGINT, share DOUBLE, incomplete BIGINT, lacking BIGINT, least_share DOUBLE",
)
FAN_OUT_MISSING = _table(
    "fan_out_missing",
    "Which gateways lack what is published to many?",
    # the gateways behind fan_out.lacking, each with the number of Publishes and of those that it lacks
    "hour INT, src_authority STRING, src_ue_id BIGINT, src_resource_id INT, streamer STRING, publishes BIGINT, "
    "missing BIGINT",
)
COHORTS = _table(
    "cohorts",
    "Did a version or a configuration make it worse?",
    # one row per version, form, configuration (null: of an older version) and route; streamers: how many had such records;
    # lost: messages that were delivered there and that the next streamer never got (`delivery_audit_detail`)
    f"version STRING, compiled BOOLEAN, config STRING, route STRING, streamers BIGINT, messages BIGINT, bytes BIGINT, "
    f"{_BY_OUTCOME}, lost BIGINT, redelivered BIGINT, latency_p50_us BIGINT, latency_p99_us BIGINT",
)
"""Percentiles of delivered messages, from KLL sketches (k = 800)."""
LINK_SESSIONS = _table(
    "link_sessions",
    "Which links were down, for how long, and what had piled up?",
    # one row per time offline, on each date that it touches; down_ts: when it began, maybe on an earlier date; up_ts: null
    # unless it ended that day; offline_s: within that date; piled_up: messages to this endpoint that were received before
    # up_ts, after the time that it was up before, and had their outcome after it; drain_s: from up_ts to the last of these
    "streamer STRING, endpoint STRING, transport STRING, down_ts TIMESTAMP, up_ts TIMESTAMP, offline_s DOUBLE, "
    "reason STRING, version STRING, config STRING, piled_up BIGINT, piled_up_bytes BIGINT, drain_s DOUBLE",
)
SLO = _table(
    "slo",
    "Did each route keep what was promised?",
    # objective: availability, p99_latency_ms, expiry_rate; budget_left: share of the day's error budget, negative if
    # overspent, null for latency; messages: how many it is based on
    "name STRING, streamer STRING, route STRING, objective STRING, target DOUBLE, actual DOUBLE, met BOOLEAN, "
    "budget_left DOUBLE, messages BIGINT",
)
ANOMALIES = _table(
    "anomalies",
    "Which hours were unlike the same hour of the 14 days before?",
    # metric: messages, failed_share, latency_p99_us; score: robust z-score (0.6745 × (value − median) / MAD)
    "hour INT, streamer STRING, route STRING, metric STRING, value DOUBLE, median DOUBLE, mad DOUBLE, score DOUBLE, "
    "days INT",
)

STATUSES = (
    "delivered",
    "lost",
    "expired",
    "dead_lettered",
    "rejected",
    "unheard",
    "sampled_out",
    "unwanted",
    "local",
    "unconfirmed",
    "superseded",
)
"""What became of a message across all streamers. Lost: handed over by one, expected at another, never seen there."""

FINDINGS = ("lost", "expired", "dead_lettered", "rejected", "delivered_twice", "duplicate", "untraced")
"""What is listed with message ids. delivered_twice: the same streamer delivered it more than once over the same route.
duplicate: a further copy was set aside. untraced: seen before and after a streamer on its path, but not by that streamer."""

TABLES: dict[str, Table] = dict(_TABLES)
