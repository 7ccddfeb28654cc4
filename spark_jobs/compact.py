"""``python -m spark_jobs.compact``: puts small trace files together (`merged`) before the night, which then need not do it.

Run it every hour or two where a fleet's traces are in an object store. It may run beside uploads, the nightly run and
itself, be killed and run again. Without dates it takes those of the last days that have no tables yet, and today.
"""

import datetime as dt
import sys
from collections.abc import Iterable, Mapping, Sequence

from spark_jobs import arguments, merged, quarantine, records
from spark_jobs.job import CANNOT_BEGIN
from spark_jobs.manifests import Manifests
from spark_jobs.progress import Progress
from spark_jobs.records import LeftOut
from spark_jobs.session import session
from spark_jobs.storage import Storage, StorageError


def merge(
    storage: Storage,
    options: arguments.JobArguments,
    files: Mapping[dt.date, merged.Files],
    skip: Mapping[dt.date, Iterable[str]],
    progress: Progress,
) -> LeftOut:
    """Put the small files of some dates together, and say so. Returns those that cannot be used. `skip`: files that are not
    looked at."""
    left_out: LeftOut = {}
    for date, of_date in sorted(files.items()):
        count, faults = merged.merge(storage, options.input, options.output, date, of_date, skip.get(date, ()), merged.LEAST)
        left_out.update(faults)
        if count:
            progress.say(f"{date}: small files put together: {count}")
    return left_out


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 if files cannot be used, 2 if it cannot begin or go on."""
    options = arguments.parse("spark_jobs.compact", argv)
    progress = Progress()
    try:
        spark = session("ustreamer compact")
        storage = Storage(spark)
        if storage.local(options.input):
            raise StorageError(
                f"{options.input}: is on this machine, where the nightly run puts small files together itself"
            )
        first = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=options.lookback_days)
        manifests = Manifests(storage, options.output)
        dates = options.dates or [
            date
            for date in records.dates(spark, options.input)
            if date >= first and not ((found := manifests.get(date)) and found.done)
        ]
        storage.check_writable(options.output)
        files = records.files(spark, options.input, dates, strict=False)
        left_out = merge(storage, options, files, {}, progress)
    except CANNOT_BEGIN as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for line in quarantine.told(left_out, options.input):
        sys.stderr.write(f"{line}\n")
    return 1 if left_out else 0


if __name__ == "__main__":
    raise SystemExit(main())
