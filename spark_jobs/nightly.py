"""Runs all jobs in one Spark session, for the dates on the command line or for every recent date that is not up to date.

Jobs that read records come first, date by date: they make the *record tables*. Then come the jobs that look back on
the tables of earlier dates and make the *trend tables*, for every date that looks back on a changed one. The tables
are therefore the same in whatever order dates are run, however often, and however often a run is interrupted. Only
percentiles out of sketches (`latency`, `cohorts`) may differ by half a percent of the rank, beyond 800 values. A job
that fails stops only those jobs of its date that need it; the date runs again next time. At the end, every date with
new tables or a job that failed gets a report and a verdict.

Which dates are up to date is in their manifests: see `manifests`.
"""

import datetime as dt
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from spark_jobs import (
    anomalies,
    arguments,
    cohorts,
    compact,
    delivery_audit,
    fan_out,
    iceberg_tables,
    latency,
    link_sessions,
    merged,
    quarantine,
    records,
    report,
    retention,
    run_metrics,
    slo,
    slo_file,
    streamer_health,
    traffic,
    webhook,
)
from spark_jobs.batch import DATES_AT_ONCE, Batch, batches, days, shown
from spark_jobs.job import CANNOT_BEGIN, Job, run
from spark_jobs.manifests import Files, Manifest, Manifests, gone, grown, united
from spark_jobs.progress import Progress
from spark_jobs.records import File
from spark_jobs.report import verdict
from spark_jobs.report.sections import Figures
from spark_jobs.session import session
from spark_jobs.storage import Storage, StorageError, is_missing, reason
from spark_jobs.table_store import TableStore
from spark_jobs.tables import TABLES, TREND_DAYS, VIEWS

_MODULES = (streamer_health, delivery_audit, traffic, latency, fan_out, cohorts, link_sessions, slo, anomalies)
JOBS = tuple(each.JOB for each in _MODULES)
"""All jobs, each after those that it needs, and the longest first."""

_BROKEN_MAX = 20
"""So often the jobs of some dates begin again, each time without another file that turned out to be broken."""
_AT_ONCE = 2
"""So many jobs: while Spark plans one of them, the cores are free for the other. No more tasks run than there are cores, so
they share the memory that one job would have."""

_POSTED = 10
"""So many verdicts of a run are posted at most: the newest."""


class NightlyRun:
    """One run of all jobs, or of `jobs`. `batch_of` makes the batch of some dates. `left_out`: files that it does not read,
    to which batches add; no manifest has them, so that a date runs again once they can be read."""

    def __init__(
        self,
        batch_of: Callable[[tuple[dt.date, ...]], Batch],
        manifests: Manifests,
        jobs: Sequence[Job] = JOBS,
        progress: Progress | None = None,
        left_out: records.LeftOut | None = None,
    ) -> None:
        self._batch_of, self._manifests, self._progress = batch_of, manifests, progress or Progress()
        self._left_out = {} if left_out is None else left_out
        self._record_jobs = tuple(job for job in jobs if not job.is_trend)
        self._neighbour_jobs = tuple(job for job in self._record_jobs if job.before or job.after)
        self._trend_jobs = tuple(job for job in jobs if job.is_trend)
        self.reach = max(job.before for job in jobs), max(job.after for job in jobs)
        """How many days before and after a date its records are read."""
        self.changed: set[dt.date] = set()
        """The dates that got a new table."""
        self._id = uuid.uuid4().hex
        self._is_stopping = False
        self._listed: Files = {}
        self._begins_again = False
        self._traced: set[str] = set()
        self.failed: dict[dt.date, set[str]] = {}
        """The jobs that failed, or were skipped because a job that they need failed."""

    def stale(self, dates: Iterable[dt.date], files: Files) -> dict[dt.date, tuple[Job, ...]]:
        """Those of `dates` that are not up to date, each with the record jobs to run.

        `files`: all files of every date that `dates` read. A date runs all record jobs if it has no complete manifest, or a
        file that its manifest does not list. If only a neighbouring date has such a file, the jobs run that read neighbours;
        that is so for the day before yesterday every night. They also run if other files of the date are left out than
        before, because one of them counts these.
        """
        left_out = {date: set(self._left_out_of(date, files)) for date in dates}
        files = quarantine.accepted(files, self._left_out)
        found: dict[dt.date, tuple[Job, ...]] = {}
        for date in dates:
            manifest = self._manifests.get(date)
            if manifest is None or not manifest.done or grown(manifest, files, [date]):
                found[date] = self._record_jobs
            elif self._neighbour_jobs and (
                grown(manifest, files, self.reads(date)) or left_out[date] != set(manifest.left_out)
            ):
                found[date] = self._neighbour_jobs
        return found

    def everything(self, dates: Iterable[dt.date]) -> dict[dt.date, tuple[Job, ...]]:
        """All record jobs, for each of these dates."""
        return dict.fromkeys(dates, self._record_jobs)

    def run(
        self,
        work: Mapping[dt.date, tuple[Job, ...]],
        files: Files,
        first: dt.date = dt.date.min,
        *,
        asked: bool = False,
    ) -> bool:
        """Run record jobs, then the trend jobs that look back on what they changed. Returns whether every job succeeded.

        `files`: those of every date that is read, listed before they are read: a file that comes in between is read, and its
        date is stale all the same. `first`: what an earlier run left undone before that date stays undone. `asked`: the user
        named the dates, so tables are replaced even if files are gone since; otherwise such tables are kept.
        """
        self._listed, files = files, quarantine.accepted(files, self._left_out)
        dates = [date for date in self._manifests.dates() if date >= first]
        moved = {date for date in dates if (manifest := self._manifests.get(date)) and not manifest.trends}
        wanted = {date: self._wanted(date, jobs, files, asked) for date, jobs in sorted(work.items())}
        wanted = {date: jobs for date, jobs in wanted.items() if jobs}
        looked_back_on = {date for date, jobs in wanted.items() if any(job not in self._neighbour_jobs for job in jobs)}
        moved |= looked_back_on
        followers = self._followers(moved)
        every = [*wanted.values(), *(self._trend_jobs for _ in followers)]
        self._progress.expect(sum(len(job.tables) for jobs in every for job in jobs))
        for part in batches(wanted, files):
            self._run_record_jobs({date: wanted[date] for date in part}, files, looked_back_on)
        # Even after a failure: a trend job may not need the failed one, and is skipped if it does.
        for start in range(0, len(followers), DATES_AT_ONCE):
            self._run_jobs(dict.fromkeys(followers[start : start + DATES_AT_ONCE], self._trend_jobs))
        names = {job.name for job in self._trend_jobs}
        for date in sorted(moved):
            is_behind = any(names & self.failed.get(later, set()) for later in self._followers({date}))
            if (manifest := self._manifests.get(date)) and not is_behind:
                self._manifests.put(date, replace(manifest, trends=True))
        return not self.failed

    def _wanted(self, date: dt.date, jobs: Sequence[Job], files: Files, asked: bool) -> tuple[Job, ...]:
        """Those of the record jobs that are to run: all, but for those whose tables are kept because files are gone."""
        before = self._manifests.get(date)
        wanted = tuple(jobs)
        if before and not asked:
            batch = self._batch_of((date,))
            wanted = tuple(job for job in jobs if not _lost(job, before, files, date) or not _has_tables(job, before, batch))
        self._tell_lost_files(date, [job for job in jobs if job not in wanted], wanted, before, files)
        return wanted

    def _run_record_jobs(
        self, wanted: Mapping[dt.date, tuple[Job, ...]], files: Files, looked_back_on: Set[dt.date]
    ) -> None:
        """Run the record jobs of a batch of dates. `looked_back_on`: those with jobs on which trend jobs look back."""
        finished: dict[dt.date, Manifest] = {}
        for date, jobs in wanted.items():
            before = self._manifests.get(date)
            read = {each: files.get(each, {}) for each in self.reads(date)}
            trends = before is not None and before.trends and date not in looked_back_on
            seen = united(before.files, read) if before else read
            self._manifests.put(date, Manifest(seen, done=False, trends=trends, run=self._id))
            finished[date] = Manifest(read if jobs == self._record_jobs else seen, done=True, trends=trends, run=self._id)
        for _ in range(_BROKEN_MAX):
            self._begins_again = False
            begun = self._progress.finished
            self._run_jobs(wanted)
            if not self._begins_again:
                break
            # All jobs of these dates: those that had ended may have used records of the file.
            self._progress.expect(self._progress.finished - begun)
            for date in wanted:
                self.failed.pop(date, None)
        is_given_up, self._begins_again = self._begins_again, False
        for date, manifest in finished.items():
            if is_given_up:
                self.failed.setdefault(date, set()).update(job.name for job in wanted[date])
            if (now := self._manifests.get(date)) and now.run != self._id:
                self._manifests.put(date, replace(now, done=False))
                self._progress.say(f"{date}: another run has written these tables meanwhile: the date runs again next time")
            elif date not in self.failed:
                left_out = self._left_out_of(date, self._listed)
                self._manifests.put(date, replace(manifest.without(self._left_out), left_out=left_out))

    def _left_out_of(self, date: dt.date, listed: Files) -> dict[str, tuple[File, str]]:
        """The files of a date that are left out, with the reason."""
        of_date = listed.get(date, {})
        return {path: (of_date[path], why) for path, why in self._left_out.get(date, {}).items() if path in of_date}

    def _leaves_out(self, error: Exception, dates: tuple[dt.date, ...]) -> bool:
        """Whether a job stopped over a broken file, which is left out from now on."""
        batch = self._batch_of(dates)
        if batch.left_out is None:
            return False
        found = quarantine.broken(Storage(batch.spark), batch.input, self._listed, error)
        if found is not None:
            date, path, why = found
            self._left_out.setdefault(date, {})[path] = why
        return found is not None

    def _tell_lost_files(
        self, date: dt.date, kept: Sequence[Job], jobs: Sequence[Job], before: Manifest | None, files: Files
    ) -> None:
        if before is None:
            return
        if kept:
            lost = max(_lost(job, before, files, date) for job in kept)
            names = "all tables" if len(kept) == len(self._record_jobs) else ", ".join(job.name for job in kept)
            self._progress.say(f"{date} {names}: kept, because files are gone: {lost} (--date {date} runs it anyway)")
        if lost := max((_lost(job, before, files, date) for job in jobs), default=0):
            self._progress.say(f"{date}: files gone since the last run: {lost}; the new tables lack their records")

    def reads(self, date: dt.date) -> list[dt.date]:
        """The dates whose records go into the tables of `date`."""
        return days(date, -self.reach[0], self.reach[1])

    def _followers(self, changed: set[dt.date]) -> list[dt.date]:
        """These dates, and all other dates with a manifest that look back on one of them."""
        dates = {*self._manifests.dates(), *changed}
        return sorted(date for date in dates if any(0 <= (date - each).days <= TREND_DAYS for each in changed))

    def _run_jobs(self, wanted: Mapping[dt.date, Sequence[Job]]) -> None:
        """Run the jobs that each of these dates wants, each job for all of its dates."""
        made: dict[tuple[dt.date, ...], Batch] = {}
        running: dict[str, Future[None]] = {}
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="job")
        try:
            for job in (*self._record_jobs, *self._trend_jobs):
                needs = [running[need.name] for need in job.needs if need.name in running]
                running[job.name] = pool.submit(self._run_after, needs, job, wanted, made)
            for each in running.values():
                each.result()
        except BaseException:
            self._is_stopping = True
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            for batch in made.values():
                batch.release()

    def _run_after(
        self,
        needs: Sequence[Future[None]],
        job: Job,
        wanted: Mapping[dt.date, Sequence[Job]],
        made: dict[tuple[dt.date, ...], Batch],
    ) -> None:
        """Run a job once what it needs has run. That was begun before it, so one of them can always go on."""
        for each in needs:
            each.result()
        if self._is_stopping:
            return
        dates = tuple(date for date, jobs in wanted.items() if job in jobs and not self._skipped(job, date))
        try:
            self._run_job(job, dates, made)
        except BaseException:
            self._is_stopping = True
            raise

    def _told(self, error: Exception) -> str:
        """The reason. All of the error goes to standard error once, but for a file that was deleted meanwhile."""
        text = reason(error)
        if text not in self._traced and not is_missing(error):
            self._traced.add(text)
            traceback.print_exception(error, file=sys.stderr)
        return text

    def _skipped(self, job: Job, date: dt.date) -> bool:
        """Whether a job failed on which this one depends."""
        failed = self.failed.get(date, set())
        if missing := [need.name for need in job.needs if need.name in failed]:
            self._progress.say(f"{date} {job.name}: skipped, because {', '.join(missing)} failed")
            failed.add(job.name)
            self._progress.skip(len(job.tables))
        return bool(missing)

    def _run_job(self, job: Job, dates: tuple[dt.date, ...], made: dict[tuple[dt.date, ...], Batch]) -> None:
        """Run a job. If it fails for several dates, half of them each, until it is known which ones it fails for.

        `made`: the batches so far, for all jobs with the same dates.
        """
        if not dates or self._begins_again:
            return
        finished = 0
        try:
            began_s = time.perf_counter()
            for table, rows in run(job, made.setdefault(dates, self._batch_of(dates))):
                finished += 1
                self.changed.update(dates)
                took_s, began_s = time.perf_counter() - began_s, time.perf_counter()
                self._progress.done(f"{shown(dates)} {table.name}", rows, len(dates), took_s)
        except Exception as error:  # noqa: BLE001  # the top of a job: its fault must not stop the other jobs
            if self._begins_again or self._leaves_out(error, dates):
                self._begins_again = True
                return
            if len(dates) > 1 and not self._is_stopping:
                self._progress.expect(finished * len(dates))
                for half in (dates[: len(dates) // 2], dates[len(dates) // 2 :]):
                    self._run_job(job, half, made)
                return
            self._progress.say(f"{shown(dates)} {job.name}: FAILED: {self._told(error)}")
            for date in dates:
                self.failed.setdefault(date, set()).add(job.name)
            self._progress.skip((len(job.tables) - finished) * len(dates))


def _lost(job: Job, before: Manifest, files: Files, date: dt.date) -> int:
    """How many of the files that the job read last time are gone."""
    return gone(before, files, days(date, -job.before, job.after))


def _has_tables(job: Job, before: Manifest, batch: Batch) -> bool:
    """Whether the job's tables exist. After a first run that was interrupted, some do not."""
    return before.done or all(batch.dates[0] in batch.tables.dates(table) for table in job.tables)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 if a job or a report failed, 2 if it cannot begin or go on; else 5 if nobody could be told;
    else 3 if a date needs attention and that is asked for; else 4 if too many files were left out; else 0."""
    options = arguments.parse("spark_jobs.nightly", argv)
    began_s, outcome = time.perf_counter(), run_metrics.Run(time.time())
    try:
        outcome.exit_code = _night(options, outcome, began_s)
    except CANNOT_BEGIN as error:
        sys.stderr.write(f"{error}\n")
        outcome.exit_code = 2
    finally:
        outcome.duration_s = time.perf_counter() - began_s
        if options.metrics_file:
            try:
                run_metrics.write(outcome, options.metrics_file)
            except OSError as error:
                sys.stderr.write(f"{options.metrics_file}: cannot be written: {error.strerror}\n")
                outcome.exit_code = outcome.exit_code if outcome.exit_code in (1, 2) else 5
    return outcome.exit_code


def _night(options: arguments.JobArguments, outcome: run_metrics.Run, began_s: float) -> int:
    progress = Progress()
    rules = slo_file.load(options.slo)  # a mistake is reported before hours of work, not after
    url = webhook.url(options.webhook_url_file)
    today = dt.datetime.now(dt.UTC).date()
    first = min([today - dt.timedelta(days=options.lookback_days), *options.dates])
    is_small = records.is_small(options.input, options.dates or _new(options, first))
    spark = session(small=is_small)
    storage = Storage(spark)
    manifests = Manifests(storage, options.output)
    left_out: records.LeftOut = {}

    def batch_of(dates: tuple[dt.date, ...]) -> Batch:
        return Batch(spark, options.input, options.output, dates, options.slo, night.reach, left_out, tables, files)

    night = NightlyRun(batch_of, manifests, JOBS, progress, left_out)
    present = records.dates(spark, options.input)
    storage.check_writable(options.output)
    tables = iceberg_tables.chosen(options, spark, storage)
    with tables.alone():
        kept_from = dt.date.min if options.dates else retention.kept_from(storage, options.output)
        first = max(first, kept_from)  # what was deleted runs again only by its name
        kept = [date for date in present if date >= kept_from]
        dates = options.dates or _recent(kept, first, today, set(manifests.dates()), progress)
        read = {each for date in dates for each in night.reads(date)}
        files = records.files(spark, options.input, read, strict=False)
        left_out.update(_refused(options, storage, manifests, files, progress))
        work = night.everything(dates) if options.dates else night.stale(dates, files)
        for date, copies in records.copies(spark, options.input, {date: files[date] for date in work}).items():
            told = f"left out: {len(copies)} (such as {options.input}/date={date}/{copies[0]})"
            progress.say(f"{date}: files with the content of another one beside them, {told}")
        succeeded = night.run(work, files, first, asked=bool(options.dates))
        for line in quarantine.told(left_out, options.input):  # some turn out to be broken when they are read
            progress.say(line)
        reports = Reports(storage, tables, f"{options.output}/report", progress, rules)
        for date in sorted({*night.changed, *night.failed}):
            reports.write(date, night.failed.get(date, set()), left_out.get(date, {}))
        if read and not options.dates:
            merged.delete_before(storage, options.output, min(first, *read))
        if options.keep_days is not None:
            oldest = today - dt.timedelta(days=options.keep_days)
            succeeded = _delete_before(storage, tables, options.output, oldest, manifests, progress) and succeeded
        outcome.verdict = reports.newest()
    outcome.dates, outcome.files_left_out = len(night.changed), sum(map(len, left_out.values()))
    outcome.jobs_failed = sum(map(len, night.failed.values())) + reports.failed
    if url is not None:
        outcome.webhook_failed = not _posted(url, reports.news, progress)
    for date in options.dates if present else ():
        if not files[date] and date not in left_out:
            progress.say(f"{date}: there are no traces of that date")
    if not present:
        progress.say(f"{options.input} has no folder date=…: there are no traces")
    elif not work and not night.changed:
        progress.say(f"nothing to do: every date from {first} on is up to date")
    progress.say(f"dates with new tables: {len(night.changed)}, in {time.perf_counter() - began_s:.1f} s")
    for date, names in sorted(night.failed.items()):
        sys.stderr.write(f"{date}: failed: {', '.join(sorted(names))}\n")
    if left_out:
        sys.stderr.write(f"trace files left out: {outcome.files_left_out}\n")
    if not succeeded or reports.failed:
        return 1
    if outcome.webhook_failed:
        return 5
    if options.fail_on_attention and _needs_attention(options.dates, reports, outcome.verdict):
        return 3
    named = quarantine.by_streamer
    lacking = (len(named(without)) / len(named(files[date])) for date, without in left_out.items())
    return 4 if any(share > rules.limits["files_left_out"] for share in lacking) else 0


def _needs_attention(dates: Iterable[dt.date], reports: "Reports", newest: Figures | None) -> bool:
    """Whether one of the dates that were asked for needs attention; without, a new verdict or that of the newest date."""
    asked = [reports.made[date] for date in dates if date in reports.made]
    told = {each["date"]: each for each in asked or [*reports.news, *filter(None, [newest])]}
    bad = [each for _, each in sorted(told.items()) if each["level"] == "attention"]
    for each in bad:
        sys.stderr.write(f"{each['date']} needs attention: {each['text']}\n")
    return bool(bad)


class Reports:
    """The reports and verdicts of the dates of one run, in the folder `to`."""

    def __init__(self, storage: Storage, tables: TableStore, to: str, progress: Progress, rules: slo_file.Rules) -> None:
        self._storage, self._tables, self._to, self._progress, self._rules = storage, tables, to, progress, rules
        self.made: dict[dt.date, Figures] = {}
        self.news: list[Figures] = []
        """The verdicts that say something else than the one of the same date before."""
        self.failed = 0

    def write(self, date: dt.date, jobs_failed: Iterable[str], left_out: Mapping[str, str]) -> None:
        """Write those of a date. A fault is told and counted: the tables are good, whatever happens to the report."""
        try:
            found = report.collected(self._tables, date, sorted(jobs_failed), rules=self._rules)
            made = verdict.verdict(found, left_out)
            path, is_new = verdict.put(self._storage, made, self._to)
            self.made[date] = made
            if is_new:
                self.news.append(made)
            self._progress.say(f"{date} verdict: {made['level']}: {made['text']}: {path}")
            for path in report.put(self._storage, found, self._to):
                self._progress.say(f"{date} report: {path}")
        except Exception as error:  # noqa: BLE001  # as above
            self._progress.say(f"{date} report: FAILED: {reason(error)}")
            traceback.print_exc(file=sys.stderr)
            self.failed += 1

    def newest(self) -> Figures | None:
        """The verdict of the newest date that has one, of whatever run."""
        return verdict.newest(self._storage, self._to)


def _refused(
    options: arguments.JobArguments, storage: Storage, manifests: Manifests, files: Files, progress: Progress
) -> records.LeftOut:
    """The files that cannot be used. Small ones that are not on this machine are put together on the way (`merged`)."""
    known = {date: found for date in manifests.dates() if date in files and (found := manifests.get(date))}
    before = {} if options.dates else {date: found.left_out for date, found in known.items()}
    used = [found.files for found in known.values()]
    left_out: records.LeftOut = {}
    if not storage.local(options.input):
        open_ = {date: of_date for date, of_date in files.items() if not (date in known and known[date].done)}
        left_out.update(compact.merge(storage, options, open_, before, progress))
        used += merged.known(storage, options.output, open_)
    for date, faults in quarantine.refused(storage, options.input, files, used, before).items():
        left_out.setdefault(date, {}).update(faults)
    return left_out


def _posted(url: str, verdicts: Sequence[Figures], progress: Progress) -> bool:
    """Post the verdicts, the oldest first, up to the newest `_POSTED`. Gives up at the first that nobody takes."""
    for each in verdicts[-_POSTED:]:
        try:
            webhook.post(url, each)
        except webhook.WebhookError as error:
            told = f"{each['date']} verdict: not posted: {error}"
            progress.say(told)
            sys.stderr.write(f"{told}\n")
            return False
        progress.say(f"{each['date']} verdict: posted")
    return True


def _new(options: arguments.JobArguments, first: dt.date) -> list[dt.date]:
    """The dates from `first` on that have traces on this machine and were never run."""
    found = map(records.date_of, (path.name for path in Path(options.input).glob("date=????-??-??")))
    return [
        date for date in found if date and date >= first and not Path(options.output, "_runs", f"date={date}.json").exists()
    ]


def _recent(
    present: Sequence[dt.date], first: dt.date, today: dt.date, known: Set[dt.date], progress: Progress
) -> list[dt.date]:
    """Those of the ascending dates that are over, from `first` on. Prints which dates are left out on either side."""
    if missed := [date for date in present if date < first and date not in known]:
        progress.say(
            f"dates before {first} that were never run: {len(missed)} (--from {missed[0]} --to {missed[-1]} runs them)"
        )
    for date in present:
        if date >= today:
            progress.say(f"{date} is still being written: left out (--date {date} runs it anyway)")
    return [date for date in present if first <= date < today]


def _delete_before(
    storage: Storage, store: TableStore, output: str, first: dt.date, manifests: Manifests, progress: Progress
) -> bool:
    """Delete what was made of the dates before `first`. Returns whether that succeeded."""
    try:
        deleted = retention.delete_before(storage, store, output, first, [*TABLES.values(), *VIEWS.values()], manifests)
    except StorageError as error:  # the tables of this night are good, and the next one tries again
        progress.say(f"dates before {first}: FAILED to be deleted: {error}")
        return False
    if deleted:
        progress.say(f"deleted the tables and reports of {len(deleted)} dates before {first}: {shown(deleted)}")
    return True


if __name__ == "__main__":
    raise SystemExit(main())
