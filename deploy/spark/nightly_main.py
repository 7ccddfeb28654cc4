"""What ``spark-submit`` is given: it starts a file, not a module. The jobs come with ``--py-files spark_jobs.zip``.

Without dates in its arguments every date that is not up to date is run, and the report of yesterday (UTC) is written to
``<output>/report``.
"""

import argparse
import datetime
import sys

from spark_jobs import nightly, report
from spark_jobs.session import session


def main(argv: list[str]) -> int:
    """Run all jobs, then the report; returns the exit code of the first that failed."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--output", required=True)
    output: str = parser.parse_known_args(argv)[0].output.rstrip("/")
    status = nightly.main(argv)
    yesterday = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    for path in report.write(session(), output, yesterday, f"{output}/report"):
        sys.stdout.write(f"{path}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
