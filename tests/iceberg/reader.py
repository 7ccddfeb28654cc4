"""Reads one date of a table again and again, with a library that is not Spark, and prints each state that it sees.

``python -m tests.iceberg.reader OUTPUT TABLE DATE``: a line for each state that is not the one before: the values of
``src_authority`` with their numbers of rows. Ends with its standard input.
"""

import collections
import datetime as dt
import sys
import threading
from pathlib import Path

from tests.iceberg.nights import open_catalog


def main() -> None:
    from pyiceberg.expressions import EqualTo  # noqa: PLC0415  # only `make test-iceberg` has it

    output, table, date = Path(sys.argv[1]), sys.argv[2], dt.date.fromisoformat(sys.argv[3])
    ends = threading.Thread(target=sys.stdin.read, daemon=True)
    ends.start()
    before = None
    while ends.is_alive():
        rows = open_catalog(output).load_table(("ustreamer", table)).scan(row_filter=EqualTo("date", date)).to_arrow()
        counts = collections.Counter(rows["src_authority"].to_pylist())
        if (seen := ",".join(f"{name}:{number}" for name, number in sorted(counts.items()))) != before:
            sys.stdout.write(f"{seen}\n")
            sys.stdout.flush()
            before = seen


if __name__ == "__main__":
    main()
