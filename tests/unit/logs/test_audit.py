"""The audit log: acts are always there, refusals are bounded and what has no line is counted."""

import logging
from collections import Counter

import pytest

from streamer.logs import audit as module
from streamer.logs.audit import (
    COUNTED,
    DENIED,
    LINES,
    LINES_PER_REQUESTER,
    NAME,
    OTHERS,
    WINDOW_S,
    audit,
    write_denied_again,
)

EVIL = "//evil/1/1/0"


class Now:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    """The clock of the denials, which begin anew."""
    clock = Now()
    monkeypatch.setattr(module, "_now_s", clock)
    monkeypatch.setattr(module, "_denials", module.denials())
    return clock


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.name == NAME]
    caplog.clear()
    return found


def test_act_is_one_line_with_who_and_where(caplog: pytest.LogCaptureFixture) -> None:
    audit("paused", who="//veh1/1/1/0", where="vehicle", rule="//veh1/2/1/8000", rules=3)
    (record,) = caplog.records
    assert (record.name, record.levelno) == (NAME, logging.INFO)
    assert record.getMessage() == "paused who=//veh1/1/1/0 where=vehicle rule=//veh1/2/1/8000 rules=3"


def test_acts_are_never_left_out(caplog: pytest.LogCaptureFixture, now: Now) -> None:
    for _ in range(1000):
        audit("paused", who="http", where="127.0.0.1")
    assert len(lines(caplog)) == 1000


def test_percent_signs_and_long_texts_are_only_text(caplog: pytest.LogCaptureFixture, now: Now) -> None:
    audit(DENIED, who="%s%n" + "x" * 10_000, where="y" * 10_000, why="z" * 10_000)
    (line,) = lines(caplog)
    assert line.startswith("denied who=%s%nx")
    assert len(line) < 900


def test_refusals_of_one_requester_are_counted_beyond_the_first(caplog: pytest.LogCaptureFixture, now: Now) -> None:
    for _ in range(1000):
        audit(DENIED, who=EVIL, where="cloud", method=9)
    assert lines(caplog) == [f"denied who={EVIL} where=cloud method=9"] * LINES_PER_REQUESTER
    audit(DENIED, who="//other/1/1/0", where="cloud", method=9)
    assert len(lines(caplog)) == 1  # the others are still seen
    write_denied_again()
    assert lines(caplog) == []
    now.s += WINDOW_S
    write_denied_again()
    assert lines(caplog) == [f"denied_again who={EVIL} times={1000 - LINES_PER_REQUESTER}"]
    write_denied_again()
    assert lines(caplog) == []


def test_next_refusal_after_the_window_tells_what_was_left_out_before_it(caplog: pytest.LogCaptureFixture, now: Now) -> None:
    for _ in range(LINES_PER_REQUESTER + 2):
        audit(DENIED, who=EVIL, where="cloud")
    lines(caplog)
    now.s += WINDOW_S
    audit(DENIED, who=EVIL, where="cloud")
    assert lines(caplog) == [f"denied_again who={EVIL} times=2", f"denied who={EVIL} where=cloud"]


def test_invented_requesters_are_bounded_in_lines_and_in_memory(caplog: pytest.LogCaptureFixture, now: Now) -> None:
    for number in range(10_000):
        audit(DENIED, who=f"//evil{number}/1/1/0", where="cloud")
    assert len(lines(caplog)) == LINES
    now.s += WINDOW_S
    write_denied_again()
    found = lines(caplog)
    assert len(found) == COUNTED + 1
    times = Counter({line.split("who=")[1].split(" ")[0]: int(line.rpartition("=")[2]) for line in found})
    assert times[OTHERS] == 10_000 - LINES - COUNTED
    assert times.total() == 10_000 - LINES
