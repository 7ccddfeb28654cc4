"""Small files that are put together: the same records as ever, each once, whatever happens at the same time."""

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs import compact, delivery_audit, merged, nightly, quarantine, records, streamer_health, traffic
from spark_jobs.storage import Storage
from tests.spark.traces import DATE, at, read, record, write

pytestmark = pytest.mark.long

NEXT = DATE + dt.timedelta(days=1)


class Killed(BaseException):
    """Stands for a kill."""


@pytest.fixture(autouse=True)
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders are on this machine, and the jobs do not know it."""
    monkeypatch.setattr(Storage, "local", lambda *_: None)
    monkeypatch.setattr(merged, "LEAST", 3)


class Scene:
    """Traces of two dates, with files of an older and a newer writer, and a place for tables."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.storage = spark, Storage(spark)
        self.traces, self.output = folder / "traces", str(folder / "tables")
        self.add(*(record(f"{hour:02}:00", streamer=name, seq=hour) for hour in range(5) for name in ("a b", "c%2Fd")))
        write(self.traces, [record(streamer="old", redelivered=True)], without=["redelivered", "traceparent"])
        self.add(record(at("08:00", NEXT)))

    def add(self, *rows: dict[str, Any]) -> list[Path]:
        return write(self.traces, rows)

    def files(self) -> dict[dt.date, records.Listing]:
        return records.files(self.spark, str(self.traces), [DATE, NEXT], strict=False)

    def merge(self, files: dict[str, records.File] | None = None) -> tuple[int, records.LeftOut]:
        of_date = self.files()[DATE] if files is None else files
        return merged.merge(self.storage, str(self.traces), self.output, DATE, of_date, (), merged.LEAST)

    def parts(self, *left_out: str) -> list[int]:
        """How many files are in each part that is used."""
        return [len(part.files) for part in merged.parts(self.storage, self.output, DATE, self.files()[DATE], left_out)]

    def read(self, left_out: records.LeftOut | None = None) -> Counter[Any]:
        """Through parts."""
        rows = merged.read(self.spark, str(self.traces), self.output, self.files(), left_out)
        return Counter(map(repr, rows.collect()))

    def plain(self, left_out: records.LeftOut | None = None) -> Counter[Any]:
        """From the files themselves."""
        return Counter(map(repr, read(self.spark, self.traces, [DATE, NEXT], left_out).collect()))


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path)


def test_the_records_are_the_same_and_so_are_the_files(scene: Scene) -> None:
    before, files = scene.plain(), scene.files()
    assert scene.merge() == (11, {})
    assert (scene.parts(), scene.files()) == ([11], files)
    assert scene.read() == before == scene.plain()
    assert scene.merge() == (0, {}), "they are in a part already"
    late = scene.add(record("09:00", streamer="late"))
    assert scene.merge() == (0, {}), "not enough for a part of their own"
    assert scene.read() == scene.plain() != before
    scene.add(record("09:30"), record("10:30"))
    assert scene.merge() == (3, {})
    assert scene.read() == scene.plain()
    late[0].unlink()
    assert sorted(scene.parts()) == [3, 11], "what is gone from the store is still in its part"


def test_large_parts_are_several_files(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged, "_ROWS_PER_GROUP", 2)
    monkeypatch.setattr(merged, "_PART_BYTES", 1)
    monkeypatch.setattr(merged, "_IN_MEMORY", 3)
    assert scene.merge() == (11, {})
    (part,) = merged.parts(scene.storage, scene.output, DATE, scene.files()[DATE])
    assert len(part.paths) == 6
    assert scene.read() == scene.plain()


def test_two_that_merge_at_once_double_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    some = dict(list(scene.files()[DATE].items())[:6])
    with monkeypatch.context() as patch:
        patch.setattr(merged, "parts", lambda *_: [])
        assert scene.merge(some) == (6, {})
        assert scene.merge() == (11, {})
    assert scene.parts() in ([6], [11])
    assert scene.read() == scene.plain()
    scene.merge()
    assert scene.read() == scene.plain()


@pytest.mark.parametrize("step", ["write_bytes", "write_text"])
def test_a_kill_loses_and_doubles_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Storage, step, killed)
        with pytest.raises(Killed):
            scene.merge()
    assert scene.parts() == []
    assert scene.read() == scene.plain()
    assert scene.merge() == (11, {})
    assert scene.read() == scene.plain()


def test_a_part_with_a_file_that_has_changed_or_is_left_out_is_not_used(scene: Scene) -> None:
    files = scene.files()[DATE]
    scene.merge()
    left_out = {DATE: {next(iter(files)): "broken"}}
    assert scene.parts(next(iter(files))) == []
    assert scene.read(left_out) == scene.plain(left_out) != scene.plain()
    path = scene.traces / f"date={DATE}" / next(iter(files))
    pq.write_table(pq.read_table(path, partitioning=None).slice(0, 0), path)
    assert scene.parts() == []
    assert scene.read() == scene.plain()


def test_what_cannot_be_used_is_named_and_the_rest_is_merged(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    newer, torn, unreachable = scene.add(record(streamer="x"), record(streamer="y"), record(streamer="z"))
    newer = newer.rename(newer.with_name(f"{newer.stem}.v2.parquet"))
    torn.write_bytes(torn.read_bytes()[:-30])
    readable = Storage.readable

    def reachable(storage: Storage, path: str, size_bytes: int | None = None) -> Any:
        if path.endswith(unreachable.name):
            raise OSError("no route to the store")
        return readable(storage, path, size_bytes)

    monkeypatch.setattr(Storage, "readable", reachable)
    count, left_out = scene.merge()
    assert (count, list(left_out)) == (11, [DATE])
    assert {Path(path).name for path in left_out[DATE]} == {newer.name, torn.name}
    assert scene.read(left_out) == scene.plain(left_out)


def test_the_command_says_what_it_has_put_together(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ["--input", str(scene.traces), "--output", scene.output]
    assert compact.main([*places, "--from", str(DATE), "--to", str(NEXT)]) == 0
    assert capsys.readouterr().out == f"{DATE}: small files put together: 11\n"
    assert compact.main([*places, "--from", str(DATE), "--to", str(NEXT)]) == 0
    assert capsys.readouterr().out == ""
    monkeypatch.undo()
    assert compact.main([*places, "--date", str(DATE)]) == 2
    assert "is on this machine" in capsys.readouterr().err


def test_a_night_makes_the_same_tables_and_looks_at_no_footer_of_what_it_merges(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nightly, "JOBS", (delivery_audit.JOB, traffic.JOB, streamer_health.JOB))
    monkeypatch.setattr(nightly.Reports, "write", lambda *_: None)
    monkeypatch.setattr(nightly.NightlyRun.__init__, "__defaults__", (nightly.JOBS, None, None))
    asked: list[str] = []
    fault = quarantine._fault

    def counted(storage: Storage | None, path: str, file: records.File) -> str | None:
        asked.append(path)
        return fault(storage, path, file)

    monkeypatch.setattr(quarantine, "_fault", counted)
    places = ["--input", str(scene.traces), "--output"]

    def night(output: str) -> dict[str, Any]:
        assert nightly.main([*places, output, "--from", str(DATE), "--to", str(NEXT)]) == 0
        return {
            f"{job.name}/{table.name}/{date}": Counter(
                map(repr, pq.read_table(f"{output}/{table.name}/date={date}").to_pylist())
            )
            for job in nightly.JOBS
            for table in job.tables
            for date in (DATE, NEXT)
        }

    found = night(scene.output)
    assert f"{DATE}: small files put together: 11" in capsys.readouterr().out
    assert len(asked) == 1, "of the other date, which has but one"
    monkeypatch.setattr(merged, "LEAST", 100)
    assert night(f"{tmp_path}/others") == found
    assert len(asked) == 1 + 12
