"""The file system without Java does what Hadoop's does."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.file_system import ArrowFileSystem, StorageError
from spark_jobs.jvm import HadoopFileSystem

Files = HadoopFileSystem | ArrowFileSystem
SOURCES = Path(__file__).parents[2] / "spark_jobs"
PRIVATE = re.compile(r"\._jvm|\._jsc|\._jdf|\._gateway|\._jsparkSession|\"_jvm\"|py4j|Py4J|_ensure_initialized")


@pytest.fixture(params=["hadoop", "arrow"])
def files(request: pytest.FixtureRequest, spark: SparkSession) -> Files:
    return HadoopFileSystem(spark) if request.param == "hadoop" else ArrowFileSystem()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_is_written_is_listed_read_moved_and_deleted(files: Files, tmp_path: Path, scheme: str) -> None:
    root = f"{scheme}{tmp_path}"
    files.write(f"{root}/a/date=2/part-0.parquet", b"0123456789")
    files.write(f"{root}/a/date=1/part-0.parquet", b"x")
    files.write(f"{root}/a/other", b"yz")
    assert files.local(root) == str(tmp_path)
    assert files.names(f"{root}/a/date=*") == ["date=1", "date=2"]
    assert files.names(f"{root}/nowhere/*") == []
    assert files.names(f"{root}/a/other/*") == []
    assert (files.size_bytes(f"{root}/a"), files.size_bytes(f"{root}/a/other")) == (13, 2)
    assert files.read(f"{root}/a/date=2/part-0.parquet", 7) == b"789"
    files.move(f"{root}/a/date=2", f"{root}/b/c/date=2")
    assert files.read(f"{root}/b/c/date=2/part-0.parquet") == b"0123456789"
    assert not files.exists(f"{root}/a/date=2")
    files.delete(f"{root}/b")
    files.delete(f"{root}/a/other")
    files.delete(f"{root}/never/there")
    assert files.names(f"{root}/*") == ["a"]
    assert files.names(f"{root}/a/*") == ["date=1"]


def test_what_cannot_be_done_is_told_with_the_path(files: Files, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for act in (
        lambda: files.move(f"{tmp_path}/nothing", f"{tmp_path}/moved"),
        lambda: files.read(f"{tmp_path}/nothing"),
        lambda: files.size_bytes(f"{tmp_path}/nothing"),
        lambda: files.write(f"{tmp_path}/file/below", b""),
        lambda: files.exists("nosuch://far/away"),
    ):
        with pytest.raises(StorageError, match=r"nothing|file/below|nosuch"):
            act()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_one_module_alone_reaches_into_java() -> None:
    found = {path.name for path in SOURCES.rglob("*.py") if PRIVATE.search(path.read_text())}
    assert found == {"jvm.py"}
