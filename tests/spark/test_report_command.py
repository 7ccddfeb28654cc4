"""``python -m spark_jobs.report``: what it cannot do it says in a line, with exit code 2."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.report.__main__ import main


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


def test_a_folder_that_cannot_be_written_is_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    status, out, err = said(capsys, "--output", str(tmp_path), "--to", str(tmp_path / "file" / "report"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert str(tmp_path / "file") in err
