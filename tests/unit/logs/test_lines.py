"""The form of log lines: one event and its fields, as text or as JSON, whatever is in the values."""

import ast
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamer
from streamer.logs.lines import HumanFormatter, JsonFormatter

SOURCES = Path(streamer.__file__).parent


def record(message: str, *args: object, level: int = logging.INFO) -> logging.LogRecord:
    made = logging.LogRecord("ustreamer.egress", level, __file__, 1, message, args, None)
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


def written_events() -> Iterator[tuple[str, str]]:
    """Where the source writes a line, and what of its text stands there."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in LOGS and isinstance(node.args[0], ast.Constant):
                yield f"{path.relative_to(SOURCES)}:{node.lineno}", str(node.args[0].value)


LOGS = {f"logger.{level}" for level in ("debug", "info", "warning", "error", "critical", "exception")}


def test_every_event_has_a_name_of_its_own_and_its_values_in_fields() -> None:
    found = dict(written_events())
    assert len(found) > 50
    assert [
        (where, text)
        for where, text in found.items()
        if "text" in as_json(record(text, *[0] * text.count("%"))) and " text=" not in text
    ] == []
    assert [(where, text) for where, text in found.items() if not text.split(" ")[0].replace("_", "").isalpha()] == []


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


def test_left_out_is_printed_in_both_forms() -> None:
    made = record("lost endpoint=%s", "cloud")
    made.left_out = 7
    assert HumanFormatter().format(made).endswith("lost endpoint=cloud left_out=7")
    assert as_json(made)["left_out"] == 7
    made.left_out = 0
    assert "left_out" not in as_json(made)
