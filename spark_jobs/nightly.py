"""All jobs in one session, for the dates of the command line, or for every date that is not up to date: see `runs`.

First come the tables that depend on records alone, date by date; then those that look back on other dates, for every date that a
changed one may have changed. So the tables end up the same in whatever order, how often, and however interrupted dates are run.
A job that fails does not stop the others of its date, but those that need it; the date gets no manifest, so it is run again.
"""

import datetime as dt
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs import (
    anomalies,
    arguments,
    counts,
    dead_letters,
    latency,
    outcomes,
    records,
    redelivery,
    route_hourly,
    slo,
    slo_file,
    top_talkers,
    traffic_matrix,
    ttl_margin,
)
from spark_jobs.java import JavaMissingError
from spark_jobs.job import MEMORY_DAYS, Day, Job, run
from spark_jobs.runs import Run, Runs, grown, read_by
from spark_jobs.session import session
from spark_jobs.storage import Storage


def jobs() -> tuple[Job, ...]:
    """Every job, each after those that it needs."""
    return (
        route_hourly.JOB,
        latency.JOB,
        counts.JOB,
        traffic_matrix.JOB,
        top_talkers.JOB,
        ttl_margin.JOB,
        redelivery.JOB,
        slo.JOB,
        outcomes.JOB,
        dead_letters.JOB,
        anomalies.JOB,
    )


class Night:
    """One run of the whole set."""

    def __init__(
        self,
        spark: SparkSession,
        traces: str,
        output: str,
        slo: str | None = None,
        jobs: Sequence[Job] | None = None,
        say: Callable[[str], object] = lambda line: sys.stdout.write(line + "\n"),
    ) -> None:
        self._spark, self._traces, self._output, self._slo, self._say = spark, traces, output, slo, say
        every = jobs or globals()["jobs"]()
        self._jobs = tuple(job for job in every if not job.remembers)
        self._looking_back = tuple(job for job in every if job.remembers)
        self._before, self._after = max(job.before for job in every), max(job.after for job in every)
        self._runs = Runs(Storage(spark), output)
        self.failed: dict[dt.date, set[str]] = {}
        """The jobs that failed, or had to be left out because one that they need did."""

    def stale(self) -> list[dt.date]:
        """The dates of the input that have no run, or one that did not see all files that there are now."""
        present = records.dates(self._spark, self._traces)
        files = records.files(self._spark, self._traces, present)
        runs = {date: self._runs.get(date) for date in present}
        # A date without records of its own may still have messages, in the records of the next: the audit goes by msg_ts. But
        # without a folder nobody would look for it in the tables, so only dates with one are run.
        return [
            date
            for date, seen in runs.items()
            if seen is None or grown(seen, files, read_by(date, self._before, self._after))
        ]

    def run(self, dates: Iterable[dt.date]) -> bool:
        """Compute these dates, and what follows from them; True if every job did its work."""
        dates = sorted(set(dates))
        unfinished = [date for date in self._runs.dates() if (seen := self._runs.get(date)) and not seen.trends]
        done = [date for date in dates if self._compute(date)]
        changed = sorted({*unfinished, *done})
        # Dates whose records part failed look back too: what could be computed of them is there to be read.
        looking_back = self._looking_back_on(changed, dates)
        for date in looking_back:
            self._each(date, self._looking_back)
        for date in changed:
            if not any(self.failed.get(later) for later in self._looking_back_on([date], ())):
                self._runs.put(date, Run(self._seen(date).files, trends=True))
        return not self.failed

    def _compute(self, date: dt.date) -> bool:
        """The tables that depend on records alone."""
        # Before the records are read: a file that comes in between is read as well, and makes the date stale all the same.
        files = records.files(self._spark, self._traces, read_by(date, self._before, self._after))
        self._runs.remove(date)
        if not self._each(date, self._jobs):
            return False
        self._runs.put(date, Run(files, trends=False))
        return True

    def _seen(self, date: dt.date) -> Run:
        if (seen := self._runs.get(date)) is None:
            raise AssertionError(f"the manifest of {date} was written by this very run")
        return seen

    def _looking_back_on(self, changed: Sequence[dt.date], asked: Sequence[dt.date]) -> list[dt.date]:
        """The dates with tables that look back on a changed date, the changed dates themselves, and those asked for."""
        known = {*self._runs.dates(), *changed}
        near = {date for date in known for origin in changed if 0 <= (date - origin).days <= MEMORY_DAYS}
        return sorted(near.union(asked))

    def _each(self, date: dt.date, jobs: Sequence[Job]) -> bool:
        day = Day(self._spark, self._traces, self._output, date, self._slo)
        failed = self.failed.get(date, set())
        fine = True
        for job in jobs:
            if missing := [need.name for need in job.needs if need.name in failed]:
                self._say(f"{date} {job.name}: left out, for it needs {', '.join(missing)}")
                failed.add(job.name)
                fine = False
                continue
            began_s = time.perf_counter()
            try:
                rows = run(job, day)
            except (PySparkException, OSError, ValueError, ArithmeticError, LookupError, TypeError) as error:
                self._say(f"{date} {job.name}: FAILED: {error}")
                traceback.print_exc(file=sys.stderr)
                failed.add(job.name)
                fine = False
            else:
                counted = ", ".join(f"{table} {count} rows" for table, count in rows.items())
                self._say(f"{date} {job.name}: {time.perf_counter() - began_s:.1f} s, {counted}")
        day.release()
        if failed:
            self.failed[date] = failed
        return fine


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 if everything was computed, 1 if a job failed, 2 if nothing could be begun."""
    options = arguments.parse("spark_jobs.nightly", argv, dates_required=False)
    try:
        if options.slo:
            slo_file.load(options.slo)  # a mistake is told before hours of work, not after
        spark = session()
        night = Night(spark, options.input, options.output, options.slo)
        dates = options.dates or night.stale()
    except (slo_file.SloFileError, JavaMissingError, records.InputMissingError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    began_s = time.perf_counter()
    fine = night.run(dates)
    sys.stdout.write(f"{len(dates)} dates in {time.perf_counter() - began_s:.1f} s\n")
    for date, names in sorted(night.failed.items()):
        sys.stderr.write(f"{date}: failed: {', '.join(sorted(names))}\n")
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
