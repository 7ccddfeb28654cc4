import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from spark_jobs import records
from spark_jobs.batch import Batch
from spark_jobs.schema import PARTITIONED
from spark_jobs.storage import Storage, StorageError
from tests.spark.traces import DATE, at, read, record, write
from tests.upgrade.fixtures import released

NEXT = DATE + dt.timedelta(days=1)


def test_only_the_dates_asked_for_are_read_with_their_partition_columns(spark: SparkSession, tmp_path: Path) -> None:
    today, tomorrow = record("07:59:59.999999", streamer="007"), record(at("00:00", NEXT))
    write(tmp_path, [today, tomorrow])
    found = read(spark, tmp_path, [DATE])
    assert [(f.name, f.dataType) for f in found.schema] == [(f.name, f.dataType) for f in PARTITIONED]
    (row,) = found.collect()
    assert (bytes(row.msg_id), row.date, row.hour, row.streamer) == (today["msg_id"], DATE, 7, "007")
    assert read(spark, tmp_path, [DATE, NEXT]).count() == 2
    assert len(found.inputFiles()) == 1
    assert records.dates(spark, str(tmp_path)) == [DATE, NEXT]


def test_a_date_without_a_folder_is_empty_and_a_missing_input_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    found = read(spark, tmp_path, [DATE])
    assert found.collect() == []
    assert found.columns == PARTITIONED.names
    assert records.files(spark, str(tmp_path), [DATE]) == {DATE: {}}
    with pytest.raises(records.InputMissingError, match="nowhere: expected traces"):
        records.files(spark, str(tmp_path / "nowhere"), [DATE])


def test_spool_and_temporary_names_are_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    (file,) = write(tmp_path, [record()])
    (tmp_path / ".spool").mkdir()
    (tmp_path / ".spool" / "run.arrows").write_bytes(b"not parquet")
    for name in (".part-1.parquet", "_part-2.parquet", "part-3.parquet.tmp"):
        (file.parent / name).write_bytes(b"torn")
    hidden = file.parent.parent / ".half"
    hidden.mkdir()
    (hidden / "part-4.parquet").write_bytes(b"torn")
    assert read(spark, tmp_path, [DATE]).count() == 1
    assert list(records.files(spark, str(tmp_path), [DATE])[DATE]) == [f"hour=7/streamer=gateway/{file.name}"]


def test_older_and_newer_files_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [record(retries=1, traceparent="00-a")], without=["redelivered", "traceparent"])
    write(tmp_path, [record(retries=2, traceparent="00-b", redelivered=True)], extra=pa.field("later", pa.string()))
    rows = read(spark, tmp_path, [DATE]).orderBy("retries").collect()
    assert [(row.retries, row.traceparent, row.redelivered) for row in rows] == [(1, None, None), (2, "00-b", True)]


@pytest.mark.parametrize("is_here", [True, False])
def test_files_tell_size_and_time_by_their_path_below_the_date(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    if not is_here:
        monkeypatch.setattr(Storage, "local", lambda *_: None)
    first, second = write(tmp_path, [record("07:00"), record("23:00", streamer="back%2Fend")])
    (first.parent / f".{first.name}").write_bytes(b"half")
    found = records.files(spark, str(tmp_path), [DATE, NEXT])
    expected = {
        str(file.relative_to(tmp_path / f"date={DATE}")): (file.stat().st_size, file.stat().st_mtime_ns // 1_000_000)
        for file in (first, second)
    }
    assert found == {DATE: expected, NEXT: {}}


def test_files_of_a_version_that_is_not_known_here_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [record()])
    (file,) = write(tmp_path, [record(at("08:00", NEXT))])
    newer = file.rename(file.with_name(f"{file.stem}.v2.parquet"))
    assert read(spark, tmp_path, [DATE]).count() == 1
    with pytest.raises(records.NewerVersionError) as caught:
        records.files(spark, str(tmp_path), [DATE, NEXT])
    assert str(caught.value).endswith(
        f"{newer.name}: format 2 was written by a newer ustreamer; these jobs know formats up to 1: "
        "run the jobs of that version, or move the file away"
    )


@pytest.mark.long
def test_files_that_are_put_together_give_what_they_give_each_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    write(
        traces,
        [record("07:00", ttl_ms=1, sink_authority="b"), record("23:00", streamer="back%2Fend"), record(streamer="007")],
    )
    write(traces, [record(at("07:00", NEXT))], without=["redelivered", "traceparent"])
    (file,) = write(traces, [record(at("07:00", NEXT), retries=2)], extra=pa.field("later", pa.string()))
    (file.parent / f".{file.name}").write_bytes(b"half")
    batch = Batch(spark, str(traces), str(tmp_path / "tables"), (DATE, NEXT))
    both = batch.records()
    assert len(both.inputFiles()) == 2
    plain = read(spark, traces, [DATE, NEXT])
    assert [(f.name, f.dataType) for f in both.schema] == [(f.name, f.dataType) for f in plain.schema]
    assert sorted(map(str, both.collect())) == sorted(map(str, plain.collect()))
    batch.release()
    assert count(Batch(spark, str(traces), str(tmp_path / "tables"), (NEXT + dt.timedelta(days=1),))) == 0
    newer = file.rename(file.with_name("part-1.v2.parquet"))
    with pytest.raises(records.NewerVersionError, match=newer.name):
        count(Batch(spark, str(traces), str(tmp_path / "tables"), (NEXT,)))


@pytest.mark.parametrize("broken", [b"", b"PAR1 and then nothing"])
def test_a_file_that_cannot_be_read_is_a_fault_only_for_those_who_read_its_date(
    spark: SparkSession, tmp_path: Path, broken: bytes
) -> None:
    write(tmp_path, [record("07:00")])
    (file,) = write(tmp_path, [record(at("07:00", NEXT))])
    file.with_name("part-9.parquet").write_bytes(broken)
    batch = Batch(spark, str(tmp_path), str(tmp_path / "tables"), (DATE,), reach=(1, 1))
    for _ in range(2):
        with pytest.raises(Exception, match=r"part-9\.parquet"):
            batch.records(1, 1)
    assert batch.records().count() == batch.records(1, 0).count() == 1
    batch.release()


def test_a_folder_whose_name_is_no_date_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [record("07:00")])
    for name in ("date=2026-13-45", "date=today", "date=2026-11-20x", "other"):
        (tmp_path / name).mkdir()
    assert records.dates(spark, str(tmp_path)) == [DATE]


@pytest.mark.long
def test_traces_of_the_released_version_are_read(spark: SparkSession, tmp_path: Path) -> None:
    files = released(tmp_path)
    (date,) = records.dates(spark, str(files.traces))
    rows = read(spark, files.traces, [date]).where("route = 'vehicle-cloud'").collect()
    assert sorted(row.msg_id.hex() for row in rows) == sorted(files.books["traced"])
    assert {(row.outcome, row.streamer, row.ucode) for row in rows} == {("delivered", "gw", "OK")}
    day = Batch(spark, str(files.traces), str(tmp_path / "tables"), (date,))
    counts = {
        row.outcome: row.messages
        for row in day.rollup.groupBy("outcome").agg(sf.sum("messages").alias("messages")).collect()
    }
    assert counts["delivered"] >= len(rows)
    gathered = [Path(each.removeprefix("file://")) for each in day.records().inputFiles()]
    assert [each.exists() for each in gathered] == [True]
    day.release()
    assert [each.exists() for each in gathered] == [False]


def test_input_is_small_if_the_files_of_the_dates_are_here_and_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, other = write(tmp_path, [record("07:00"), record("08:00"), record(at("07:00", NEXT))])
    monkeypatch.setattr(records, "SMALL_BYTES", first.stat().st_size + second.stat().st_size)
    assert records.is_small(str(tmp_path), [DATE])
    assert not records.is_small(str(tmp_path), [DATE, NEXT])
    other.unlink()
    assert records.is_small(str(tmp_path), [DATE, NEXT])
    assert not records.is_small("s3a://bucket/traces", [DATE])


def test_a_file_that_is_deleted_while_files_are_counted_has_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, _ = write(tmp_path, [record("07:00"), record("08:00")])
    stat = Path.stat

    def deleted(self: Path, **options: Any) -> os.stat_result:
        if self == gone:
            gone.unlink(missing_ok=True)
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", deleted)
    assert records.is_small(str(tmp_path), [DATE])
    assert not gone.exists()


def count(batch: Batch) -> int:
    """How many records it has. It is released, whatever happens."""
    try:
        return batch.records().count()
    finally:
        batch.release()


READERS: dict[str, Callable[[SparkSession, str, Path], Any]] = {
    "files": lambda spark, traces, _: records.files(spark, traces, [DATE]),
    "is_small": lambda _, traces, __: records.is_small(traces, [DATE]),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("depth", [pytest.param(0, id="streamer"), pytest.param(1, id="hour"), pytest.param(2, id="date")])
def test_a_folder_that_cannot_be_read_is_not_passed_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, depth: int
) -> None:
    _, file = write(tmp_path, [record("07:00"), record("08:00")])
    locked, scandir = file.parents[depth], os.scandir

    def refused(path: Any = ".") -> Any:
        if Path(path) == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(StorageError) as raised:
        READERS[reader](spark, str(tmp_path), tmp_path / "into")
    assert str(raised.value) == f"{locked}: cannot be read: Permission denied"


@pytest.mark.parametrize("depth", [pytest.param(0, id="streamer"), pytest.param(1, id="hour")])
def test_a_link_is_followed_as_spark_does(spark: SparkSession, tmp_path: Path, depth: int) -> None:
    traces = tmp_path / "traces"
    _, file = write(traces, [record("07:00"), record("08:00")])
    linked = file.parents[depth]
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    batch = Batch(spark, str(traces), str(tmp_path / "tables"), (DATE,))
    plain = read(spark, traces, [DATE]).collect()
    assert sorted(row.hour for row in plain) == [7, 8]
    assert sorted(map(str, batch.records().collect())) == sorted(map(str, plain))
    batch.release()
    assert len(records.files(spark, str(traces), [DATE])[DATE]) == 2
