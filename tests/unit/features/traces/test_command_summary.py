"""``streamer traces summary``."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streamer.features.traces.reader import SeenRecords
from streamer.features.traces.summary import LogHistogram
from tests.unit.features.traces.folders import HOUR_US, NAME, NOW_US, SpoolFileWriter, failed, row, table, write_part
from tests.unit.tools.commands import Run


def test_the_last_hour_is_summed_up_per_route(run: Run, folder: Path) -> None:
    early = row(0, HOUR_US + 5_000_000)  # ended before
    waited = row(1, 2 * HOUR_US, latency_us=2 * HOUR_US - 1, retries=2, redelivered=True)
    write_part(folder, [early, waited, failed(2, 1000)])
    spool = SpoolFileWriter(folder)
    spool.write(failed(3, 500), row(4, 400, payload_bytes=30, route="cloud-vehicle", latency_us=70, queue_wait_us=30))
    status, out, err = run("summary", "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found["from"] == "2026-11-21T11:30:00.000Z"
    routes = found["routes"]
    assert routes["cloud-vehicle"] == {
        "messages": 1,
        "messages_per_s": round(1 / 3600, 3),
        "bytes": 30,
        "outcomes": {"delivered": 1},
        "latency_us": {"p50": 70, "p99": 70, "max": 70},
        "queue_wait_us": {"p50": 30, "p99": 30, "max": 30},
        "retries": 0,
        "redelivered": 0,
    }
    there = routes["vehicle-cloud"]
    assert (there["messages"], there["bytes"], there["retries"], there["redelivered"]) == (3, 30, 2, 1)
    assert there["outcomes"] == {"delivered": 1, "expired": 2}
    assert there["latency_us"]["max"] == 2 * HOUR_US - 1
    assert found["not_delivered"] == [
        {"route": "vehicle-cloud", "outcome": "expired", "ucode": "DEADLINE_EXCEEDED", "messages": 2}
    ]
    assert found["records_missing"] == 0


def test_records_in_spool_and_parquet_count_once(run: Run, folder: Path) -> None:
    rows = [row(seq, 5000) for seq in range(10)]
    spool = SpoolFileWriter(folder)
    spool.write(*rows)
    spool.close()
    write_part(folder, rows)
    assert json.loads(run("summary", "--json")[1])["routes"]["vehicle-cloud"]["messages"] == 10


def test_gaps_are_counted_when_they_arose_in_that_time(run: Run, folder: Path) -> None:
    old = [row(seq, HOUR_US + 120_000_000) for seq in (0, 4)]  # 1 to 3 were lost earlier
    young = [row(seq, 1000) for seq in (5, 6, 9)]
    next_run = [row(seq, 500, run_ts=NOW_US - 60_000_000) for seq in (1, 2)]  # its 0 was lost
    write_part(folder, old)
    write_part(folder, [*young, *next_run])
    assert json.loads(run("summary", "--json")[1])["records_missing"] == 3
    assert "3 records missing" in run("summary")[1]
    assert json.loads(run("summary", "--json", "--last", "2h")[1])["records_missing"] == 6


def test_people_get_the_same_figures(run: Run, folder: Path) -> None:
    write_part(folder, [row(0, 5000, latency_us=2000), failed(1, 4000), failed(2, 3000)])
    status, out, _ = run("summary", "--last", "10s")
    lines = out.splitlines()
    assert status == 0
    assert lines[3].split() == [
        *("vehicle-cloud", "3", "0.3", "30", "1", "2"),
        *("2ms", "2ms", "2ms", "200µs", "200µs", "0", "0"),
    ]
    assert lines[6].split() == ["vehicle-cloud", "expired", "DEADLINE_EXCEEDED", "2"]
    assert lines[-1] == "no gaps in seq (the end of a run that was killed leaves none)"


def test_a_time_without_records_is_reported(run: Run, folder: Path) -> None:
    write_part(folder, [row(0, 2 * HOUR_US)])
    assert run("summary") == (1, "", "no such record\n")


# the parts


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_percentiles_are_exact_to_one_percent(values: list[int], share: float) -> None:
    histogram = LogHistogram()
    for start in range(0, len(values), 3):
        histogram.add(np.array(values[start : start + 3], np.int64))
    exact = sorted(values)[max(int(np.ceil(share * len(values))), 1) - 1]
    found = histogram.percentile(share)
    assert found is not None
    assert abs(found - exact) <= exact / 100
    assert histogram.largest == max(values)


def test_a_histogram_without_values_says_so() -> None:
    assert (LogHistogram().percentile(0.5), LogHistogram().largest) == (None, None)


NUMBERS = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True), min_size=1, max_size=8)


@given(NUMBERS)
def test_ranges_know_what_was_seen_like_a_set_does(batches: list[list[int]]) -> None:
    seen, known = SeenRecords(), set[int]()
    for batch in batches:
        rows = table([row(seq, run_ts=NOW_US) for seq in batch]).append_column("streamer", pa.array([NAME] * len(batch)))
        fresh = seen.add(rows.combine_chunks().to_batches()[0])
        assert fresh.column("seq").to_pylist() == [seq for seq in batch if seq not in known]
        known.update(batch)
    assert seen.missing(NOW_US) == max(known) + 1 - len(known)
