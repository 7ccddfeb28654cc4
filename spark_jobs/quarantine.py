"""Trace files that are left out: of a newer version, unreadable, or with a column of another type.

One gateway's file must not stop the night of a fleet. A file is judged by its footer, which costs a request or two where it
is far away: only those are looked at that no manifest has. A column that only newer writers have is no fault; a higher
version is, because it says that these jobs would misread the records. What is broken behind a good footer is found when
it is read: when small files are put together (`merged`), or by Spark, which names the file.
"""

import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import compress
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.arrow import arrow_schema
from spark_jobs.records import File, LeftOut, Listing, content_fault, date_of, hashes, newer, unreadable
from spark_jobs.schema import TRACE, VERSION, VERSION_KEY
from spark_jobs.storage import Storage, file_of

Files = Mapping[dt.date, Mapping[str, File]]

NEEDED = ("ts", "run_ts", "seq")
"""The columns by which records are told apart and ordered: each record has them."""
_AT_ONCE = 16
_TOLD = 20
_FOOTER_BYTES = 1 << 16
_STREAMER = re.compile(r"(?:^|/)streamer=([^/]+)/")
_HOUR = re.compile(r"(?:^|/)hour=(\d|1\d|2[0-3])/")


def refused(
    storage: Storage,
    traces: str,
    files: Files,
    known: Iterable[Mapping[dt.date, Mapping[str, File] | bytes]] = (),
    before: Mapping[dt.date, Mapping[str, tuple[File, str]]] | None = None,
) -> LeftOut:
    """Those of the files that have a fault. `known`: files that were used before. `before`: those that were left out, with
    the reason. Neither are looked at again."""
    found: LeftOut = {}
    for date, were in (before or {}).items():
        if same := {path: why for path, (file, why) in were.items() if files.get(date, {}).get(path) == file}:
            found[date] = same
    asked, used = [], list(known)
    for date, of_date in files.items():
        seen = [hashes(each.get(date, b"")) for each in (*used, {})]
        fresh = np.isin(hashes(of_date), np.concatenate(seen), invert=True)
        asked += [(date, path, file) for path, file in compress(of_date.items(), fresh) if path not in found.get(date, {})]

    here = storage.local(traces)  # asked once: it takes longer than a footer

    def judged(each: tuple[dt.date, str, File]) -> str | None:
        date, path, file = each
        return _fault(None if here else storage, f"{here or traces}/date={date}/{path}", file)

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="footer") as pool:
        for (date, path, _), reason in zip(asked, pool.map(judged, asked), strict=True):
            if reason is not None:
                found.setdefault(date, {})[path] = reason
    return found


def broken(storage: Storage, traces: str, files: Files, error: BaseException) -> tuple[dt.date, str, str] | None:
    """The date, path and fault of the file over which Spark stopped, if it is one of these and is broken. To be sure that it
    was not the way to the file, it is read to its end."""
    named = file_of(error)
    for url in () if named is None else (unquote(named), named):
        text, _, path = url.rpartition("/date=")[2].partition("/")
        date = date_of(f"date={text}")
        if date and path in files.get(date, {}):
            try:
                fault = content_fault(storage.readable(f"{traces}/date={date}/{path}"))
            except OSError:
                return None
            return None if fault is None else (date, path, fault)
    return None


def accepted(files: Files, left_out: LeftOut) -> dict[dt.date, Mapping[str, File]]:
    """The files without those that are left out."""
    return {
        date: Listing(each for each in of_date.items() if each[0] not in left_out[date]) if left_out.get(date) else of_date
        for date, of_date in files.items()
    }


def told(left_out: LeftOut, traces: str) -> Iterator[str]:
    """A line for each file that is left out, up to `_TOLD` of a date, with its path and the reason."""
    for date, of_date in sorted(left_out.items()):
        for path, reason in sorted(of_date.items())[:_TOLD]:
            yield f"left out: {traces}/date={date}/{path}: {reason}"
        if len(of_date) > _TOLD:
            yield f"{date}: left out: {len(of_date) - _TOLD} more files"


def by_streamer(of_date: Iterable[str]) -> dict[str, Counter[int]]:
    """How many of the paths are of each hour of each streamer. One without an hour counts for the first."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for path in of_date:
        streamer, hour = _STREAMER.search(path), _HOUR.search(path)
        counts[unquote(streamer[1]) if streamer else "unknown"][int(hour[1]) if hour else 0] += 1
    return counts


def _fault(storage: Storage | None, path: str, file: File) -> str | None:
    """Why a file cannot be used; None if it can. `storage`: None if the path is one of this machine."""
    if (fault := name_fault(path)) is not None:
        return fault
    try:
        footer = pq.read_metadata(path if storage is None else storage.tail(path, file.size_bytes, _FOOTER_BYTES))
    except FileNotFoundError:  # deleted since, which is for those who read it
        return None
    except (pa.ArrowException, OSError) as error:
        return unreadable(error)
    return footer_fault(footer)


def name_fault(path: str) -> str | None:
    """Why a file with this name cannot be used; None if it can."""
    return None if (version := newer(path)) is None else _newer(version)


def footer_fault(footer: Any) -> str | None:
    """Why a file with this footer (`pyarrow.parquet.FileMetaData`) cannot be used; None if it can."""
    if (version := (footer.metadata or {}).get(VERSION_KEY.encode())) is not None:
        if not version.isdigit():
            return f"its format {version.decode(errors='replace')!r} is not a number"
        if int(version) > VERSION:
            return _newer(int(version))
    return _schema_fault(footer.schema.to_arrow_schema().remove_metadata()) or null_fault(_nulls(footer))


@cache
def _schema_fault(found: pa.Schema) -> str | None:
    """The same of its columns: a fleet's files have few schemas."""
    for name, wanted in _wanted().items():
        at = found.get_all_field_indices(name)
        if name in NEEDED and not at:
            return f"column {name} is not there"
        if len(at) > 1:
            return f"column {name} is there {len(at)} times"
        if at and not _fits(found.field(at[0]).type, wanted):
            return f"column {name} is {found.field(at[0]).type}, not {wanted}"
    return None


def null_fault(nulls: Mapping[str, int]) -> str | None:
    """Why a file cannot be used in which so many records lack a column; None if it can."""
    faults = (f"column {name} is null in {nulls[name]} records" for name in NEEDED if nulls[name])
    return next(faults, None)


def _nulls(footer: Any) -> Counter[str]:
    """How many records lack each of the columns that none may lack, as far as the statistics tell."""
    found: Counter[str] = Counter()
    places = {place: path for place in range(footer.num_columns) if (path := footer.schema.column(place).path) in NEEDED}
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for place, path in places.items():
            if (stats := group.column(place).statistics) is not None and stats.has_null_count:
                found[path] += stats.null_count
    return found


@cache
def _wanted() -> dict[str, pa.DataType]:
    return {field.name: field.type for field in arrow_schema(TRACE)}


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark and Arrow read one as the other without a change of meaning."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_signed_integer(wanted):
        return bool(pa.types.is_signed_integer(found) and found.bit_width <= wanted.bit_width)
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(found) and found.tz is not None and found.unit in ("ms", "us"))
    if pa.types.is_string(wanted) or pa.types.is_binary(wanted):
        kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        return any(is_kind(found) for is_kind in kinds)
    return bool(found == wanted)


def _newer(version: int) -> str:
    return f"format {version} was written by a newer ustreamer; these jobs know formats up to {VERSION}"
