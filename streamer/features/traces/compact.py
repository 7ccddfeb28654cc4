"""Compaction: a process of low priority that turns closed spool files into Parquet files and deletes the oldest ones.

    python -m streamer.features.traces.compact FOLDER STREAMER MAX_BYTES

Each spool file becomes one Parquet file per hour of its records, or per day of its events. The files always get the
same names: they are written elsewhere, synced and renamed, and the spool file is deleted last. A kill at any moment
therefore loses nothing and doubles nothing: the next compaction starts over. What a newer version has written is left for
it. The last line on standard output is a `Compaction` as JSON. The exit code is 1 if something could not be compacted.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamer.features.traces.event import EVENT_SCHEMA
from streamer.features.traces.layout import BAD, CLOSED, Compaction, Folders, make_file, make_folder, sync
from streamer.features.traces.record import SCHEMA, NewerTraceError, aligned, check_version

_ROW_GROUP = 131_072  # records; no more are in memory at a time
_HOUR_US = 3_600_000_000
_BARELY_REPEATED = ("ts", "msg_ts", "seq", "msg_id", "req_id", "age_us", "queue_wait_us", "latency_us", "traceparent")
_DELTA = dict.fromkeys(("ts", "msg_ts", "seq", "age_us", "queue_wait_us", "latency_us"), "DELTA_BINARY_PACKED")


class TornError(ValueError):
    """A spool file is not a complete Arrow stream."""


class PartFiles:
    """The Parquet files that one spool file becomes: one for each hour of its records, or for each day of its events."""

    def __init__(self, folders: Folders, spool_file: Path) -> None:
        self._folders = folders
        self._spool_file = spool_file
        self._is_of_events = folders.has_events(spool_file)
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._count = 0
        self._writers: dict[int, tuple[Path, pq.ParquetWriter]] = {}
        self.records = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Distribute the rows of a batch over their hours, or days."""
        hours = batch.column("ts").cast(pa.int64()).to_numpy() // _HOUR_US
        if self._is_of_events:
            hours = hours // 24 * 24
        for hour in np.unique(hours):
            chosen = batch if hours[0] == hour and (hours == hour).all() else batch.filter(pa.array(hours == hour))
            self._waiting.setdefault(int(hour), []).append(chosen)
        self._count += len(batch)
        if self._count >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        for hour, batches in self._waiting.items():
            if hour not in self._writers:
                path = self._folders.unfinished / self._final(hour).name
                os.close(make_file(path))
                self._writers[hour] = (
                    path,
                    pq.ParquetWriter(
                        path,
                        batches[0].schema,
                        compression="zstd",
                        use_dictionary=[name for name in batches[0].schema.names if name not in _BARELY_REPEATED],
                        column_encoding={name: kind for name, kind in _DELTA.items() if name in batches[0].schema.names},
                        coerce_timestamps="us",
                        store_schema=False,
                    ),
                )
            table = pa.Table.from_batches(batches).replace_schema_metadata(SCHEMA.metadata)
            self._writers[hour][1].write_table(table, row_group_size=_ROW_GROUP)
            self.records += 0 if self._is_of_events else len(table)
        self._waiting.clear()
        self._count = 0

    def publish(self) -> int:
        """Complete the files, give them their final names and return how many there are. Raises OSError."""
        self._flush()
        for hour, (path, writer) in self._writers.items():
            writer.add_key_value_metadata(SCHEMA.metadata)
            writer.close()
            final = self._final(hour)
            make_folder(final.parent)
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.rename(final)
            for folder in (final.parent, final.parent.parent, final.parent.parent.parent, self._folders.path):
                sync(folder)
        return len(self._writers)

    def _final(self, hour: int) -> Path:
        return self._folders.part(self._spool_file, *_day_and_hour(hour))


def compact_spool(folders: Folders, max_bytes: int) -> Compaction:
    """Compact every closed spool file of a streamer, then delete the oldest files beyond ``max_bytes``. Raises OSError."""
    done = Compaction()
    folders.create()
    lock = folders.lock("sealing.lock", wait=True)
    try:
        for stale in folders.unfinished.iterdir():
            stale.unlink()
        for file in folders.closed():
            try:
                _compact_file(folders, file, done)
            except FileNotFoundError:
                if file.exists():  # otherwise the daemon has just deleted it to keep to the bound
                    raise
            except OSError as exc:  # the next compaction tries again; other files may succeed
                done.problems.append(f"{file.name}: {exc.strerror or exc}")
            except NewerTraceError as exc:  # it is not ours to compact
                done.problems.append(f"{file.name}: {exc}")
            except Exception as exc:  # noqa: BLE001  # not a file that we write: it must not block those after it
                done.reasons.append(f"{file.name}: {exc!r}")
                file.rename(file.with_name(file.name.removesuffix(CLOSED) + BAD))
                done.bad += 1
        now_s = time.time()
        deleted = folders.keep_to(max_bytes, now_s)
        done.deleted_files, done.deleted_bytes = deleted
        done.bytes = folders.total_bytes()
        done.ahead = len(folders.ahead(now_s))
    finally:
        os.close(lock)
    return done


def _compact_file(folders: Folders, file: Path, done: Compaction) -> None:
    parts = PartFiles(folders, file)
    try:
        for batch in batches(file, EVENT_SCHEMA if folders.has_events(file) else SCHEMA):
            parts.add(batch)
    except TornError:  # its daemon was killed, or it is damaged: the batches before that are kept
        done.torn += 1
    done.files += parts.publish()
    done.records += parts.records
    file.unlink()
    sync(folders.spool)


def batches(file: Path, known: pa.Schema = SCHEMA) -> Iterator[pa.RecordBatch]:
    """The completed batches of a spool file; it may still be being written.

    They have the columns of ``known``, and behind them those that only a newer program knows. Raises OSError, `TornError`
    where it ends in the middle of a batch or is damaged, and `NewerTraceError`.
    """
    with pa.OSFile(str(file)) as source:
        try:
            with pa.ipc.open_stream(source) as reader:
                check_version(reader.schema.metadata)
                schema = pa.schema([*known, *(field for field in reader.schema if field.name not in known.names)])
                for batch in reader:
                    batch.validate(full=True)
                    yield batch if batch.schema.equals(schema) else aligned(batch, schema)
        except pa.ArrowException as exc:
            raise TornError(str(exc)) from exc
        except OSError as exc:
            if exc.errno is None:  # pyarrow's way to say that there are fewer bytes than announced
                raise TornError(str(exc)) from exc
            raise


def _day_and_hour(hours: int) -> tuple[date, int]:
    moment = datetime.fromtimestamp(hours * 3600, UTC)
    return moment.date(), moment.hour


def main(arguments: list[str]) -> int:
    """Compact as the arguments say; returns the exit code."""
    path, streamer, max_bytes = arguments
    with suppress(OSError):  # a sandbox may forbid it
        os.nice(19)
    pa.set_cpu_count(1)
    try:
        done = compact_spool(Folders(Path(path), streamer), int(max_bytes))
    except OSError as exc:
        done = Compaction(problems=[f"{exc.filename or path}: {exc.strerror or exc}"])
    with suppress(BrokenPipeError):  # the daemon has ended in the meantime
        sys.stdout.write(json.dumps(asdict(done)) + "\n")
        sys.stdout.flush()
    return 1 if done.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
