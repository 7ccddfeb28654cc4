"""Prints messages that a running daemon's tap shows, until Ctrl-C: the commands ``tap`` and ``listen`` do."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlencode

from streamer.tools.interrupt import until_interrupted
from streamer.tools.running import DaemonAddress, DaemonRefusedError, NotAskedError, daemon_of, loaded, opened
from streamer.tools.text import complain, lines_out, parsed, payload_text

_SILENT_S = 40.0  # a daemon sends a comment every 15 seconds
_AGAIN_S = 0.5
_LINE_BYTES = 1 << 20
BEGUN, LOST = "begun", "lost"
"""Names of events that are none of the daemon's: its stream has begun, or has ended."""

_FILTERS = ("route", "endpoint", "source", "sink", "type", "outcome", "payload", "rate")


def watch(arguments: argparse.Namespace, daemon: DaemonAddress | None = None) -> int:
    """Print messages until Ctrl-C; return the exit status. ``daemon``: instead of the one in the options.

    Raises `NotAskedError`.
    """
    daemon = daemon or daemon_of(arguments, loaded(arguments))
    asked = {name: getattr(arguments, name) for name in _FILTERS if getattr(arguments, name) is not None}
    left = arguments.count
    has_begun = False
    with until_interrupted():
        for kind, data in followed(daemon, f"/tap?{urlencode(asked)}"):
            if kind == LOST:
                complain("the streamer has ended the tap, or is down; waiting until it answers again", 0)
            elif kind == BEGUN:
                complain("the streamer answers again" if has_begun else _watched(arguments, daemon), 0)
                has_begun = True
            else:
                lines_out([_line(kind, data, arguments.json)])
                sys.stdout.flush()
                if left is not None and kind == "message" and (left := left - 1) == 0:
                    return 0
    return 0


def followed(daemon: DaemonAddress, page: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a stream, for ever: `BEGUN` before the first of each connection, `LOST` once after its last.

    Raises `NotAskedError` if the daemon refuses, or does not answer the first time. While it is busy, this goes on.
    """
    has_begun = is_lost = False
    while True:
        try:
            with opened(daemon, page, None, _SILENT_S, is_secret=True) as answer:
                has_begun, is_lost = True, False
                yield BEGUN, {}
                yield from _events(answer)
        except NotAskedError as exc:
            if not has_begun or (isinstance(exc, DaemonRefusedError) and exc.code != HTTPStatus.SERVICE_UNAVAILABLE):
                raise
        if not is_lost:
            is_lost = True
            yield LOST, {}
        time.sleep(_AGAIN_S)


def _watched(arguments: argparse.Namespace, daemon: DaemonAddress) -> str:
    """Return a line with the selection, and how the tap ends."""
    asked = [f"{name} {value}" for name in _FILTERS[:6] if (value := getattr(arguments, name)) is not None]
    what = "all messages" if not asked else f"messages of {', '.join(asked)}"
    end = "Ctrl-C ends it" if arguments.count is None else f"ends after --count {arguments.count}, or at Ctrl-C"
    return f"watching {what} at {daemon.named}; {end}"


def _events(answer: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a stream until it ends or breaks."""
    kind = ""
    with suppress(OSError, HTTPException):
        while line := answer.readline(_LINE_BYTES):
            name, _, value = line.rstrip(b"\n").partition(b": ")
            if name == b"event":
                kind = value.decode(errors="replace")
            elif name == b"data":
                with suppress(ValueError):
                    data = parsed(value)
                    if isinstance(data, dict):
                        yield kind, data


def _line(kind: str, data: dict[str, Any], as_json: bool) -> str:
    if kind == "left_out":
        left_out = data.get("messages", 0)
        if as_json:
            return json.dumps({"left_out": left_out, "since": data.get("since")})
        return f"... {left_out} {'message' if left_out == 1 else 'messages'} left out"
    return json.dumps(data) if as_json else "  ".join(_cells(data))


def _cells(shown: dict[str, Any]) -> Iterator[str]:
    """Yield the cells of one message for people. Any text from the daemon may be in them."""
    yield str(shown.get("t"))
    yield str(shown.get("outcome")).ljust(13)
    yield _way(shown)
    yield str(shown.get("type"))
    sink = shown.get("sink")
    yield str(shown.get("source")) if sink is None else f"{shown.get('source')} → {sink}"
    yield str(shown.get("id"))
    if isinstance(in_daemon_s := shown.get("in_daemon_s"), float | int):
        yield f"{in_daemon_s * 1000:.1f} ms"
    if shown.get("bytes") is not None:
        yield f"{shown['bytes']} B"
    if shown.get("code") not in ("OK", None):
        yield f"{shown['code']}: {shown.get('text')}"
    if isinstance(payload := shown.get("payload"), dict):
        yield payload_text(payload)
        if shown.get("cut_bytes"):
            yield f"(and {shown['cut_bytes']} B more)"


def _way(shown: dict[str, Any]) -> str:
    ends = f"{shown.get('ingress') or 'here'} → {shown.get('egress') or 'nowhere'}"
    return f"{shown.get('route')} ({ends})"
