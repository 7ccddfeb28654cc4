"""Input and output of the commands: tables, durations, error messages, exit statuses.

`lines_out` and `complain` remove control characters, which a terminal would obey, so that callers need not.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from streamer.journal import moments
from streamer.uprotocol.uri import UriError, UUri

EX_IOERR = 74
"""Exit status: the journal or the traces cannot be read, or standard output not written (sysexits.h)."""

EX_CONFIG = 78
"""Exit status: the configuration cannot be used (sysexits.h)."""


def milliseconds(text: str) -> int:
    """Parse a duration such as 30m to milliseconds. Raises argparse.ArgumentTypeError."""
    try:
        return moments.milliseconds(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def uri(text: str) -> UUri:
    """Parse a UUri or a pattern. Raises argparse.ArgumentTypeError."""
    try:
        return UUri.parse(text)
    except UriError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def as_table(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield lines of cells, aligned in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def plain(text: str) -> str:
    """Return the text without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def parsed(answer: bytes | str) -> Any:
    """Parse a JSON text. Raises ValueError if it is invalid, or nested too deeply."""
    try:
        return json.loads(answer)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def reason_of(exc: OSError) -> str:
    """Return the operating system's error text, and the file that it is about."""
    reason = exc.strerror or str(exc)
    return reason if exc.filename is None else f"{exc.filename}: {reason}"


def complain(text: str, status: int) -> int:
    """Print a line to standard error, and return the exit status."""
    sys.stderr.write(f"{plain(text)}\n")
    return status


def lines_out(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    sys.stdout.writelines(f"{plain(line)}\n" for line in lines)
