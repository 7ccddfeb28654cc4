"""The night as a whole, with small jobs that show what depends on what; what the real ones compute has tests of its own."""

import datetime as dt
import io
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_jobs import nightly, records, traffic
from spark_jobs.batch import Batch, seen_from
from spark_jobs.job import Job
from spark_jobs.manifests import Files, Manifest, Manifests, grown
from spark_jobs.nightly import NightlyRun
from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.progress import Progress
from spark_jobs.records import File
from spark_jobs.storage import Storage
from spark_jobs.tables import Table
from tests.spark.traces import DATE, at, record, write

pytestmark = pytest.mark.long

SEEN = Table("seen", "How many records did the neighbours have?", {"date": "DATE", "messages": "BIGINT"})
VOLUME = Table("volume", "How many records were there?", {"date": "DATE", "messages": "BIGINT"})
MEMORY = Table(
    "memory", "And on the days before?", {"date": "DATE", "messages": "BIGINT", "before": "BIGINT", "days": "BIGINT"}
)


class Killed(BaseException):
    """Stands for a kill: nothing of the jobs catches it."""


def day(number: int) -> dt.date:
    return DATE + dt.timedelta(days=number)


def neighbours(each: Batch) -> tuple[DataFrame, ...]:
    seen = seen_from(each.records(1, 1).select("date"), each.dates, -1, 1)
    return (seen.groupBy("date").agg(sf.count("*").alias("messages")),)


def volume(each: Batch) -> tuple[DataFrame, ...]:
    return (each.records().groupBy("date").agg(sf.count("*").alias("messages")),)


def memory(each: Batch) -> tuple[DataFrame, ...]:
    before = each.past(VOLUME).groupBy("date").agg(sf.sum("messages").alias("before"), sf.count("*").alias("days"))
    return (each.table(VOLUME).join(before, "date", "left").na.fill(0, ["days"]),)


OF_RECORDS = Job("volume", (VOLUME,), volume)
LOOKING_BACK = Job("memory", (MEMORY,), memory, needs=(OF_RECORDS,), is_trend=True)
JOBS = (OF_RECORDS, LOOKING_BACK)
AUDIT = Job("audit", (SEEN,), neighbours, before=1, after=1)


def night(spark: SparkSession, traces: Path, output: Path, jobs: Iterable[Job] = JOBS) -> tuple[NightlyRun, io.StringIO]:
    said = io.StringIO()
    made = NightlyRun(
        lambda dates: Batch(spark, str(traces), str(output), dates, reach=(1, 1)),
        Manifests(Storage(spark), str(output)),
        tuple(jobs),
        Progress(said),
    )
    return made, said


def stale(spark: SparkSession, traces: Path, output: Path, jobs: Iterable[Job] = JOBS) -> dict[dt.date, list[str]]:
    """The dates to run, with the names of the jobs."""
    there = records.files(spark, str(traces), records.dates(spark, str(traces)))
    found = night(spark, traces, output, jobs)[0].stale(there, there)
    return {date: [job.name for job in work] for date, work in found.items()}


def run(spark: SparkSession, traces: Path, output: Path, *dates: dt.date, jobs: Iterable[Job] = JOBS) -> bool:
    each, _ = night(spark, traces, output, jobs)
    return each.run(each.everything(dates), listed(spark, traces, each, dates))


def listed(spark: SparkSession, traces: Path, each: NightlyRun, dates: Iterable[dt.date]) -> Files:
    return records.files(spark, str(traces), {read for date in dates for read in each.reads(date)})


def table(spark: SparkSession, output: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in ParquetTables(spark, str(output)).read(spark, MEMORY).collect())


def traces_of(root: Path, *volumes: int) -> None:
    for number, volume in enumerate(volumes):
        write(root, [record(at("07:00", day(number))) for _ in range(volume)])


def test_any_order_twice_and_killed_half_way_give_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces, plain, wild = tmp_path / "traces", tmp_path / "plain", tmp_path / "wild"
    traces_of(traces, 2, 4, 9)
    assert run(spark, traces, plain, day(0), day(1), day(2))
    assert table(spark, plain) == [(day(0), 2, None, 0), (day(1), 4, 2, 1), (day(2), 9, 6, 2)]

    assert run(spark, traces, wild, day(2))
    # Killed while the trends of a date that looks back are replaced, with the old ones removed already
    replace: Callable[[Storage, str, str], None] = Storage.replace

    def killed(self: Storage, target: str, fresh: str) -> None:
        if target.endswith(f"/memory/date={day(2)}"):
            self.delete(target)
            raise Killed
        replace(self, target, fresh)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "replace", killed)
        with pytest.raises(Killed):
            run(spark, traces, wild, day(0))
    assert [row[0] for row in table(spark, wild)] == [day(0)]
    assert stale(spark, traces, wild) == {day(1): ["volume"]}
    assert run(spark, traces, wild, day(1))
    assert table(spark, wild) == table(spark, plain)
    assert stale(spark, traces, wild) == {}

    # A late file, and a kill before the manifest
    write(traces, [record(at("09:00", day(0)), outcome="expired")])
    assert list(stale(spark, traces, wild)) == [day(0)]

    def killed_at_the_end(self: Manifests, date: dt.date, manifest: Manifest) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Manifests, "put", killed_at_the_end)
        with pytest.raises(Killed):
            run(spark, traces, wild, day(0))
    assert list(stale(spark, traces, wild)) == [day(0)]
    assert run(spark, traces, wild, day(0))
    assert table(spark, wild) == [(day(0), 3, None, 0), (day(1), 4, 3, 1), (day(2), 9, 7, 2)]
    assert stale(spark, traces, wild) == {}


def test_a_job_that_fails_stops_only_what_needs_it_and_the_date_is_run_again(spark: SparkSession, tmp_path: Path) -> None:
    traces, output = tmp_path / "traces", tmp_path / "output"
    traces_of(traces, 1)

    def broken(each: Batch) -> tuple[DataFrame, ...]:
        raise ValueError("no such luck")

    bad = Job("bad", (SEEN,), broken)
    needy = Job("needy", (SEEN,), neighbours, needs=(bad,))
    looking_back = Job("looking_back", (SEEN,), neighbours, needs=(needy,), is_trend=True)
    each, said = night(spark, traces, output, [bad, needy, AUDIT, looking_back])
    assert not each.run(each.everything([DATE]), listed(spark, traces, each, [DATE]))
    lines = said.getvalue().splitlines()
    assert each.failed == {DATE: {"bad", "needy", "looking_back"}}
    assert [line for line in lines if not line.startswith("[")] == [
        f"{DATE} bad: FAILED: no such luck",
        f"{DATE} needy: skipped, because bad failed",
        f"{DATE} looking_back: skipped, because needy failed",
    ]
    assert [line for line in lines if re.fullmatch(rf"\[[123]/4\] {DATE} seen: 1 rows, \d+\.\d s", line)]
    (manifest,) = filter(None, [Manifests(Storage(spark), str(output)).get(DATE)])
    assert not manifest.done
    assert list(stale(spark, traces, output, [AUDIT])) == [DATE]


def test_a_manifest_takes_a_dozen_bytes_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """A large fleet has two million files a date, and the manifest of a date has those of four."""
    files = {f"hour={n % 24}/streamer=gateway.v{n}/part-{n}.parquet": File(n, 2 * n) for n in range(3000)}
    Manifests(Storage(spark), str(tmp_path)).put(DATE, Manifest({DATE: files}, done=True, trends=True))
    assert (tmp_path / "_runs" / f"date={DATE}.json").stat().st_size < 12 * len(files)
    assert grown(Manifest({DATE: files}, done=True, trends=True), {DATE: files | {"hour=1/x": File(1, 1)}}, [DATE])


def test_new_files_of_a_neighbour_run_only_the_jobs_that_read_it(spark: SparkSession, tmp_path: Path) -> None:
    manifests = Manifests(Storage(spark), str(tmp_path))
    first, second, late = {"a": File(1, 1)}, {"b": File(2, 2)}, {"b": File(2, 2), "c": File(3, 3)}
    around = {day(-1): {}, DATE: first, day(1): second}
    manifests.put(DATE, Manifest(around, done=True, trends=True))
    each, _ = night(spark, tmp_path, tmp_path, [traffic.JOB, AUDIT])

    def names(files: dict[dt.date, dict[str, File]]) -> list[str]:
        return [job.name for job in each.stale([DATE], files).get(DATE, ())]

    assert names({DATE: first, day(1): second}) == []
    assert names({DATE: first, day(1): late}) == ["audit"]
    assert names({DATE: first, day(1): second, day(2): late}) == []
    assert names({DATE: {"a": File(1, 5)}, day(1): second}) == ["rollup", "audit"]
    # The daemon deletes its oldest files: their records are in the tables, and a new run would lose them.
    assert names({DATE: {}, day(1): {}}) == []


def test_a_manifest_reads_back_and_what_cannot_be_read_counts_as_none(spark: SparkSession, tmp_path: Path) -> None:
    manifests = Manifests(Storage(spark), str(tmp_path))
    made = Manifest({DATE: {"hour=7/streamer=gw/part-ü.parquet": File(10, 20)}, day(1): {}}, done=True, trends=False)
    assert manifests.get(DATE) is None
    assert manifests.dates() == []
    manifests.put(DATE, made)
    assert manifests.get(DATE) == made
    assert manifests.dates() == [DATE]
    assert os.listdir(tmp_path / "_runs").count(f"date={DATE}.json") == 1
    earlier = f'{{"{DATE}": {{"hour=7/streamer=gw/part-ü.parquet": [10, 20]}}, "{day(1)}": {{}}}}'
    text = f'{{"format": 2, "done": true, "trends": false, "files": {earlier}}}'
    Storage(spark).write_text(f"{tmp_path}/_runs/date={DATE}.json", text)
    assert manifests.get(DATE) == made
    no_date = '{"format": 2, "done": true, "trends": true, "files": {"x": {}}}'
    for text in ("{", "[]", '{"format": 1}', '{"format": 2}', '{"format": 2, "trends": true, "files": {}}', no_date):
        Storage(spark).write_text(f"{tmp_path}/_runs/date={DATE}.json", text)
        assert manifests.get(DATE) is None


@pytest.mark.parametrize("dates", [["--lookback-days", "36500"], ["--date", str(DATE)]])
def test_what_a_newer_version_has_made_is_not_replaced(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], dates: list[str]
) -> None:
    write(tmp_path / "traces", [record()])
    kept = tmp_path / "tables" / "_runs" / f"date={DATE}.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"format": 4}')
    words = ["--input", f"{tmp_path}/traces", "--output", f"{tmp_path}/tables", *dates]
    assert nightly.main(words) == 2
    told = f"{kept.name}: format 4 was written by a newer ustreamer; these jobs know formats up to 3: "
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(f"{told}run the jobs of that version, or move the file away")
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["_runs"]
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_dates_without_traces_are_told(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "traces", [record()])
    monkeypatch.setattr(NightlyRun, "run", lambda *arguments, **keywords: True)
    dates = ["--from", str(day(-1)), "--to", str(day(1))]
    assert nightly.main(["--input", f"{tmp_path}/traces", "--output", f"{tmp_path}/tables", *dates]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "no traces" in line]
    assert told == [f"{day(number)}: there are no traces of that date" for number in (-1, 1)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["--input", "{}/none", "--output", "{}/out"], "there is no folder {}/none", id="input"),
        pytest.param(
            ["--input", "{}", "--output", "{}/out", "--slo", "{}/no.yaml"],
            "{}/no.yaml: cannot be read: No such file",
            id="slo",
        ),
        pytest.param(["--input", "{}", "--output", "{}/a file"], "{}/a file: cannot be written: ", id="output"),
        pytest.param(["--input", "nofs://a/b", "--output", "{}"], "nofs://a/b: cannot be reached: ", id="input-scheme"),
        pytest.param(["--input", "{}", "--output", "nofs://a/b"], "nofs://a/b: cannot be reached: ", id="output-scheme"),
    ],
)
def test_a_night_that_cannot_begin_says_why(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    (tmp_path / "a file").touch()
    assert nightly.main([each.format(tmp_path) for each in arguments]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(says.format(tmp_path))
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_two_runs_do_not_write_the_same_tables(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "traces", [record()])
    monkeypatch.setattr(NightlyRun, "run", lambda *arguments, **keywords: True)
    tables = tmp_path / "tables"
    words = ["--input", f"{tmp_path}/traces", "--output", f"file:{tables}", "--date", str(DATE)]
    tables.mkdir()
    with Storage(spark).alone(str(tables)):
        assert nightly.main(words) == 2
    assert capsys.readouterr().err == (f"file:{tables}: another run is writing these tables: try again when it has ended\n")
    assert list(tables.iterdir()) == []
    for _ in range(2):  # a run that has ended keeps nobody out
        assert nightly.main(words) == 0


def test_a_full_disk_is_named_as_the_reason(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder below a file stands for it: Java wraps its reason, too."""
    traces, output = tmp_path / "traces", tmp_path / "output"
    traces_of(traces, 1)
    (output / "_staging").mkdir(parents=True)
    (output / "_staging" / VOLUME.name).touch()
    (output / "_staging" / SEEN.name).touch()
    each, said = night(spark, traces, output, [OF_RECORDS, AUDIT])
    assert not each.run(each.everything([DATE]), listed(spark, traces, each, [DATE]))
    failed = sorted(line for line in said.getvalue().splitlines() if "FAILED" in line)
    assert [line.partition(": FAILED: ")[0] for line in failed] == [f"{DATE} audit", f"{DATE} volume"]
    assert all("Exception: " in line and str(output) in line for line in failed)
