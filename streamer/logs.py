"""Log lines: an event name and key=value fields each. Text on a terminal, JSON otherwise; repeated lines are counted.

A call such as ``logger.info("link_lost endpoint=%s after_s=%.1f", name, age)`` is one event. The format string identifies
the event: the names of the fields are taken from it, and the repeat limit counts by it.

Values come from the network: whatever they contain, an event stays one line, and nothing in it is obeyed by a terminal.
Lines of ``streamer.audit`` are never limited; they can go to a file of their own as well.
"""

import json
import logging
import logging.handlers
import os
import re
import sys
import time
from collections.abc import Callable
from io import FileIO, TextIOWrapper
from pathlib import Path

AUDIT = "streamer.audit"
"""The logger of the audit log."""

_AUDIT_MODE = 0o640  # who reads it is a matter of its group

_FIELD = re.compile(r"(\w+)=(%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
_MAX_KINDS = 1000

logger = logging.getLogger("ustreamer.logs")


class RepeatFilter(logging.Filter):
    """Passes one line of a kind in ``repeat_s`` seconds, with the number of those left out since the last one."""

    def __init__(self, repeat_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._repeat_s = repeat_s
        self._now_s = now_s
        self._seen: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL or record.name == AUDIT or not self._repeat_s:
            return True
        args = record.args if isinstance(record.args, tuple) else ()
        kind = (record.name, (record.msg, repr(args[0]) if args else None))  # repr, because some arguments cannot be hashed
        now_s = self._now_s()
        last_s, left_out = self._seen.get(kind, (-self._repeat_s, 0))
        if now_s - last_s < self._repeat_s:
            self._seen[kind] = (last_s, left_out + 1)
            return False
        if len(self._seen) >= _MAX_KINDS:
            self._seen.clear()
        self._seen[kind] = (now_s, 0)
        record.left_out = left_out
        return True


def _as_python(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _as_json(char: str) -> str:
    return json.dumps(char)[1:-1]


def escaped(text: str, escape: Callable[[str], str] = _as_python) -> str:
    """The text with escape sequences for what would begin a line, move a cursor or turn the direction of writing."""
    return text if text.isprintable() else "".join(char if char.isprintable() else escape(char) for char in text)


class HumanFormatter(logging.Formatter):
    """``12:34:56.789 INFO  mqtt5 connected endpoint=cloud``. The lines of a traceback begin with a bar."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{stamp}.{int(record.msecs):03d} {record.levelname:<7} {_part(record)} {escaped(record.getMessage())}"
        if left_out := getattr(record, "left_out", 0):
            line += f" left_out={left_out}"
        if record.exc_info:
            line += "".join(f"\n  | {escaped(part)}" for part in self.formatException(record.exc_info).split("\n"))
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts (UTC), level, part, event, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        template = str(record.msg)
        event, _, _ = template.partition(" ")
        line: dict[str, object] = {
            "ts": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "part": _part(record),
            "event": event,
        }
        fields = _FIELD.findall(template)
        args = record.args if isinstance(record.args, tuple) else ()
        if len(fields) == len(args) and template.count("%") == len(args):
            line.update((key, _value(form, arg)) for (key, form), arg in zip(fields, args, strict=True))
        else:
            line["text"] = record.getMessage()
        if left_out := getattr(record, "left_out", 0):
            line["left_out"] = left_out
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return escaped(json.dumps(line, ensure_ascii=False), _as_json)


class AuditFile(logging.handlers.WatchedFileHandler):
    """Appends the audit log to a file, as JSON. Once that was renamed or deleted, a new one is begun (logrotate)."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        super().__init__(path, encoding="utf-8")
        self.setFormatter(JsonFormatter())

    def _open(self) -> TextIOWrapper:
        number = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _AUDIT_MODE)
        return TextIOWrapper(FileIO(number, "a"), encoding="utf-8", write_through=True)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # of reopening: the folder is gone, or no longer ours
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        logger.error("audit_not_written file=%s error=%s", self.baseFilename, sys.exc_info()[1])


def _part(record: logging.LogRecord) -> str:
    return record.name.removeprefix("ustreamer.")


def _value(form: str, arg: object) -> object:
    if isinstance(arg, bool | int) or arg is None:
        return arg
    if isinstance(arg, float):
        return float(form % arg)
    return form % (arg,)


def set_up(level: str = "info", form: str = "auto", repeat_s: float = 10, audit: Path | None = None) -> None:
    """Send the process's log lines to standard error, and those of the audit log to a file as well.

    ``form`` is human, json or auto (human on a terminal). Of each kind of line, one appears in ``repeat_s`` seconds. Raises
    OSError if the file cannot be opened; nothing has changed then.
    """
    audit_log(audit)
    human = form == "human" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    handler.addFilter(RepeatFilter(repeat_s))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("aiohttp").setLevel(logging.WARNING)


def check_audit_file(path: Path | None) -> None:
    """Raise OSError if the audit log could not be appended to this file."""
    if path is not None:
        AuditFile(path).close()


def audit_log(path: Path | None) -> None:
    """Append the audit log to this file from now on; None: to none. Raises OSError."""
    handlers = [] if path is None else [AuditFile(path)]
    audit = logging.getLogger(AUDIT)
    for handler in audit.handlers:
        handler.close()
    audit.handlers[:] = handlers
