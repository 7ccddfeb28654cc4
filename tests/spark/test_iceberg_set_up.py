"""What is needed for tables of Iceberg: told in one line before anything runs. The tables themselves: tests/iceberg."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import nightly
from spark_jobs.iceberg_tables import CatalogError, IcebergTables, catalog_of
from spark_jobs.storage import Storage


def test_a_catalogue_that_cannot_be_used_is_told(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(spark)
    with pytest.raises(CatalogError, match="--catalog nowhere: Spark has no such catalogue"):
        IcebergTables(spark, catalog_of("nowhere", storage, str(tmp_path)))
    with pytest.raises(
        CatalogError, match=r"cannot be used on Spark .*SparkCatalog.*: on Spark 4\.1, set spark\.jars\.packages"
    ):
        IcebergTables(spark.newSession(), catalog_of(None, storage, str(tmp_path)))


def test_tables_far_away_need_a_catalogue(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storage, "local", lambda *_: None)
    with pytest.raises(CatalogError, match="needs a --catalog"):
        catalog_of(None, Storage(spark), "s3a://fleet/tables")
    rest = catalog_of("https://catalog.example.com", Storage(spark), "s3a://fleet/tables").settings
    assert rest is not None
    assert (rest["type"], rest["uri"], rest.get("warehouse")) == ("rest", "https://catalog.example.com", None)


def test_a_catalogue_is_for_iceberg_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        nightly.main(["--input", "in", "--output", "out", "--catalog", "fleet"])
    assert ended.value.code == 2
    assert "--catalog is for --format iceberg" in capsys.readouterr().err
