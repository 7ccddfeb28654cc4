"""Which jobs a nightly run takes, and which tables it keeps: without Spark, on a listing and manifests in memory."""

import datetime as dt
import io
import re
from collections import Counter
from collections.abc import Mapping, Set
from contextlib import suppress
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_jobs import arguments, nightly
from spark_jobs.batch import DATES_AT_ONCE, Batch, batches
from spark_jobs.job import Job
from spark_jobs.manifests import Manifest, Manifests, gone, grown, united
from spark_jobs.nightly import NightlyRun
from spark_jobs.progress import Progress
from spark_jobs.records import File
from spark_jobs.tables import Table

DATE = dt.date(2026, 11, 20)
TABLE = Table("table", "?", {"date": "DATE"})
PLAIN = Job("plain", (TABLE,), lambda _: ())
AUDIT = Job("audit", (TABLE,), lambda _: (), before=1, after=1)
TREND = Job("trend", (TABLE,), lambda _: (), needs=(PLAIN,), is_trend=True)
ORDER = [job.name for job in (PLAIN, AUDIT, TREND)]
"""The first two run at the same time."""
A, B, C = File(1, 1), File(2, 2), File(3, 3)


class Killed(BaseException):
    """Stands for a kill: nothing of the jobs catches it."""


class MemoryManifests:
    """`Manifests` in memory."""

    def __init__(self) -> None:
        self.kept: dict[dt.date, Manifest] = {}

    def get(self, date: dt.date) -> Manifest | None:
        return self.kept.get(date)

    def dates(self) -> list[dt.date]:
        return sorted(self.kept)

    def put(self, date: dt.date, manifest: Manifest) -> None:
        self.kept[date] = manifest


class NightHarness:
    """A nightly run on files, tables and manifests in memory. `breaks`: what jobs raise, by name."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.files: dict[dt.date, dict[str, File]] = {}
        self.manifests = MemoryManifests()
        self.ran: list[str] = []
        self.tables: set[tuple[str, dt.date]] = set()
        self.breaks: dict[str, BaseException] = {}
        self.broken: Set[dt.date] = {day(number) for number in range(-30, 30)}
        self.together: list[tuple[dt.date, ...]] = []
        self.said = io.StringIO()
        patch.setattr(nightly, "run", self._run)

    def _run(self, each: Job, batch: Batch) -> list[tuple[Table, int]]:
        if (error := self.breaks.get(each.name)) and self.broken & set(batch.dates):
            raise error
        self.ran = sorted(
            [*self.ran, *(f"{(date - DATE).days} {each.name}" for date in batch.dates)],
            key=lambda name: ORDER.index(name.split()[1]),
        )
        self.together.append(batch.dates)
        self.tables.update((table.name, date) for table in each.tables for date in batch.dates)
        return [(table, 0) for table in each.tables]

    def _dates(self, table: Table) -> list[dt.date]:
        return sorted(date for name, date in self.tables if name == table.name)

    def night(self, *asked: dt.date, first: dt.date = dt.date.min) -> bool:
        """One nightly run, of these dates or of the stale ones. Afterwards `ran` has its jobs, `lines` its output."""
        self.ran, self.together, self.said = [], [], io.StringIO()
        each = NightlyRun(
            lambda dates: Batch(cast(Any, None), "in", "out", dates, store=cast(Any, SimpleNamespace(dates=self._dates))),
            cast(Manifests, self.manifests),
            (PLAIN, AUDIT, TREND),
            Progress(self.said),
        )
        files = {date: dict(found) for date, found in self.files.items()}
        work = each.everything(asked) if asked else each.stale(sorted(files), files)
        return each.run(work, files, first, asked=bool(asked))

    @property
    def lines(self) -> list[str]:
        """What was said, but for the lines of finished tables."""
        return [line for line in self.said.getvalue().splitlines() if not line.startswith("[")]

    def lines_with(self, part: str) -> list[str]:
        return [line for line in self.lines if part in line]


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> NightHarness:
    return NightHarness(monkeypatch)


def day(number: int) -> dt.date:
    return DATE + dt.timedelta(days=number)


def test_a_late_file_does_not_shrink_a_date_whose_other_files_are_gone(harness: NightHarness) -> None:
    harness.files = {DATE: {"a": A, "b": B}}
    assert harness.night()
    before = harness.manifests.get(DATE)
    harness.files = {DATE: {"b": B, "late": C}}
    assert harness.night()
    assert harness.ran == []
    assert harness.lines == [f"{DATE} all tables: kept, because files are gone: 1 (--date {DATE} runs it anyway)"]
    assert harness.manifests.get(DATE) == before


def test_a_date_that_is_asked_for_runs_on_the_files_that_are_left_with_a_warning(harness: NightHarness) -> None:
    harness.files = {DATE: {"a": A, "b": B}}
    harness.night()
    harness.files = {DATE: {"b": B, "late": C}}
    assert harness.night(DATE)
    assert harness.ran == ["0 plain", "0 audit", "0 trend"]
    assert harness.lines_with("lack their records") == [
        f"{DATE}: files gone since the last run: 1; the new tables lack their records"
    ]
    harness.files[DATE]["later"] = A
    assert harness.night()  # the remnant is what counts from now on
    assert harness.ran == ["0 plain", "0 audit", "0 trend"]


def test_files_gone_from_a_neighbour_keep_only_the_audit_and_are_not_forgotten(harness: NightHarness) -> None:
    harness.files = {day(-1): {"old": A}, DATE: {"a": A}}
    harness.night()
    harness.files = {day(-1): {}, DATE: {"a": A, "late": B}}
    assert harness.night()
    assert harness.ran == ["0 plain", "0 trend"]
    assert len(harness.lines_with(f"{DATE} audit: kept, because files are gone: 1 ")) == 1
    harness.files[day(1)] = {"new": C}
    assert harness.night()
    assert "0 audit" not in harness.ran
    assert "1 audit" in harness.ran


@pytest.mark.parametrize("error", [pytest.param(Killed(), id="killed"), pytest.param(ValueError("x"), id="failed")])
def test_an_interrupted_run_still_knows_the_files_of_the_tables_in_place(
    harness: NightHarness, error: BaseException
) -> None:
    harness.files = {DATE: {"a": A}}
    harness.night()
    harness.files = {DATE: {"a": A, "late": B}}
    harness.breaks["audit"] = error
    with suppress(Killed):
        assert not harness.night()
    harness.breaks.clear()
    harness.files = {DATE: {"late": B}}
    harness.night()
    assert "0 plain" not in harness.ran
    assert "0 audit" not in harness.ran
    harness.files = {DATE: {"a": A, "late": B}}  # and with all of them there, it is repaired
    assert harness.night()
    assert harness.ran == ["0 plain", "0 audit", "0 trend"]


def test_a_kill_does_not_make_it_forget_files_that_were_gone_before(harness: NightHarness) -> None:
    harness.files = {day(-1): {"old": A}, DATE: {"a": A}}
    harness.night()
    harness.files = {DATE: {"a": A, "late": B}}
    harness.breaks["plain"] = Killed()
    with pytest.raises(Killed):
        harness.night()
    harness.breaks.clear()
    assert harness.night()
    assert harness.ran == ["0 plain", "0 trend"]


def test_an_interrupted_first_run_is_repeated_with_the_files_that_are_there(harness: NightHarness) -> None:
    harness.files = {DATE: {"a": A, "b": B}}
    harness.breaks["plain"] = Killed()
    with pytest.raises(Killed):
        harness.night()
    harness.breaks.clear()
    harness.files = {DATE: {"b": B}}
    assert harness.night()
    assert harness.ran == ["0 plain", "0 audit", "0 trend"]


def test_a_failing_job_does_not_stop_trend_jobs_that_do_not_need_it(harness: NightHarness) -> None:
    harness.files = {DATE: {"a": A}}
    harness.breaks["audit"] = ValueError("no such luck")
    assert not harness.night()
    assert harness.ran == ["0 plain", "0 trend"]
    assert harness.manifests.kept[DATE] == Manifest({day(-1): {}, DATE: {"a": A}, day(1): {}}, done=False, trends=True)
    harness.breaks = {"plain": ValueError("no such luck")}
    assert not harness.night()
    assert harness.ran == ["0 audit"]
    assert harness.lines_with("trend") == [f"{DATE} trend: skipped, because plain failed"]
    assert not harness.manifests.kept[DATE].trends
    harness.breaks.clear()
    assert harness.night()
    assert harness.night()
    assert harness.ran == []


def test_dates_before_the_first_one_are_left_alone(harness: NightHarness) -> None:
    harness.manifests.kept = {day(-30): Manifest({}, done=True, trends=False), DATE: Manifest({}, done=True, trends=False)}
    assert harness.night(first=day(-16))
    assert harness.ran == ["0 trend"]


def test_files_are_compared_by_date_and_path() -> None:
    manifest = Manifest({DATE: {"a": A, "b": B}}, done=True, trends=True)
    now: Mapping[dt.date, Mapping[str, File]] = {DATE: {"a": File(1, 9), "c": C}, day(1): {"d": C}}
    assert gone(manifest, now, [DATE]) == 1
    assert gone(manifest, now, [day(1)]) == 0
    assert gone(manifest, {}, [DATE]) == 2
    assert grown(manifest, {DATE: {"b": B}}, [DATE]) is False
    both = {DATE: {"a": File(1, 9), "b": B, "c": C}, day(1): {"d": C}}
    assert Manifest(united(manifest.files, now), done=True, trends=True) == Manifest(both, done=True, trends=True)


def test_only_the_last_days_that_are_over_are_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    present = [day(number) for number in (-40, -39, -38, -16, -1, 0, 3)]
    assert nightly._recent(present, day(-16), DATE, {day(-39)}, Progress()) == [day(-16), day(-1)]
    assert capsys.readouterr().out.splitlines() == [
        f"dates before {day(-16)} that were never run: 2 (--from {day(-40)} --to {day(-38)} runs them)",
        f"{DATE} is still being written: left out (--date {DATE} runs it anyway)",
        f"{day(3)} is still being written: left out (--date {day(3)} runs it anyway)",
    ]


def test_lookback_days_is_a_number_of_days(capsys: pytest.CaptureFixture[str]) -> None:
    places = ["--input", "in", "--output", "out"]
    assert arguments.parse("p", places).lookback_days == 16
    assert arguments.parse("p", [*places, "--lookback-days", "3"]).lookback_days == 3
    for wrong in ("0", "-1", "x", "1000000"):
        with pytest.raises(SystemExit):
            arguments.parse("p", [*places, "--lookback-days", wrong])
        assert "expected a number of days from 1 to 36500" in capsys.readouterr().err


def sized(mib: int) -> dict[str, File]:
    return {"a": File(mib << 20, 1)}


def test_dates_run_together_as_long_as_they_are_small() -> None:
    files = {day(0): sized(30), day(1): sized(60), day(2): sized(15), day(3): sized(270), day(4): {}, day(6): sized(96)}
    together = [(day(0), day(1)), (day(2),), (day(3),), (day(4), day(6))]
    assert batches(reversed(list(files)), files) == together
    assert batches([], files) == []


@pytest.mark.parametrize("size_bytes", [1, 1 << 40])
def test_two_jobs_run_at_the_same_time_whatever_the_size_of_the_date(
    harness: NightHarness, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    both = Barrier(2, timeout=10)

    def meet(each: Job, _: Batch) -> list[tuple[Table, int]]:
        if not each.is_trend:
            both.wait()
        return [(table, 0) for table in each.tables]

    monkeypatch.setattr(nightly, "run", meet)
    harness.files = {DATE: {"part": File(size_bytes, 1)}}
    assert harness.night()


def test_all_dates_of_a_job_run_at_once_and_each_job_only_the_dates_that_want_it(harness: NightHarness) -> None:
    harness.files = {day(number): {"a": A} for number in range(3)}
    assert harness.night()
    assert harness.together == [(day(0), day(1), day(2))] * 3
    harness.files[day(2)]["late"] = B
    assert harness.night()
    assert Counter(harness.together) == {(day(2),): 2, (day(1), day(2)): 1}
    assert re.findall(r"^\[.*?\]", harness.said.getvalue(), re.MULTILINE)[1:] == ["[3/4]", "[4/4]"]


def test_a_job_that_fails_for_one_date_is_done_for_the_others(harness: NightHarness) -> None:
    harness.files = {day(number): {"a": A} for number in range(4)}
    harness.breaks["plain"] = ValueError("no such luck")
    harness.broken = {day(2)}
    assert not harness.night()
    expected = [(day(0), day(1)), (day(3),), tuple(map(day, range(4))), (day(0), day(1), day(3))]
    assert Counter(harness.together) == Counter(expected)
    assert [date for date, kept in harness.manifests.kept.items() if not kept.done] == [day(2)]
    assert harness.lines == [f"{day(2)} plain: FAILED: no such luck", f"{day(2)} trend: skipped, because plain failed"]
    assert harness.said.getvalue().splitlines()[-1].startswith("[12/12]")


def test_an_error_of_many_jobs_is_told_in_a_line_each_and_whole_only_once(
    harness: NightHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.files = {day(number): {"a": A} for number in range(4)}
    harness.breaks = {name: ValueError("no such luck\nand here is why") for name in ("plain", "audit")}
    harness.broken = {day(1), day(2)}
    assert not harness.night()
    failed = [line for line in harness.lines if "FAILED" in line]
    assert sorted(failed) == [f"{day(n)} {job}: FAILED: no such luck" for n in (1, 2) for job in ("audit", "plain")]
    assert capsys.readouterr().err.count("Traceback") == 1


def test_what_is_killed_counts_as_undone_for_all_dates_of_its_batch(harness: NightHarness) -> None:
    harness.files = {day(0): {"a": A}, day(1): {"a": A}, day(2): sized(97)}
    harness.breaks["audit"] = Killed()
    harness.broken = {day(1)}
    with pytest.raises(Killed):
        harness.night()
    assert {date: kept.done for date, kept in harness.manifests.kept.items()} == {day(0): False, day(1): False}
    harness.breaks.clear()
    assert harness.night()
    assert harness.together.count((day(0), day(1))) == 2


def test_no_query_is_of_more_dates_than_its_plan_has_room_for() -> None:
    dates = [day(number) for number in range(2 * DATES_AT_ONCE + 1)]
    assert [len(each) for each in batches(dates, {})] == [DATES_AT_ONCE, DATES_AT_ONCE, 1]


def test_a_date_that_two_runs_write_at_once_stays_stale(harness: NightHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.files = {DATE: {"a": A}}

    def beside_another(each: Job, batch: Batch) -> list[tuple[Table, int]]:
        monkeypatch.setattr(nightly, "run", harness._run)
        harness.night()  # begins later, ends earlier
        return harness._run(each, batch)

    monkeypatch.setattr(nightly, "run", beside_another)
    harness.night()
    assert (found := harness.manifests.get(DATE)) is not None
    assert not found.done
    harness.night()
    assert "0 plain" in harness.ran
    harness.night()
    assert harness.ran == []
