"""What is needed for tables of Iceberg: told in one line before anything runs. The tables themselves: tests/iceberg."""

from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark_jobs import iceberg_tables, jvm, nightly
from spark_jobs.iceberg_tables import CatalogError, IcebergTables, catalog_of, packages
from spark_jobs.storage import Storage
from tests.spark.traces import DATE


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """As in a process without a Java, with a configuration that says nothing, on Spark 4.1."""
    monkeypatch.setattr(jvm, "is_running", lambda: False)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(iceberg_tables, "pyspark", SimpleNamespace(__version__="4.1.4", __file__=pyspark.__file__))
    return monkeypatch


def test_spark_gets_the_archives_unless_it_is_configured_with_them(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = packages()
    assert found is not None
    assert found.startswith("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:")
    (tmp_path / "spark-defaults.conf").write_text("spark.jars.packages org.apache.hadoop:hadoop-aws:3.5.0\n")
    with pytest.raises(CatalogError, match=r"spark\.jars\.packages is set: add org\.apache\.iceberg"):
        packages()
    (tmp_path / "spark-defaults.conf").write_text(f"spark.jars.packages {found}\n")
    assert packages() is None


@pytest.mark.parametrize("version", ["4.2.1", "4.3.0"])
def test_a_spark_without_an_archive_ends_the_run_with_what_fits(
    fresh: pytest.MonkeyPatch, tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh.setattr(iceberg_tables, "pyspark", SimpleNamespace(__version__=version, __file__=pyspark.__file__))
    argv = ["--input", str(tmp_path), "--output", str(tmp_path / "tables"), "--format", "iceberg", "--date", str(DATE)]
    assert nightly.main(argv) == 2
    told = capsys.readouterr().err
    assert version in told
    assert "pip install 'pyspark==4.1.*'" in told
    assert not (tmp_path / "tables").exists()
    fresh.setenv("PYSPARK_SUBMIT_ARGS", "--jars /opt/iceberg-spark-runtime-4.1_2.13-1.12.0.jar pyspark-shell")
    with pytest.raises(CatalogError, match=rf"for Spark 4\.1; this is {version}"):
        packages()


def test_a_catalogue_that_cannot_be_used_is_told(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(spark)
    with pytest.raises(CatalogError, match="--catalog nowhere: Spark has no such catalogue"):
        IcebergTables(spark, catalog_of("nowhere", storage, str(tmp_path)))
    with pytest.raises(CatalogError, match=r"cannot be used on Spark .*SparkCatalog"):
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
