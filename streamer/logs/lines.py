"""The format of log lines: an event name and key=value fields, as text for people or as JSON.

A call such as ``logger.info("link_lost endpoint=%s after_s=%.1f", name, age)`` is one event. The format string identifies
the event: the names of the fields are taken from it.

Values come from the network: whatever they contain, an event stays one line that is not long, and no control character
reaches a terminal.
"""

import copy
import json
import logging
import re
import time
from collections.abc import Callable

MAX_TEXT = 1024
"""The most characters of a value in any line, and of a line of a traceback."""

MAX_VALUE = 256
"""The most characters of a value from the network, in a line with a limit of its own."""

_TRACEBACK_ENDS = 100  # lines at the beginning and at the end of a long traceback

_FIELD = re.compile(r"(\w+)=(%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")


def _as_python(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _as_json(char: str) -> str:
    return json.dumps(char)[1:-1]


def escaped(text: str, escape: Callable[[str], str] = _as_python) -> str:
    """Return the text with control characters escaped: those that begin a line, move a cursor or change text direction."""
    return text if text.isprintable() else "".join(char if char.isprintable() else escape(char) for char in text)


class HumanFormatter(logging.Formatter):
    """``12:34:56.789 INFO  mqtt5 connected endpoint=cloud``. The lines of a traceback begin with a bar."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{stamp}.{int(record.msecs):03d} {record.levelname:<7} {_part(record)} {escaped(record.getMessage())}"
        if left_out := getattr(record, "left_out", 0):
            line += f" left_out={left_out}"
        if record.exc_info:
            line += "".join(f"\n  | {escaped(part)}" for part in _bounded_lines(self.formatException(record.exc_info)))
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
            line["exception"] = "\n".join(_bounded_lines(self.formatException(record.exc_info)))
        return escaped(json.dumps(line, ensure_ascii=False), _as_json)


def _part(record: logging.LogRecord) -> str:
    return record.name.removeprefix("ustreamer.")


def _value(form: str, arg: object) -> object:
    if isinstance(arg, bool | int) or arg is None:
        return arg
    if isinstance(arg, float):
        return float(form % arg)
    return form % (arg,)


def bounded(value: object, most: int = MAX_VALUE) -> object:
    """Return a field's value for a line: a number, None, or a text of at most ``most`` characters."""
    return value if value is None or isinstance(value, int | float) else _cut(str(value), most)


def shortened(record: logging.LogRecord) -> logging.LogRecord:
    """Return the record, or a copy in which no text is longer than `MAX_TEXT`."""
    args = record.args if isinstance(record.args, tuple) and _is_short(record.msg) else ()
    text = record.msg if args else record.getMessage()
    if _is_short(text) and all(map(_is_short, args)):
        return record
    short = copy.copy(record)
    short.msg = _cut(str(text), MAX_TEXT)
    short.args = tuple(arg if _is_short(arg) else bounded(arg, MAX_TEXT) for arg in args)
    return short


def _is_short(value: object) -> bool:
    return value is None or isinstance(value, int | float) or len(str(value)) <= MAX_TEXT


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _bounded_lines(traceback: str) -> list[str]:
    lines = traceback.split("\n")
    if len(lines) > 2 * _TRACEBACK_ENDS:
        lines[_TRACEBACK_ENDS:-_TRACEBACK_ENDS] = ["…"]
    return [_cut(line, MAX_TEXT) for line in lines]
