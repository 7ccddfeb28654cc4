"""The same tables on one machine, on a cluster, and from and to an object store; and what that is asked for."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from spark_jobs.tables import TABLES
from tests.cluster import places
from tests.cluster.conftest import bad_file
from tests.cluster.nights import DAY, Made, check_same, found, made_by
from tests.iceberg import nights
from tests.spark.traces import record, write

pytestmark = pytest.mark.cluster
S3 = f"s3a://{places.BUCKET}"


@pytest.fixture(scope="module")
def stored(root: Path, store: places.Store, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """What a night makes from and to an object store."""
    folder = tmp_path_factory.mktemp("stored")
    store.put(root / "traces", "traces")
    night = places.submitted(f"{S3}/traces", f"{S3}/tables", store.settings).night(folder / "run")
    return found(night, store.get("tables", folder / "tables"))


def test_a_file_that_is_broken_inside_is_named_and_counted(root: Path, expected: Made) -> None:
    bad = bad_file(root / "traces").relative_to(root / "traces")
    (named,) = expected.night.left_out()
    assert named.startswith(f"{bad}: cannot be read: ")
    assert expected.night.exit_code == 1
    assert expected.reports["verdict-2026-11-20.json"]["figures"]["files_left_out"] == 1


def test_a_cluster_makes_the_same_tables(root: Path, expected: Made, tmp_path: Path) -> None:
    with places.cluster(tmp_path) as settings:
        place = places.submitted(str(root / "traces"), str(tmp_path / "tables"), settings)
        check_same(made_by(place, tmp_path / "tables", tmp_path / "run"), expected)


def test_an_object_store_gets_the_same_tables(expected: Made, stored: Made) -> None:
    check_same(stored, expected)


def test_a_reader_of_an_object_store_finds_no_half_of_a_date(
    root: Path, stored: Made, expected_of_whole: Made, store: places.Store, tmp_path: Path
) -> None:
    """While the tables of a date are replaced, because its file can be read now. For a moment there is no table."""
    before, after = (of_day(made) for made in (stored, expected_of_whole))
    whole = bad_file(root / "whole")
    store.write(whole, f"traces/{whole.relative_to(root / 'whole')}")
    seen: dict[str, list[Any]] = {name: [read(store, name)] for name in TABLES}
    with places.submitted(f"{S3}/traces", f"{S3}/tables", store.settings).begun(tmp_path / "run") as night:
        while night.is_running:
            for name in TABLES:
                seen[name].append(read(store, name))
        ended = night.ended()
    check_same(found(ended, store.get("tables", tmp_path / "tables")), expected_of_whole)
    for name, reads in seen.items():
        assert reads[0] == before[name]
        assert all(rows is None or rows in (before[name], after[name]) for rows in reads), name


def of_day(made: Made) -> dict[str, list[Any]]:
    date = dt.date.fromisoformat(DAY)
    return {name: [row for row in rows if row[0] == date] for name, rows in made.rows.items()}


def read(store: places.Store, name: str) -> list[Any] | None:
    """The rows of a date of a table, as another reader finds them. None: the table is not there now."""
    folder = pafs.FileSelector(f"{places.BUCKET}/tables/{name}/date={DAY}", allow_not_found=True)
    rows = []
    for path in sorted(each.path for each in store.files.get_file_info(folder) if each.type == pafs.FileType.File):
        try:
            rows.append(pq.read_table(path, filesystem=store.files, partitioning=None))
        except OSError:
            if store.files.get_file_info(path).type == pafs.FileType.NotFound:  # it was listed, and is gone
                return None
            raise
    if not rows:
        return None
    table = pa.concat_tables(rows)
    date = pa.repeat(pa.scalar(dt.date.fromisoformat(DAY)), len(table))
    return nights.rows_of(table.append_column("date", date).select([*TABLES[name].columns]))


def test_a_small_file_in_an_object_store_is_asked_for_once(store: places.Store, tmp_path: Path) -> None:
    """So many that they are put together. A listing is a request for a thousand of them."""
    start = dt.datetime.fromisoformat(f"{DAY}T08:00:00Z")
    count = 250
    for number in range(count):
        name = f"gateway.v{number:04}"
        write(tmp_path / "traces", [record(start, streamer=name, src_authority=name, sink_authority="cloud")])
    store.put(tmp_path / "traces", "small/traces")
    store.requests()
    night = places.submitted(f"{S3}/small/traces", f"{S3}/small/tables", store.settings).night(tmp_path / "run")
    assert night.exit_code == 0, night.said
    assert f"small files put together: {count}" in night.said
    asked = store.requests()
    of_files = [(method, path) for method, path in asked if path.endswith(".parquet") and "/traces/date=" in path]
    assert places.kinds(of_files) == {"GET": count}, places.kinds(asked)
