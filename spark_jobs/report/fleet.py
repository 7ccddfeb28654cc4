"""What the report says of a whole fleet: queries in the manner of `reading`, about routes, streamers, links and cohorts.

A streamer is *silent* if it has no record that day, but had some on the 14 days before. It is *not well* if messages did not
arrive there or behind it, an objective was not met, or its traces cannot be trusted: `_TROUBLED` says what counts, and
`sentences.troubles` says it in words.
"""

from collections.abc import Callable

from spark_jobs import tables
from spark_jobs.report.reading import (
    CLOCK_MS,
    COUNTED,
    FAULTS,
    LACKED,
    ROUTES,
    TOTAL,
    Collected,
    ReportTables,
    Rows,
    asked,
    plain,
    sums,
)
from spark_jobs.schema import FAILURES, OUTCOMES

WORST = 20
SILENT = 20
LINKS = 20
INCOMPLETE = 10
COHORTS = 10
COHORT_ROUTES = 3
FAILED_SHARE = 0.01
"""If a streamer fails a larger share of its messages, or a larger share of those to it is unknown, it is not well."""
USUALLY = 0.5
"""A streamer with records on at least that share of the days before is expected to write."""

_BUSIEST = (
    f"SELECT route, sum(messages) AS messages, {COUNTED} FROM today.route_hourly GROUP BY route "
    f"ORDER BY messages DESC, route LIMIT {ROUTES}"
)
"""The routes with the most messages that day, with the number of all in `TOTAL`."""
_OF_BUSIEST = "{} IN (SELECT route FROM busiest)"


def _route_days(report: ReportTables) -> Rows:
    """The trend of the routes with the most messages, with the number of all that day in `TOTAL`."""
    return report.rows(
        f"SELECT date, route, {sums('messages', 'bytes', *OUTCOMES, 'redelivered')}, "
        f"(SELECT max({TOTAL}) FROM busiest) AS {TOTAL} FROM route_hourly WHERE {_OF_BUSIEST.format('route')} "
        "GROUP BY date, route ORDER BY date"
    )


def _counted_days(table: tables.Table, name: str, route: str, counted: str, where: str = "true") -> str:
    """A count of these routes on each day; a row without a route for each day on which the table was written."""
    return (
        f"SELECT date, NULL AS route, 0 AS {name} FROM written WHERE name = '{table.name}' UNION ALL "
        f"SELECT date, {route}, {counted} FROM {table.name} WHERE {where} AND {_OF_BUSIEST.format(route)} GROUP BY ALL"
    )


_FOUND = (
    *("handed_over", "never_came", "unknown", "lacking", "due", *FAILURES),
    *("unmet", "unusual", *FAULTS, "clock_ms", "offline_s"),
)
_FAILED = " + ".join(FAILURES)
_LOST = "today.delivery_audit_detail WHERE finding = 'lost'"

_TROUBLED = f"""
WITH each AS (
    SELECT streamer, delivered + {_FAILED} AS due, {", ".join(FAILURES)} FROM today.route_hourly
    UNION ALL BY NAME SELECT last_streamer AS streamer, 1 AS handed_over FROM {_LOST}
    UNION ALL BY NAME SELECT unnest(string_split(missing_at, ',')) AS streamer, 1 AS never_came FROM {_LOST}
    UNION ALL BY NAME SELECT unnest(string_split(missing_at, ',')) AS streamer, messages AS unknown
        FROM today.delivery_audit WHERE status = 'unknown'
    UNION ALL BY NAME SELECT streamer, missing AS lacking FROM {LACKED}
    UNION ALL BY NAME SELECT streamer, 1 AS unmet FROM today.slo WHERE NOT met
    UNION ALL BY NAME SELECT streamer, 1 AS unusual FROM today.anomalies
    UNION ALL BY NAME SELECT streamer, {", ".join(FAULTS)},
        CASE WHEN abs(clock_skew_ms) >= {CLOCK_MS} THEN clock_skew_ms END AS clock_ms FROM today.streamer_health
    UNION ALL BY NAME SELECT streamer, offline_s FROM today.link_sessions
), summed AS (
    SELECT streamer, {", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in _FOUND)} FROM each
    WHERE streamer IS NOT NULL AND streamer = coalesce($1, streamer) GROUP BY streamer
), judged AS (
    SELECT *, {_FAILED} > due * {FAILED_SHARE} AS is_failing,
        handed_over + never_came + lacking + CASE WHEN is_failing THEN {_FAILED} ELSE 0 END AS undelivered FROM summed
)
FROM judged WHERE undelivered + unmet + unusual + {" + ".join(FAULTS)} > 0 OR unknown > due * {FAILED_SHARE} OR clock_ms <> 0
"""
"""One row for each streamer that is not well. Of a page about one streamer, only itself: findings are also about others."""

_SILENT = f"""
SELECT streamer, sum(records) AS records, count(*) AS days, max(last_ts) AS last_ts,
    (count(*) >= $2 * {USUALLY})::INT AS usually
FROM streamer_health ANTI JOIN today.streamer_health AS here USING (streamer)
WHERE records > 0 AND date < $1 AND NOT regexp_matches(streamer, $3) GROUP BY streamer
"""
"""Streamers without a record that day that had some on the days before, and are not retired."""


def _recorded(report: ReportTables) -> int:
    """On how many of the days before there are any records; of a page about one streamer, how many were looked at."""
    found = "written WHERE name = 'streamer_health'" if report.streamer else "streamer_health WHERE records > 0"
    return int(report.rows(f"SELECT count(DISTINCT date) AS days FROM {found} AND date < ?", report.date)[0]["days"])


def _worst(report: ReportTables) -> Collected:
    """The streamers that are least well, how many are, and of what kind the first trouble of each is."""
    order = ", ".join(f"{name} DESC" for name in ("undelivered", "unknown", "unmet", "unusual", *FAULTS, "abs(clock_ms)"))
    worst = report.rows(
        "WITH letters AS (SELECT streamer, ucode FROM today.dead_letters GROUP BY streamer, ucode "
        "QUALIFY row_number() OVER (PARTITION BY streamer ORDER BY sum(messages) DESC, ucode) = 1) "
        f"SELECT troubled.*, ucode, {COUNTED} FROM troubled LEFT JOIN letters USING (streamer) "
        f"ORDER BY {order}, streamer LIMIT {WORST}"
    )
    (states,) = report.rows(
        "SELECT count(*) FILTER (undelivered > 0) AS undelivered, "
        "count(*) FILTER (undelivered = 0 AND unmet + unusual > 0) AS objectives, "
        "count(*) FILTER (undelivered = 0 AND unmet + unusual = 0) AS traces, "
        "count(*) FILTER (list_contains(?, streamer)) AS here FROM troubled",
        report.streamers,
    )
    states |= {"streamers": len(report.streamers), "well": len(report.streamers) - states.pop("here"), "silent": None}
    if report.has(tables.STREAMER_HEALTH):
        silent = "SELECT count(*) AS silent FROM silent ANTI JOIN troubled USING (streamer) WHERE usually = 1"
        states |= report.rows(silent)[0]
    return {"worst": worst, "states": [states]}


def _silent(report: ReportTables) -> Collected:
    """Silent streamers, those first that usually write."""
    order = "usually DESC, last_ts DESC, records DESC, streamer"
    totals = "SELECT count(*) AS silent, count(*) FILTER (usually = 1) AS usual, ? AS recorded FROM silent"
    return {
        "silent": report.rows(f"SELECT *, {COUNTED} FROM silent ORDER BY {order} LIMIT {SILENT}"),
        "silent_totals": report.rows(totals, _recorded(report)),
    }


def _cohorts(report: ReportTables) -> Collected:
    """The cohorts with the most streamers, and the latency of each on the routes with the most messages."""
    every = sums("messages", *OUTCOMES, "lost", "redelivered")
    order = "streamers DESC, messages DESC, version, compiled, config"
    routes = f"SELECT route FROM today.cohorts GROUP BY route ORDER BY sum(messages) DESC, route LIMIT {COHORT_ROUTES}"
    return {
        "cohorts": report.rows(
            f"SELECT version, compiled, config, {every}, max(streamers) AS streamers, {COUNTED} FROM today.cohorts "
            f"GROUP BY ALL ORDER BY {order} LIMIT {COHORTS}"
        ),
        "cohort_totals": report.rows(f"SELECT {every} FROM today.cohorts"),
        "cohort_routes": report.rows(
            f"SELECT * EXCLUDE ({', '.join(OUTCOMES)}), {COUNTED} FROM today.cohorts WHERE route IN ({routes}) "
            f"ORDER BY route, {order} LIMIT {COHORTS * COHORT_ROUTES}"
        ),
    }


def _links(report: ReportTables) -> Collected:
    """The longest times offline, and all together."""
    return {
        "links": report.rows(
            f"SELECT *, {COUNTED} FROM today.link_sessions "
            f"ORDER BY offline_s DESC, piled_up DESC, streamer, endpoint, down_ts LIMIT {LINKS}"
        ),
        "link_totals": report.rows(
            "SELECT count(*) AS sessions, count(DISTINCT streamer) AS streamers, count(*) FILTER (up_ts IS NULL) AS still, "
            f"{sums('offline_s', 'piled_up', 'piled_up_bytes')}, max(drain_s) AS drain_s FROM today.link_sessions"
        ),
        "slow_drain": report.rows(
            f"SELECT *, {COUNTED} FROM today.link_sessions WHERE drain_s > 0 ORDER BY drain_s DESC, streamer LIMIT 1"
        ),
    }


_JUDGED = """
WITH hours AS (
    SELECT *, $1::TIMESTAMP + to_hours(hour) AS begins, coalesce(complete_until, begins) AS until,
        until >= begins + to_hours(1) AS is_whole FROM today.completeness
), summed AS (
    SELECT streamer, sum(expected) AS expected, sum(seen) AS seen, sum(files_left_out) AS files_left_out,
        count(*) FILTER (is_whole) AS hours, min(until) FILTER (NOT is_whole) AS until FROM hours GROUP BY streamer
)
SELECT *, expected - seen AS missing, missing > 0 OR coalesce(files_left_out, 0) > 0 AS lacks,
    NOT lacks AND until IS NULL AS is_complete FROM summed WHERE expected + coalesce(files_left_out, 0) > 0
"""


def _completeness(report: ReportTables) -> Collected:
    """Of each streamer with records that day: how many hours are complete, what is missing, until when all is there."""
    report.keep("judged", _JUDGED, report.date)
    return {
        "incomplete": report.rows(
            f"SELECT * EXCLUDE (lacks, is_complete), {COUNTED} FROM judged WHERE NOT is_complete "
            f"ORDER BY lacks DESC, files_left_out DESC, missing DESC, hours, streamer LIMIT {INCOMPLETE}"
        ),
        "completeness": report.rows(
            f"SELECT count(*) AS streamers, {sums('expected', 'seen', 'files_left_out')}, "
            "count(*) FILTER (is_complete) AS complete, count(*) FILTER (lacks) AS lacking FROM judged"
        ),
    }


QUERIES: dict[str, tuple[tables.Table, str | Callable[[ReportTables], Rows]]] = {
    "route_days": (tables.ROUTE_HOURLY, _route_days),
    "lost_days": (
        tables.DELIVERY_AUDIT_DETAIL,
        _counted_days(tables.DELIVERY_AUDIT_DETAIL, "lost", "last_route", "count(*)", "finding = 'lost'"),
    ),
    "late_days": (tables.TTL_MARGIN, _counted_days(tables.TTL_MARGIN, "late", "route", "sum(late + expired)")),
}
"""The last two: messages that were lost behind a route, and those that did not arrive within their time to live."""
_GROUPS: tuple[tuple[tables.Table, Callable[[ReportTables], Collected], tuple[str, ...]], ...] = (
    (tables.ROUTE_HOURLY, _worst, ("worst", "states")),
    (tables.STREAMER_HEALTH, _silent, ("silent", "silent_totals")),
    (tables.COHORTS, _cohorts, ("cohorts", "cohort_totals", "cohort_routes")),
    (tables.LINK_SESSIONS, _links, ("links", "link_totals", "slow_drain")),
    (tables.COMPLETENESS, _completeness, ("incomplete", "completeness")),
)
"""Queries with several answers."""

TABLE_OF = {name: table for name, (table, _) in QUERIES.items()} | {
    name: table for table, _, names in _GROUPS for name in names
}


def collect(report: ReportTables) -> Collected:
    """The rows of every query whose table was written for the date."""
    report.keep("busiest", _BUSIEST)
    report.keep("troubled", _TROUBLED, report.streamer)
    report.keep("silent", _SILENT, report.date, _recorded(report), report.retired)
    rows = asked(report, QUERIES)
    for table, query, _ in _GROUPS:
        if report.has(table):
            rows |= query(report)
    return plain(rows)
