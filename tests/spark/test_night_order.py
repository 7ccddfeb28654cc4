"""Which jobs a nightly run takes, and which tables it keeps: without Spark, on a listing and manifests in memory."""

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_jobs import arguments, job, nightly, records
from spark_jobs.job import Day, Job
from spark_jobs.manifests import Manifest, Manifests, gone, grown, united
from spark_jobs.nightly import NightlyRun
from spark_jobs.records import File
from spark_jobs.tables import Table

DATE = dt.date(2026, 11, 20)
TABLE = Table("table", "?", {"date": "DATE"})
PLAIN = Job("plain", (TABLE,), lambda _: ())
AUDIT = Job("audit", (TABLE,), lambda _: (), before=1, after=1)
TREND = Job("trend", (TABLE,), lambda _: (), needs=(PLAIN,), is_trend=True)
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
        self.tables: set[str] = set()
        self.breaks: dict[str, BaseException] = {}
        self.lines: list[str] = []
        patch.setattr(nightly, "run", self._run)
        patch.setattr(records, "files", lambda _, __, dates: {date: dict(self.files.get(date, {})) for date in dates})
        patch.setattr(nightly, "Storage", lambda _: SimpleNamespace(exists=self.tables.__contains__))

    def _run(self, each: Job, day: Day) -> dict[str, int]:
        if error := self.breaks.get(each.name):
            raise error
        self.ran.append(f"{(day.date - DATE).days} {each.name}")
        self.tables.update(f"{day.output}/{table.name}/date={day.date}" for table in each.tables)
        return {}

    def night(self, *asked: dt.date, first: dt.date = dt.date.min) -> bool:
        """One nightly run, of these dates or of the stale ones. Afterwards `ran` has its jobs, `lines` its output."""
        self.ran, self.lines = [], []
        each = NightlyRun(
            lambda date: Day(cast(Any, None), "in", "out", date),
            cast(Manifests, self.manifests),
            (PLAIN, AUDIT, TREND),
            self.lines.append,
        )
        work = each.everything(asked) if asked else each.stale(sorted(self.files), self.files)
        return each.run(work, first, asked=bool(asked))

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


def test_a_job_alone_leaves_the_trends_to_the_next_night_and_all_tables_if_it_is_killed(
    harness: NightHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.files = {DATE: {"a": A}}
    harness.night()
    monkeypatch.setattr(job, "session", lambda _: None)
    monkeypatch.setattr(job, "Storage", lambda _: None)
    monkeypatch.setattr(job, "Manifests", lambda _, __: harness.manifests)
    monkeypatch.setattr(job, "run", harness._run)
    argv = ["--date", str(DATE), "--input", "in", "--output", "out"]
    job.main(PLAIN, argv)
    harness.night()
    assert harness.ran == ["0 trend"]
    harness.breaks["plain"] = Killed()
    with pytest.raises(Killed):
        job.main(PLAIN, argv)
    harness.breaks.clear()
    harness.night()
    assert harness.ran == ["0 plain", "0 audit", "0 trend"]


def test_files_are_compared_by_date_and_path() -> None:
    manifest = Manifest({DATE: {"a": A, "b": B}}, done=True, trends=True)
    now: Mapping[dt.date, Mapping[str, File]] = {DATE: {"a": File(1, 9), "c": C}, day(1): {"d": C}}
    assert gone(manifest, now, [DATE]) == 1
    assert gone(manifest, now, [day(1)]) == 0
    assert gone(manifest, {}, [DATE]) == 2
    assert grown(manifest, {DATE: {"b": B}}, [DATE]) is False
    assert united(manifest.files, now) == {DATE: {"a": File(1, 9), "b": B, "c": C}, day(1): {"d": C}}


def test_only_the_last_days_that_are_over_are_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    present = [day(number) for number in (-40, -39, -38, -16, -1, 0, 3)]
    assert nightly._recent(present, day(-16), DATE, {day(-39)}) == [day(-16), day(-1)]
    assert capsys.readouterr().out.splitlines() == [
        f"dates before {day(-16)} that were never run: 2 (--from {day(-40)} --to {day(-38)} runs them)",
        f"{DATE} is still being written: left out (--date {DATE} runs it anyway)",
        f"{day(3)} is still being written: left out (--date {day(3)} runs it anyway)",
    ]


def test_lookback_days_is_a_number_of_days(capsys: pytest.CaptureFixture[str]) -> None:
    places = ["--input", "in", "--output", "out"]
    assert arguments.parse("p", places, dates_required=False).lookback_days == 16
    assert arguments.parse("p", [*places, "--lookback-days", "3"], dates_required=False).lookback_days == 3
    for wrong in ("0", "-1", "x", "1000000"):
        with pytest.raises(SystemExit):
            arguments.parse("p", [*places, "--lookback-days", wrong], dates_required=False)
        assert "expected a number of days from 1 to 36500" in capsys.readouterr().err
