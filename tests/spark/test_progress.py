"""What a run says while it works: a line for each table."""

import io
import re

from spark_jobs.progress import Progress


def test_each_table_counts_once_for_each_of_its_dates() -> None:
    out = io.StringIO()
    progress = Progress(out)
    progress.expect(12)
    progress.done("latency", 38, 3, 0.1)
    progress.done("latency_daily", 6, 3, 0.1)
    progress.skip(2)
    progress.done("audit", 0, 4, 0.1)
    expected = ["[ 3/12] latency: 38 rows, T", "[ 6/12] latency_daily: 6 rows, T", "[12/12] audit: 0 rows, T"]
    assert re.sub(r"\d+\.\d s", "T", out.getvalue()).splitlines() == expected
