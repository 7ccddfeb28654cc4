"""``streamer traces tail | summary | find``: reads the folder of traces, with the daemon running or not."""

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from streamer.config.checks import nearest
from streamer.config.load import load
from streamer.features.traces.command_text import Printer, as_json, message_lines, rows_of, summary_json, summary_lines
from streamer.features.traces.config import TraceConfig, missing_for_traces
from streamer.journal.moments import as_moment
from streamer.routing.outcome import Outcome
from streamer.tools.interrupt import until_interrupted
from streamer.tools.text import CONFIG_DEFAULT, EX_CONFIG, EX_IOERR, complain, lines_out, milliseconds
from streamer.uprotocol.uuid import created_ms

if TYPE_CHECKING:
    import pyarrow as pa

_POLL_S = 1.0
_HOURS_BEFORE, _HOURS_AFTER = 1, 24
_MAX_FOUND = 1000

Complain = Callable[[str], None]
Action = Callable[[argparse.Namespace, Path, Complain], int]


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its actions to the command line."""
    text = "Search the routing traces, which have one record for each outcome of each message."
    actions = commands.add_parser("traces", help=text, description=text).add_subparsers(required=True, metavar="ACTION")

    def action(name: str, run: Action, text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text)
        sub.set_defaults(command=lambda arguments: _run(arguments, run))
        where = sub.add_mutually_exclusive_group()
        where.add_argument(
            "--config", type=Path, metavar="FILE", help=f"the configuration file; reads its trace.path; {CONFIG_DEFAULT}"
        )
        where.add_argument("--path", type=Path, metavar="DIR", help="the folder of traces")
        sub.add_argument("--json", action="store_true", help="one JSON object per line, for programs")
        return sub

    tail = action("tail", _tail, "Print the latest outcomes, the newest last.")
    tail.add_argument("-n", type=_count, default=20, metavar="N", help="how many records; default: 20")
    tail.add_argument("--follow", "-f", action="store_true", help="continue with new records, until Ctrl-C")
    tail.add_argument("--outcome", type=_outcomes, metavar="NAME", help="only these outcomes, such as expired,dead_lettered")
    tail.add_argument("--route", metavar="NAME", help="the route of the messages")
    summary = action("summary", _summary, "Summarize the outcomes of a period, per route.")
    summary.add_argument("--last", type=_window, default=3_600_000, metavar="1h", help="30s, 15m, 1h, 2d; default: 1h")
    find = action("find", _find, "Print everything that the traces know about one message.")
    find.add_argument("id", type=_id, metavar="ID", help="the message's id")
    find.add_argument(
        "--all",
        action="store_true",
        help=f"search every file, not only from {_HOURS_BEFORE} h before to {_HOURS_AFTER} h after the message was created",
    )


# arguments


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of records")
    return int(text)


def _window(text: str) -> int:
    length_ms = milliseconds(text)
    if not length_ms:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a duration above 0")
    return length_ms


def _outcomes(text: str) -> list[str]:
    return [_outcome(name) for name in text.split(",")]


def _outcome(text: str) -> str:
    name = text.lower().replace("-", "_")
    names = [outcome.value for outcome in Outcome]
    if name not in names:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one of {', '.join(names)}{nearest(name, names)}")
    return name


def _id(text: str) -> bytes:
    try:
        return UUID(text).bytes
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected the id of a message (a UUID), as `traces tail` prints it"
        ) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _sleep() -> None:
    time.sleep(_POLL_S)


# actions


def _run(arguments: argparse.Namespace, action: Action) -> int:
    folder: Path = arguments.path
    if missing := missing_for_traces():
        return complain(f"traces can be read with {missing}", 1)
    if folder is None:
        config = load(arguments.config, kind=arguments.kind)
        if (options := config.section(TraceConfig)) is None:
            return complain(f"{arguments.config}: trace: null: no traces are written", EX_CONFIG)
        folder = options.path
    unread: list[str] = []

    def unreadable(text: str) -> None:
        unread.append(text)
        complain(text, EX_IOERR)

    try:
        folder.iterdir().__next__()
        status = action(arguments, folder, unreadable)
    except StopIteration:
        return _nothing()
    except OSError as exc:
        if isinstance(exc, BrokenPipeError):
            raise
        return complain(f"{exc.filename or folder}: {exc.strerror or exc}", EX_IOERR)
    return EX_IOERR if unread else status


def _tail(arguments: argparse.Namespace, folder: Path, unreadable: Complain) -> int:
    from streamer.features.traces.reader import (  # noqa: PLC0415  # slow
        CLOCK_SLACK_US,
        SeenRecords,
        SpoolReader,
        ended_us,
        newest,
        parquet_files,
        read_parquet,
    )

    condition = _condition(arguments)
    seen, spool, kept = SeenRecords(), SpoolReader(folder, unreadable), None
    with until_interrupted(), contextlib.closing(spool):
        for batch in spool.batches():
            if arguments.follow:
                seen.add(batch)
            kept = newest(kept, _filtered(batch, condition), arguments.n)
        files = parquet_files(folder)
        for file in files if arguments.n else ():
            is_full = kept is not None and kept.num_rows == arguments.n
            if is_full and file.modified_us + CLOCK_SLACK_US < int(ended_us(kept)[0]):
                break  # this file and all older ones were written before the kept records ended
            for batch in read_parquet(file, condition, unreadable):
                kept = newest(kept, batch, arguments.n)
        rows = [] if kept is None else rows_of(kept)
        if not rows and not arguments.follow:
            return _nothing()
        printer = Printer(arguments.json, rows)
        known = {file.path for file in files}
        while arguments.follow:
            _sleep()
            for batch in spool.batches():
                printer.add(rows_of(_filtered(seen.add(batch), condition)))
            present = parquet_files(folder)
            for file in present:
                if file.path not in known:
                    for batch in read_parquet(file, None, unreadable):
                        printer.add(rows_of(_filtered(seen.add(batch), condition)))
            known = {file.path for file in present}
    return 0


def _summary(arguments: argparse.Namespace, folder: Path, unreadable: Complain) -> int:
    from streamer.features.traces.reader import CLOCK_SLACK_US, SpoolReader, parquet_files, read_parquet  # noqa: PLC0415  # slow
    from streamer.features.traces.summary import COLUMNS, Summary  # noqa: PLC0415

    now_ms = _now_ms()
    summary = Summary((now_ms - arguments.last) * 1000)
    spool = SpoolReader(folder, unreadable)
    try:
        for batch in spool.batches():
            summary.add(batch)
    finally:
        spool.close()
    for file in parquet_files(folder):
        if file.modified_us + CLOCK_SLACK_US < summary.since_us:
            break
        for batch in read_parquet(file, None, unreadable, COLUMNS):
            summary.add(batch)
    if arguments.json:
        lines_out([json.dumps(summary_json(summary, arguments.last, now_ms))])
    elif summary.routes:
        lines_out(summary_lines(summary, arguments.last, now_ms))
    return 0 if summary.routes else 1 if arguments.json else _nothing()


def _find(arguments: argparse.Namespace, folder: Path, unreadable: Complain) -> int:
    import pyarrow.compute as pc  # noqa: PLC0415  # slow

    from streamer.features.traces.reader import HOUR_US, SpoolReader, parquet_files, read_parquet  # noqa: PLC0415

    condition = (pc.field("msg_id") == arguments.id) | (pc.field("req_id") == arguments.id)
    created_us = created_ms(arguments.id) * 1000
    is_all = arguments.all or arguments.id[6] >> 4 != 7  # only a version 7 id contains the creation time
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    left_out = 0

    def batches() -> Iterator["pa.RecordBatch | pa.Table"]:
        spool = SpoolReader(folder, unreadable)
        try:
            for batch in spool.batches():
                yield _filtered(batch, condition)
        finally:
            spool.close()
        for file in parquet_files(folder):
            hours = (file.hour_us - created_us) / HOUR_US  # from the message to the beginning of the partition
            if is_all or -_HOURS_BEFORE - 1 < hours <= _HOURS_AFTER:
                yield from read_parquet(file, condition, unreadable)

    for batch in batches():
        for row in rows_of(batch):
            key = (row["streamer"], row["run_ts"], row["seq"])
            if key in found or len(found) < _MAX_FOUND:
                found[key] = row
            else:
                left_out += 1
    rows = sorted(found.values(), key=lambda row: (row["msg_id"] != arguments.id, row["ts"], row["seq"]))
    if arguments.json:
        lines_out(as_json(row) for row in rows)
    elif rows:
        lines_out(message_lines(rows, arguments.id, arguments.config))
    if left_out:
        complain(f"{left_out} more records are not shown", 0)
    if not rows:
        searched = (
            "every file" if is_all else f"{_searched(created_us)}, and what is not compacted yet; --all searches every file"
        )
        complain(f"searched: {searched}", 1)
    return 0 if rows else _nothing()


def _condition(arguments: argparse.Namespace) -> Any:
    """Return the filters as an expression of pyarrow; None if there are none."""
    import pyarrow.compute as pc  # noqa: PLC0415  # slow

    asked = {"outcome": arguments.outcome, "route": None if arguments.route is None else [arguments.route]}
    expressions = [pc.field(name).isin(values) for name, values in asked.items() if values is not None]
    if not expressions:
        return None
    return expressions[0] if len(expressions) == 1 else expressions[0] & expressions[1]


def _filtered(batch: "pa.RecordBatch", condition: Any) -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415  # slow

    rows = pa.Table.from_batches([batch])
    return rows if condition is None else rows.filter(condition)


def _searched(created_us: int) -> str:
    first, last = (as_moment(created_us // 1000 + hours * 3_600_000)[:13] + "h" for hours in (-_HOURS_BEFORE, _HOURS_AFTER))
    return f"the hours {first} to {last} (UTC)"


def _nothing() -> int:
    return complain("no such record", 1)
