"""Single tables: readers meanwhile, snapshots, columns that are added, dates without rows or deleted."""

import datetime as dt
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.iceberg_tables import IcebergTables, catalog_of
from spark_jobs.session import light, small_frame
from spark_jobs.storage import Storage
from spark_jobs.tables import FAN_OUT_MISSING, Table
from tests.iceberg import nights

pytestmark = pytest.mark.iceberg
DATE = dt.date.fromisoformat(nights.DAY)
NEXT = DATE + dt.timedelta(days=1)
ROWS = 500
_RUNS = 4


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> IcebergTables:
    return opened(spark, tmp_path)


def opened(spark: SparkSession, output: Path) -> IcebergTables:
    return IcebergTables(spark, catalog_of(None, Storage(spark), str(output)))


def matrix(spark: SparkSession, *sources: str, date: dt.date = DATE) -> DataFrame:
    rows = [(date, 7, source, 1, 2, "gateway", 4, 3) for source in sources]
    return small_frame(spark, rows, FAN_OUT_MISSING.ddl)


def sources(store: IcebergTables, spark: SparkSession) -> list[tuple[dt.date, str]]:
    return sorted((row.date, row.src_authority) for row in store.read(light(spark), FAN_OUT_MISSING).collect())


def test_a_reader_sees_the_old_rows_or_the_new_ones(spark: SparkSession, store: IcebergTables, tmp_path: Path) -> None:
    store.publish(matrix(spark, *["v0"] * ROWS), FAN_OUT_MISSING, [DATE])
    reader = subprocess.Popen(
        [sys.executable, "-m", "tests.iceberg.reader", str(tmp_path), FAN_OUT_MISSING.name, nights.DAY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    assert reader.stdout.readline() == f"v0:{ROWS}\n"
    for version in range(1, 8):
        rows = ROWS + version
        store.publish(matrix(spark, *[f"v{version}"] * rows), FAN_OUT_MISSING, [DATE])
        assert reader.stdout.readline() == f"v{version}:{rows}\n"
    reader.stdin.close()
    assert reader.stdout.read() == ""
    assert reader.wait(60) == 0


def test_runs_that_begin_at_once_can_all_use_a_new_catalogue(spark: SparkSession, tmp_path: Path) -> None:
    begins = threading.Barrier(_RUNS)

    def begin(own: SparkSession) -> IcebergTables:
        catalog = catalog_of(None, Storage(own), str(tmp_path))
        begins.wait()
        return IcebergTables(own, catalog)

    with ThreadPoolExecutor(_RUNS) as pool:
        stores = [*pool.map(begin, [spark.newSession() for _ in range(_RUNS)])]
    assert [store.dates(FAN_OUT_MISSING) for store in stores] == [[]] * _RUNS


def test_a_date_without_rows_is_one_that_was_published(spark: SparkSession, store: IcebergTables, tmp_path: Path) -> None:
    assert store.dates(FAN_OUT_MISSING) == []
    assert sources(store, spark) == []
    assert store.publish(matrix(spark, "veh1", "veh2"), FAN_OUT_MISSING, [DATE, NEXT]) == 2
    assert store.dates(FAN_OUT_MISSING) == [DATE, NEXT]
    assert [pq.read_table(path).num_rows for path in store.files(FAN_OUT_MISSING, NEXT, tmp_path)] == [0]
    assert store.publish(matrix(spark, "veh3", date=NEXT), FAN_OUT_MISSING, [NEXT]) == 1
    assert sources(store, spark) == [(DATE, "veh1"), (DATE, "veh2"), (NEXT, "veh3")]
    assert store.publish(matrix(spark), FAN_OUT_MISSING, [DATE]) == 0
    assert sources(store, spark) == [(NEXT, "veh3")]
    assert store.dates(FAN_OUT_MISSING) == [DATE, NEXT]
    assert store.size_bytes(FAN_OUT_MISSING, [DATE]) == 0 < store.size_bytes(FAN_OUT_MISSING, [NEXT])


def test_the_rows_before_stay_readable_as_a_snapshot(spark: SparkSession, store: IcebergTables) -> None:
    store.publish(matrix(spark, "old"), FAN_OUT_MISSING, [DATE])
    store.publish(matrix(spark, "new"), FAN_OUT_MISSING, [DATE])
    name = f"nightly.ustreamer.{FAN_OUT_MISSING.name}"
    first = spark.table(f"{name}.snapshots").orderBy("committed_at").first()
    assert first is not None
    (row,) = spark.sql(f"SELECT src_authority FROM {name} VERSION AS OF {first.snapshot_id}").collect()
    assert row.src_authority == "old"


def test_a_deleted_date_is_gone_and_the_others_stay(spark: SparkSession, store: IcebergTables) -> None:
    for date in (DATE, NEXT):
        store.publish(matrix(spark, "veh1", date=date), FAN_OUT_MISSING, [date, date + dt.timedelta(days=5)])
    store.withdraw(FAN_OUT_MISSING, [DATE, DATE + dt.timedelta(days=5)])
    assert store.dates(FAN_OUT_MISSING) == [NEXT, NEXT + dt.timedelta(days=5)]
    assert sources(store, spark) == [(NEXT, "veh1")]


def test_columns_are_added_and_an_older_version_leaves_them_alone(spark: SparkSession, tmp_path: Path) -> None:
    columns = dict(FAN_OUT_MISSING.columns)
    newer = Table(FAN_OUT_MISSING.name, FAN_OUT_MISSING.question, {**columns, "late": "BIGINT", "reason": "STRING"})
    opened(spark, tmp_path).publish(matrix(spark, "old"), FAN_OUT_MISSING, [DATE])
    rows = small_frame(spark, [(NEXT, "gateway", "new", None, 4, 400, 3, 1, 7, "rain")], newer.ddl)
    store = opened(spark, tmp_path)
    (before,) = store.read(spark, newer).collect()  # read by a new version that has not written yet
    assert (before.src_authority, before.late) == ("old", None)
    store.publish(rows, newer, [NEXT])
    assert {(row.src_authority, row.late, row.reason) for row in store.read(spark, newer).collect()} == {
        ("old", None, None),
        ("new", 7, "rain"),
    }
    store.publish(matrix(spark, "rolled back", date=NEXT), FAN_OUT_MISSING, [NEXT])
    assert sources(store, spark) == [(DATE, "old"), (NEXT, "rolled back")]
    assert store.read(spark, newer).columns == [*newer.columns]
