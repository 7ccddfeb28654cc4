"""All jobs in one session, for the dates of the command line, or for every recent date that is not up to date: see `runs`.

First come the tables that depend on records alone, date by date; then those that look back on other dates, for every date
that looks back on a changed one. So the tables end up the same in whatever order, how often, and however interrupted the
dates are run. A job that fails stops only those of its date that need it; the date is run again next time. At the end there
is a report of every date that got new tables.
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
from spark_jobs.job import MEMORY_DAYS, Day, Job, days, run
from spark_jobs.runs import Files, Run, Runs, gone, grown, united
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
        self.changed: set[dt.date] = set()
        """The dates that got a new table."""
        self.failed: dict[dt.date, set[str]] = {}
        """The jobs that failed, or were left out because one that they need did."""

    def stale(self, dates: Iterable[dt.date], files: Files) -> dict[dt.date, tuple[Job, ...]]:
        """Those of `dates` with jobs of records that are to be run, and these jobs.

        `files`: those of every date that `dates` read. All jobs of a date without a finished run, or with files that its run
        did not see; where only the neighbours have such files, the jobs that read those. That is so of the day before
        yesterday every night.
        """
        found: dict[dt.date, tuple[Job, ...]] = {}
        for date in dates:
            run = self._runs.get(date)
            if run is None or not run.done or grown(run, files, [date]):
                found[date] = self._of_records
            elif self._of_neighbours and grown(run, files, self.reads(date)):
                found[date] = self._of_neighbours
        return found

    def everything(self, dates: Iterable[dt.date]) -> dict[dt.date, tuple[Job, ...]]:
        """All jobs of these dates."""
        return dict.fromkeys(dates, self._of_records)

    def run(self, work: Mapping[dt.date, tuple[Job, ...]], first: dt.date = dt.date.min, *, asked: bool = False) -> bool:
        """Run jobs of records, and those that look back on what they changed; True if every job did its work.

        `first`: what an earlier run left undone before that date stays so. `asked`: also make tables again that will lack
        the records of files that are gone; else they are kept.
        """
        dates = [date for date in self._runs.dates() if date >= first]
        moved = {date for date in dates if (run := self._runs.get(date)) and not run.trends}
        # Also after a failure: what looks back may not need that job, and is left out if it does.
        moved.update([date for date, jobs in sorted(work.items()) if self._records(date, jobs, asked)])
        for date in self._followers(moved):
            self._each(date, self._looking_back)
        names = {job.name for job in self._looking_back}
        for date in sorted(moved):
            behind = any(names & self.failed.get(later, set()) for later in self._followers({date}))
            if (run := self._runs.get(date)) and not behind:
                self._runs.put(date, replace(run, trends=True))
        return not self.failed

    def _records(self, date: dt.date, wanted: Sequence[Job], asked: bool) -> bool:
        """Run jobs of one date's records; whether one ran that others look back on."""
        before = self._runs.get(date)
        day = self._day(date)
        # Listed before they are read: a file that comes in between is read, and makes the date stale all the same.
        files = records.files(day.spark, day.input, self.reads(date))
        jobs = tuple(wanted)
        if before and not asked:
            jobs = tuple(job for job in wanted if not _lost(job, before, files, date) or not _stands(job, before, day))
        self._tell(date, [job for job in wanted if job not in jobs], jobs, before, files)
        if not jobs:
            return False
        is_looked_at = any(job not in self._of_neighbours for job in jobs)
        trends = before is not None and before.trends and not is_looked_at
        seen = united(before.files, files) if before else files
        self._runs.put(date, Run(seen, done=False, trends=trends))
        if self._each(date, jobs):
            self._runs.put(date, Run(files if jobs == self._of_records else seen, done=True, trends=trends))
        return is_looked_at

    def _tell(self, date: dt.date, kept: Sequence[Job], jobs: Sequence[Job], before: Run | None, files: Files) -> None:
        if before is None:
            return
        if kept:
            lost = max(_lost(job, before, files, date) for job in kept)
            names = "all tables" if len(kept) == len(self._of_records) else ", ".join(job.name for job in kept)
            self._say(f"{date} {names}: kept: {lost} of its files are gone (--date {date} runs it all the same)")
        if lost := max((_lost(job, before, files, date) for job in jobs), default=0):
            self._say(f"{date}: {lost} files of its last run are gone: the new tables lack their records")

    def reads(self, date: dt.date) -> list[dt.date]:
        """The dates whose records go into the tables of `date`."""
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
                self.changed.add(date)
                counted = ", ".join(f"{table} {count} rows" for table, count in rows.items())
                self._say(f"{date} {job.name}: {time.perf_counter() - began_s:.1f} s, {counted}")
        day.release()
        if failed:
            self.failed[date] = failed
        return not failed


def _lost(job: Job, before: Run, files: Files, date: dt.date) -> int:
    """How many files that the job read for `before` are gone."""
    return gone(before, files, days(date, -job.before, job.after))


def _stands(job: Job, before: Run, day: Day) -> bool:
    """Whether the job's tables are there: a first run that did not come to its end leaves some without."""
    storage = Storage(day.spark)
    return before.done or all(storage.exists(f"{day.output}/{table.name}/date={day.date}") for table in job.tables)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 if everything was computed, 1 if a job or the report failed, 2 if nothing could begin."""
    options = arguments.parse("spark_jobs.nightly", argv, dates_required=False)
    began_s = time.perf_counter()
    try:
        if options.slo:
            slo_file.load(options.slo)  # a mistake is told before hours of work, not after
        spark = session()
        runs = Runs(Storage(spark), options.output)
        night = Night(lambda date: Day(spark, options.input, options.output, date, options.slo), runs)
        present = records.dates(spark, options.input)
        today = dt.datetime.now(dt.UTC).date()
        first = min([today - dt.timedelta(days=options.lookback_days), *options.dates])
        if options.dates:
            work = night.everything(options.dates)
        else:
            recent = _recent(present, first, today, set(runs.dates()))
            read = {each for date in recent for each in night.reads(date)}
            work = night.stale(recent, records.files(spark, options.input, read))
    except (slo_file.SloFileError, JavaMissingError, records.InputMissingError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    fine = night.run(work, first, asked=bool(options.dates))
    for date in sorted(night.changed):
        fine = _report(spark, options.output, date) and fine
    if not work and not night.changed:
        _say(f"nothing to do: every date from {first} on is up to date")
    _say(f"{len(night.changed)} dates in {time.perf_counter() - began_s:.1f} s")
    for date, names in sorted(night.failed.items()):
        sys.stderr.write(f"{date}: failed: {', '.join(sorted(names))}\n")
    return 0 if fine else 1


def _recent(present: Sequence[dt.date], first: dt.date, today: dt.date, known: set[dt.date]) -> list[dt.date]:
    """Those of the ascending dates from `first` on that are over. Says what is left out on both sides."""
    if missed := [date for date in present if date < first and date not in known]:
        _say(f"{len(missed)} dates before {first} were never run: --from {missed[0]} --to {missed[-1]} runs them")
    for date in present:
        if date >= today:
            _say(f"{date} is still being written: left out (--date {date} runs it all the same)")
    return [date for date in present if first <= date < today]


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
