"""Setting up the log of a process: its form, its level, and the audit log's file."""

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.logs.audit import audit
from streamer.logs.output import AuditFile, audit_log, flush_audit_log, open_audit_log, set_up

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
    [("auto", io.StringIO, False), ("auto", Terminal, True), ("json", Terminal, False), ("human", io.StringIO, True)],
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
    (line,) = [line for line in out.getvalue().splitlines() if "told" in line]
    assert line.startswith("{") is not human


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


def test_audit_log_has_its_folder_made_if_only_that_is_missing(root: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "log" / "audit.log"
    set_up(audit=path)
    audit("paused", who="http", where="127.0.0.1")
    assert json.loads(path.read_text())["event"] == "paused"
    assert path.parent.stat().st_mode & 0o777 == 0o750


def test_what_is_no_file_is_not_opened_as_audit_log_and_nobody_waits_for_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(OSError, match="not a regular file"):
            open_audit_log(path)


def test_a_file_system_that_hangs_holds_up_no_line_and_lines_beyond_a_bound_are_told(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.logs.output._AUDIT_LINES", 3)
    released, begun = threading.Event(), threading.Event()
    emit = AuditFile.emit

    def hang(self: AuditFile, record: logging.LogRecord) -> None:
        begun.set()
        released.wait()
        emit(self, record)

    monkeypatch.setattr(AuditFile, "emit", hang)
    set_up(form="human", repeat_s=0, audit=open_audit_log(tmp_path / "audit.log"))
    audit("first", who="http", where="127.0.0.1")
    assert begun.wait(60)
    for name in ("second", "third", "fourth", "fifth"):
        audit(name, who="http", where="127.0.0.1")
    printed = capsys.readouterr().err
    assert printed.count("audit_not_written") == 1
    assert "3 lines wait for it already" in printed
    assert "fifth who=http" in printed
    released.set()
    flush_audit_log()
    lines = (tmp_path / "audit.log").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["first", "second", "third", "fourth"]


def test_audit_log_that_cannot_be_opened_changes_nothing(root: logging.Logger, tmp_path: Path) -> None:
    before = root.handlers[:]
    with pytest.raises(OSError, match="nowhere"):
        set_up(audit=tmp_path / "nowhere" / "below" / "audit.log")
    assert root.handlers == before
