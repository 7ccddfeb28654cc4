"""Log lines: one event and its fields, in two forms, and repeats counted instead of printed."""

import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer.audit import NAME, audit
from streamer.logs import AUDIT, HumanFormatter, JsonFormatter, RepeatFilter, audit_log, set_up


def record(message: str, *args: object, level: int = logging.INFO, name: str = "ustreamer.egress") -> logging.LogRecord:
    made = logging.LogRecord(name, level, __file__, 1, message, args, None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    return made


def as_json(made: logging.LogRecord) -> dict[str, object]:
    text = JsonFormatter().format(made)
    assert "\n" not in text
    found: dict[str, object] = json.loads(text)
    return found


def test_json_line_has_time_level_part_event_and_typed_fields() -> None:
    assert as_json(record("link_lost endpoint=%s after_s=%.1f attempt=%d up=%s why=%s", "cloud", 2.345, 3, False, None)) == {
        "ts": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "part": "egress",
        "event": "link_lost",
        "endpoint": "cloud",
        "after_s": 2.3,
        "attempt": 3,
        "up": False,
        "why": None,
    }


def test_json_line_without_fields_is_only_its_event() -> None:
    assert as_json(record("drained")) == {
        "ts": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "part": "egress",
        "event": "drained",
    }


@pytest.mark.parametrize(
    ("message", "args", "text"),
    [
        ("Task was destroyed but it is pending! %s", ("x",), "Task was destroyed but it is pending! x"),
        ("100 %% of %s", ("it",), "100 % of it"),
        ("half=%s and %s", ("a", "b"), "half=a and b"),
        ("%(name)s=1", ({"name": "dict"},), "dict=1"),
    ],
)
def test_line_of_another_form_keeps_its_text(message: str, args: tuple[object, ...], text: str) -> None:
    line = as_json(record(message, *args))
    assert line["text"] == text


def test_values_cannot_break_the_line_or_forge_fields() -> None:
    line = as_json(record("malformed detail=%s", 'x"\n, "level": "error", event=fake ü'))
    assert line["detail"] == 'x"\n, "level": "error", event=fake ü'
    assert (line["level"], line["event"]) == ("info", "malformed")


def test_exception_is_part_of_the_line() -> None:
    try:
        raise ZeroDivisionError("boom")
    except ZeroDivisionError:
        made = record("submit_failed endpoint=%s", "cloud", level=logging.ERROR)
        made.exc_info = sys.exc_info()
    assert "ZeroDivisionError: boom" in str(as_json(made)["exception"])
    human = HumanFormatter().format(made).split("\n")
    assert human[0].endswith("submit_failed endpoint=cloud")
    assert human[-1] == "  | ZeroDivisionError: boom"


HOSTILE = [
    pytest.param("x\n12:00:00.000 INFO    streamer.audit paused who=//veh1/1/1/0", id="newline"),
    pytest.param("x\r\x1b[2K\x1b[1Afine", id="terminal"),
    pytest.param("x\x85y\u2028z\u2029", id="line-separators"),
    pytest.param("x\u202egnp.exe\u2066", id="direction"),
    pytest.param("x\x00\x7f\x9b31m", id="control"),
    pytest.param("x\ud800", id="half-a-pair"),
    pytest.param("x\U000e0041", id="invisible-tag"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_the_network_stays_on_one_line_and_moves_no_cursor(text: str) -> None:
    made = record("malformed_packet detail=%s", text)
    assert HumanFormatter().format(made).isprintable()
    line = JsonFormatter().format(made)
    assert line.isprintable()
    assert json.loads(line)["detail"] == text


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_the_network_in_an_error_is_part_of_its_traceback(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        made = record("method_failed sink=%s", text, level=logging.ERROR)
        made.exc_info = sys.exc_info()
    first, *traceback = HumanFormatter().format(made).split("\n")
    assert first.isprintable()
    assert all(line.startswith("  | ") and line.isprintable() for line in traceback)
    assert JsonFormatter().format(made).isprintable()


def test_printable_text_of_any_language_is_left_as_it_is() -> None:
    made = record("told text=%s", "Grüße, 世界 🚗 C:\\n")
    assert HumanFormatter().format(made).endswith("text=Grüße, 世界 🚗 C:\\n")
    assert "Grüße, 世界 🚗" in JsonFormatter().format(made)


def test_human_line_is_time_level_part_and_text() -> None:
    line = HumanFormatter().format(record("link_lost endpoint=%s", "cloud", level=logging.WARNING))
    assert line[12:] == " WARNING egress link_lost endpoint=cloud"
    assert line[8:12] == ".250"


# repeats


class Repeats:
    """A filter with a clock that the test sets, and what has passed it."""

    def __init__(self, repeat_s: float = 10) -> None:
        self.now_s = 0.0
        self.filter = RepeatFilter(repeat_s, lambda: self.now_s)

    def passes(self, message: str, *args: object, **keys: Any) -> int | None:
        """How many were left out before this line; None if it is left out itself."""
        made = record(message, *args, **keys)
        return getattr(made, "left_out", 0) if self.filter.filter(made) else None


def test_same_kind_of_line_passes_once_in_its_time_and_says_how_many_were_left_out() -> None:
    repeats = Repeats()
    assert repeats.passes("lost endpoint=%s after=%d", "cloud", 1) == 0
    for second in range(2, 10):
        repeats.now_s = second
        assert repeats.passes("lost endpoint=%s after=%d", "cloud", second) is None
    repeats.now_s = 10.0
    assert repeats.passes("lost endpoint=%s after=%d", "cloud", 10) == 8
    repeats.now_s = 20.0
    assert repeats.passes("lost endpoint=%s after=%d", "cloud", 11) == 0


def test_another_event_endpoint_or_logger_is_another_kind() -> None:
    repeats = Repeats()
    assert repeats.passes("lost endpoint=%s", "cloud") == 0
    assert repeats.passes("lost endpoint=%s", "vehicle") == 0
    assert repeats.passes("found endpoint=%s", "cloud") == 0
    assert repeats.passes("lost endpoint=%s", "cloud", name="ustreamer.ingress") == 0
    assert repeats.passes("lost endpoint=%s", "cloud") is None


def test_critical_lines_always_pass() -> None:
    repeats = Repeats()
    made = [record("dying", level=logging.CRITICAL) for _ in range(3)]
    assert all(repeats.filter.filter(each) for each in made)


def test_acts_in_the_audit_log_are_never_left_out() -> None:
    repeats = Repeats()
    assert [repeats.passes("paused who=%s", "http", name="streamer.audit") for _ in range(3)] == [0, 0, 0]


def test_limit_of_zero_lets_everything_pass() -> None:
    filter_ = RepeatFilter(0, lambda: 0.0)
    assert all(filter_.filter(record("same")) for _ in range(5))


def test_argument_that_cannot_be_hashed_is_not_a_problem() -> None:
    repeats = Repeats()
    assert repeats.passes("tasks %s", ["a"]) == 0
    assert repeats.passes("tasks %s", ["a"]) is None
    assert repeats.passes("tasks %s", ["b"]) == 0


def test_memory_of_kinds_is_bounded() -> None:
    repeats = Repeats()
    for n in range(5000):
        repeats.passes("lost endpoint=%s", str(n))
    assert len(repeats.filter._seen) <= 1000


def test_left_out_is_printed_in_both_forms() -> None:
    made = record("lost endpoint=%s", "cloud")
    made.left_out = 7
    assert HumanFormatter().format(made).endswith("lost endpoint=cloud left_out=7")
    assert as_json(made)["left_out"] == 7
    made.left_out = 0
    assert "left_out" not in as_json(made)


# set up


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    audit_log(None)
    logger.handlers[:] = handlers
    logger.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("chosen", "stream", "human"),
    [
        ("auto", io.StringIO, False),
        ("auto", Terminal, True),
        ("json", Terminal, False),
        ("human", io.StringIO, True),
    ],
)
def test_form_is_human_on_a_terminal_and_json_elsewhere(
    chosen: str, stream: type[io.StringIO], human: bool, root: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = stream()
    monkeypatch.setattr("sys.stderr", out)
    set_up("warning", chosen)
    logging.getLogger("ustreamer.x").info("below the level")
    logging.getLogger("ustreamer.x").warning("told endpoint=%s", "cloud")
    logging.getLogger("ustreamer.x").warning("told endpoint=%s", "cloud")
    (line,) = out.getvalue().splitlines()
    assert line.startswith("{") is not human
    assert "told" in line


def test_setting_up_twice_does_not_double_the_lines(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up()
    set_up()
    logging.getLogger("ustreamer.x").info("once")
    assert capsys.readouterr().err.count("\n") == 1


# the audit log's file


def test_acts_go_to_the_audit_log_whatever_the_level_is_and_to_nobody_else(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "audit.log"
    previous = os.umask(0)
    try:
        set_up("error", "human", audit=path)
    finally:
        os.umask(previous)
    audit("paused", who="//veh1/1/1/0", where="vehicle", rule="//veh1/2/1/8000\nfaked")
    logging.getLogger("ustreamer.x").error("other")
    (line,) = path.read_text().splitlines()
    found = json.loads(line)
    assert (found["part"], found["event"], found["who"]) == ("streamer.audit", "paused", "//veh1/1/1/0")
    assert found["rule"] == "//veh1/2/1/8000\nfaked"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [text.split(" ")[-1] for text in capsys.readouterr().err.splitlines()] == [
        "rule=//veh1/2/1/8000\\nfaked",
        "other",
    ]


def test_audit_log_is_begun_again_after_it_was_renamed_and_appended_to_after_a_restart(
    root: logging.Logger, tmp_path: Path
) -> None:
    path = tmp_path / "audit.log"
    for name in ("first", "second"):
        set_up(audit=path)
        audit(name, who="http", where="127.0.0.1")
    path.rename(tmp_path / "audit.log.1")
    audit("third", who="http", where="127.0.0.1")
    assert [json.loads(line)["event"] for line in (tmp_path / "audit.log.1").read_text().splitlines()] == ["first", "second"]
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["third"]


def test_audit_log_that_cannot_be_written_is_said_and_does_not_stop_the_act(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    set_up(form="human", audit=folder / "audit.log")
    (folder / "audit.log").unlink()
    folder.rmdir()
    audit("paused", who="http", where="127.0.0.1")
    printed = capsys.readouterr().err
    assert "audit_not_written file=" in printed
    assert "paused who=http" in printed
    folder.mkdir()
    audit("resumed", who="http", where="127.0.0.1")
    assert "resumed" in (folder / "audit.log").read_text()


def test_audit_log_that_cannot_be_opened_changes_nothing(root: logging.Logger, tmp_path: Path) -> None:
    before = root.handlers[:]
    with pytest.raises(OSError, match="nowhere"):
        set_up(audit=tmp_path / "nowhere" / "audit.log")
    assert root.handlers == before


def test_both_modules_mean_the_same_logger() -> None:
    assert AUDIT == NAME
