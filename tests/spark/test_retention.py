"""Old dates are deleted whole, by any number of tries, and are not taken for dates that have to run."""

import datetime as dt
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import nightly, retention, traffic
from spark_jobs.arguments import parse
from spark_jobs.manifests import Manifest, Manifests
from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.storage import Storage, StorageError
from spark_jobs.tables import ROLLUP, ROUTE_HOURLY
from tests.spark.traces import at, record, write

TODAY = dt.datetime.now(dt.UTC).date()
TABLES = (ROUTE_HOURLY, ROLLUP)


class Killed(BaseException):
    """Stands for a kill."""


def day(number: int) -> dt.date:
    return TODAY + dt.timedelta(days=number)


def fill(spark: SparkSession, output: Path, *dates: dt.date) -> Manifests:
    """Tables, report and manifest of these dates, with no more in them than it takes to be deleted."""
    manifests = Manifests(Storage(spark), str(output))
    for date in dates:
        for table in TABLES:
            folder = output / table.name / f"date={date}"
            folder.mkdir(parents=True)
            (folder / "part-0.parquet").write_bytes(b"")
        (output / "report").mkdir(exist_ok=True)
        for kind in ("html", "json"):
            (output / "report" / f"report-{date}.{kind}").write_text("")
        manifests.put(date, Manifest({}, done=True, trends=True))
    return manifests


def delete_before(spark: SparkSession, output: Path, first: dt.date, manifests: Manifests) -> list[dt.date]:
    store = ParquetTables(spark, str(output))
    return retention.delete_before(Storage(spark), store, str(output), first, TABLES, manifests)


def dates_below(output: Path) -> set[str]:
    """The dates that stand in the name of any file or folder."""
    return {found[0] for path in output.rglob("*") if (found := re.search(r"(notes of )?\d{4}-\d\d-\d\d", path.name))}


def test_what_is_older_is_deleted_and_all_else_stays(spark: SparkSession, tmp_path: Path) -> None:
    manifests = fill(spark, tmp_path, *map(day, (-40, -39, -31, -30, -29)))
    (tmp_path / "report" / f"notes of {day(-40)}.txt").write_text("not ours")
    deleted = retention.delete_before(
        Storage(spark), ParquetTables(spark, str(tmp_path)), str(tmp_path), day(-30), TABLES, manifests
    )
    assert deleted == [day(-40), day(-39), day(-31)]
    assert dates_below(tmp_path) == {str(day(-30)), str(day(-29)), f"notes of {day(-40)}"}
    assert manifests.dates() == [day(-30), day(-29)]
    assert retention.kept_from(Storage(spark), str(tmp_path)) == day(-30)
    assert (
        retention.delete_before(
            Storage(spark), ParquetTables(spark, str(tmp_path)), str(tmp_path), day(-30), TABLES, manifests
        )
        == []
    )


@pytest.mark.parametrize("survives", range(8))
def test_after_a_kill_the_next_run_deletes_the_rest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    manifests = fill(spark, tmp_path, day(-41), day(-40), day(0))
    left = iter(range(survives))
    delete = Storage.delete

    def killed(storage: Storage, path: str) -> None:
        if next(left, None) is None:
            raise Killed
        delete(storage, path)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "delete", killed)
        with pytest.raises(Killed):
            retention.delete_before(
                Storage(spark), ParquetTables(spark, str(tmp_path)), str(tmp_path), day(-30), TABLES, manifests
            )
    assert retention.kept_from(Storage(spark), str(tmp_path)) == day(-30)
    deleted = retention.delete_before(
        Storage(spark), ParquetTables(spark, str(tmp_path)), str(tmp_path), day(-30), TABLES, manifests
    )
    assert day(-40) in deleted
    assert dates_below(tmp_path) == {str(day(0))}


def test_a_longer_time_does_not_bring_back_what_was_deleted(spark: SparkSession, tmp_path: Path) -> None:
    manifests = fill(spark, tmp_path, day(-40))
    for first in (day(-30), day(-60)):
        delete_before(spark, tmp_path, first, manifests)
        assert retention.kept_from(Storage(spark), str(tmp_path)) == day(-30)


def test_a_deleted_date_is_not_computed_from_traces_that_are_still_there(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    traces, output = tmp_path / "traces", tmp_path / "tables"
    write(traces, [record(at("07:00", day(-40)))])
    fill(spark, output, day(-40))
    worked: list[set[dt.date]] = []

    def run(_: nightly.NightlyRun, work: dict[dt.date, object], *rest: object, **named: object) -> bool:
        worked.append(set(work))
        return True

    monkeypatch.setattr(nightly.NightlyRun, "run", run)
    places = ["--input", str(traces), "--output", str(output)]
    monkeypatch.setattr(nightly, "JOBS", (traffic.JOB,))
    assert nightly.main([*places, "--keep-days", "30"]) == 0
    said = capsys.readouterr().out
    assert f"deleted the tables and reports of 1 dates before {day(-30)}: {day(-40)}" in said
    late = write(traces, [record(at("08:00", day(-40)))])
    assert late[0].exists()
    assert nightly.main([*places, "--lookback-days", "90"]) == 0
    said = capsys.readouterr().out
    assert worked[-1] == set()
    assert "never run" not in said
    assert nightly.main([*places, "--date", str(day(-40))]) == 0
    assert worked[-1] == {day(-40)}, "whoever names a date gets it"


def test_a_fault_is_told_and_the_night_has_failed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("/tables: cannot be deleted")

    monkeypatch.setattr(retention, "delete_before", refuse)
    write(tmp_path / "traces", [record(at("07:00", day(-40)))])
    assert nightly.main(["--input", f"{tmp_path}/traces", "--output", f"{tmp_path}/tables", "--keep-days", "40"]) == 1
    assert "FAILED to be deleted: /tables: cannot be deleted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--keep-days", "29"], "--keep-days 29: at least 30: a date that may run again looks back 14 days"),
        (["--keep-days", "44", "--lookback-days", "31"], "--keep-days 44: at least 45"),
        (["--keep-days", "60", "--date", "2026-11-20"], "--keep-days is for runs without dates"),
        (["--keep-days", "0"], "expected a number of days from 1"),
    ],
)
def test_no_date_is_deleted_that_a_trend_needs(capsys: pytest.CaptureFixture[str], more: list[str], says: str) -> None:
    with pytest.raises(SystemExit) as raised:
        parse("p", ["--input", "/in", "--output", "/out", *more])
    assert raised.value.code == 2
    assert says in capsys.readouterr().err
    assert parse("p", ["--input", "/in", "--output", "/out", "--keep-days", "30"]).keep_days == 30
