"""Waits until the traces are complete up to an hour: ``python -m spark_jobs.completeness --input TRACES …``.

For jobs that must not begin before all files of a day have arrived. It looks at the files that are there, without Spark and
without the tables, and comes to the same answers as the table ``completeness`` (`streamer_health`): a streamer is complete
until T if a record behind T is there, and none of its outcomes between the beginning of that date and T lacks its record.

Names of folders are read first: they tell which streamers are expected, and which have nothing yet behind T. Of the others,
the statistics in the footers tell the runs and the numbers of records; only where some of these lack, records are read.
A streamer whose last event is an orderly stop is complete until now.
"""

import argparse
import datetime as dt
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from spark_jobs import quarantine
from spark_jobs.records import newer, unreadable

_AT_ONCE = 16
_TOLD = 20
_HOUR_US = 3_600_000_000
_EPOCH = dt.date(1970, 1, 1)
_EVENTS = "_events"
_BEFORE_H, _AFTER_H = 48, 24
"""How far from the date records are looked for that lack: as `streamer_health` reads."""
_UNTIL = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)(?::00(?::00)?)?Z")
_SPAN = re.compile(r"(\d+)([smh]?)")


class Extent(NamedTuple):
    """The records of one row group, all of one run. `first`, `last`: their least and largest seq."""

    run_us: int
    first: int
    last: int
    records: int
    path: str
    group: int


class Hole(NamedTuple):
    """Records that are missing between two outcomes."""

    from_us: int
    to_us: int
    records: int


class Traces:
    """The folder of the traces, local or far away. Folders go by *hours*, counted from 1970."""

    def __init__(self, path: str) -> None:
        """Raises OSError or ValueError if there is no such folder."""
        if re.match(r"\w+:", path):
            self._fs, self._root = fs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", path))
        else:
            self._fs, self._root = fs.LocalFileSystem(), path
        if self._fs.get_file_info(self._root).type != fs.FileType.Directory:
            raise FileNotFoundError(f"there is no folder {path}: expected traces, as date=…/hour=…/streamer=…")

    def hours(self, from_date: dt.date) -> Iterator[tuple[str, int]]:
        """Each streamer, by the name of its folders, with an hour of which it has one, from a date on."""
        dates = [(name, date) for name in self._names("") if (date := _date(name)) and date >= from_date]
        folders = [
            (f"{name}/{below}", (date - _EPOCH).days * 24 + int(below[5:]))
            for name, date in dates
            for below in self._names(name)
            if re.fullmatch(r"hour=(\d|1\d|2[0-3])", below)
        ]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="list") as pool:
            for (_, hour), names in zip(folders, pool.map(self._names, (path for path, _ in folders)), strict=True):
                yield from ((name, hour) for name in names if name.startswith("streamer="))

    def events(self, from_date: dt.date) -> dict[str, str]:
        """The newest folder of each streamer with events, from a date on."""
        found: dict[str, str] = {}
        for name in sorted(self._names(_EVENTS)):
            if (date := _date(name)) and date >= from_date:
                found |= {streamer: f"{_EVENTS}/{name}/{streamer}" for streamer in self._names(f"{_EVENTS}/{name}")}
        return found

    def runs(self, folder: str) -> dict[int, dict[int, str]]:
        """The events in a folder by their numbers, of each run by its beginning in µs."""
        told: dict[int, dict[int, str]] = defaultdict(dict)
        for name in self._names(folder):
            if not name.endswith(".parquet") or name[0] in "._" or newer(name) is not None:
                continue
            try:
                with self._fs.open_input_file(f"{self._root}/{folder}/{name}") as file:
                    rows = pq.read_table(file, columns=["run_ts", "seq", "event"])
            except (pa.ArrowException, OSError):  # the streamer counts as if it had none
                continue
            of_file = zip(_us(rows["run_ts"]).to_pylist(), rows["seq"].to_pylist(), rows["event"].to_pylist(), strict=True)
            for run_us, seq, event in of_file:
                told[run_us][seq] = event
        return told

    def files(self, streamer: str, hour: int) -> list[str]:
        """The files of a streamer's hour."""
        date = _EPOCH + dt.timedelta(days=hour // 24)
        folder = f"date={date}/hour={hour % 24}/{streamer}"
        return sorted(
            f"{folder}/{name}" for name in self._names(folder) if name.endswith(".parquet") and name[0] not in "._"
        )

    def extents(self, path: str) -> list[Extent] | str:
        """What a file says about its records; why it cannot be used."""
        if (version := newer(path)) is not None:
            return f"it has the newer format {version}"
        try:
            with self._fs.open_input_file(f"{self._root}/{path}") as file:
                parquet = pq.ParquetFile(file)
                if (fault := quarantine.footer_fault(parquet.metadata)) is not None:
                    return fault
                groups = range(parquet.metadata.num_row_groups)
                return [each for group in groups for each in _extents(parquet, path, group)]
        except FileNotFoundError:  # deleted since
            return []
        except (pa.ArrowException, OSError) as error:
            return unreadable(error)

    def outcomes(self, path: str, group: int, run_us: int) -> tuple[np.ndarray, np.ndarray]:
        """The seq of a run's records in a row group, and when their outcomes were, in µs."""
        with self._fs.open_input_file(f"{self._root}/{path}") as file:
            rows = pq.ParquetFile(file).read_row_group(group, columns=["seq", "run_ts", "ts", "latency_us"])
        ended_us = pc.add(_us(rows["ts"]), pc.coalesce(rows["latency_us"].cast(pa.int64()), 0))
        of_run = _us(rows["run_ts"]).to_numpy() == run_us
        return rows["seq"].to_numpy()[of_run], ended_us.to_numpy()[of_run]

    def _names(self, folder: str) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{folder}" if folder else self._root, allow_not_found=True)
        return [each.base_name for each in self._fs.get_file_info(selector)]


def _extents(parquet: pq.ParquetFile, path: str, group: int) -> Iterator[Extent]:
    """One if the statistics say that all are of one run, else one for each run."""
    about = parquet.metadata.row_group(group)
    stats = {
        column.path_in_schema: column.statistics
        for column in map(about.column, range(about.num_columns))
        if column.path_in_schema in ("run_ts", "seq") and column.statistics is not None and column.statistics.has_min_max
    }
    if len(stats) == 2 and stats["run_ts"].min_raw == stats["run_ts"].max_raw:
        unit = parquet.schema_arrow.field("run_ts").type.unit
        run_us = stats["run_ts"].min_raw * (1000 if unit == "ms" else 1)
        yield Extent(run_us, stats["seq"].min_raw, stats["seq"].max_raw, about.num_rows, path, group)
        return
    rows = parquet.read_row_group(group, columns=["seq", "run_ts"])
    runs, seq = _us(rows["run_ts"]).to_numpy(), rows["seq"].to_numpy()
    for run_us in np.unique(runs):
        own = seq[runs == run_us]
        yield Extent(int(run_us), int(own.min()), int(own.max()), len(own), path, group)


def holes(traces: Traces, extents: Iterable[Extent]) -> list[Hole]:
    """What is missing between the records of these row groups, and before the first one of each run."""
    found: list[Hole] = []
    runs: dict[int, list[Extent]] = defaultdict(list)
    for extent in extents:
        runs[extent.run_us].append(extent)
    for run_us, of_run in runs.items():
        last, before = -1, None  # the extent with the last record so far
        for cluster in _clusters(sorted(of_run, key=lambda extent: (extent.first, extent.last))):
            if cluster[0].first > last + 1:
                from_us = run_us if before is None else _at(traces, before, before.last)
                found.append(Hole(from_us, _at(traces, cluster[0], cluster[0].first), cluster[0].first - last - 1))
            before = max(cluster, key=lambda extent: extent.last)
            last = before.last
            if sum(extent.records for extent in cluster) != last - cluster[0].first + 1:
                found += _inside(traces, cluster)
    return found


def _clusters(extents: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Extents in order, those together that overlap."""
    cluster: list[Extent] = []
    last = -1
    for extent in extents:
        if cluster and extent.first > last:
            yield cluster
            cluster = []
        cluster.append(extent)
        last = max(last, extent.last)
    if cluster:
        yield cluster


def _inside(traces: Traces, cluster: Sequence[Extent]) -> Iterator[Hole]:
    read = [traces.outcomes(extent.path, extent.group, extent.run_us) for extent in cluster]
    seq, place = np.unique(np.concatenate([each for each, _ in read]), return_index=True)
    ended_us = np.concatenate([each for _, each in read])[place]
    for at in np.flatnonzero(np.diff(seq) > 1):
        yield Hole(int(ended_us[at]), int(ended_us[at + 1]), int(seq[at + 1] - seq[at] - 1))


def _at(traces: Traces, extent: Extent, number: int) -> int:
    """When the outcome of that seq was, in µs."""
    seq, ended_us = traces.outcomes(extent.path, extent.group, extent.run_us)
    return int(ended_us[seq == number][0])


class ExpectedStreamers:
    """What is known of the streamers that are expected to be complete until the hour `until`."""

    def __init__(self, traces: Traces, until: int, days: int) -> None:
        self._traces, self._until = traces, until
        self._from = (until - 1) // 24 * 24
        self._first_date = _EPOCH + dt.timedelta(days=self._from // 24 - days + 1)
        self._done: set[str] = set()
        self._events: dict[str, str] = {}
        self.lacking: dict[str, str] = {}
        """Why a streamer is not complete."""
        self.complete = 0

    @property
    def share(self) -> float:
        """Of the streamers, how much is complete; 0 if there are none."""
        return self.complete / (self.complete + len(self.lacking)) if self.complete else 0.0

    def look(self) -> None:
        """Look at what is there now. What was complete remains so. Raises OSError."""
        masks: Counter[str] = Counter()  # a bit for each hour: a fleet has many
        base = (self._first_date - _EPOCH).days * 24
        for streamer, hour in self._traces.hours(self._first_date):
            masks[streamer] |= 1 << (hour - base)
        self._events = self._traces.events(self._first_date)
        expected = [name for name, mask in masks.items() if mask & ((1 << (self._until - base)) - 1)]
        asked = [name for name in expected if name not in self._done]
        self.lacking = {}
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="look") as pool:
            hours = ([base + bit for bit in range(masks[name].bit_length()) if masks[name] >> bit & 1] for name in asked)
            for name, fault in zip(asked, pool.map(self._judge, asked, hours), strict=True):
                if fault is None:
                    self._done.add(name)
                else:
                    self.lacking[name] = fault
        self.complete = len(expected) - len(self.lacking)

    def _judge(self, streamer: str, hours: list[int]) -> str | None:
        """Why a streamer is not complete; None if it is."""
        if hours[-1] < self._until and not self._has_stopped(streamer, hours[-1]):
            return f"nothing since the hour {_shown(hours[-1])}"
        near = [hour for hour in hours if self._from - _BEFORE_H <= hour < self._until + _AFTER_H]
        own = [hour for hour in hours if self._from <= hour < self._until]
        before = [hour for hour in hours if hour < self._from][-1:]
        behind = [hour for hour in hours if hour >= self._until][:1]
        for wanted in ([*before, *own, *behind], sorted({*before, *near, *behind})):
            if (fault := self._fault(streamer, wanted)) is None:
                return None
        return fault

    def _has_stopped(self, streamer: str, hour: int) -> bool:
        """Whether a streamer whose last records are of that hour has said that it stops, or that it began behind `until`.

        A run without a record or a link is the standby of a pair, and says nothing of the others.
        """
        if (folder := self._events.get(streamer)) is None:
            return False
        near = [each for path in self._traces.files(streamer, hour) for each in self._traces.extents(path)]
        if any(isinstance(each, str) for each in near):
            return False
        recorded = {each.run_us for each in near if isinstance(each, Extent)}
        told = self._traces.runs(folder)
        active = {run for run, events in told.items() if run in recorded or not {"up", "down"}.isdisjoint(events.values())}
        if not active or (newest := max(active)) >= self._until * _HOUR_US:
            return bool(active)
        stopped = {run_us: events[max(events)] == "stopped" for run_us, events in told.items()}
        return stopped[newest] and all(each <= newest and stopped.get(each, True) for each in recorded)

    def _fault(self, streamer: str, hours: Iterable[int]) -> str | None:
        """The same, by the records of these hours."""
        listed = [(hour, path) for hour in hours for path in self._traces.files(streamer, hour)]
        extents: list[Extent] = []
        fault = None
        for hour, path in listed:
            read = self._traces.extents(path)
            if isinstance(read, str):
                fault = f"{path} cannot be used: {read}" if self._from <= hour < self._until else fault
            else:
                extents += read
        day_us, until_us = self._from * _HOUR_US, self._until * _HOUR_US
        read_us = day_us - _BEFORE_H * _HOUR_US
        found = holes(self._traces, extents)
        own = [each for each in found if read_us <= each.from_us < until_us and each.to_us > day_us]
        if fault is None and own:
            at = dt.datetime.fromtimestamp(max(min(own).from_us, day_us) // 1_000_000, dt.UTC)
            fault = f"lacks {sum(each.records for each in own)} records from {at:%Y-%m-%dT%H:%M:%SZ} on"
        return fault

    def told(self) -> Iterator[str]:
        """A line about all, and one for each of the first streamers that are not complete."""
        everybody = self.complete + len(self.lacking)
        yield f"complete until {_shown(self._until)}: {self.complete} of {everybody} streamers"
        for name, fault in sorted(self.lacking.items())[:_TOLD]:
            yield f"not complete: {unquote(name.removeprefix('streamer='))}: {fault}"
        if len(self.lacking) > _TOLD:
            yield f"not complete: {len(self.lacking) - _TOLD} more streamers"


def _us(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())


def _date(name: str) -> dt.date | None:
    try:
        return dt.date.fromisoformat(name[5:]) if name.startswith("date=") else None
    except ValueError:
        return None


def _shown(hour: int) -> str:
    return f"{_EPOCH + dt.timedelta(days=hour // 24)}T{hour % 24:02d}:00Z"


def _until(text: str) -> int:
    try:
        match = _UNTIL.fullmatch(text)
        hours = int(match[2]) if match else 25
        if match is None or hours > 24:
            raise ValueError
        return (dt.date.fromisoformat(match[1]) - _EPOCH).days * 24 + hours
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a full hour in UTC, such as 2026-11-26T24:00Z") from None


def _span_s(text: str) -> int:
    if (match := _SPAN.fullmatch(text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as 90s, 30m or 2h")
    return int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 < (share := float(text)) <= 1:
            return share
    raise argparse.ArgumentTypeError(f"{text!r}: expected a share above 0 and up to 1, such as 0.99")


def main(argv: Sequence[str] | None = None, sleep: Callable[[float], None] = time.sleep) -> int:
    """Returns the exit code: 0 once the share of the streamers is complete, 1 if it is not within the time limit, 2 if the
    traces cannot be read."""
    parser = argparse.ArgumentParser(
        "python -m spark_jobs.completeness", description="Wait until the traces of the streamers are complete up to an hour."
    )
    until = "a full hour in UTC, such as 2026-11-26T24:00Z: all records from the beginning of that date on must be there"
    expected = "expect streamers with records in so many days up to T (default: 7)"
    folder = "folder of the traces: local, s3a:, s3:, gs:, abfs:, hdfs:"
    share = "enough, of the streamers (default: 1); parked vehicles are silent"
    add = parser.add_argument
    add("--input", required=True, metavar="DIR", help=folder)
    add("--wait-complete-until", required=True, type=_until, metavar="T", dest="until", help=until)
    add("--timeout", type=_span_s, default=0, metavar="T", help="how long to wait, such as 90s, 30m (default: look once)")
    add("--share", type=_share, default=1.0, metavar="S", help=share)
    add("--days", type=int, default=7, metavar="N", choices=range(1, 91), help=expected)
    add("--every", type=_span_s, default=60, metavar="T", help="how long to wait between looks (default: 60s)")
    given = parser.parse_args(argv)
    ends_s = time.monotonic() + given.timeout
    try:
        fleet = ExpectedStreamers(Traces(given.input), given.until, given.days)
        while True:
            fleet.look()
            left_s = ends_s - time.monotonic()
            if fleet.share >= given.share or left_s <= 0:
                break
            sys.stdout.write(f"{next(fleet.told())}\n")
            sys.stdout.flush()
            sleep(min(max(given.every, 1), left_s))
    except (OSError, ValueError) as error:  # pyarrow's are these, too
        sys.stderr.write(f"{str(error).partition(chr(10))[0]}\n")
        return 2
    sys.stdout.writelines(f"{line}\n" for line in fleet.told())
    return 0 if fleet.share >= given.share else 1


if __name__ == "__main__":
    raise SystemExit(main())
