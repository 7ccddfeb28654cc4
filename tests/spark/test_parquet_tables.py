import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.session import small_frame
from spark_jobs.storage import Storage
from spark_jobs.tables import FAN_OUT_MISSING
from tests.spark.traces import DATE

pytestmark = pytest.mark.long

NEXT = DATE + dt.timedelta(days=1)


def matrix(spark: SparkSession, *sources: str, date: dt.date = DATE) -> DataFrame:
    rows = [(date, 7, source, 1, 2, "gateway", 4, 3) for source in sources]
    return small_frame(spark, rows, FAN_OUT_MISSING.ddl)


def sources(spark: SparkSession, output: Path) -> list[tuple[dt.date, str]]:
    return sorted(
        (row.date, row.src_authority) for row in ParquetTables(spark, str(output)).read(spark, FAN_OUT_MISSING).collect()
    )


def test_a_published_date_reads_back_with_the_tables_columns(spark: SparkSession, tmp_path: Path) -> None:
    rows = matrix(spark, "veh1", "veh2")
    assert ParquetTables(spark, str(tmp_path)).publish(rows, FAN_OUT_MISSING, [DATE]) == 2
    read = ParquetTables(spark, str(tmp_path)).read(spark, FAN_OUT_MISSING)
    assert read.columns == list(FAN_OUT_MISSING.columns)
    assertDataFrameEqual(read, rows)


def test_an_empty_result_takes_the_place_of_rows_and_other_dates_stay(spark: SparkSession, tmp_path: Path) -> None:
    ParquetTables(spark, str(tmp_path)).publish(matrix(spark, "veh1"), FAN_OUT_MISSING, [DATE])
    ParquetTables(spark, str(tmp_path)).publish(matrix(spark, "veh2", date=NEXT), FAN_OUT_MISSING, [NEXT])
    assert ParquetTables(spark, str(tmp_path)).publish(matrix(spark), FAN_OUT_MISSING, [DATE]) == 0
    assert sources(spark, tmp_path) == [(NEXT, "veh2")]
    # Readable by itself, and by anything that takes the folder as a table of its own
    assert spark.read.parquet(str(tmp_path / "fan_out_missing" / f"date={DATE}")).count() == 0


def test_what_a_killed_run_left_in_staging_is_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ParquetTables(spark, str(tmp_path)).publish(matrix(spark, "old"), FAN_OUT_MISSING, [DATE])

    def killed(self: Storage, target: str, fresh: str) -> None:
        raise KeyboardInterrupt

    half = matrix(spark, "half")
    with monkeypatch.context() as patched:
        patched.setattr(Storage, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            ParquetTables(spark, str(tmp_path)).publish(half, FAN_OUT_MISSING, [DATE])
    staging = tmp_path / "_staging" / "fan_out_missing"
    (staging / f"{DATE}-put-aside-old").mkdir()
    other = staging / f"{NEXT}-of-another-run"
    other.mkdir()
    assert len(list(staging.iterdir())) == 3
    assert sources(spark, tmp_path) == [(DATE, "old")]

    ParquetTables(spark, str(tmp_path)).publish(matrix(spark, "new"), FAN_OUT_MISSING, [DATE])
    assert sources(spark, tmp_path) == [(DATE, "new")]
    assert list(staging.iterdir()) == [other]


def test_a_kill_between_removal_and_move_is_mended_by_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ParquetTables(spark, str(tmp_path)).publish(matrix(spark, "old"), FAN_OUT_MISSING, [DATE])

    def killed(self: Storage, target: str, fresh: str) -> None:
        self.delete(target)
        raise KeyboardInterrupt

    half = matrix(spark, "half")
    with monkeypatch.context() as patched:
        patched.setattr(Storage, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            ParquetTables(spark, str(tmp_path)).publish(half, FAN_OUT_MISSING, [DATE])
    assert sources(spark, tmp_path) == []
    ParquetTables(spark, str(tmp_path)).publish(matrix(spark, "new"), FAN_OUT_MISSING, [DATE])
    assert sources(spark, tmp_path) == [(DATE, "new")]


def test_several_dates_are_written_at_once_and_a_date_without_rows_is_replaced_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    later = NEXT + dt.timedelta(days=1)
    ParquetTables(spark, str(tmp_path)).publish(matrix(spark, "old", date=NEXT), FAN_OUT_MISSING, [NEXT])
    rows = matrix(spark, "veh1", "veh2").union(matrix(spark, "veh3", date=later))
    assert ParquetTables(spark, str(tmp_path)).publish(rows, FAN_OUT_MISSING, [DATE, NEXT, later]) == 3
    assert sources(spark, tmp_path) == [(DATE, "veh1"), (DATE, "veh2"), (later, "veh3")]
    for date in (DATE, NEXT, later):
        folder = tmp_path / "fan_out_missing" / f"date={date}"
        assert (
            spark.read.parquet(str(folder)).schema
            == spark.read.parquet(str(tmp_path / "fan_out_missing")).drop("date").schema
        )
    assert list((tmp_path / "_staging" / "fan_out_missing").iterdir()) == []


def test_what_is_left_of_other_dates_stays_in_staging(spark: SparkSession, tmp_path: Path) -> None:
    staging = tmp_path / "_staging" / "fan_out_missing"
    names = [f"{day(first)}_{day(last)}-x" for first, last in ((-3, -1), (-3, 0), (-3, 4), (1, 1), (2, 4))]
    for name in names:
        (staging / name).mkdir(parents=True)
    ParquetTables(spark, str(tmp_path)).publish(matrix(spark, "new"), FAN_OUT_MISSING, [DATE, NEXT])
    assert sorted(path.name for path in staging.iterdir()) == [names[0], names[4]]


def day(number: int) -> dt.date:
    return DATE + dt.timedelta(days=number)
