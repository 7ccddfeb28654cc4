"""Input and output of the subcommands: tables, lengths of time, error messages, exit statuses.

`lines_out` and `complain` print a line without control characters, which a terminal would obey: whatever it is made of, its
parts need no care.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from streamer.journal import moments
from streamer.uprotocol.uri import UriError, UUri

EX_IOERR = 74
"""The journal or the traces cannot be read, or standard output not written (sysexits.h)."""

EX_CONFIG = 78
"""The configuration cannot be used (sysexits.h)."""


def milliseconds(text: str) -> int:
    """A length of time as people type it, such as 30m. Raises argparse.ArgumentTypeError."""
    try:
        return moments.milliseconds(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def uri(text: str) -> UUri:
    """A UUri or a pattern. Raises argparse.ArgumentTypeError."""
    try:
        return UUri.parse(text)
    except UriError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def as_table(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines of cells, aligned in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def plain(text: str) -> str:
    """The text without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def parsed(answer: bytes | str) -> Any:
    """What a JSON text says. Raises ValueError for one that is none, or nested too deeply to be read."""
    try:
        return json.loads(answer)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def reason_of(exc: OSError) -> str:
    """What the operating system says, in words, and the file that it is about."""
    reason = exc.strerror or str(exc)
    return reason if exc.filename is None else f"{exc.filename}: {reason}"


def complain(text: str, status: int) -> int:
    """Print a line to standard error, and return the exit status."""
    sys.stderr.write(f"{plain(text)}\n")
    return status


def lines_out(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    sys.stdout.writelines(f"{plain(line)}\n" for line in lines)
