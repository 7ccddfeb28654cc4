"""Runs all jobs in one Spark session, for the dates on the command line or for every recent date that is not up to date.

Jobs that read records come first, date by date: they make the *record tables*. Then come the jobs that look back on the
tables of earlier dates and make the *trend tables*, for every date that looks back on a changed one. The tables are
therefore the same in whatever order dates are run, however often, and however often a run is interrupted. A job that fails
stops only those jobs of its date that need it; the date runs again next time. At the end, every date with new tables gets a
report.

Which dates are up to date is in their manifests: see `manifests`.
"""

import datetime as dt
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from spark_jobs import (
    anomalies,
    arguments,
    counts,
    dead_letters,
    delivery_audit,
    latency,
    outcomes,
    records,
    redelivery,
    route_hourly,
    slo,
    slo_file,
    streamer_health,
    top_talkers,
    traffic_matrix,
    ttl_margin,
)
from spark_jobs.java import JavaMissingError
from spark_jobs.job import TREND_DAYS, Day, Job, days, run
from spark_jobs.manifests import Files, Manifest, Manifests, gone, grown, united
from spark_jobs.session import session
from spark_jobs.storage import Storage

JOBS = (
    route_hourly.JOB,
    latency.JOB,
    counts.JOB,
    traffic_matrix.JOB,
    top_talkers.JOB,
    ttl_margin.JOB,
    redelivery.JOB,
    delivery_audit.JOB,
    streamer_health.JOB,
    slo.JOB,
    outcomes.JOB,
    dead_letters.JOB,
    anomalies.JOB,
)
"""All jobs, each after those that it needs."""


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class NightlyRun:
    """One run of all jobs, or of `jobs`. `tell` gets a line for each job and date."""

    def __init__(
        self,
        day: Callable[[dt.date], Day],
        manifests: Manifests,
        jobs: Sequence[Job] = JOBS,
        tell: Callable[[str], object] = _print,
    ) -> None:
        self._day, self._manifests, self._tell = day, manifests, tell
        self._record_jobs = tuple(job for job in jobs if not job.is_trend)
        self._neighbour_jobs = tuple(job for job in self._record_jobs if job.before or job.after)
        self._trend_jobs = tuple(job for job in jobs if job.is_trend)
        self._before, self._after = max(job.before for job in jobs), max(job.after for job in jobs)
        self.changed: set[dt.date] = set()
        """The dates that got a new table."""
        self.failed: dict[dt.date, set[str]] = {}
        """The jobs that failed, or were skipped because a job that they need failed."""

    def stale(self, dates: Iterable[dt.date], files: Files) -> dict[dt.date, tuple[Job, ...]]:
        """Those of `dates` that are not up to date, each with the record jobs to run.

        `files`: the files of every date that `dates` read. A date runs all record jobs if it has no complete manifest, or a
        file that its manifest does not list. If only a neighbouring date has such a file, the jobs run that read neighbours;
        that is so for the day before yesterday every night.
        """
        found: dict[dt.date, tuple[Job, ...]] = {}
        for date in dates:
            manifest = self._manifests.get(date)
            if manifest is None or not manifest.done or grown(manifest, files, [date]):
                found[date] = self._record_jobs
            elif self._neighbour_jobs and grown(manifest, files, self.reads(date)):
                found[date] = self._neighbour_jobs
        return found

    def everything(self, dates: Iterable[dt.date]) -> dict[dt.date, tuple[Job, ...]]:
        """All record jobs, for each of these dates."""
        return dict.fromkeys(dates, self._record_jobs)

    def run(self, work: Mapping[dt.date, tuple[Job, ...]], first: dt.date = dt.date.min, *, asked: bool = False) -> bool:
        """Run record jobs, then the trend jobs that look back on what they changed. Returns whether every job succeeded.

        `first`: what an earlier run left undone before that date stays undone. `asked`: the user named the dates, so tables
        are replaced even if files are gone since; otherwise such tables are kept.
        """
        dates = [date for date in self._manifests.dates() if date >= first]
        moved = {date for date in dates if (manifest := self._manifests.get(date)) and not manifest.trends}
        # Even after a failure: a trend job may not need the failed one, and is skipped if it does.
        moved.update([date for date, jobs in sorted(work.items()) if self._run_record_jobs(date, jobs, asked)])
        for date in self._followers(moved):
            self._run_jobs(date, self._trend_jobs)
        names = {job.name for job in self._trend_jobs}
        for date in sorted(moved):
            is_behind = any(names & self.failed.get(later, set()) for later in self._followers({date}))
            if (manifest := self._manifests.get(date)) and not is_behind:
                self._manifests.put(date, replace(manifest, trends=True))
        return not self.failed

    def _run_record_jobs(self, date: dt.date, wanted: Sequence[Job], asked: bool) -> bool:
        """Run record jobs of one date. Returns whether one of them ran on which trend jobs look back."""
        before = self._manifests.get(date)
        day = self._day(date)
        # Listed before they are read: a file that comes in between is read, and the date is stale all the same.
        files = records.files(day.spark, day.input, self.reads(date))
        jobs = tuple(wanted)
        if before and not asked:
            jobs = tuple(job for job in wanted if not _lost(job, before, files, date) or not _has_tables(job, before, day))
        self._tell_lost_files(date, [job for job in wanted if job not in jobs], jobs, before, files)
        if not jobs:
            return False
        is_looked_back_on = any(job not in self._neighbour_jobs for job in jobs)
        trends = before is not None and before.trends and not is_looked_back_on
        seen = united(before.files, files) if before else files
        self._manifests.put(date, Manifest(seen, done=False, trends=trends))
        if self._run_jobs(date, jobs):
            self._manifests.put(date, Manifest(files if jobs == self._record_jobs else seen, done=True, trends=trends))
        return is_looked_back_on

    def _tell_lost_files(
        self, date: dt.date, kept: Sequence[Job], jobs: Sequence[Job], before: Manifest | None, files: Files
    ) -> None:
        if before is None:
            return
        if kept:
            lost = max(_lost(job, before, files, date) for job in kept)
            names = "all tables" if len(kept) == len(self._record_jobs) else ", ".join(job.name for job in kept)
            self._tell(f"{date} {names}: kept, because files are gone: {lost} (--date {date} runs it anyway)")
        if lost := max((_lost(job, before, files, date) for job in jobs), default=0):
            self._tell(f"{date}: files gone since the last run: {lost}; the new tables lack their records")

    def reads(self, date: dt.date) -> list[dt.date]:
        """The dates whose records go into the tables of `date`."""
        return days(date, -self._before, self._after)

    def _followers(self, changed: set[dt.date]) -> list[dt.date]:
        """These dates, and all other dates with a manifest that look back on one of them."""
        dates = {*self._manifests.dates(), *changed}
        return sorted(date for date in dates if any(0 <= (date - each).days <= TREND_DAYS for each in changed))

    def _run_jobs(self, date: dt.date, jobs: Sequence[Job]) -> bool:
        """Run jobs of one date. Returns whether all succeeded."""
        day = self._day(date)
        failed = self.failed.get(date, set())
        for job in jobs:
            if missing := [need.name for need in job.needs if need.name in failed]:
                self._tell(f"{date} {job.name}: skipped, because {', '.join(missing)} failed")
                failed.add(job.name)
                continue
            began_s = time.perf_counter()
            try:
                rows = run(job, day)
            except Exception as error:  # noqa: BLE001  # the top of a job: its fault must not stop the other jobs
                self._tell(f"{date} {job.name}: FAILED: {error}")
                traceback.print_exc(file=sys.stderr)
                failed.add(job.name)
            else:
                self.changed.add(date)
                counted = ", ".join(f"{table} {count} rows" for table, count in rows.items())
                self._tell(f"{date} {job.name}: {time.perf_counter() - began_s:.1f} s, {counted}")
        day.release()
        if failed:
            self.failed[date] = failed
        return not failed


def _lost(job: Job, before: Manifest, files: Files, date: dt.date) -> int:
    """How many of the files that the job read last time are gone."""
    return gone(before, files, days(date, -job.before, job.after))


def _has_tables(job: Job, before: Manifest, day: Day) -> bool:
    """Whether the job's tables exist. After a first run that was interrupted, some do not."""
    storage = Storage(day.spark)
    return before.done or all(storage.exists(f"{day.output}/{table.name}/date={day.date}") for table in job.tables)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 if everything was computed, 1 if a job or the report failed, 2 if nothing could start."""
    options = arguments.parse("spark_jobs.nightly", argv, dates_required=False)
    began_s = time.perf_counter()
    try:
        if options.slo:
            slo_file.load(options.slo)  # a mistake is reported before hours of work, not after
        spark = session()
        manifests = Manifests(Storage(spark), options.output)
        night = NightlyRun(lambda date: Day(spark, options.input, options.output, date, options.slo), manifests)
        present = records.dates(spark, options.input)
        today = dt.datetime.now(dt.UTC).date()
        first = min([today - dt.timedelta(days=options.lookback_days), *options.dates])
        if options.dates:
            work = night.everything(options.dates)
        else:
            recent = _recent(present, first, today, set(manifests.dates()))
            read = {each for date in recent for each in night.reads(date)}
            work = night.stale(recent, records.files(spark, options.input, read))
        succeeded = night.run(work, first, asked=bool(options.dates))
    except (slo_file.SloFileError, JavaMissingError, records.InputMissingError, records.NewerVersionError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for date in sorted(night.changed):
        succeeded = _report(spark, options.output, date) and succeeded
    if not work and not night.changed:
        _print(f"nothing to do: every date from {first} on is up to date")
    _print(f"dates with new tables: {len(night.changed)}, in {time.perf_counter() - began_s:.1f} s")
    for date, names in sorted(night.failed.items()):
        sys.stderr.write(f"{date}: failed: {', '.join(sorted(names))}\n")
    return 0 if succeeded else 1


def _recent(present: Sequence[dt.date], first: dt.date, today: dt.date, known: set[dt.date]) -> list[dt.date]:
    """Those of the ascending dates that are over, from `first` on. Prints which dates are left out on either side."""
    if missed := [date for date in present if date < first and date not in known]:
        _print(f"dates before {first} that were never run: {len(missed)} (--from {missed[0]} --to {missed[-1]} runs them)")
    for date in present:
        if date >= today:
            _print(f"{date} is still being written: left out (--date {date} runs it anyway)")
    return [date for date in present if first <= date < today]


def _report(spark: SparkSession, output: str, date: dt.date) -> bool:
    try:
        from spark_jobs import report  # noqa: PLC0415  # the jobs themselves need no drawing libraries

        for path in report.write(spark, output, date, f"{output}/report"):
            _print(f"{date} report: {path}")
    except Exception as error:  # noqa: BLE001  # the tables are good, whatever happens to the report
        _print(f"{date} report: FAILED: {error}")
        traceback.print_exc(file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
