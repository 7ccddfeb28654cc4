"""The format of log lines: an event name and key=value fields, as text for people or as JSON.

A call such as ``logger.info("link_lost endpoint=%s after_s=%.1f", name, age)`` is one event. The format string identifies
the event: the names of the fields are taken from it.

Values come from the network: whatever they contain, an event stays one line, and no control character reaches a terminal.
"""

import json
import logging
import re
import time
from collections.abc import Callable

_FIELD = re.compile(r"(\w+)=(%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")


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


def _part(record: logging.LogRecord) -> str:
    return record.name.removeprefix("ustreamer.")


def _value(form: str, arg: object) -> object:
    if isinstance(arg, bool | int) or arg is None:
        return arg
    if isinstance(arg, float):
        return float(form % arg)
    return form % (arg,)


MAX_VALUE = 256
"""Characters of a value that comes from the network, in a line that has its own limit."""


def bounded(value: object) -> object:
    """A field's value as it may stand in a line: a number, None, or a text that is not long."""
    if value is None or isinstance(value, int | float):
        return value
    text = str(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"
