"""Replacing, and which file system a path is on."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has neither stubs nor py.typed
from pyspark.sql import SparkSession

from spark_jobs import jvm
from spark_jobs.manifests import Manifests
from spark_jobs.nightly import NightlyRun
from spark_jobs.storage import Storage, StorageError, reason


def folder(root: Path, name: str, text: str) -> str:
    (root / name).mkdir(parents=True)
    (root / name / "part").write_text(text)
    return str(root / name)


@pytest.fixture
def remote(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The folder that Spark's default file system, which is not the local one, shows as its root."""
    context: Any = spark.sparkContext
    conf = context._jsc.hadoopConfiguration()
    (tmp_path / "remote").mkdir()
    conf.set("fs.viewfs.mounttable.far.linkFallback", f"file://{tmp_path}/remote")
    conf.set("fs.viewfs.mounttable.far.link./data", f"file://{tmp_path}/remote/data")
    conf.set("fs.defaultFS", "viewfs://far/")
    yield tmp_path / "remote"
    conf.set("fs.defaultFS", "file:///")


def test_the_old_table_is_there_until_the_new_one_is_and_then_removed(spark: SparkSession, tmp_path: Path) -> None:
    target, fresh = folder(tmp_path, "table/date=1", "old"), folder(tmp_path, "_staging/1-x", "new")
    Storage(spark).replace(target, fresh)
    assert Path(target, "part").read_text() == "new"
    assert list((tmp_path / "_staging").iterdir()) == []


def test_a_folder_is_kept_until_its_run_ends_even_by_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(spark)

    def fail() -> None:
        with storage.alone(str(tmp_path)), storage.alone(folder(tmp_path, "other", "")):
            with pytest.raises(StorageError, match="another run"), Storage(spark).alone(f"file://{tmp_path}"):
                pass
            raise ValueError("no such luck")

    with pytest.raises(ValueError, match="luck"):
        fail()
    with Storage(spark).alone(str(tmp_path)):
        pass


def test_a_folder_on_another_file_system_has_no_lock(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storage, "local", lambda *_: None)
    with Storage(spark).alone("s3a://bucket/tables"), Storage(spark).alone("s3a://bucket/tables"):
        pass


def test_nobody_outside_owner_and_group_can_read_a_table(spark: SparkSession, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spark.range(4, numPartitions=2).write.parquet(f"{tmp_path}/table/date=1")
    finally:
        os.umask(before)
    written = list((tmp_path / "table").rglob("*"))
    assert len(written) > 2
    assert {path: oct(path.stat().st_mode) for path in written if path.stat().st_mode & 0o007} == {}


def test_a_table_that_cannot_be_replaced_stays(spark: SparkSession, tmp_path: Path) -> None:
    target = folder(tmp_path, "table/date=1", "old")
    with pytest.raises(OSError, match=r"cannot move .*nothing"):
        Storage(spark).replace(target, str(tmp_path / "nothing"))
    assert Path(target, "part").read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["table"]


def test_a_report_without_a_scheme_goes_where_the_tables_go(spark: SparkSession, tmp_path: Path, remote: Path) -> None:
    assert Storage(spark).local("/data/report") is None
    assert Storage(spark).local(f"file://{tmp_path}") == str(tmp_path)
    Storage(spark).write_text("/data/report/a.html", "text")
    assert (remote / "data" / "report" / "a.html").read_text() == "text"


def test_a_report_on_the_local_file_system_is_written_in_python(spark: SparkSession, tmp_path: Path) -> None:
    Storage(spark).write_text(str(tmp_path / "new" / "a.html"), "text")
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["a.html"]


@pytest.fixture(params=["Hadoop", "Arrow"])
def storage(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Storage:
    if request.param == "Arrow":
        monkeypatch.setattr(jvm, "file_system", lambda _: None)
    return Storage(spark)


def test_a_text_that_two_runs_replace_all_the_time_can_always_be_read(storage: Storage, tmp_path: Path) -> None:
    path = str(tmp_path / "_runs" / "date=1.json")
    texts = {letter * 5_000 for letter in "abcd"}

    def replace(text: str) -> None:
        for _ in range(50):
            storage.write_text(path, text)

    storage.write_text(path, min(texts))
    with ThreadPoolExecutor(len(texts)) as pool:
        running = [pool.submit(replace, text) for text in texts]
        while not all(each.done() for each in running):
            assert storage.read_text(path) in texts
        for each in running:
            each.result()
    assert [each.name for each in (tmp_path / "_runs").iterdir()] == ["date=1.json"]
    assert oct((tmp_path / "_runs" / "date=1.json").stat().st_mode)[-3:] == "640"
    assert (tmp_path / "_runs").stat().st_mode & 0o007 == 0


def test_a_text_of_an_earlier_version_is_replaced_with_its_checksum(spark: SparkSession, tmp_path: Path) -> None:
    path, storage = str(tmp_path / "date=1.json"), Storage(spark)
    storage.write_bytes(path, b"old")  # as Hadoop writes it
    assert len([*tmp_path.iterdir()]) == 2
    storage.write_text(path, "new")
    files = jvm.file_system(spark)
    assert files is not None
    assert files.read(path) == b"new"


def test_a_text_that_is_not_there_is_none_and_one_that_cannot_be_used_is_told(storage: Storage, tmp_path: Path) -> None:
    assert storage.read_text(str(tmp_path / "nothing")) is None
    (tmp_path / "folder" / "in").mkdir(parents=True)
    with pytest.raises(StorageError, match=r"folder: cannot be read: Is a directory"):
        storage.read_text(str(tmp_path / "folder"))
    with pytest.raises(StorageError, match=r"folder: cannot be written: Is a directory"):
        storage.write_text(str(tmp_path / "folder"), "text")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_a_failure_is_told_in_one_line_and_one_of_java_by_the_last_of_its_causes(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    lang = context._jvm.java.lang
    cause = lang.RuntimeException("stage failed", lang.IllegalStateException("the disk is full\n\tat line 7"))
    error = Py4JJavaError("it failed", lang.RuntimeException("job aborted", cause))
    assert reason(error) == "java.lang.IllegalStateException: the disk is full"
    assert reason(ValueError("one\ntwo")) == "one"
    assert reason(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_of_a_file_that_is_deleted_meanwhile_the_night_tells_the_name_and_no_stack(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.range(2).coalesce(1).write.parquet(str(tmp_path / "rows"))
    rows = spark.read.parquet(str(tmp_path / "rows"))
    (file,) = (tmp_path / "rows").glob("*.parquet")
    night = NightlyRun(lambda _: pytest.fail("reads nothing"), Manifests(Storage(spark), str(tmp_path)))
    for change, lines in ((file.unlink, False), (lambda: file.write_bytes(b"PAR1" * 99), True)):
        change()
        with pytest.raises(Exception, match=r"\w") as caught:
            rows.collect()
        assert file.name in night._told(caught.value)
        assert bool(capsys.readouterr().err) is lines
