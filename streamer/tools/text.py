"""Input and output of the commands: tables, durations, JSON, error messages, exit statuses.

`lines_out` and `complain` remove control characters, which a terminal would obey, so that callers need not.

With ``--json`` (`add_json`) a command prints one JSON document: its answer (`document_out`), or the error with its exit
status (`errors_as_json`).
"""

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from streamer.config.load import Problem
from streamer.journal import moments
from streamer.uprotocol.uri import UriError, UUri

EX_IOERR = 74
"""Exit status: the journal or the traces cannot be read, or standard output not written (sysexits.h)."""

EX_CONFIG = 78
"""Exit status: the configuration cannot be used (sysexits.h)."""

DEFAULT_CONFIG = Path("/etc/ustreamer/streamer.yaml")
CONFIG_VARIABLE = "USTREAMER_CONFIG"
CONFIG_DEFAULT = f"default: {CONFIG_VARIABLE}, or {DEFAULT_CONFIG}"


def milliseconds(text: str) -> int:
    """Parse a duration such as 30m to milliseconds. Raises argparse.ArgumentTypeError."""
    try:
        return moments.milliseconds(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def number(text: str) -> int:
    """Parse a number of at least 1. Raises argparse.ArgumentTypeError."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected at least 1, found {text!r}")


def rate(text: str) -> float:
    """Parse how often something is done in a second. Raises argparse.ArgumentTypeError."""
    with contextlib.suppress(ValueError):
        if 0 < (found := float(text)) < math.inf:
            return found
    raise argparse.ArgumentTypeError(f"expected more than 0, found {text!r}")


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


_collected: ContextVar[list[tuple[str | Problem, int]] | None] = ContextVar("_collected", default=None)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` to a command, which then has to print its answer with `document_out` if ``as_json`` is set."""
    text = "print one JSON document, for programs; an error, too, with the same exit code"
    parser.add_argument("--json", action="store_true", dest="as_json", help=text)


def document_out(document: object) -> None:
    """Print a JSON document to standard output. It is ASCII, so there are no control characters in it."""
    sys.stdout.write(f"{json.dumps(document, indent=2)}\n")


@contextlib.contextmanager
def errors_as_json() -> Iterator[None]:
    """Print the complaints of the block as one JSON document: the last one with its exit status, and those before it."""
    collected: list[tuple[str | Problem, int]] = []
    before = _collected.set(collected)
    try:
        yield
    finally:
        _collected.reset(before)
        if collected:
            *problems, (error, status) = collected
            document_out({"error": str(error), "status": status, "problems": [_problem(each) for each, _ in problems]})


def _problem(problem: str | Problem) -> dict[str, Any]:
    """Return a problem with its place in the configuration file; None: the place is not known."""
    if isinstance(problem, str):
        return {"file": None, "line": None, "column": None, "key": None, "message": problem}
    return problem._asdict() | {name: getattr(problem, name) or None for name in ("line", "column", "key")}


def complain(text: str | Problem, status: int) -> int:
    """Print a line to standard error, or collect it for `errors_as_json` if ``status`` is not 0. Return the exit status."""
    if status and (collected := _collected.get()) is not None:
        collected.append((text, status))
    else:
        sys.stderr.write(f"{plain(str(text))}\n")
    return status


def lines_out(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    sys.stdout.writelines(f"{plain(line)}\n" for line in lines)


def payload_text(payload: dict[str, Any]) -> str:
    """Return a payload for people. ``payload``: as JSON has it (`streamer.uprotocol.payload`)."""
    if "json" in payload:
        return json.dumps(payload["json"], ensure_ascii=False)
    return str(payload.get("text", payload.get("hex", "")))
