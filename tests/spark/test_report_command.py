"""``python -m spark_jobs.report``: what it cannot do it says in a line, with exit code 2."""

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.report.__main__ import main
from spark_jobs.session import small_frame
from spark_jobs.tables import ROUTE_HOURLY
from tests.spark.report_tables import hour, put


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["--date", "2026-11-20", *arguments])
    return status, *capsys.readouterr()


def test_tables_that_are_not_there_are_no_empty_report(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "tabels"
    found = said(capsys, "--output", str(missing), "--to", str(tmp_path / "report"))
    assert found == (2, "", f"there is no folder {missing}: expected the tables of the nightly jobs\n")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("there", ["", f"{ROUTE_HOURLY.name}/date=2026-11-21"])
def test_a_date_without_tables_is_no_empty_report(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    (tmp_path / "tables" / there).mkdir(parents=True)
    found = said(capsys, "--output", f"{tmp_path}/tables", "--to", f"{tmp_path}/report")
    assert found == (2, "", f"{tmp_path}/tables has no tables of 2026-11-20: expected those of the nightly jobs\n")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("scheme", ["", "file:", "nofs:"])
def test_a_folder_that_cannot_be_written_is_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    (tmp_path / "file").touch()
    empty = small_frame(spark, [], ROUTE_HOURLY.ddl)
    ParquetTables(spark, str(tmp_path)).publish(empty, ROUTE_HOURLY, [dt.date(2026, 11, 20)])
    status, out, err = said(capsys, "--output", str(tmp_path), "--to", f"{scheme}{tmp_path}/file/report")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert str(tmp_path / "file") in err


def test_the_page_of_one_streamer_has_a_name_of_its_own_that_stays_in_the_folder(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "../" + "v" * 300
    put(tmp_path / "tables", ROUTE_HOURLY, [hour(3, name, "up", delivered=2), hour(3, "elsewhere", "up", delivered=1)])
    given = ("--output", f"{tmp_path}/tables", "--to", f"{tmp_path}/report", "--streamer")
    assert said(capsys, *given, name)[0] == 0
    written = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert [path[:24] for path in written] == ["report-2026-11-20-..%2Fv"] * 2
    assert "elsewhere" not in (tmp_path / "report" / written[0]).read_text()
    for unknown in ("v", name[:-1], "%"):
        status, out, err = said(capsys, *given, unknown)
        assert (status, out) == (2, "")
        assert err == f"{tmp_path}/tables has nothing of {unknown!r} on 2026-11-20 or the 14 days before\n"
