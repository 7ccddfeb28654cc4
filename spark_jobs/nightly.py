"""All jobs in one session, for the dates of the command line, or for every date that is not up to date: see `runs`.

First come the tables that depend on records alone, date by date; then those that look back on other dates, for every date
that looks back on a changed one. So the tables end up the same in whatever order, how often, and however interrupted the
dates are run. A job that fails stops only those of its date that need it; the date is run again next time.
"""

import datetime as dt
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence

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
from spark_jobs.job import MEMORY_DAYS, Day, Job, days, run
from spark_jobs.runs import Files, Run, Runs, grown
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
"""Every job, each after those that it needs."""


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Night:
    """One run of the set, or of `jobs`. `say` takes a line for each job and date."""

    def __init__(
        self, day: Callable[[dt.date], Day], runs: Runs, jobs: Sequence[Job] = JOBS, say: Callable[[str], object] = _say
    ) -> None:
        self._day, self._runs, self._say = day, runs, say
        self._of_records = tuple(job for job in jobs if not job.remembers)
        self._of_neighbours = tuple(job for job in self._of_records if job.before or job.after)
        self._looking_back = tuple(job for job in jobs if job.remembers)
        self._before, self._after = max(job.before for job in jobs), max(job.after for job in jobs)
        self.failed: dict[dt.date, set[str]] = {}
        """The jobs that failed, or were left out because one that they need did."""

    def stale(self, files: Files) -> dict[dt.date, tuple[Job, ...]]:
        """The dates with jobs of records that are to be run, and these jobs.

        `files`: those of the input. All jobs of a date without a run, or with files that its run did not see; where only the
        neighbours have such files, the jobs that read those. That is so of the day before yesterday every night.
        """
        found: dict[dt.date, tuple[Job, ...]] = {}
        for date in files:
            run = self._runs.get(date)
            if run is None or grown(run, files, [date]):
                found[date] = self._of_records
            elif self._of_neighbours and grown(run, files, self._reads(date)):
                found[date] = self._of_neighbours
        return found

    def everything(self, dates: Iterable[dt.date]) -> dict[dt.date, tuple[Job, ...]]:
        """All jobs of these dates."""
        return dict.fromkeys(dates, self._of_records)

    def run(self, work: Mapping[dt.date, tuple[Job, ...]]) -> bool:
        """Run jobs of records, and those that look back on what they changed; True if every job did its work."""
        changed = {date for date in self._runs.dates() if (run := self._runs.get(date)) and not run.trends}
        for date, jobs in sorted(work.items()):
            if self._records(date, jobs) and jobs == self._of_records:
                changed.add(date)
        for date in self._followers(changed):
            self._each(date, self._looking_back)
        for date in sorted(changed):
            if (run := self._runs.get(date)) and not any(self.failed.get(later) for later in self._followers({date})):
                self._runs.put(date, Run(run.files, trends=True))
        return not self.failed

    def _records(self, date: dt.date, jobs: Sequence[Job]) -> bool:
        before = self._runs.get(date)
        day = self._day(date)
        # Listed before they are read: a file that comes in between is read, and makes the date stale all the same.
        files = records.files(day.spark, day.input, self._reads(date))
        self._runs.remove(date)
        if not self._each(date, jobs):
            return False
        trends = before is not None and before.trends and jobs != self._of_records
        self._runs.put(date, Run(files, trends))
        return True

    def _reads(self, date: dt.date) -> list[dt.date]:
        return days(date, -self._before, self._after)

    def _followers(self, changed: set[dt.date]) -> list[dt.date]:
        """These dates, and all others with a run that look back on one of them."""
        dates = {*self._runs.dates(), *changed}
        return sorted(date for date in dates if any(0 <= (date - each).days <= MEMORY_DAYS for each in changed))

    def _each(self, date: dt.date, jobs: Sequence[Job]) -> bool:
        """Run jobs of one date; whether all did their work."""
        day = self._day(date)
        failed = self.failed.get(date, set())
        for job in jobs:
            if missing := [need.name for need in job.needs if need.name in failed]:
                self._say(f"{date} {job.name}: left out, for it needs {', '.join(missing)}")
                failed.add(job.name)
                continue
            began_s = time.perf_counter()
            try:
                rows = run(job, day)
            except Exception as error:  # noqa: BLE001  # the top of a job: what stops one must not stop the others
                self._say(f"{date} {job.name}: FAILED: {error}")
                traceback.print_exc(file=sys.stderr)
                failed.add(job.name)
            else:
                counted = ", ".join(f"{table} {count} rows" for table, count in rows.items())
                self._say(f"{date} {job.name}: {time.perf_counter() - began_s:.1f} s, {counted}")
        day.release()
        if failed:
            self.failed[date] = failed
        return not failed


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 if everything was computed, 1 if a job or the report failed, 2 if nothing could begin."""
    options = arguments.parse("spark_jobs.nightly", argv, dates_required=False)
    began_s = time.perf_counter()
    try:
        if options.slo:
            slo_file.load(options.slo)  # a mistake is told before hours of work, not after
        spark = session()
        night = Night(
            lambda date: Day(spark, options.input, options.output, date, options.slo), Runs(Storage(spark), options.output)
        )
        present = records.dates(spark, options.input)
        if options.dates:
            work = night.everything(options.dates)
        else:
            if (today := dt.datetime.now(dt.UTC).date()) in present:
                _say(f"{today} is still being written: left out (--date {today} runs it all the same)")
            seen = records.files(spark, options.input, present)
            work = {date: jobs for date, jobs in night.stale(seen).items() if date != today}
    except (slo_file.SloFileError, JavaMissingError, records.InputMissingError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    fine = night.run(work)
    if last := max(work, default=None):
        fine = _report(spark, options.output, last) and fine
    _say(f"{len(work)} dates in {time.perf_counter() - began_s:.1f} s")
    for date, names in sorted(night.failed.items()):
        sys.stderr.write(f"{date}: failed: {', '.join(sorted(names))}\n")
    return 0 if fine else 1


def _report(spark: SparkSession, output: str, date: dt.date) -> bool:
    try:
        from spark_jobs import report  # noqa: PLC0415  # what it draws with is of no use to a job

        for path in report.write(spark, output, date, f"{output}/report"):
            _say(f"{date} report: {path}")
    except Exception as error:  # noqa: BLE001  # the tables stand, whatever the report makes of them
        _say(f"{date} report: FAILED: {error}")
        traceback.print_exc(file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
