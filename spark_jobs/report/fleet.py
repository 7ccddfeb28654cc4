"""What the report says of a whole fleet: queries in the manner of `reading`, about routes, streamers, links and cohorts.

A streamer is *silent* if it has no record that day, but had some on the 14 days before. It is *not well* if messages did not
arrive there or behind it, an objective was not met, or its traces cannot be trusted: `_TROUBLES` says what counts, and
`sentences.troubles` says it in words.
"""

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs import tables
from spark_jobs.report.reading import (
    CLOCK_MS,
    ROUTES,
    TOTAL,
    Chunks,
    Collected,
    ReportTables,
    Rows,
    by_name,
    down,
    grouped,
    plain,
    top,
    up,
)
from spark_jobs.schema import FAILURES, OUTCOMES

WORST = 20
SILENT = 20
LINKS = 20
INCOMPLETE = 10
COHORTS = 10
COHORT_ROUTES = 3
FAILED_SHARE = 0.01
"""If a streamer fails a larger share of its messages, it is not well."""
USUALLY = 0.5
"""A streamer with records on at least that share of the days before is expected to write."""

_TROUBLES = ("undelivered", "unmet", "unusual", "records_missing", "files_left_out", "clock_ms")
_FOUND = (
    *("handed_over", "never_came", "lacking", "due", *FAILURES),
    *("unmet", "unusual", "records_missing", "files_left_out", "clock_ms", "offline_s"),
)


def _busiest(report: ReportTables) -> pa.Table:
    """The routes with the most messages that day, with the number of all in `TOTAL`."""
    today = [routes for date, routes in report.route_days if date == report.date]
    return top(today, [*down("messages"), *up("route")], ROUTES)


def _route_days(report: ReportTables) -> Rows:
    """The trend of the routes with the most messages, with the number of all that day in `TOTAL`."""
    shown = _busiest(report)
    total = pc.max(shown[TOTAL]).as_py()
    found: Rows = []
    for date, routes in report.route_days:
        found += [{"date": date, TOTAL: total} | row for row in _of_routes(routes, "route", shown).to_pylist()]
    return found


def _of_routes(rows: pa.Table, column: str, shown: pa.Table) -> pa.Table:
    return rows.filter(pc.is_in(rows[column], shown["route"].combine_chunks()))


def _lost_days(report: ReportTables) -> Rows:
    """How many messages were lost behind these routes; a row without a route for each day that was audited."""
    shown = _busiest(report)
    found: Rows = []
    for date, chunks in report.trend(tables.DELIVERY_AUDIT_DETAIL):
        lost = (_of_routes(chunk.filter(pc.equal(chunk["finding"], "lost")), "last_route", shown) for chunk in chunks)
        counted = (chunk.append_column("lost", pa.repeat(1, len(chunk))) for chunk in lost)
        rows = grouped(counted, ["last_route"], ["lost"]).rename_columns(["route", "lost"])
        found += [{"date": date} | row for row in ({"route": None, "lost": 0}, *rows.to_pylist())]
    return found


def _late_days(report: ReportTables) -> Rows:
    """How many messages of these routes did not arrive within their time to live; as `_lost_days`."""
    shown = _busiest(report)
    found: Rows = []
    for date, chunks in report.trend(tables.TTL_MARGIN):
        of_routes = (_of_routes(chunk, "route", shown) for chunk in chunks)
        both = (pa.table({"route": each["route"], "late": pc.add(each["late"], each["expired"])}) for each in of_routes)
        rows = grouped(both, ["route"], ["late"])
        found += [{"date": date} | row for row in ({"route": None, "late": 0}, *rows.to_pylist())]
    return found


def _of(streamer: Any, **columns: Any) -> pa.Table:
    return pa.table({"streamer": streamer} | columns)


def _lost(report: ReportTables) -> Iterator[pa.Table]:
    for chunk in report.day(tables.DELIVERY_AUDIT_DETAIL):
        lost = chunk.filter(pc.equal(chunk["finding"], "lost"))
        yield _of(lost["last_streamer"], handed_over=pa.repeat(1, len(lost)))
        missing = pc.split_pattern(lost["missing_at"].combine_chunks(), ",")
        names = pc.list_flatten(missing)
        yield _of(names, never_came=pa.repeat(1, len(names)))


def _lacking(report: ReportTables) -> Iterator[pa.Table]:
    for chunk in report.day(tables.FAN_OUT_MISSING):
        yield _of(chunk["streamer"], lacking=chunk["missing"])


def _failed(report: ReportTables) -> Iterator[pa.Table]:
    for chunk in report.day(tables.ROUTE_HOURLY):
        due = chunk["delivered"]
        for name in FAILURES:
            due = pc.add(due, chunk[name])
        yield _of(chunk["streamer"], due=due, **{name: chunk[name] for name in FAILURES})


def _unmet(report: ReportTables) -> Iterator[pa.Table]:
    for chunk in report.day(tables.SLO):
        unmet = chunk.filter(pc.equal(chunk["met"], pa.scalar(False)))
        yield _of(unmet["streamer"], unmet=pa.repeat(1, len(unmet)))


def _unusual(report: ReportTables) -> Iterator[pa.Table]:
    for chunk in report.day(tables.ANOMALIES):
        yield _of(chunk["streamer"], unusual=pa.repeat(1, len(chunk)))


def _traces(report: ReportTables) -> Iterator[pa.Table]:
    for chunk in report.day(tables.STREAMER_HEALTH):
        away_ms = pc.fill_null(chunk["clock_skew_ms"], 0.0)
        wrong = pc.if_else(pc.greater_equal(pc.abs(away_ms), CLOCK_MS), away_ms, 0.0)
        counts = {name: chunk[name] for name in ("records_missing", "files_left_out")}
        yield _of(chunk["streamer"], clock_ms=wrong, **counts)


def _offline(report: ReportTables) -> Iterator[pa.Table]:
    for chunk in report.day(tables.LINK_SESSIONS):
        yield _of(chunk["streamer"], offline_s=chunk["offline_s"])


_KINDS: tuple[tuple[tables.Table, Callable[[ReportTables], Chunks]], ...] = (
    (tables.ROUTE_HOURLY, _failed),
    (tables.DELIVERY_AUDIT_DETAIL, _lost),
    (tables.FAN_OUT_MISSING, _lacking),
    (tables.SLO, _unmet),
    (tables.ANOMALIES, _unusual),
    (tables.STREAMER_HEALTH, _traces),
    (tables.LINK_SESSIONS, _offline),
)


def _troubled(report: ReportTables) -> pa.Table:
    """One row for each streamer that is not well."""
    summed = [_summed(chunks(report)) for table, chunks in _KINDS if report.has(table)]
    rows = grouped([_with_all(each) for each in summed], ["streamer"], _FOUND)
    if report.streamer is not None:  # findings at one streamer are also about others
        rows = rows.filter(pc.equal(rows["streamer"], report.streamer))
    failed = pc.add(pc.add(rows[FAILURES[0]], rows[FAILURES[1]]), rows[FAILURES[2]])
    is_failing = pc.greater(failed, pc.multiply(rows["due"], FAILED_SHARE))
    arrived_not = pc.add(pc.add(rows["handed_over"], rows["never_came"]), rows["lacking"])
    rows = rows.append_column("undelivered", pc.add(arrived_not, pc.if_else(is_failing, failed, 0)))
    rows = rows.append_column("is_failing", is_failing).append_column("clock", pc.abs(rows["clock_ms"]))
    is_troubled = pc.equal(rows["undelivered"], -1)
    for name in _TROUBLES:
        is_troubled = pc.or_(is_troubled, pc.not_equal(rows[name], 0))
    return rows.filter(pc.and_(is_troubled, pc.is_valid(rows["streamer"])))


def _summed(chunks: Chunks) -> pa.Table:
    """By streamer, chunk by chunk; of findings, both kinds of columns come in turns."""
    return grouped(map(_with_all, chunks), ["streamer"], _FOUND)


def _with_all(chunk: pa.Table) -> pa.Table:
    known = {name: pc.fill_null(chunk[name], 0) for name in _FOUND if name in chunk.column_names}
    columns = {"streamer": chunk["streamer"].cast(pa.string())}
    for name in _FOUND:
        kind = pa.float64() if name in ("clock_ms", "offline_s") else pa.int64()
        columns[name] = known[name].cast(kind) if name in known else pa.repeat(pa.scalar(0, kind), len(chunk))
    return pa.table(columns)


def _worst(report: ReportTables) -> Collected:
    """The streamers that are least well, how many are, and of what kind the first trouble of each is."""
    rows = _troubled(report)
    order = down("undelivered", "unmet", "unusual", "records_missing", "files_left_out", "clock")
    shown = top([rows], [*order, *by_name()], WORST)
    states, left = {}, rows
    for state, troubles in (("undelivered", ["undelivered"]), ("objectives", ["unmet", "unusual"])):
        is_so = pc.greater(left[troubles[0]], 0)
        for name in troubles[1:]:
            is_so = pc.or_(is_so, pc.greater(left[name], 0))
        states[state] = pc.sum(is_so).as_py() or 0
        left = left.filter(pc.invert(is_so))
    here = pc.sum(pc.is_in(report.streamers, rows["streamer"].combine_chunks())).as_py() or 0
    states |= {"traces": len(left), "streamers": len(report.streamers), "well": len(report.streamers) - here}
    states["silent"] = None
    if report.has(tables.STREAMER_HEALTH):
        silent, _ = _silent_rows(report)
        names = silent.filter(pc.equal(silent["usually"], 1))["streamer"]
        states["silent"] = pc.sum(pc.invert(pc.is_in(names, rows["streamer"].combine_chunks()))).as_py() or 0
    letters = _letters(report, shown["streamer"].combine_chunks()) if report.has(tables.DEAD_LETTERS) else {}
    worst = [row | {"ucode": letters.get(row["streamer"])} for row in shown.drop_columns(["clock"]).to_pylist()]
    return {"worst": worst, "states": [states]}


def _letters(report: ReportTables, names: pa.Array) -> dict[str, str | None]:
    """The reason of most of the dead letters of these streamers."""
    chunks = (chunk.filter(pc.is_in(chunk["streamer"], names)) for chunk in report.day(tables.DEAD_LETTERS))
    rows = grouped(chunks, ["streamer", "ucode"], ["messages"])
    ascending = rows.take(pc.sort_indices(rows, [("messages", "ascending"), ("ucode", "descending")]))
    return {row["streamer"]: row["ucode"] for row in ascending.to_pylist()}


def _silent_rows(report: ReportTables) -> tuple[pa.Table, int]:
    """Streamers without a record that day that had some on the days before, and on how many of these there are any."""
    here, past, recorded = pa.array([], pa.string()), [], 0
    for date, chunks in report.trend(tables.STREAMER_HEALTH):
        rows = pa.concat_tables(list(chunks), promote_options="permissive")
        if date == report.date:
            here = rows["streamer"].combine_chunks()
            continue
        rows = rows.filter(pc.greater(rows["records"], 0)).select(["streamer", "records", "last_ts"])
        recorded += int(len(rows) > 0 or report.streamer is not None)
        past.append(rows.append_column("days", pa.repeat(1, len(rows))))
    nothing = {"streamer": pa.string(), "records": pa.int64(), "last_ts": pa.timestamp("us", "UTC"), "days": pa.int64()}
    rows = grouped([pa.schema(nothing).empty_table(), *past], ["streamer"], ["records", "days"], ["last_ts"])
    rows = rows.filter(pc.invert(pc.is_in(rows["streamer"], here)))
    usually = pc.greater_equal(rows["days"], recorded * USUALLY)
    return rows.append_column("usually", usually.cast(pa.int8())), recorded


def _silent(report: ReportTables) -> Collected:
    """Silent streamers, those first that usually write."""
    rows, recorded = _silent_rows(report)
    shown = top([rows], [*down("usually", "last_ts", "records"), *by_name()], SILENT).to_pylist()
    totals = {"silent": len(rows), "usual": pc.sum(rows["usually"]).as_py() or 0, "recorded": recorded}
    return {"silent": shown, "silent_totals": [totals]}


_COHORT = ("version", "compiled", "config")


def _cohorts(report: ReportTables) -> Collected:
    """The cohorts with the most streamers, and the latency of each on the routes with the most messages."""
    sums = ["messages", *OUTCOMES, "lost", "redelivered"]
    chunks = list(report.day(tables.COHORTS))
    rows = grouped(chunks, _COHORT, sums, ["streamers"])
    shown = top([rows], [*down("streamers", "messages"), *up(*_COHORT)], COHORTS)
    routes = top([grouped(chunks, ["route"], ["messages"])], [*down("messages"), *up("route")], COHORT_ROUTES)
    wanted = routes["route"].combine_chunks()
    speed = [chunk.filter(pc.is_in(chunk["route"], wanted)).drop_columns(list(OUTCOMES)) for chunk in chunks]
    order = [*up("route"), *down("streamers", "messages"), *up(*_COHORT)]
    all_ = grouped(chunks, [], sums).to_pylist()
    return {
        "cohorts": shown.to_pylist(),
        "cohort_totals": all_,
        "cohort_routes": top(speed, order, COHORTS * COHORT_ROUTES).to_pylist(),
    }


def _links(report: ReportTables) -> Collected:
    """The longest times offline, and all together."""
    chunks = list(report.day(tables.LINK_SESSIONS))
    rows = grouped(chunks, ["streamer"], ["offline_s", "piled_up", "piled_up_bytes"], ["drain_s"])
    (sums,) = grouped([rows], [], ["offline_s", "piled_up", "piled_up_bytes"], ["drain_s"]).to_pylist()
    still = sum(pc.sum(pc.is_null(chunk["up_ts"])).as_py() or 0 for chunk in chunks)
    totals = {"sessions": sum(map(len, chunks)), "streamers": len(rows), "still": still} | sums
    order = [*down("offline_s", "piled_up"), *by_name("endpoint", "down_ts")]
    slow = top([chunk.filter(pc.greater(chunk["drain_s"], 0)) for chunk in chunks], [*down("drain_s"), *by_name()], 1)
    return {"links": top(chunks, order, LINKS).to_pylist(), "link_totals": [totals], "slow_drain": slow.to_pylist()}


def _completeness(report: ReportTables) -> Collected:
    """Of each streamer with records that day: how many hours are complete, what is missing, until when all is there."""
    midnight = datetime.datetime.combine(report.date, datetime.time(), datetime.UTC)

    def judged() -> Iterator[pa.Table]:
        for chunk in report.day(tables.COMPLETENESS):
            hour_us = pc.multiply(chunk["hour"].cast(pa.int64()), 3_600_000_000)
            begins_us = pc.add(hour_us, int(midnight.timestamp() * 1e6))
            until_us = pc.coalesce(chunk["complete_until"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), begins_us)
            is_whole = pc.greater_equal(until_us, pc.add(begins_us, 3_600_000_000))
            open_us = pc.if_else(is_whole, pa.scalar(None, pa.int64()), until_us)
            yield pa.table(
                {name: chunk[name] for name in ("streamer", "expected", "seen", "files_left_out")}
                | {"hours": is_whole.cast(pa.int64()), "back_us": pc.negate(open_us)}
            )

    rows = grouped(judged(), ["streamer"], ["expected", "seen", "files_left_out", "hours"], ["back_us"])
    rows = rows.filter(pc.greater(pc.add(rows["expected"], pc.fill_null(rows["files_left_out"], 0)), 0))
    missing = pc.subtract(rows["expected"], rows["seen"])
    lacks = pc.or_(pc.greater(missing, 0), pc.greater(pc.fill_null(rows["files_left_out"], 0), 0))
    rows = rows.append_column("missing", missing).append_column("lacks", lacks.cast(pa.int8()))
    rows = rows.append_column("until", pc.negate(rows["back_us"]).cast(pa.timestamp("us", "UTC")))
    is_open = pc.is_valid(rows["back_us"])
    whole = pc.and_(pc.invert(lacks), pc.invert(is_open))
    (sums,) = grouped([rows], [], ["expected", "seen", "files_left_out"]).to_pylist()
    states = {"complete": pc.sum(whole).as_py() or 0, "lacking": pc.sum(lacks).as_py() or 0}
    totals = {"streamers": len(rows)} | sums | states
    order = [*down("lacks", "files_left_out", "missing"), *up("hours"), *by_name()]
    shown = top([rows.filter(pc.invert(whole))], order, INCOMPLETE).drop_columns(["back_us", "lacks"])
    return {"incomplete": shown.to_pylist(), "completeness": [totals]}


QUERIES: dict[str, tuple[tables.Table, Callable[[ReportTables], Rows]]] = {
    "route_days": (tables.ROUTE_HOURLY, _route_days),
    "lost_days": (tables.DELIVERY_AUDIT_DETAIL, _lost_days),
    "late_days": (tables.TTL_MARGIN, _late_days),
}
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
    rows: Collected = {name: query(report) for name, (table, query) in QUERIES.items() if report.has(table)}
    for table, query, _ in _GROUPS:
        if report.has(table):
            rows |= query(report)
    return plain(rows)
