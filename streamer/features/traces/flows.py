"""Reads the distinct flows out of a folder of traces, in one pass over the files.

The law of this file:
- Only the columns that are needed are read, and only the partitions of the period. What is read is reduced at once, by hour
  to its distinct flows. Memory depends on the number of distinct flows, not of records, and that number is bounded: sources
  choose their names themselves, so there may be any number. The rarest are given up first.
- A file that cannot be read, is no trace file, or was written by a newer version is left out and counted, as the nightly
  jobs do. A file that disappears meanwhile was deleted to keep to the bound.
- The spool is read first. Files that compaction has made of it since are recognised by their records (`SeenRecords`).
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamer.features.flow import TYPES, Flow, Week
from streamer.features.traces.reader import (
    BATCH_ROWS,
    CLOCK_SLACK_US,
    HOUR_US,
    Complain,
    ParquetFile,
    SeenRecords,
    SpoolReader,
    first_line,
    parquet_files,
)
from streamer.features.traces.record import SCHEMA, NewerTraceError, check_version
from streamer.routing.outcome import Outcome
from streamer.uprotocol.message import UMessageType, UPriority, authority_only
from streamer.uprotocol.uri import UriError, UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

MOST_FLOWS = 50_000
"""Distinct flows that are kept: those with the most messages."""

_DAY_US = 24 * HOUR_US
_MERGED_ROWS = 250_000
_SHOWN = 10  # files that are left out and complained about one by one

_TEXTS = ("route", "src_authority", "sink_authority", "msg_type", "priority", "ingress", "egress", "outcome")
_ENDS = ("src", "sink")
_PARTS = ("ue_id", "ue_version", "resource_id")
_NUMBERS = tuple(f"{end}_{part}" for end in _ENDS for part in _PARTS)
_READ = ("ts", *_TEXTS, *_NUMBERS, "ttl_ms")
_IDENTIFY = ("run_ts", "seq", "latency_us")

_TEXT = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema([(name, _TEXT if name in _TEXTS else SCHEMA.field(name).type) for name in _READ])
_REDUCED_ROWS = 2 * BATCH_ROWS
"""Records of several files that are reduced together."""

_FLOW = (*(name for name in _TEXTS if name != "outcome"), *_NUMBERS, "has_ttl")
_DUPLICATE: Final = Outcome.DUPLICATE.value


def read_week(
    folder: Path, since_us: int, now_us: int, complain: Complain, streamer: str | None = None, most_flows: int = MOST_FLOWS
) -> Week:
    """Return the distinct flows since ``since_us`` (Unix µs, its whole hour).

    ``streamer``: only the records of this streamer. A message that went over several routes, or was copied to several
    authorities, counts once. Its sink is the one with which it was sent, so a Publish to which only a route may have given
    an authority has none. Duplicates and what the streamer itself has sent are left out, and so are invalid addresses, which
    no configuration lets through. Identities are not in the records. ``complain`` is told of the first files that are left
    out, and how many there are.
    """
    found = _Found(most_flows)
    since_us -= since_us % HOUR_US
    seen, read_us = SeenRecords(), now_us
    spool = SpoolReader(folder, complain)
    try:
        for batch in spool.batches():
            if batch.num_rows and streamer in (None, batch.column("streamer")[0].as_py()):
                _add_spooled(found, seen, batch, since_us)
    finally:
        spool.close()
    files = [
        file
        for file in parquet_files(folder)
        if file.hour_us >= since_us and file.hour_us <= now_us and streamer in (None, file.streamer)
    ]
    hours = [list(of_hour) for _, of_hour in groupby(sorted(files, key=attrgetter("hour_us")), attrgetter("hour_us"))]
    read = partial(_read_hour, seen=seen, written_since_us=read_us - CLOCK_SLACK_US, most_flows=most_flows)
    for of_hour in _in_order(hours, read):
        found.absorb(of_hour)
    for text in found.left_out[:_SHOWN]:
        complain(text)
    if len(found.left_out) > _SHOWN:
        complain(f"{len(found.left_out) - _SHOWN} more files cannot be read")
    return found.week(since_us, now_us)


class _Found:
    """The flows of some files, how many were read, and why the others could not be."""

    def __init__(self, most_flows: int) -> None:
        self.left_out: list[str] = []
        self.files = 0
        self._flows = _FlowCounts(most_flows)
        self._records = 0
        self._first_us: int | None = None

    def add(self, batches: list[pa.RecordBatch]) -> None:
        """Add records in the columns of `_SCHEMA`."""
        rows = pa.Table.from_batches(batches, _SCHEMA)
        if rows.num_rows:
            self._flows.add(_reduced(rows))
            self._note(rows.num_rows, pc.min(rows.column("ts").cast(pa.int64())).as_py())

    def absorb(self, other: "_Found") -> None:
        """Add what was found in other files."""
        self.left_out += other.left_out
        self.files += other.files
        self._flows.absorb(other._flows)
        self._note(other._records, other._first_us)

    def _note(self, records: int, first_us: int | None) -> None:
        self._records += records
        self._first_us = min((each for each in (self._first_us, first_us) if each is not None), default=None)

    def week(self, since_us: int, now_us: int) -> Week:
        """Return what was found, for the period that was asked for."""
        first_us = max(since_us, now_us if self._first_us is None else self._first_us)
        days = max(now_us - first_us, HOUR_US) / _DAY_US
        flows, more_flows, more_messages = self._flows.flows(days)
        return Week(flows, days, self._records, self.files, len(self.left_out), more_flows, more_messages)


class _FlowCounts:
    """Counts the records of distinct flows, of at most ``most`` and those that were added last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._more_flows = self._more_messages = 0

    def add(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._rows += table.num_rows
        if self._rows > max(_MERGED_ROWS, 2 * self._most):
            self._merge()

    def absorb(self, other: "_FlowCounts") -> None:
        """Add what others have counted."""
        if other._tables:
            self.add(other._merge())
        self._more_flows = max(self._more_flows, other._more_flows)
        self._more_messages += other._more_messages

    def flows(self, days: float) -> tuple[list[Flow], int, int]:
        """Return the flows with messages per day, the most frequent first; how many more; and the messages of those."""
        rows = self._merge().to_pylist() if self._tables else []
        counts: dict[Flow, dict[tuple[str, str, UUri | None], int]] = {}
        for row in rows:
            flow = _flow(row)
            if flow is not None:
                legs = counts.setdefault(flow, {})
                leg = (row["route"], row["egress"] or "", _uri(row, "sink"))
                legs[leg] = legs.get(leg, 0) + row["messages"]
        flows = []
        for flow, legs in counts.items():
            nowhere = sum(count for (_, egress, _), count in legs.items() if not egress)
            messages = nowhere + max((count for (_, egress, _), count in legs.items() if egress), default=0)
            went_to = tuple(sorted({egress for _, egress, _ in legs if egress}))
            flows.append(flow._replace(went_to=went_to, messages_per_day=round(messages / days, 3)))
        flows.sort(key=lambda flow: (-flow.messages_per_day, str(flow)))
        return flows, self._more_flows, self._more_messages

    def _merge(self) -> pa.Table:
        merged = pa.concat_tables(self._tables).group_by(list(_FLOW)).aggregate([("messages", "sum")])
        merged = merged.rename_columns([*_FLOW, "messages"])
        if merged.num_rows > self._most:
            before = pc.sum(merged.column("messages")).as_py()
            chosen = pc.select_k_unstable(merged, self._most, sort_keys=[("messages", "descending")])
            self._more_flows = max(self._more_flows, merged.num_rows - self._most)
            merged = merged.take(chosen)
            self._more_messages += before - pc.sum(merged.column("messages")).as_py()
        self._tables, self._rows = [merged], merged.num_rows
        return merged


def _flow(row: Mapping[str, Any]) -> Flow | None:
    """Return the flow of a row of `_FLOW`; None if its addresses are invalid, or it is the streamer's own."""
    kind = TYPES.get(row["msg_type"])
    source, sink, ingress = _uri(row, "src"), _uri(row, "sink"), row["ingress"]
    if kind is None or source is None or not source.authority or not ingress or ingress == LOCAL_ENDPOINT:
        return None
    try:
        source.check()
        sink = None if sink is None else sink.check()
        priority = UPriority[row["priority"]]
    except (UriError, KeyError):
        return None
    if kind is UMessageType.PUBLISH and sink is not None and row["egress"] and authority_only(sink):
        sink = None
    return Flow(kind, source, sink, ingress, None, priority, None, bool(row["has_ttl"]))


def _uri(row: Mapping[str, Any], end: str) -> UUri | None:
    authority = row[f"{end}_authority"]
    return None if authority is None else UUri(authority, *(row[f"{end}_{part}"] or 0 for part in _PARTS))


# -- files


def _in_order(hours: list[list[ParquetFile]], read: Callable[[list[ParquetFile]], _Found]) -> Iterator[_Found]:
    """Yield what was read of each hour, in order, on as many threads as there are cores: pyarrow needs no interpreter."""
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    reading: deque[Future[_Found]] = deque()
    with ThreadPoolExecutor(workers, "traces") as pool:
        try:
            for hour in hours:
                if len(reading) >= 2 * workers:
                    yield reading.popleft().result()
                reading.append(pool.submit(read, hour))
            while reading:
                yield reading.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _read_hour(files: list[ParquetFile], seen: SeenRecords, written_since_us: int, most_flows: int) -> _Found:
    """Reduce the records of one hour, many at a time: small files would cost more than their records."""
    found = _Found(most_flows)
    waiting: list[pa.RecordBatch] = []
    for file in _without_copies(files):
        try:
            waiting += _batches(file, seen if file.modified_us >= written_since_us else None)
            found.files += 1
        except FileNotFoundError:
            continue
        except NewerTraceError as exc:
            found.left_out.append(f"{file.path}: {exc}")
        except (pa.ArrowException, OSError, ValueError) as exc:
            found.left_out.append(f"{file.path}: cannot be read: {first_line(exc)}")
        if sum(batch.num_rows for batch in waiting) >= _REDUCED_ROWS:
            found.add(waiting)
            waiting.clear()
    found.add(waiting)
    return found


def _without_copies(files: list[ParquetFile]) -> Iterator[ParquetFile]:
    """Yield files without those that have the content of another one in their folder; only equal sizes are compared."""
    alike: dict[tuple[Path, int], list[ParquetFile]] = {}
    for file in files:
        with suppress(FileNotFoundError):
            alike.setdefault((file.path.parent, file.path.stat().st_size), []).append(file)
    for same in alike.values():
        seen: set[bytes] = set()
        for file in same:
            if len(same) > 1:
                try:
                    with file.path.open("rb") as content:
                        digest = hashlib.file_digest(content, "sha256").digest()
                except OSError:  # gone, or a fault that reading it will name
                    digest = b""
                if digest in seen:
                    continue
                seen |= {digest} if digest else set()
            yield file


def _batches(file: ParquetFile, seen: SeenRecords | None) -> list[pa.RecordBatch]:
    """Return the columns `_READ` of the records of a file that were not ``seen``, with texts as dictionaries.

    Raises `pyarrow.ArrowException`, OSError, ValueError or `NewerTraceError` if it is no file of traces.
    """
    names = _READ if seen is None else tuple(dict.fromkeys((*_READ, *_IDENTIFY)))
    found = []
    try:
        opened = pq.ParquetFile(file.path, read_dictionary=list(_TEXTS))
    except KeyError as exc:
        raise ValueError("it lacks columns of records, so it is no file of traces") from exc
    with opened as parquet:
        check_version(parquet.metadata.metadata)
        _check(parquet.schema_arrow, names)
        for batch in parquet.iter_batches(_REDUCED_ROWS, columns=list(names), use_threads=False):
            rows = batch
            if seen is not None:
                streamer = pa.repeat(pa.scalar(file.streamer), rows.num_rows)
                rows = rows.filter(pa.array(~seen.has(rows.append_column("streamer", streamer))))
            found.append(_as_read(rows))
    return found


def _as_read(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of records in the order and with the types of `_SCHEMA`. Raises `pyarrow.ArrowException`."""
    columns = [rows.column(name) for name in _READ]
    if any(column.type != field.type for column, field in zip(columns, _SCHEMA, strict=True)):
        columns = [
            column if column.type == field.type else _cast(column, field.type)
            for column, field in zip(columns, _SCHEMA, strict=True)
        ]
    for name in _TEXTS:  # those of a foreign file may not be UTF-8
        columns[_READ.index(name)].dictionary.validate(full=True)
    return pa.record_batch(columns, schema=_SCHEMA)


def _cast(column: pa.Array, to: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(to) and not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    return column.cast(to)


def _check(schema: pa.Schema, names: tuple[str, ...]) -> None:
    """Raise ValueError unless a file has the columns of records, with their types."""
    for name in names:
        index = schema.get_field_index(name)
        if index < 0:
            raise ValueError(f"it has no column {name}, so it is no file of traces")
        kind = schema.field(index).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not (pa.types.is_string(kind) if name in _TEXTS else pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
            raise ValueError(f"its column {name} is {kind}, so it is no file of traces")


def _reduced(rows: pa.Table) -> pa.Table:
    """Return the distinct flows of records in the columns of `_SCHEMA`: the columns `_FLOW`, and the number of messages."""
    rows = rows.filter(pc.not_equal(rows.column("outcome").cast(pa.string()), _DUPLICATE)).unify_dictionaries()
    rows = rows.append_column("has_ttl", pc.fill_null(pc.greater(rows.column("ttl_ms"), 0), False))
    flows = rows.group_by(list(_FLOW), use_threads=False).aggregate([([], "count_all")]).rename_columns([*_FLOW, "messages"])
    for name in set(_TEXTS) & set(_FLOW):  # the dictionaries of other files differ
        flows = flows.set_column(flows.column_names.index(name), name, flows.column(name).cast(pa.string()))
    return flows


def _add_spooled(found: _Found, seen: SeenRecords, batch: pa.RecordBatch, since_us: int) -> None:
    try:
        fresh = seen.add(batch)
        found.add([_as_read(fresh.filter(pc.greater_equal(fresh.column("ts").cast(pa.int64()), since_us)))])
    except (pa.ArrowException, ValueError) as exc:
        found.left_out.append(f"a file in .spool: cannot be read: {first_line(exc)}")
