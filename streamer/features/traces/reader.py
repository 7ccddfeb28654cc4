"""Reads a folder of traces while the daemon writes, compacts and deletes in it. Knows nothing about the command line.

The latest records are in the spool: ``.spool/NAME/*.arrows`` (closed) and ``*.arrows.open`` (being written; its end may be
torn). Compaction moves them to ``date=YYYY-MM-DD/hour=H/streamer=NAME/*.parquet``. The spool is therefore always read first:
no record is missed, and one that is seen twice is recognised by its ``run_ts`` and ``seq`` (`SeenRecords`).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from streamer.features.traces.layout import CLOSED, OPEN
from streamer.features.traces.record import SCHEMA, NewerTraceError, aligned, check_version
from streamer.files import open_to_read

Ints = npt.NDArray[np.int64]
Complain = Callable[[str], None]

COLUMNS = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
"""The columns that are read. A column that a file lacks is null."""

BATCH_ROWS = 65_536
_NEEDED = ("ts", "run_ts", "seq")
"""The columns by which records are told apart and ordered. They have no nulls."""

_ROW_GROUP_BYTES = 512 << 20
"""The most that a row group may have before compression; one of ours has some 10 MiB."""

_RECORD_BYTES = 32 << 10
"""No record has more: the longest text of one is of a header, of at most 8 KiB."""

_BATCH_BYTES = 64 << 20
"""The most that a column of one batch may take, if each of its values is as long as all that the column has in its file."""

HOUR_US = 3_600_000_000
CLOCK_SLACK_US = 300_000_000
"""How far the times of files and records may differ, because a clock was set, without records being overlooked."""


class ParquetFile(NamedTuple):
    """A Parquet file: its path, its streamer, the hour of its records and when it was written (Unix µs)."""

    path: Path
    streamer: str
    hour_us: int
    modified_us: int


def parquet_files(folder: Path) -> list[ParquetFile]:
    """All Parquet files, the most recently written first. Files that disappear meanwhile are left out."""
    found = []
    for date in _entries(folder, "date="):
        for hour in _entries(date, "hour="):
            hour_us = _hour_us(date.name, hour.name)
            for streamer in _entries(hour, "streamer=") if hour_us is not None else ():
                for path in _entries(streamer, ""):
                    if path.suffix == ".parquet" and not path.name.startswith("."):
                        modified_us = _modified_us(path)
                        if modified_us is not None:
                            assert hour_us is not None
                            found.append(ParquetFile(path, unquote(streamer.name.partition("=")[2]), hour_us, modified_us))
    return sorted(found, key=lambda file: (file.modified_us, file.path), reverse=True)


def read_parquet(
    file: ParquetFile, wanted: Any, complain: Complain, columns: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """The records of a Parquet file for which the expression ``wanted`` holds (None: all), with a column ``streamer``.

    A file that is gone has none. If a file cannot be read, ``complain`` is called.
    """
    try:
        rows = _rows_at_a_time(file.path)
        dataset = ds.dataset(str(file.path), COLUMNS, format="parquet")
        names = list(columns or COLUMNS.names)
        reading = {"batch_size": rows, "batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        for batch in dataset.to_batches(columns=names, filter=wanted, **reading):
            if any(batch.column(name).null_count for name in _NEEDED if name in names):
                raise ForeignFileError(f"it has records without {' or '.join(_NEEDED)}")
            if batch.nbytes > _RECORD_BYTES * batch.num_rows:
                raise ForeignFileError(f"more than {_RECORD_BYTES} bytes in each record")
            if batch.num_rows:
                yield _with_streamer(batch, file.streamer)
    except FileNotFoundError:
        return
    except NewerTraceError as exc:
        complain(f"{file.path}: {exc}")
    except ForeignFileError as exc:
        complain(f"{file.path}: no file of traces: {exc}")
    except (pa.ArrowException, OSError) as exc:
        complain(f"{file.path}: cannot be read: {getattr(exc, 'strerror', None) or first_line(exc)}")


class ForeignFileError(ValueError):
    """A Parquet file that is not of ours. The text says why."""


def _rows_at_a_time(path: Path) -> int:
    """Return how many rows of a file may be decoded at a time.

    A column that repeats one long value takes little in the file, and that much for each row when it is decoded. Raises
    `ForeignFileError`, `NewerTraceError`, `pyarrow.ArrowException` and OSError, the last also for a pipe or a device.
    """
    with open_to_read(path) as content:
        metadata = pq.read_metadata(content)
    check_version(metadata.metadata)
    schema = metadata.schema.to_arrow_schema()
    if missing := [name for name in _NEEDED if name not in schema.names]:
        raise ForeignFileError(f"it has no columns {', '.join(missing)}")
    longest = 1
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        if group.total_byte_size > _ROW_GROUP_BYTES:
            raise ForeignFileError(
                f"{group.total_byte_size} bytes in one of its row groups; expected {_ROW_GROUP_BYTES} at most"
            )
        of_columns = (group.column(number) for number in range(group.num_columns))
        longest = max(
            longest, *(each.total_uncompressed_size for each in of_columns if each.physical_type == "BYTE_ARRAY"), 1
        )
    return max(1, min(BATCH_ROWS, _BATCH_BYTES // longest))


class SpoolFile:
    """One file of the spool, held open: what is appended can be read, even after the file was compacted and deleted."""

    def __init__(self, path: Path, streamer: str, complain: Complain) -> None:
        """Raises FileNotFoundError if it is gone."""
        self.path = path
        self.streamer = streamer
        self._complain = complain
        self._is_newer = False
        self._file = pa.PythonFile(open_to_read(path), "r")  # closed with it
        self._schema: pa.Schema | None = None

    def close(self) -> None:
        self._file.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records completed since the last call, with a column ``streamer``. Stops before a torn end.

        A file of a newer version has none; that is complained about once.
        """
        while not self._is_newer:
            at = self._file.tell()
            try:
                message = pa.ipc.read_message(self._file)
                if self._schema is None:
                    schema = pa.ipc.read_schema(message)
                    check_version(schema.metadata)
                    self._schema = schema
                    continue
                batch = pa.ipc.read_record_batch(message, self._schema)
            except NewerTraceError as exc:
                self._complain(f"{self.path}: {exc}")
                self._is_newer = True
                return
            except (pa.ArrowException, EOFError, OSError):  # not complete yet, or torn
                self._file.seek(at)
                return
            yield _with_streamer(aligned(batch, COLUMNS), self.streamer)


class SpoolReader:
    """Reads the files of the spool. It knows them by the part of the name that stays when they are closed."""

    def __init__(self, folder: Path, complain: Complain) -> None:
        """``complain`` is told of files that cannot be read."""
        self._folder = folder / ".spool"
        self._complain = complain
        self._files: dict[Path, SpoolFile] = {}
        self._refused: set[Path] = set()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records written since the last call. A file that is gone is read to its end, then closed."""
        present = self._find()
        for stem in sorted(present - set(self._files)):
            file = self._open(stem)
            if file is not None:
                self._files[stem] = file
        for stem, file in sorted(self._files.items()):
            yield from file.batches()
            if stem not in present:
                file.close()
                del self._files[stem]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _find(self) -> set[Path]:
        files = (path for streamer in _entries(self._folder, "") for path in _entries(streamer, ""))
        return {path.with_name(path.name.removesuffix(".open")) for path in files if path.name.endswith((CLOSED, OPEN))}

    def _open(self, stem: Path) -> SpoolFile | None:
        for path in (stem.with_name(f"{stem.name}.open"), stem):  # in the order in which it is renamed
            try:
                return SpoolFile(path, unquote(stem.parent.name), self._complain)
            except FileNotFoundError:
                continue
            except OSError as exc:
                if path not in self._refused:
                    self._refused.add(path)
                    self._complain(f"{path}: cannot be read: {exc.strerror or first_line(exc)}")
                return None
        return None


class SeenRecords:
    """Which records were seen, as ranges of ``seq`` per run: few ranges, however many records."""

    def __init__(self) -> None:
        # by streamer and run: first and last seq of each range, and when its first record ended; disjoint, ascending
        self._runs: dict[tuple[str, int], tuple[Ints, Ints, Ints]] = {}

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Remember the records of a batch of one streamer, and return those that were not seen before."""
        if not batch.num_rows:
            return batch
        streamer = batch.column("streamer")[0].as_py()
        runs, numbers = _ints(batch, "run_ts"), _ints(batch, "seq")
        fresh = np.ones(len(runs), dtype=np.bool_)
        ended = ended_us(batch)
        for run in np.unique(runs):
            rows = runs == run
            fresh[rows] = ~self._covers((streamer, int(run)), numbers[rows])
            self._join((streamer, int(run)), numbers[rows], ended[rows])
        return batch if fresh.all() else batch.filter(pa.array(fresh))

    def has(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which records of a batch of one streamer were seen. Remembers nothing."""
        found = np.zeros(batch.num_rows, dtype=np.bool_)
        if not self._runs or not batch.num_rows:
            return found
        streamer = batch.column("streamer")[0].as_py()
        runs, numbers = _ints(batch, "run_ts"), _ints(batch, "seq")
        for run in np.unique(runs):
            rows = runs == run
            found[rows] = self._covers((streamer, int(run)), numbers[rows])
        return found

    def missing(self, since_us: int) -> int:
        """How many records are missing: before a record that ended since then, or at the start of a run since then."""
        missing = 0
        for (_, run_us), (firsts, lasts, ended) in self._runs.items():
            gaps = firsts[1:] - lasts[:-1] - 1
            missing += int(gaps[ended[1:] >= since_us].sum())
            if run_us >= since_us:
                missing += int(firsts[0])
        return missing

    def _covers(self, run: tuple[str, int], numbers: Ints) -> npt.NDArray[np.bool_]:
        if run not in self._runs:
            return np.zeros(len(numbers), dtype=np.bool_)
        firsts, lasts, _ = self._runs[run]
        at = np.searchsorted(firsts, numbers, side="right") - 1
        found: npt.NDArray[np.bool_] = (at >= 0) & (numbers <= lasts[np.maximum(at, 0)])
        return found

    def _join(self, run: tuple[str, int], numbers: Ints, ended: Ints) -> None:
        first, last, when = self._runs.get(run, (np.empty(0, np.int64),) * 3)
        first, last, when = (np.concatenate(pair) for pair in ((first, numbers), (last, numbers), (when, ended)))
        order = np.argsort(first, kind="stable")
        first, last, when = first[order], np.maximum.accumulate(last[order]), when[order]
        begins = np.concatenate(([True], first[1:] > last[:-1] + 1))
        ends = np.concatenate((begins[1:], [True]))
        self._runs[run] = (first[begins], last[ends], when[begins])


def ended_us(batch: pa.RecordBatch) -> Ints:
    """When the message of each record reached its outcome, Unix µs: the ingress time plus the latency."""
    latency: Ints = pc.fill_null(batch.column("latency_us"), 0).to_numpy(zero_copy_only=False)
    return _ints(batch, "ts") + latency


def newest(kept: pa.Table | None, batch: pa.RecordBatch | pa.Table, count: int) -> pa.Table:
    """The ``count`` records of both that ended last, without duplicates, oldest first."""
    rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    rows = _last(rows, count)
    if kept is None or not kept.num_rows:
        return rows
    both = pa.concat_tables([kept, rows]).combine_chunks()
    keys = zip(both.column("streamer").to_pylist(), _ints(both, "run_ts").tolist(), _ints(both, "seq").tolist(), strict=True)
    first_at: dict[tuple[str, int, int], int] = {}
    for at, key in enumerate(keys):
        first_at.setdefault(key, at)
    return _last(both.take(pa.array(first_at.values(), pa.int64())), count)


def _last(rows: pa.Table, count: int) -> pa.Table:
    order = np.lexsort((_ints(rows, "seq"), _ints(rows, "run_ts"), ended_us(rows)))  # the last key counts first
    return rows.take(pa.array(order[max(len(order) - count, 0) :]))


def _ints(rows: pa.RecordBatch | pa.Table, name: str) -> Ints:
    values: Ints = rows.column(name).cast(pa.int64()).to_numpy()
    return values


def _with_streamer(batch: pa.RecordBatch, streamer: str) -> pa.RecordBatch:
    return batch.append_column("streamer", pa.repeat(pa.scalar(streamer), batch.num_rows))


def _entries(folder: Path, prefix: str) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return sorted(folder / entry.name for entry in found if entry.name.startswith(prefix))
    except (FileNotFoundError, NotADirectoryError):  # deleted since it was listed
        return []


def _modified_us(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return None


def _hour_us(date: str, hour: str) -> int | None:
    try:
        day = datetime.strptime(date, "date=%Y-%m-%d").replace(tzinfo=UTC)
        return int(day.timestamp()) * 1_000_000 + int(hour.partition("=")[2]) * HOUR_US
    except ValueError:
        return None


def first_line(exc: BaseException) -> str:
    """The first line of an error's text, or its type if it has none."""
    return (str(exc).splitlines() or [type(exc).__name__])[0]
