"""Which jobs a night runs, and which tables it keeps: no Spark, a listing and manifests in memory."""

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_jobs import arguments, job, nightly, records
from spark_jobs.job import Day, Job
from spark_jobs.nightly import Night
from spark_jobs.records import File
from spark_jobs.runs import Run, Runs, gone, grown, united
from spark_jobs.tables import Table

DATE = dt.date(2026, 11, 20)
TABLE = Table("table", "?", {"date": "DATE"})
PLAIN = Job("plain", (TABLE,), lambda _: ())
AUDIT = Job("audit", (TABLE,), lambda _: (), before=1, after=1)
TREND = Job("trend", (TABLE,), lambda _: (), needs=(PLAIN,), remembers=True)
A, B, C = File(1, 1), File(2, 2), File(3, 3)


class Killed(BaseException):
    """Stands for a kill: nothing of the jobs catches it."""


class MemoryRuns:
    """`Runs` in memory."""

    def __init__(self) -> None:
        self.kept: dict[dt.date, Run] = {}

    def get(self, date: dt.date) -> Run | None:
        return self.kept.get(date)

    def dates(self) -> list[dt.date]:
        return sorted(self.kept)

    def put(self, date: dt.date, run: Run) -> None:
        self.kept[date] = run


class NightHarness:
    """The input's files, what was published, and the manifests; `breaks` is what a job of that name does."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.files: dict[dt.date, dict[str, File]] = {}
        self.runs = MemoryRuns()
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
        """One night, of the dates or of those that are stale. `ran` has its jobs, `lines` what it said, afterwards."""
        self.ran, self.lines = [], []
        each = Night(
            lambda date: Day(cast(Any, None), "in", "out", date),
            cast(Runs, self.runs),
            (PLAIN, AUDIT, TREND),
            self.lines.append,
        )
        work = each.everything(asked) if asked else each.stale(sorted(self.files), self.files)
        return each.run(work, first, asked=bool(asked))

    def said(self, part: str) -> list[str]:
        return [line for line in self.lines if part in line]


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> NightHarness:
    return NightHarness(monkeypatch)


def day(number: int) -> dt.date:
    return DATE + dt.timedelta(days=number)


def test_a_late_file_does_not_shrink_a_date_whose_other_files_are_gone(harness: NightHarness) -> None:
    harness.files = {DATE: {"a": A, "b": B}}
    assert harness.night()
    before = harness.runs.get(DATE)
    harness.files = {DATE: {"b": B, "late": C}}
    assert harness.night()
    assert harness.ran == []
    assert harness.lines == [f"{DATE} all tables: kept: 1 of its files are gone (--date {DATE} runs it all the same)"]
    assert harness.runs.get(DATE) == before


def test_asked_by_name_a_date_is_run_on_what_is_left_and_warned_of(harness: NightHarness) -> None:
    harness.files = {DATE: {"a": A, "b": B}}
    harness.night()
    harness.files = {DATE: {"b": B, "late": C}}
    assert harness.night(DATE)
    assert harness.ran == ["0 plain", "0 audit", "0 trend"]
    assert harness.said("lack their records") == [
        f"{DATE}: 1 files of its last run are gone: the new tables lack their records"
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
    assert len(harness.said(f"{DATE} audit: kept: 1 ")) == 1
    harness.files[day(1)] = {"new": C}
    assert harness.night()
    assert "0 audit" not in harness.ran
    assert "1 audit" in harness.ran


@pytest.mark.parametrize("error", [pytest.param(Killed(), id="killed"), pytest.param(ValueError("x"), id="failed")])
def test_a_run_that_did_not_end_still_knows_the_files_of_the_tables_that_stand(
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


def test_a_kill_does_not_make_it_forget_what_was_gone_before(harness: NightHarness) -> None:
    harness.files = {day(-1): {"old": A}, DATE: {"a": A}}
    harness.night()
    harness.files = {DATE: {"a": A, "late": B}}
    harness.breaks["plain"] = Killed()
    with pytest.raises(Killed):
        harness.night()
    harness.breaks.clear()
    assert harness.night()
    assert harness.ran == ["0 plain", "0 trend"]


def test_a_first_run_that_did_not_end_is_run_on_what_is_there(harness: NightHarness) -> None:
    harness.files = {DATE: {"a": A, "b": B}}
    harness.breaks["plain"] = Killed()
    with pytest.raises(Killed):
        harness.night()
    harness.breaks.clear()
    harness.files = {DATE: {"b": B}}
    assert harness.night()
    assert harness.ran == ["0 plain", "0 audit", "0 trend"]


def test_a_job_that_fails_does_not_stop_those_that_look_back_on_others(harness: NightHarness) -> None:
    harness.files = {DATE: {"a": A}}
    harness.breaks["audit"] = ValueError("no such luck")
    assert not harness.night()
    assert harness.ran == ["0 plain", "0 trend"]
    assert harness.runs.kept[DATE] == Run({day(-1): {}, DATE: {"a": A}, day(1): {}}, done=False, trends=True)
    harness.breaks = {"plain": ValueError("no such luck")}
    assert not harness.night()
    assert harness.ran == ["0 audit"]
    assert harness.said("trend") == [f"{DATE} trend: left out, for it needs plain"]
    assert not harness.runs.kept[DATE].trends
    harness.breaks.clear()
    assert harness.night()
    assert harness.night()
    assert harness.ran == []


def test_what_is_older_than_the_first_date_is_left_alone(harness: NightHarness) -> None:
    harness.runs.kept = {day(-30): Run({}, done=True, trends=False), DATE: Run({}, done=True, trends=False)}
    assert harness.night(first=day(-16))
    assert harness.ran == ["0 trend"]


def test_a_job_alone_leaves_the_trends_to_the_next_night_and_all_tables_if_it_is_killed(
    harness: NightHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.files = {DATE: {"a": A}}
    harness.night()
    monkeypatch.setattr(job, "session", lambda _: None)
    monkeypatch.setattr(job, "Storage", lambda _: None)
    monkeypatch.setattr(job, "Runs", lambda _, __: harness.runs)
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
    run = Run({DATE: {"a": A, "b": B}}, done=True, trends=True)
    now: Mapping[dt.date, Mapping[str, File]] = {DATE: {"a": File(1, 9), "c": C}, day(1): {"d": C}}
    assert gone(run, now, [DATE]) == 1
    assert gone(run, now, [day(1)]) == 0
    assert gone(run, {}, [DATE]) == 2
    assert grown(run, {DATE: {"b": B}}, [DATE]) is False
    assert united(run.files, now) == {DATE: {"a": File(1, 9), "b": B, "c": C}, day(1): {"d": C}}


def test_only_the_last_days_that_are_over_are_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    present = [day(number) for number in (-40, -39, -38, -16, -1, 0, 3)]
    assert nightly._recent(present, day(-16), DATE, {day(-39)}) == [day(-16), day(-1)]
    assert capsys.readouterr().out.splitlines() == [
        f"2 dates before {day(-16)} were never run: --from {day(-40)} --to {day(-38)} runs them",
        f"{DATE} is still being written: left out (--date {DATE} runs it all the same)",
        f"{day(3)} is still being written: left out (--date {day(3)} runs it all the same)",
    ]


def test_the_night_looks_back_so_many_days(capsys: pytest.CaptureFixture[str]) -> None:
    places = ["--input", "in", "--output", "out"]
    assert arguments.parse("p", places, dates_required=False).lookback_days == 16
    assert arguments.parse("p", [*places, "--lookback-days", "3"], dates_required=False).lookback_days == 3
    for wrong in ("0", "-1", "x", "1000000"):
        with pytest.raises(SystemExit):
            arguments.parse("p", [*places, "--lookback-days", wrong], dates_required=False)
        assert "expected a number of days from 1 to 36500" in capsys.readouterr().err
