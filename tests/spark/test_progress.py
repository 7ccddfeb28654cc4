"""What a run says while it works: a line for each table, on a terminal from its beginning."""

import io
import re

import pytest

from spark_jobs.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(out: io.StringIO) -> str:
    return re.sub(r"\d+\.\d s", "T", out.getvalue())


def play(out: io.StringIO) -> Progress:
    progress = Progress(out)
    progress.expect(12)
    with progress.running("latency"):
        progress.done("latency", 38, 3, 0.1)
        progress.done("latency_daily", 6, 3, 0.1)
    return progress


def test_each_table_counts_once_for_each_of_its_dates() -> None:
    out = io.StringIO()
    progress = play(out)
    progress.skip(2)
    with progress.running("audit"):
        progress.done("audit", 0, 4, 0.1)
    expected = ["[ 3/12] latency: 38 rows, T", "[ 6/12] latency_daily: 6 rows, T", "[12/12] audit: 0 rows, T"]
    assert said(out).splitlines() == expected


def test_the_last_line_of_a_terminal_is_what_runs() -> None:
    out = Terminal()
    progress = play(out)
    with progress.running("audit"), progress.running("health"):
        progress.say("audit: FAILED")
    drawn = [
        "[ 0/12] latency …",
        "[ 3/12] latency: 38 rows, T\n[ 3/12] latency …",
        "[ 6/12] latency_daily: 6 rows, T\n[ 6/12] latency …",
        "",
        "[ 6/12] audit …",
        "[ 6/12] audit, health …",
        "audit: FAILED\n[ 6/12] audit, health …",
        "[ 6/12] audit …",
        "",
    ]
    assert said(out) == "".join(f"\r\x1b[K{text}" for text in drawn)


def test_a_line_that_is_wider_than_the_terminal_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = Terminal()
    with Progress(out).running("x" * 100):
        assert len(said(out)) < len("\r\x1b[K") + 20
