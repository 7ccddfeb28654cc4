"""``streamer record``: keeps the last minutes of a daemon in memory, and writes them to a file after a fault."""

import argparse
import json
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from streamer.features.black_box.ring import CAUSES, EVENTS, MESSAGES, Causes, Ring, Shown
from streamer.tools import running
from streamer.tools.interrupt import until_interrupted
from streamer.tools.tap import followed
from streamer.tools.text import EX_CONFIG, EX_IOERR, complain, lines_out, milliseconds, number, reason_of

_LOOK_S = 0.2
_QUEUED = 10_000
_PAGES = {MESSAGES: "/tap?payload={payload}&rate=1000", EVENTS: "/events?kinds=state,dead_letter,config,paused"}


_Came = tuple[str, str, dict[str, Any]] | running.NotAskedError  # topic, name and data of an event


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Keep the last messages and events of the running daemon in memory, and write them to a file after a fault."
    record = commands.add_parser("record", help=text, description=text)
    record.set_defaults(command=running.answered(_record))
    running.add_options(record)
    record.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the files")
    record.add_argument("--ring", type=milliseconds, default=120_000, metavar="DURATION", help="how much; default: 120s")
    record.add_argument("--after", type=milliseconds, default=5000, metavar="DURATION", help="and how much after it; 5s")
    record.add_argument("--max-mib", type=number, default=64, metavar="N", help="the most memory; default: 64")
    record.add_argument("--files", type=number, default=20, metavar="N", help="end after N files; default: 20")
    text = f"what a file is written for, with commas: {', '.join(CAUSES)}; default: all"
    record.add_argument("--freeze-on", type=_causes, default=CAUSES, metavar="CAUSES", help=text)
    record.add_argument("--payload", choices=("none", "hex"), default="hex", help="whether payloads are recorded")


def _causes(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if unknown := [each for each in found if each not in CAUSES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: expected {', '.join(CAUSES)}")
    return found


def _record(arguments: argparse.Namespace) -> int:
    """Record until Ctrl-C, or until there are ``--files`` files; return the exit status. Raises `NotAskedError`."""
    try:
        from streamer.features.black_box.file import write  # noqa: PLC0415  # of an extra
    except ImportError as exc:
        return complain(str(exc), EX_CONFIG)
    daemon = running.daemon_of(arguments, running.loaded(arguments))
    ring, causes = Ring(arguments.ring / 1000, arguments.max_mib << 20), Causes(arguments.freeze_on)
    queue: Queue[_Came] = Queue(_QUEUED)
    for topic, page in _PAGES.items():
        where = daemon, page.format(payload=arguments.payload), topic, queue
        threading.Thread(target=_follow, args=where, name=f"record-{topic}", daemon=True).start()

    def freeze(cause: str) -> None:
        path = arguments.out / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{cause}.mcap"
        about, shown = {"cause": cause, "left_out": str(ring.left_out), "daemon": daemon.named}, ring.take()
        arguments.out.mkdir(parents=True, exist_ok=True)
        write(path, shown, about)
        lines_out([f"{path}: {len(shown)} messages and events, for {cause}"])
        sys.stdout.flush()

    left, cause, due_s, silent = arguments.files, "", 0.0, set(_PAGES)
    try:
        with until_interrupted():
            while left:
                with suppress(Empty):
                    came = queue.get(timeout=_LOOK_S)
                    if isinstance(came, running.NotAskedError):
                        return complain(str(came), came.status)
                    topic, kind, data = came
                    if silent and not (silent := silent - {topic}):
                        complain(f"recording {daemon.named}; Ctrl-C ends it", 0)
                    ring.add(Shown(time.time_ns(), topic, json.dumps({"event": kind, **data}).encode()))
                    if not cause and (cause := causes.of(kind, data)):
                        due_s = time.monotonic() + arguments.after / 1000
                if cause and time.monotonic() >= due_s:
                    freeze(cause)
                    left, cause = left - 1, ""
        if cause:
            freeze(cause)
    except OSError as exc:
        return complain(f"--out: {reason_of(exc)}", EX_IOERR)
    return 0


def _follow(daemon: running.DaemonAddress, page: str, topic: str, queue: "Queue[_Came]") -> None:
    """Put every event of a stream into a queue; at last the error with which the daemon refuses, or never answers.

    A full queue makes this wait, so the daemon leaves events out of the stream, and says how many.
    """
    try:
        for kind, data in followed(daemon, page):
            queue.put((topic, kind, data))
    except running.NotAskedError as exc:
        queue.put(exc)
