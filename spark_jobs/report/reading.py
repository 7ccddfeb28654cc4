"""Queries the tables for the report, with Arrow and without Spark: they are small, and each query of Spark's has its price.

`ReportTables` is the only place of the report that reads tables. `collect` returns plain rows under the names of `TABLE_OF`,
without those whose table was not written. A fleet's tables can be large, so they are read in chunks, and
every query is either a sum over few groups or the top of a ranking, with the number of all rows in `TOTAL`. Where there are
more than `FEW` streamers, routes of the same name are summed up over all of them.
"""

import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs import tables
from spark_jobs.arrow import TYPES
from spark_jobs.batch import days
from spark_jobs.schema import OUTCOMES
from spark_jobs.table_store import TableStore

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
FEW = 8
"""More streamers than these are a fleet: it is told by route over all of them, and by those that are not well."""
FLEET_ROWS = 10
"""Of a ranking of single routes in a fleet, where it is one of many."""
CLOCKS = 3
CLOCK_MS = 1000
"""A clock that is so far from the others is told: what has a time to live expires too early or too late there."""

Rows = list[dict[str, Any]]
Collected = dict[str, Rows]
Chunks = Iterable[pa.Table]
Key = tuple[str, str]
"""A column to sort by, and how. Ascending has nulls first, descending has them last, as in Spark."""


class ReportTables:
    """The published tables, for the report of one date.

    With ``streamer``, only the rows about that one: those of its own, and findings at it. Tables without either are as if
    they were not written.
    """

    def __init__(self, store: TableStore, date: datetime.date, streamer: str | None = None) -> None:
        self._store, self.date, self.streamer = store, date, streamer
        self._dates = {name: set(store.dates(table)) for name, table in tables.TABLES.items()}

    def has(self, table: tables.Table) -> bool:
        """Whether the table was written for the report's date, even without rows."""
        is_about = self.streamer is None or table.name in ABOUT_STREAMERS
        return is_about and self.date in self._dates[table.name]

    def day(self, table: tables.Table, date: datetime.date | None = None) -> Iterator[pa.Table]:
        """The rows of the report's date, or of another one, in chunks. The first has the columns at least."""
        rows = (_whole(_in_utf8(chunk), table) for chunk in self._store.chunks(table, date or self.date))
        return rows if self.streamer is None else (_about(self.streamer, chunk) for chunk in rows)

    def trend(self, table: tables.Table) -> Iterator[tuple[datetime.date, Iterator[pa.Table]]]:
        """The report's date and the 14 days before it, each with its rows; without the days that were never written."""
        for date in days(self.date, -tables.TREND_DAYS, 0):
            if date in self._dates[table.name]:
                yield date, self.day(table, date)

    @cached_property
    def route_days(self) -> list[tuple[datetime.date, pa.Table]]:
        """What each route carried on the report's date and the 14 days before it, summed up over all streamers."""
        sums = ("messages", "bytes", *OUTCOMES, "redelivered")
        return [(date, grouped(chunks, ["route"], sums)) for date, chunks in self.trend(tables.ROUTE_HOURLY)]

    @cached_property
    def streamers(self) -> pa.Array:
        """The names of those with records that day, or with trace files that were left out, in order."""
        about = [table for table in (tables.ROUTE_HOURLY, tables.STREAMER_HEALTH) if self.has(table)]
        found = [pc.unique(chunk["streamer"]) for table in about for chunk in self.day(table)]
        names = pc.unique(pa.chunked_array(found, pa.string())) if found else pa.array([], pa.string())
        return names.drop_null().sort()

    @property
    def is_fleet(self) -> bool:
        return len(self.streamers) > FEW


ABOUT_STREAMERS = {
    name: table
    for name, table in tables.TABLES.items()
    if "streamer" in table.columns or table is tables.DELIVERY_AUDIT_DETAIL
}
"""Those from which the page of one streamer is made."""


def known(store: TableStore, date: datetime.date, streamer: str) -> bool:
    """Whether the streamer wrote anything on the date or on the 14 days before, as far as the tables say."""
    report = ReportTables(store, date, streamer)
    about = (tables.ROUTE_HOURLY, tables.STREAMER_HEALTH)
    return any(len(chunk) for table in about for _, chunks in report.trend(table) for chunk in chunks)


def _about(streamer: str, chunk: pa.Table) -> pa.Table:
    if "streamer" in chunk.column_names:
        return chunk.filter(pc.equal(chunk["streamer"], streamer))
    listed = [pc.fill_null(pc.match_substring(listed, f",{streamer},"), False) for listed in _lists(chunk)]
    return chunk.filter(pc.or_(*listed))


def _lists(chunk: pa.Table) -> list[Any]:
    """The lists of streamers of findings, with a comma around each name."""
    return [pc.binary_join_element_wise("", chunk[name], "", ",") for name in ("streamers", "missing_at")]


def _whole(rows: pa.Table, table: tables.Table) -> pa.Table:
    """With all columns of the table: those that it had not when these rows were written are unknown."""
    for name, kind in table.columns.items():
        if name not in rows.column_names and name != "date":
            rows = rows.append_column(name, pa.nulls(len(rows), TYPES[kind.lower()]))
    return rows


def _in_utf8(rows: pa.Table) -> pa.Table:
    """With replacement characters where text is not UTF-8: Spark copies what a foreign trace file has, Arrow refuses it."""
    for at, field in enumerate(rows.schema):
        if not pa.types.is_string(field.type):
            continue
        try:
            rows.column(at).validate(full=True)
        except pa.ArrowInvalid:
            stored = rows.column(at).cast(pa.binary()).to_pylist()
            made = [None if each is None else each.decode(errors="replace") for each in stored]
            rows = rows.set_column(at, field, pa.array(made, field.type))
    return rows


def grouped(chunks: Chunks, keys: Sequence[str], sums: Sequence[str], largest: Sequence[str] = ()) -> pa.Table:
    """One row for each group, with sums and maxima under the columns' own names."""
    wanted = [*((name, "sum") for name in sums), *((name, "max") for name in largest)]

    def group(rows: pa.Table) -> pa.Table:
        made = rows.group_by(list(keys)).aggregate(wanted)
        return made.select([*keys, *("_".join(each) for each in wanted)]).rename_columns([*keys, *sums, *largest])

    return group(pa.concat_tables([group(chunk) for chunk in chunks], promote_options="permissive"))


def top(chunks: Chunks, order: Sequence[Key], rows: int) -> pa.Table:
    """The first rows by `order`, with the number of all rows in `TOTAL`."""
    kept, total = None, 0
    for chunk in chunks:
        total += len(chunk)
        every = chunk if kept is None else pa.concat_tables([kept, chunk], promote_options="permissive")
        kept = every.take(pc.sort_indices(*_sortable(every, order))[:rows])
    assert kept is not None  # a table that was written has a file
    return kept.append_column(TOTAL, pa.array([total] * len(kept), pa.int64()))


def _sortable(rows: pa.Table, order: Sequence[Key]) -> tuple[pa.Table, list[Key]]:
    """The columns to sort by. Arrow puts all nulls at one end: ascending columns are preceded by whether they are known."""
    columns: dict[str, Any] = {}
    keys: list[Key] = []
    for name, how in order:
        if how == "ascending":
            columns[f"{name} known"] = pc.is_valid(rows[name]).cast(pa.int8())
            keys.append((f"{name} known", how))
        columns[name] = rows[name]
        keys.append((name, how))
    return pa.table(columns), keys


def up(*names: str) -> list[Key]:
    return [(name, "ascending") for name in names]


def down(*names: str) -> list[Key]:
    return [(name, "descending") for name in names]


def by_name(*names: str) -> list[Key]:
    """Ties are broken by name, so that two runs give the same page."""
    return up("streamer", *names)


def _with(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.append_column(name, values)


def _days(report: ReportTables) -> Rows:
    names = ("messages", "bytes", *OUTCOMES, "redelivered")
    days = ((date, grouped([routes], [], names)) for date, routes in report.route_days)
    return [{"date": date} | row for date, rows in days for row in rows.to_pylist() if row["messages"] is not None]


def _routes(report: ReportTables) -> Rows:
    """One row per streamer and route, with its messages by hour. In a fleet per route, with the number of its streamers."""
    sums = ("messages", "bytes", *OUTCOMES)
    keys = ["route"] if report.is_fleet else ["streamer", "route"]
    rows = grouped(report.day(tables.ROUTE_HOURLY), [*keys, "hour"], sums)
    found = {_route(row): row | {"streamer": row.get("streamer")} for row in grouped([rows], keys, sums).to_pylist()}
    for row in rows.select([*keys, "hour", "messages"]).to_pylist():
        found[_route(row)].setdefault("by_hour", []).append({"hour": row["hour"], "messages": row["messages"]})
    if report.is_fleet:
        each = grouped(report.day(tables.ROUTE_HOURLY), ["route", "streamer"], [])
        for row in each.group_by("route").aggregate([("streamer", "count")]).to_pylist():
            found[_route(row)]["streamers"] = row["streamer_count"]
    return list(found.values())


def _streamers(report: ReportTables) -> Rows:
    """The first names, with the number of all in `TOTAL`."""
    return [{"streamer": name, TOTAL: len(report.streamers)} for name in report.streamers[:STREAMERS].to_pylist()]


def _route(row: dict[str, Any]) -> tuple[str | None, str | None]:
    return row.get("streamer"), row["route"]


def _latency(chunk: pa.Table) -> pa.Table:
    """Both measures in columns of their own, each in rows of its own."""
    columns = {"streamer": chunk["streamer"], "route": chunk["route"]}
    for measure, name in itertools.product(("latency", "queue_wait"), _LATENCIES):
        is_measure = pc.equal(chunk["measure"], measure)
        columns[f"{measure}_{name}"] = pc.if_else(is_measure, chunk[name], pa.scalar(None, chunk[name].type))
    return pa.table(columns)


_LATENCIES = ("messages", "p50_us", "p90_us", "p99_us", "max_us")


def _latency_rows(report: ReportTables) -> Chunks:
    """One row per streamer and route, both measures side by side."""
    names = [f"{measure}_{name}" for measure in ("latency", "queue_wait") for name in _LATENCIES]
    rows = grouped(map(_latency, report.day(tables.LATENCY_DAILY)), ["streamer", "route"], [], names)
    return [rows.filter(pc.greater(rows["latency_messages"], 0))]


def _latency_hourly(report: ReportTables) -> Rows:
    """The hours of the busiest routes."""

    def hours() -> Iterator[pa.Table]:
        for chunk in report.day(tables.LATENCY):
            yield chunk.filter(pc.greater(chunk["messages"], 0))

    volumes = grouped(hours(), ["streamer", "route"], ["messages"])
    wanted = HOURLY_ROUTES // 2 if report.is_fleet else HOURLY_ROUTES
    busiest = top([volumes], [*down("messages"), *by_name("route")], wanted)
    found = {_route(row): row | {"by_hour": []} for row in busiest.drop_columns([TOTAL]).to_pylist()}
    names = ("hour", "latency_p50_us", "latency_p99_us")
    for chunk in hours():
        known = pc.and_(*(pc.is_in(chunk[name], value_set=busiest[name].combine_chunks()) for name in ("streamer", "route")))
        for row in chunk.filter(known).select(["streamer", "route", *names]).to_pylist():
            if _route(row) in found:
                found[_route(row)]["by_hour"].append({name: row[name] for name in names})
    return list(found.values())


def _dead_letter_days(report: ReportTables) -> Rows:
    found: Rows = []
    for date, chunks in report.trend(tables.DEAD_LETTERS):
        found += [{"date": date} | row for row in grouped(chunks, ["outcome", "ucode"], ["messages"]).to_pylist()]
    return found


def _audit_days(report: ReportTables) -> Rows:
    found: Rows = []
    for date, chunks in report.trend(tables.DELIVERY_AUDIT):
        told = (
            chunk.append_column("crowded", pc.if_else(pc.is_null(chunk["src_authority"]), chunk["messages"], 0))
            for chunk in chunks
        )
        rows = grouped(told, ["status"], ["messages", "copies", "crowded"], ["latency_max_us"])
        found += [{"date": date} | row for row in rows.to_pylist()]
    return found


def _authorities(report: ReportTables, column: str) -> Rows:
    """The authorities with the most messages, with the number of all in `TOTAL`."""
    axis = grouped(report.day(tables.TRAFFIC_MATRIX), [column], ["messages"]).rename_columns(["name", "messages"])
    wanted = MATRIX // 2 if report.is_fleet else MATRIX
    return list(top([axis], [*down("messages"), *up("name")], wanted).to_pylist())


def _matrix(report: ReportTables, named: dict[str, Rows]) -> Rows:
    """Messages between the named authorities. All others are one row and one column; the columns ``…_named`` tell."""
    keys = [name for column in named for name in (column, f"{column}_named")]

    def gathered() -> Iterator[pa.Table]:
        for chunk in report.day(tables.TRAFFIC_MATRIX):
            columns = {"messages": chunk["messages"], "failed": chunk["failed"]}
            for column, axis in named.items():
                known = pc.is_in(chunk[column], value_set=pa.array([row["name"] for row in axis], pa.string()))
                columns[f"{column}_named"] = known
                columns[column] = pc.if_else(known, chunk[column], pa.scalar(None, pa.string()))
            yield pa.table(columns)

    return list(grouped(gathered(), keys, ["messages", "failed"]).to_pylist())


def _audit_pairs(report: ReportTables) -> Chunks:
    """The pairs of authorities between which messages were lost."""

    def by_status() -> Iterator[pa.Table]:
        for chunk in report.day(tables.DELIVERY_AUDIT):
            columns = {name: chunk[name] for name in ("src_authority", "sink_authority")}
            for name in tables.STATUSES:
                columns[name] = pc.if_else(pc.equal(chunk["status"], name), chunk["messages"], 0)
            yield pa.table(columns)

    rows = grouped(by_status(), ["src_authority", "sink_authority"], tables.STATUSES)
    return [rows.filter(pc.greater(rows["lost"], 0))]


def _findings(report: ReportTables) -> Rows:
    """The first messages of each finding, with the number of all in `TOTAL`."""
    found: Rows = []
    for finding in sorted(tables.FINDINGS):
        chunks = report.day(tables.DELIVERY_AUDIT_DETAIL)
        of_finding = (chunk.filter(pc.equal(chunk["finding"], finding)) for chunk in chunks)
        found += top(of_finding, up("msg_ts", "msg_id"), EXAMPLES).to_pylist()
    return found


def _health_totals(report: ReportTables) -> Rows:
    chunks = list(report.day(tables.STREAMER_HEALTH))
    (sums,) = grouped(chunks, [], ["records", "restarts", "gaps", "records_missing", "files_left_out"]).to_pylist()
    return [sums | {"streamers": sum(map(len, chunks))}]


def _fan_out_totals(report: ReportTables) -> Rows:
    sums = ["publishes", "expected", "missing", "incomplete"]
    return list(grouped(report.day(tables.FAN_OUT), [], sums).to_pylist())


def _lacking(report: ReportTables) -> Rows:
    """The gateways that lack most of what is published to many."""
    rows = grouped(report.day(tables.FAN_OUT_MISSING), ["streamer"], ["missing"])
    return list(top([rows], [*down("missing"), *by_name()], PAIRS).to_pylist())


def _talkers(report: ReportTables) -> Rows:
    found: Rows = []
    for by in ("messages", "bytes"):
        ranked = (chunk.filter(pc.equal(chunk["by"], by)) for chunk in report.day(tables.TOP_TALKERS))
        found += top(ranked, [*down(by), *by_name("src_authority", "src_ue_id")], TALKERS).drop_columns([TOTAL]).to_pylist()
    return found


def _health_hours(report: ReportTables, shown: Rows) -> Rows:
    """In how many hours these streamers wrote a record."""
    names = pa.array([row["streamer"] for row in shown], pa.string())
    chunks = report.day(tables.ROUTE_HOURLY)
    hours = grouped((chunk.filter(pc.is_in(chunk["streamer"], names)) for chunk in chunks), ["streamer", "hour"], [])
    return list(hours.group_by("streamer").aggregate([("hour", "count")]).rename_columns(["streamer", "hours"]).to_pylist())


QUERIES: dict[str, tuple[tables.Table, Callable[[ReportTables], Rows]]] = {
    "days": (tables.ROUTE_HOURLY, _days),
    "routes": (tables.ROUTE_HOURLY, _routes),
    "latency_hourly": (tables.LATENCY, _latency_hourly),
    "dead_letter_days": (tables.DEAD_LETTERS, _dead_letter_days),
    "sources": (tables.TRAFFIC_MATRIX, lambda report: _authorities(report, "src_authority")),
    "sinks": (tables.TRAFFIC_MATRIX, lambda report: _authorities(report, "sink_authority")),
    "audit_days": (tables.DELIVERY_AUDIT, _audit_days),
    "findings": (tables.DELIVERY_AUDIT_DETAIL, _findings),
    "health_totals": (tables.STREAMER_HEALTH, _health_totals),
    "fan_out_totals": (tables.FAN_OUT, _fan_out_totals),
    "lacking": (tables.FAN_OUT_MISSING, _lacking),
    "talkers": (tables.TOP_TALKERS, _talkers),
}


def _changes(chunk: pa.Table) -> pa.Table:
    away = pc.abs(pc.subtract(chunk["messages"], chunk["usual"]))
    return _with(chunk, _BY, away).filter(pc.not_equal(chunk["messages"], chunk["usual"]))


def _anomalies(chunk: pa.Table) -> pa.Table:
    return _with(chunk, _BY, pc.abs(chunk["score"]))


def _health(chunk: pa.Table) -> pa.Table:
    return _with(chunk, _BY, pc.abs(chunk["clock_skew_ms"]))


def _clocks(chunk: pa.Table) -> pa.Table:
    away_ms = pc.abs(chunk["clock_skew_ms"])
    return _with(chunk, _BY, away_ms).filter(pc.greater_equal(away_ms, CLOCK_MS))


def _broadcasts(chunk: pa.Table) -> pa.Table:
    return chunk.filter(pc.greater(chunk["missing"], 0))


def _margins(chunk: pa.Table) -> pa.Table:
    endangered = pc.add(pc.add(chunk["expired"], chunk["late"]), chunk["under_10"])
    return _with(chunk, _BY, endangered).filter(pc.greater(pc.add(chunk["messages"], chunk["expired"]), 0))


def _repeated(chunk: pa.Table) -> pa.Table:
    return _with(chunk, _BY, pc.add(pc.add(chunk["redelivered"], chunk["duplicates"]), chunk["retried"]))


_BY = "rank_by"
"""A column that a ranking is made by, and that is not shown."""


class Ranking(NamedTuple):
    """The first ``rows`` of a table by ``order``; ``chunk`` filters each chunk and adds `_BY`.

    ``none_left_out``: False if a fleet's report is without the rows whose `_BY` is 0, and has `FLEET_ROWS` of the others.
    """

    table: tables.Table
    rows: int
    order: Sequence[Key]
    chunk: Callable[[pa.Table], pa.Table] = lambda chunk: chunk
    none_left_out: bool = True

    def of(self, report: ReportTables) -> Rows:
        """The ranking of the report's date."""
        chunks = map(self.chunk, report.day(self.table))
        if self.none_left_out or not report.is_fleet:
            return list(top(chunks, self.order, self.rows).to_pylist())
        some = (chunk.filter(pc.greater(chunk[_BY], 0)) for chunk in chunks)
        return list(top(some, self.order, FLEET_ROWS).to_pylist())


_BUSIEST = [*down("latency_messages"), *by_name("route")]
_LETTER = by_name("route", "outcome", "ucode", "src_authority", "src_ue_id", "sink_authority", "sink_ue_id")

RANKINGS = {
    "changes": Ranking(
        tables.OUTCOMES_TABLE,
        CHANGES,
        [*down(_BY), *by_name("route", "src_authority", "sink_authority", "outcome", "ucode")],
        _changes,
    ),
    "dead_letters": Ranking(tables.DEAD_LETTERS, PAIRS, [*down("messages"), *_LETTER]),
    "health": Ranking(
        tables.STREAMER_HEALTH,
        STREAMERS,
        [*down("files_left_out", "records_missing", "restarts", _BY), *by_name()],
        _health,
    ),
    "clocks": Ranking(tables.STREAMER_HEALTH, CLOCKS, [*down(_BY), *by_name()], _clocks),
    "fan_out": Ranking(
        tables.FAN_OUT,
        PAIRS,
        [*down("missing"), *up("hour", "src_authority", "src_ue_id", "src_resource_id")],
        _broadcasts,
    ),
    "slo": Ranking(
        tables.SLO,
        OBJECTIVES,
        [*up("met"), *down("unlimited"), *up("budget_left"), *by_name("route", "objective", "name")],
        lambda chunk: _with(chunk, "unlimited", pc.is_valid(chunk["budget_left"]).cast(pa.int8())),
    ),
    "anomalies": Ranking(tables.ANOMALIES, ANOMALIES, [*down(_BY), *up("hour"), *by_name("route", "metric")], _anomalies),
    "ttl_margin": Ranking(tables.TTL_MARGIN, ROUTES, [*down(_BY, "messages"), *by_name("route")], _margins, False),
    "redelivery": Ranking(tables.REDELIVERY, ROUTES, [*down(_BY, "messages"), *by_name("route")], _repeated, False),
}

TABLE_OF = (
    {name: table for name, (table, _) in QUERIES.items()}
    | {name: each.table for name, each in RANKINGS.items()}
    | {
        "latency": tables.LATENCY_DAILY,
        "slowest": tables.LATENCY_DAILY,
        "health_hours": tables.ROUTE_HOURLY,
        "audit_pairs": tables.DELIVERY_AUDIT,
    }
)
"""The table behind each name in the result of `collect`."""


def collect(report: ReportTables) -> Collected:
    """The rows of every query whose table was written for the date."""
    rows: dict[str, Rows] = {name: query(report) for name, (table, query) in QUERIES.items() if report.has(table)}
    if report.has(tables.ROUTE_HOURLY) or report.has(tables.STREAMER_HEALTH):
        rows["streamers"] = _streamers(report)
    rows |= {name: ranking.of(report) for name, ranking in RANKINGS.items() if report.has(ranking.table)}
    if report.has(tables.LATENCY_DAILY):
        wanted = HOURLY_ROUTES if report.is_fleet else ROUTES
        rows["latency"] = top(_latency_rows(report), _BUSIEST, wanted).to_pylist()
        if report.is_fleet:
            slowest = [*down("latency_p99_us"), *_BUSIEST]
            rows["slowest"] = top(_latency_rows(report), slowest, FLEET_ROWS).to_pylist()
    if report.has(tables.DELIVERY_AUDIT):
        order = [*down("lost"), *up("src_authority", "sink_authority")]
        rows["audit_pairs"] = top(_audit_pairs(report), order, PAIRS).to_pylist()
    if report.has(tables.SLO):
        met = sum(pc.sum(chunk["met"]).as_py() or 0 for chunk in report.day(tables.SLO))
        rows["slo_met"] = [{"objectives": met}]
    if "sources" in rows:
        axes = {"src_authority": rows["sources"], "sink_authority": rows["sinks"]}
        rows["matrix"] = _matrix(report, axes)
    if "health" in rows and report.has(tables.ROUTE_HOURLY):
        rows["health_hours"] = _health_hours(report, rows["health"])
    return plain(rows)


def plain(rows: Collected) -> Collected:
    """Without the columns of the rankings, and with times as text."""
    return {name: list(map(_plain, found)) for name, found in rows.items()}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z" if isinstance(value, datetime.datetime) else value
        for name, value in row.items()
        if name not in (_BY, "unlimited")
    }
