"""Writes log lines to standard error, and those of the audit log to a file, too; limits repeated lines.

The law of this file:
- Lines of one kind (the same event and first field) are written once in ``repeat_s`` seconds. When the time is over, the
  last suppressed one is written, with the number of those before it.
- A line that reports a state is marked with ``extra={"state": (subject, value)}``. All lines about a subject are one kind. A
  new value is written at once, `CHANGES` times in ``repeat_s``; after that the last one is written when the time is over. So
  the last line about a subject is true.
- Some lines are never suppressed here: critical ones, those of the audit log, and those with a number of lines suppressed
  before them (``extra={"left_out": n}``), which have been limited elsewhere.
- No line is long: values, and the lines of a traceback, are cut before all else.
- What is kept of a suppressed line is bounded: its text, not the objects that it was made of.
- A file of the audit log is a regular one. The daemon writes to it on a thread, so that a file system that hangs delays no
  message; the number of waiting lines is bounded.
"""

import contextlib
import copy
import logging
import logging.handlers
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from io import FileIO, TextIOWrapper
from pathlib import Path
from typing import TextIO

from streamer.files import open_regular
from streamer.logs.audit import NAME, write_denied_again
from streamer.logs.limit import Limit
from streamer.logs.lines import HumanFormatter, JsonFormatter, shortened

_AUDIT_MODE = 0o640  # its group decides who may read it
_AUDIT_FOLDER_MODE = 0o750

CHANGES = 10
"""How many changes of one subject's state are written at once within ``repeat_s``."""

KINDS = 1000
"""How many lines are written within ``repeat_s``, of how many kinds the last one that was left out is kept, and of how many
subjects the state is. The further kinds share one. That holds for lines about states, and again for all others.
"""

_MAX_TEXT = 500

_AUDIT_LINES = 10_000
"""The most lines of the audit log that wait for its file."""

_FLUSH_S = 2.0

logger = logging.getLogger("ustreamer.logs")

_Kind = tuple[str, ...]


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines to standard error, as often as the law says. `write_left_out` writes those that were left out."""

    def __init__(self, formatter: logging.Formatter, repeat_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        """``repeat_s`` of 0: nothing is left out."""
        super().__init__()
        self.setFormatter(formatter)
        self._repeat_s = repeat_s
        self._now_s = now_s
        self._repeats: Limit[_Kind, logging.LogRecord] = Limit(repeat_s, KINDS, KINDS)
        self._states: Limit[_Kind, logging.LogRecord] = Limit(repeat_s, KINDS, KINDS)
        self._told: dict[str, str] = {}  # the last written state of each subject

    def handle(self, record: logging.LogRecord) -> bool:
        with self._own_lock():
            self.write_left_out()
            try:
                record = shortened(record)
                if self._is_limited(record) and not self._has_line(record):
                    return False
            except Exception:  # noqa: BLE001  # an argument that cannot be formatted: as `emit` does
                self.handleError(record)
                return False
            return bool(super().handle(record))

    def write_left_out(self, is_end: bool = False) -> None:
        """Write the last left-out line of each kind whose time is over. To be called periodically."""
        with self._own_lock():
            now_s = self._now_s()
            due = (*self._states.over(now_s, is_end), *self._repeats.over(now_s, is_end))
            for left_out in sorted(due, key=lambda each: each.last.created):
                record = left_out.last
                record.left_out = left_out.times - 1
                self._remember(record)
                super().handle(record)

    def close(self) -> None:
        """Write the lines that were left out, at the end of the process."""
        self.write_left_out(is_end=True)
        super().close()

    def _own_lock(self) -> threading.RLock:
        assert self.lock is not None
        return self.lock

    def _is_limited(self, record: logging.LogRecord) -> bool:
        is_told_anyway = record.levelno >= logging.CRITICAL or record.name == NAME or hasattr(record, "left_out")
        return bool(self._repeat_s) and not is_told_anyway

    def _has_line(self, record: logging.LogRecord) -> bool:
        now_s = self._now_s()
        kind: _Kind
        if hasattr(record, "state"):
            subject, value = _state(record)
            limit, kind, most = self._states, (subject,), 1 if self._told.get(subject) == value else CHANGES
        else:
            limit, kind, most = self._repeats, _kind(record), 1
        if not limit.has_line(kind, now_s, most):
            limit.leave_out(kind, _kept(record), now_s)
            return False
        record.left_out = limit.left_out(kind)
        self._remember(record)
        return True

    def _remember(self, record: logging.LogRecord) -> None:
        if hasattr(record, "state"):
            subject, value = _state(record)
            self._told.pop(subject, None)
            if len(self._told) >= KINDS:
                del self._told[next(iter(self._told))]
            self._told[subject] = value


def _state(record: logging.LogRecord) -> tuple[str, str]:
    subject, value = record.__dict__["state"]
    return str(subject)[:_MAX_TEXT], str(value)[:_MAX_TEXT]


def _kind(record: logging.LogRecord) -> _Kind:
    args = record.args if isinstance(record.args, tuple) else ()
    return (record.name, str(record.msg)[:_MAX_TEXT], *(repr(arg)[:_MAX_TEXT] for arg in args[:1]))


def _kept(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record to keep: formatted, cut, and without a traceback, which was written with the first line."""
    kept = copy.copy(record)
    kept.exc_info = kept.exc_text = kept.stack_info = None
    args = record.args if isinstance(record.args, tuple) else ()
    kept.args = tuple(arg if isinstance(arg, bool | int | float | None) else str(arg)[:_MAX_TEXT] for arg in args)
    try:
        text = kept.getMessage() if args else record.getMessage()
    except (TypeError, ValueError):  # a conversion wants another type than text
        text = record.getMessage()
        args = ()
    if not args or len(str(record.msg)) > _MAX_TEXT:
        kept.msg, kept.args = text[:_MAX_TEXT], ()
    return kept


class AuditFile(logging.handlers.WatchedFileHandler):
    """Appends the audit log to a file, as JSON. After the file is renamed or deleted, it creates a new one (logrotate)."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError."""
        super().__init__(path, encoding="utf-8")
        self.setFormatter(JsonFormatter())

    def _open(self) -> TextIOWrapper:
        number = open_regular(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _AUDIT_MODE)
        return TextIOWrapper(FileIO(number, "a"), encoding="utf-8", write_through=True)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # reopening failed: no folder, or no permission for it
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        logger.error("audit_not_written file=%s error=%s", self.baseFilename, self._reason())

    def _reason(self) -> object:
        exc = sys.exc_info()[1]
        return exc.strerror if isinstance(exc, OSError) and exc.strerror else exc


class AuditThread(logging.Handler):
    """Has an `AuditFile` write on a thread of its own. Lines beyond its queue are missing in the file; that is logged."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError. May hang: not for the event loop."""
        super().__init__()
        self._path = path
        self._file = AuditFile(path)
        self._waiting: queue.Queue[logging.LogRecord | None] = queue.Queue(_AUDIT_LINES)
        threading.Thread(target=self._write, name="audit", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            logger.error("audit_not_written file=%s error=%s", self._path, f"{_AUDIT_LINES} lines wait for it already")

    def _write(self) -> None:
        while (record := self._waiting.get()) is not None:
            self._file.handle(record)
            self._waiting.task_done()
        self._file.close()
        self._waiting.task_done()

    def flush(self) -> None:
        """Wait until all earlier lines are in the file, for some seconds at most."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, _FLUSH_S)

    def close(self) -> None:
        """Have the file closed once all earlier lines are in it, without waiting for that."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        super().close()


def set_up(
    level: str = "info", form: str = "auto", repeat_s: float = 10, audit: Path | logging.Handler | None = None
) -> None:
    """Send the process's log lines to standard error, and those of the audit log to a file or a handler as well.

    ``form`` is human, json or auto (human on a terminal). Of each kind of line, one appears in ``repeat_s`` seconds. Raises
    OSError, without a change, if the file cannot be opened. The file's folder is created if only that is missing.
    """
    if isinstance(audit, Path):
        _make_folder(audit)
    audit_log(audit)
    human = form == "human" or (form == "auto" and sys.stderr.isatty())
    root = logging.getLogger()
    before, root.handlers[:] = root.handlers[:], [LineHandler(HumanFormatter() if human else JsonFormatter(), repeat_s)]
    for handler in before:
        if isinstance(handler, LineHandler):
            handler.close()
    root.setLevel(level.upper())
    logging.getLogger("aiohttp").setLevel(logging.WARNING)


def write_left_out(is_end: bool = False) -> None:
    """Write the left-out lines whose time is over, or all at the end of the process. To be called periodically."""
    write_denied_again(is_end)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LineHandler):
            handler.write_left_out(is_end)


def open_audit_log(path: Path | None) -> AuditThread | None:
    """Return what `set_up` needs to write the audit log to this file on a thread. Creates the file and its folder.

    Raises OSError. May hang: not for the event loop.
    """
    if path is None:
        return None
    _make_folder(path)
    return AuditThread(path)


def _make_folder(path: Path) -> None:
    if path.parent.parent.is_dir() and not path.parent.exists():
        path.parent.mkdir(mode=_AUDIT_FOLDER_MODE, exist_ok=True)


def flush_audit_log() -> None:
    """Wait until the lines of the audit log are in its file, for some seconds at most. Blocks."""
    for handler in logging.getLogger(NAME).handlers:
        handler.flush()


def audit_log(to: Path | logging.Handler | None) -> None:
    """Append the audit log to this file from now on, or pass it to this handler; None: to none. Raises OSError."""
    handlers: list[logging.Handler] = []
    if to is not None:
        handlers.append(to if isinstance(to, logging.Handler) else AuditFile(to))
    audit = logging.getLogger(NAME)
    for handler in audit.handlers:
        handler.close()
    audit.handlers[:] = handlers
