"""Files of traces that somebody has copied beside themselves: their records count once."""

import datetime as dt
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import nightly, records
from spark_jobs.batch import Batch
from spark_jobs.nightly import NightlyRun
from spark_jobs.storage import Storage
from tests.spark.traces import DATE, at, configured, read, record, write

NEXT = DATE + dt.timedelta(days=1)


@pytest.fixture(params=["small", "large"])
def sized(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """The session as for small, and as for large input."""
    with configured(spark, {"spark.ustreamer.small": "false"} if request.param == "large" else {}):
        yield spark


def counted(spark: SparkSession, traces: Path, *dates: dt.date) -> Counter[bytes]:
    """How many records of each message the jobs see."""
    day = Batch(spark, str(traces), str(traces.parent / "tables"), dates)
    found = Counter(bytes(row.msg_id) for row in day.records().collect())
    day.release()
    return found


def copies(spark: SparkSession, traces: Path, *dates: dt.date) -> dict[dt.date, list[str]]:
    return records.copies(spark, str(traces), records.files(spark, str(traces), dates))


def test_of_files_with_the_same_content_in_a_folder_one_is_read(sized: SparkSession, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    made = [record("07:00"), record("08:00", streamer="back%2Fend"), record(at("07:00", NEXT)), record(at("08:00", NEXT))]
    first, second, *_ = write(traces, made)
    for name in ("a copy (1).parquet", "part-2 [1].parquet", "part-3{b}.parquet", "part-4?*.parquet"):
        shutil.copy(first, first.with_name(name))
    second.with_name("linked.parquet").symlink_to(second)
    ids = Counter(each["msg_id"] for each in made)
    assert counted(sized, traces, DATE, NEXT) == ids
    found = copies(sized, traces, DATE, NEXT)
    assert {date: len(paths) for date, paths in found.items()} == {DATE: 5}
    first.unlink()  # a copy stands for it
    assert counted(sized, traces, DATE, NEXT) == ids


def test_to_say_what_is_left_out_and_to_leave_it_out_takes_one_look(sized: SparkSession, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    (file,) = write(traces, [record()])
    shutil.copy(file, file.with_name("z.parquet"))
    before = records._digest.cache_info().misses
    assert list(copies(sized, traces, DATE)) == [DATE]
    assert sum(counted(sized, traces, DATE).values()) == 1
    assert records._digest.cache_info().misses == before + 2
    shutil.copy(file, file.with_name("zz.parquet"))
    assert len(copies(sized, traces, DATE)[DATE]) == 2
    assert records._digest.cache_info().misses == before + 3


def test_files_that_differ_and_those_of_another_folder_are_no_copies(sized: SparkSession, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    ids = [letter * 16 for letter in (b"a", b"b", b"c", b"d")]
    files = [write(traces, [record(msg_id=each)])[0] for each in ids]
    assert len({file.stat().st_size for file in files}) == 1
    elsewhere = files[0].parent.with_name("streamer=hub") / files[0].name
    elsewhere.parent.mkdir()
    shutil.copy(files[0], elsewhere)  # nobody knows whose records these are
    assert copies(sized, traces, DATE) == {}
    assert counted(sized, traces, DATE) == Counter([*ids, ids[0]])


def test_copies_that_are_far_away_are_not_looked_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = write(tmp_path, [record()])
    shutil.copy(file, file.with_name("part.parquet"))
    assert read(spark, tmp_path, [DATE]).count() == 1
    monkeypatch.setattr(Storage, "local", lambda *_: None)
    assert copies(spark, tmp_path, DATE) == {}
    assert read(spark, tmp_path, [DATE]).count() == 2


def test_the_night_says_which_files_it_leaves_out(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = write(tmp_path / "traces", [record(), record(at("07:00", NEXT))])
    copy = file.with_name("z.parquet")
    shutil.copy(file, copy)
    monkeypatch.setattr(NightlyRun, "run", lambda *arguments, **keywords: True)
    words = ["--input", f"{tmp_path}/traces", "--output", f"{tmp_path}/tables", "--from", str(DATE), "--to", str(NEXT)]
    assert nightly.main(words) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert told == [f"{DATE}: files with the content of another one beside them, left out: 1 (such as {copy})"]
