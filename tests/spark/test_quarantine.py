"""One gateway's file that cannot be used is left out, named and counted; all others are read as ever."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs import nightly, quarantine, records, streamer_health, traffic
from spark_jobs.batch import Batch
from spark_jobs.manifests import Manifest, Manifests, grown
from spark_jobs.nightly import NightlyRun
from spark_jobs.schema import VERSION_KEY
from spark_jobs.storage import Storage, StorageError
from tests.spark.traces import DATE, SCHEMA, at, configured, read, record, write

pytestmark = pytest.mark.long

NEXT = DATE + dt.timedelta(days=1)


def newer_by_name(path: Path) -> Path:
    return path.rename(path.with_name(f"{path.stem}.v2.parquet"))


def newer_by_content(path: Path) -> Path:
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.replace_schema_metadata({VERSION_KEY: "2"}), path)
    return path


def mistyped(path: Path) -> Path:
    table = pq.read_table(path, partitioning=None)
    at_ = table.schema.get_field_index("latency_us")
    pq.write_table(table.set_column(at_, "latency_us", pa.array(["1000"] * len(table))), path)
    return path


def without_ts(path: Path) -> Path:
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns("ts"), path)
    return path


def null_run(path: Path) -> Path:
    table = pq.read_table(path, partitioning=None)
    nulls = pa.nulls(len(table), table.schema.field("run_ts").type)
    pq.write_table(table.set_column(table.schema.get_field_index("run_ts"), "run_ts", nulls), path)
    return path


def torn(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-100])
    return path


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def broken_inside(path: Path) -> Path:
    """Behind a good footer."""
    content = bytearray(path.read_bytes())
    content[100:2000] = bytes(1900)
    path.write_bytes(content)
    return path


FAULTS: dict[Callable[[Path], Path], str] = {
    newer_by_name: "format 2 was written by a newer ustreamer; these jobs know formats up to 1",
    newer_by_content: "format 2 was written by a newer ustreamer; these jobs know formats up to 1",
    mistyped: "column latency_us is string, not int64",
    without_ts: "column ts is not there",
    null_run: "column run_ts is null in 1 records",
    torn: "cannot be read: ",
    empty: "cannot be read: ",
}


def refused(spark: SparkSession, traces: Path, **given: Any) -> records.LeftOut:
    files = records.files(spark, str(traces), records.dates(spark, str(traces)), strict=False)
    return quarantine.refused(Storage(spark), str(traces), files, **given)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("is_here", [True, False])
def test_a_file_with_a_fault_is_left_out_and_the_others_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Path], Path], is_here: bool
) -> None:
    traces = tmp_path / "traces"
    write(traces, [record(), record(streamer="other"), record(at("08:00", NEXT))])
    bad = fault(write(traces, [record(streamer="bad")])[0])
    if not is_here:
        monkeypatch.setattr(Storage, "local", lambda *_: None)
        monkeypatch.setattr(quarantine, "_FOOTER_BYTES", 40)
    found = refused(spark, traces)
    if fault is empty and not is_here:  # Spark neither lists nor reads it there
        assert found == {}
        return
    ((path, reason),) = found.pop(DATE).items()
    assert (found, path) == ({}, f"hour=7/streamer=bad/{bad.name}")
    assert reason.startswith(FAULTS[fault])
    left_out = {DATE: {path: reason}}
    assert {row.streamer for row in read(spark, traces, [DATE, NEXT], left_out).collect()} == {"gateway", "other"}
    if is_here:
        batch = Batch(spark, str(traces), str(tmp_path / "tables"), (DATE,), left_out=left_out)
        assert sorted(row.streamer for row in batch.records().collect()) == ["gateway", "other"]
        batch.release()


def test_what_a_newer_writer_has_added_is_no_fault(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [record()], extra=pa.field("later", pa.string()))
    write(tmp_path, [record()], without=["redelivered", "traceparent"])
    narrow = pa.schema([pa.field(f.name, pa.int32() if f.name == "seq" else f.type) for f in SCHEMA], SCHEMA.metadata)
    (path,) = write(tmp_path, [record()])
    pq.write_table(pq.read_table(path, partitioning=None).cast(narrow), path)
    assert refused(spark, tmp_path) == {}
    assert read(spark, tmp_path, [DATE]).count() == 3


def test_files_that_a_manifest_has_are_not_looked_at_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [record()])
    (new,) = write(tmp_path, [record()])
    used = records.files(spark, str(tmp_path), [DATE])
    del used[DATE][f"hour=7/streamer=gateway/{new.name}"]
    asked: list[str] = []
    monkeypatch.setattr(quarantine, "_fault", lambda _, path, __: asked.append(path))
    assert refused(spark, tmp_path, known=[used]) == {}
    assert [Path(path).name for path in asked] == [new.name]


def test_a_date_runs_again_once_its_file_can_be_used(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [record()])
    bad = newer_by_name(write(tmp_path, [record()])[0])
    left_out = refused(spark, tmp_path)
    files = records.files(spark, str(tmp_path), [DATE], strict=False)
    used = quarantine.accepted(files, left_out)
    manifest = Manifest(used, done=True, trends=True)
    assert not grown(manifest, used, [DATE])
    assert grown(manifest, quarantine.accepted(files, {}), [DATE])
    assert bad.name not in str(used)


def test_what_is_broken_behind_a_good_footer_is_left_out_when_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    write(traces, [record()])
    (bad,) = write(traces, [record(streamer="bad", route=f"route {number}") for number in range(500)])
    broken_inside(bad)
    assert refused(spark, traces) == {}
    left_out: records.LeftOut = {}
    batch = Batch(spark, str(traces), str(tmp_path / "tables"), (DATE,), left_out=left_out)
    assert batch.records().count() == 1
    assert list(left_out[DATE]) == [f"hour=7/streamer=bad/{bad.name}"]
    batch.release()
    strict = Batch(spark, str(traces), str(tmp_path / "tables"), (DATE,))
    with pytest.raises(OSError, match=r"\w"):
        strict.records()
    strict.release()


def test_a_date_with_nothing_but_empty_files_has_no_records_and_spoils_no_other(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [record(at("08:00", NEXT))])
    (file,) = write(tmp_path, [record()])
    pq.write_table(SCHEMA.empty_table(), file)
    for small in ("true", "false"):
        with configured(spark, {"spark.ustreamer.small": small}):
            for dates, count in ((DATE,), 0), ((NEXT,), 1), ((DATE, NEXT), 1):
                batch = Batch(spark, str(tmp_path), str(tmp_path / "tables"), dates, reach=(1, 1), left_out={})
                assert batch.records().count() == count
                assert batch.records(1, 1).count() == 1
                batch.release()


def arguments(tmp_path: Path, *more: str) -> list[str]:
    return ["--input", f"{tmp_path}/traces", "--output", f"{tmp_path}/tables", "--date", str(DATE), *more]


def test_the_tables_are_made_and_what_is_left_out_is_named_and_counted(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = tmp_path / "traces"
    write(traces, [record(), record(streamer="both ways")])
    bad = [fault(write(traces, [record(streamer="bad")])[0]) for fault in (newer_by_name, torn)]
    bad.append(mistyped(write(traces, [record("09:00", streamer="both ways")])[0]))
    monkeypatch.setattr(nightly, "JOBS", (streamer_health.JOB,))
    assert nightly.main(arguments(tmp_path)) == 4
    told = capsys.readouterr().out
    assert all(str(path) in told for path in bad)
    rows = pq.read_table(tmp_path / "tables" / "streamer_health" / f"date={DATE}").to_pylist()
    found = {row["streamer"]: (row["records"], row["files_left_out"], row["first_ts"] is None) for row in rows}
    assert found == {"gateway": (1, 0, False), "both ways": (1, 1, False), "bad": (0, 2, True)}


def test_a_night_that_left_files_out_ends_with_1_and_says_which(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []

    def run(_: NightlyRun, work: Any, files: Any, *rest: Any, **named: Any) -> bool:
        read.append((set(work), files))
        return True

    monkeypatch.setattr(NightlyRun, "run", run)
    (good,) = write(tmp_path / "traces", [record()])
    bad = [newer_by_name(write(tmp_path / "traces", [record()])[0]) for _ in range(25)]
    assert nightly.main(arguments(tmp_path)) == 4
    said = capsys.readouterr()
    assert read == [({DATE}, {day: {} for day in sorted(read[0][1])} | {DATE: read[0][1][DATE]})]
    assert set(read[0][1][DATE]) == {f"hour=7/streamer=gateway/{path.name}" for path in (good, *bad)}
    assert sum(str(path) in said.out for path in bad) == 20
    assert f"{DATE}: left out: 5 more files" in said.out
    assert "trace files left out: 25" in said.err


def night(spark: SparkSession, tmp_path: Path, *asked: dt.date) -> tuple[NightlyRun, bool]:
    """One run of two jobs, as `nightly.main` does it."""
    traces, output = f"{tmp_path}/traces", f"{tmp_path}/tables"
    manifests, left_out = Manifests(Storage(spark), output), records.LeftOut()
    run = NightlyRun(
        lambda dates: Batch(spark, traces, output, dates, reach=(2, 1), left_out=left_out),
        manifests,
        (streamer_health.JOB, traffic.JOB),
        left_out=left_out,
    )
    files = records.files(spark, traces, records.dates(spark, traces), strict=False)
    known = {date: found for date in manifests.dates() if (found := manifests.get(date))}
    before = {date: found.left_out for date, found in known.items()}
    left_out.update(quarantine.refused(Storage(spark), traces, files, (each.files for each in known.values()), before))
    return run, run.run(run.everything(asked) if asked else run.stale(sorted(files), files), files)


def health(tmp_path: Path) -> dict[str, tuple[int, int]]:
    rows = pq.read_table(tmp_path / "tables" / "streamer_health" / f"date={DATE}").to_pylist()
    return {row["streamer"]: (row["records"], row["files_left_out"]) for row in rows}


def test_files_that_are_broken_inside_are_left_out_where_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    """Large files, or in an object store: Spark stops, names one of them, and the date begins again without it."""
    traces = tmp_path / "traces"
    write(traces, [record(), record(streamer="gate way")])
    many = [record(streamer="gate way", route=f"route {number}", seq=number + 1) for number in range(1000)]
    bad = [broken_inside(write(traces, some)[0]) for some in (many[:500], many[500:])]
    with configured(spark, {"spark.ustreamer.small": "false"}):
        assert night(spark, tmp_path)[1]
        assert health(tmp_path) == {"gateway": (1, 0), "gate way": (1, 2)}
        hours = pq.read_table(tmp_path / "tables" / "rollup" / f"date={DATE}").to_pylist()
        assert sum(row["messages"] for row in hours) == 2, "and no job that ended before has its records"
        manifest = Manifests(Storage(spark), f"{tmp_path}/tables").get(DATE)
        assert manifest is not None
        assert {Path(path).name for path in manifest.left_out} == {path.name for path in bad}
        again, succeeded = night(spark, tmp_path)
    assert (succeeded, again.changed) == (True, set()), "the same files need not be tried every night"


def test_what_cannot_be_reached_is_not_taken_for_broken(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = write(tmp_path, [record()])
    files = records.files(spark, str(tmp_path), [DATE])
    error = OSError(f"Encountered error while reading file file://{path}. SQLSTATE: KD001")
    assert quarantine.broken(Storage(spark), str(tmp_path), files, error) is None, "it can be read"
    torn(path)
    found = quarantine.broken(Storage(spark), str(tmp_path), files, error)
    assert found is not None
    assert found[:2] == (DATE, f"hour=7/streamer=gateway/{path.name}")
    assert quarantine.broken(Storage(spark), str(tmp_path), {DATE: {}}, error) is None, "it is none of those that are read"
    monkeypatch.setattr(Storage, "readable", unreachable)
    assert quarantine.broken(Storage(spark), str(tmp_path), files, error) is None


def unreachable(*_: object) -> None:
    raise StorageError("no route to the store")


def test_a_bad_file_that_comes_late_is_counted_and_one_that_goes_is_not_any_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    traces = tmp_path / "traces"
    write(traces, [record()])
    assert night(spark, tmp_path)[1]
    assert health(tmp_path) == {"gateway": (1, 0)}
    late = torn(write(traces, [record(streamer="late")])[0])
    run, succeeded = night(spark, tmp_path)
    assert (succeeded, run.changed) == (True, {DATE})
    assert health(tmp_path) == {"gateway": (1, 0), "late": (0, 1)}
    assert night(spark, tmp_path)[0].changed == set()
    late.unlink()
    assert night(spark, tmp_path)[0].changed == {DATE}
    assert health(tmp_path) == {"gateway": (1, 0)}
