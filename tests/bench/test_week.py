"""What reading a week of traces takes, in a process of its own. A benchmark: `make bench-tests`."""

from pathlib import Path

import pytest

from tests.bench.week import DAYS, generate, read

RECORDS = 2_000_000
FLOWS = 1000
GOAL_RECORDS, GOAL_CPU_S = 30_000_000, 40.0
"""20 s on two cores."""
MEMORY_MB = 600


@pytest.mark.benchmark
def test_a_week_is_read_in_time_and_in_bounded_memory(tmp_path: Path) -> None:
    generate(tmp_path, RECORDS, FLOWS)
    found = read(tmp_path)
    assert (found["records"], found["left_out"], found["flows"]) == (RECORDS, 0, FLOWS)
    assert found["days"] == DAYS
    assert round(found["per_day"] * DAYS) == pytest.approx(RECORDS, abs=FLOWS)
    assert found["rss_mb"] < MEMORY_MB
    # Small files cost more of each record than those of the goal do, so this errs on the safe side.
    assert found["cpu_s"] / RECORDS < 4 * GOAL_CPU_S / GOAL_RECORDS
