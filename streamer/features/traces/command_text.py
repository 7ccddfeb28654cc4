"""Formats records and summaries for ``streamer traces``: for people, or as JSON.

A record maps the columns of the trace, and ``streamer``, to their values. Its times are microseconds since 1970: a
file of another program may have any, also beyond the year 9999, where Python's end.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamer.journal.moments import as_moment, as_span
from streamer.routing.outcome import FAILURES
from streamer.tools.text import as_table, lines_out
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id

if TYPE_CHECKING:
    import pyarrow as pa

    from streamer.features.traces.summary import Summary

_HEAD = ("TIME", "OUTCOME", "UCODE", "ROUTE", "TYPE", "SOURCE", "", "SINK", "SIZE", "LATENCY", "ID")
_SUMMARY_HEAD = (
    *("ROUTE", "MESSAGES", "PER S", "BYTES", "DELIVERED", "FAILED"),
    *("P50", "P99", "MAX", "WAIT P50", "WAIT P99", "RETRIES", "REDELIVERED"),
)


_TIMES = ("ts", "msg_ts", "run_ts")


def rows_of(batch: "pa.RecordBatch | pa.Table") -> list[dict[str, Any]]:
    """Return the records of a batch or a table."""
    for name in _TIMES:
        batch = batch.set_column(batch.schema.get_field_index(name), name, batch.column(name).cast("int64"))
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


class Printer:
    """Prints records as they are found. Columns only become wider, so that later records stay aligned."""

    def __init__(self, is_json: bool, rows: Sequence[dict[str, Any]]) -> None:
        self._is_json = is_json
        self._widths = [len(cell) for cell in _HEAD]
        if not is_json:
            self._print([_HEAD, *map(_cells, rows)])
        else:
            self.add(rows)

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        if self._is_json:
            lines_out(map(as_json, rows))
        else:
            self._print(list(map(_cells, rows)))

    def _print(self, lines: Sequence[tuple[str, ...]]) -> None:
        for line in lines:
            self._widths = list(map(max, self._widths, map(len, line)))
        lines_out(
            "  ".join(cell.ljust(width) for cell, width in zip(line, self._widths, strict=True)).rstrip() for line in lines
        )
        sys.stdout.flush()


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        _time(_ended(row)),
        row["outcome"],
        row["ucode"],
        row["route"],
        row["msg_type"].capitalize(),
        _uri(row, "src"),
        "→",
        _uri(row, "sink"),
        str(row["payload_bytes"]),
        _length(row["latency_us"]),
        format_id(row["msg_id"]),
    )


def message_lines(rows: Sequence[dict[str, Any]], id_: bytes, config: Path | None) -> Iterator[str]:
    """Yield every record of a message in full, then those of its Response, and where to search further."""
    own = [row for row in rows if row["msg_id"] == id_]
    answers = rows[len(own) :]
    for index, row in enumerate(own):
        yield from [""] if index else []
        yield from as_table(list(_record_rows(row)))
    last = {(row["streamer"], row["route"], _uri(row, "sink")): row for row in sorted(own, key=_ended)}
    if any(row["outcome"] in FAILURES for row in last.values()):
        command = f"streamer dead-letters show --config {config or 'FILE'} {format_id(id_)}"
        yield from ("", f"its dead letter, unless somebody has redriven or purged it: {command}")
    elif any(row["outcome"] in FAILURES for row in own):
        yield from ("", "it failed first, and its dead letter was redriven")
    if any(row["msg_type"] == "request" for row in own) and not answers:
        yield from ("", "no Response to it passed here")
    for row in answers:
        yield from ("", "its Response:")
        yield from as_table(list(_record_rows(row)))


def _record_rows(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "id", format_id(row["msg_id"])
    yield "type", row["msg_type"].capitalize()
    yield "source", _uri(row, "src")
    yield "sink", _uri(row, "sink")
    yield "outcome", f"{row['outcome']} ({row['ucode']}) at {_time(_ended(row))}"
    yield "streamer", row["streamer"]
    yield "route", row["route"]
    yield "endpoints", f"from {_endpoint(row, 'ingress')} to {_endpoint(row, 'egress')}"
    yield "created", "-" if row["msg_ts"] is None else _time(row["msg_ts"])
    yield "came in", f"{_time(row['ts'])}, {_length(row['age_us'])} old"
    yield "ttl", "none" if row["ttl_ms"] is None else f"{row['ttl_ms']} ms"
    yield "waited", _length(row["queue_wait_us"])
    yield "latency", _length(row["latency_us"])
    yield "retries", f"{row['retries']}{', redelivered' if row['redelivered'] else ''}"
    yield "priority", row["priority"]
    yield "payload", f"{row['payload_bytes']} bytes"
    if row["req_id"] is not None:
        yield "answers", format_id(row["req_id"])
    yield "traceparent", row["traceparent"] or "-"
    yield "record", f"{row['seq']} of the run since {_time(row['run_ts'])}"


def summary_lines(summary: "Summary", window_ms: int, now_ms: int) -> Iterator[str]:
    yield f"{as_moment(now_ms - window_ms)} to {as_moment(now_ms)}; latency and waiting of what was delivered"
    yield ""
    lines: list[tuple[str, ...]] = [_SUMMARY_HEAD]
    for name, route in sorted(summary.routes.items()):
        latency, wait = route.latency_us, route.queue_wait_us
        numbers = (
            route.messages,
            f"{route.messages / (window_ms / 1000):.3g}",
            route.bytes,
            route.outcomes["delivered"],
            sum(route.outcomes[outcome] for outcome in FAILURES),
            *map(_length, (latency.percentile(0.5), latency.percentile(0.99), latency.largest)),
            *map(_length, (wait.percentile(0.5), wait.percentile(0.99))),
            route.retries,
            route.redelivered,
        )
        lines.append((name, *map(str, numbers)))
    yield from as_table(lines)
    if summary.reasons:
        yield ""
        reasons = sorted(summary.reasons.items(), key=lambda item: (-item[1], item[0]))
        rows = [(*reason, str(count)) for reason, count in reasons]
        yield from as_table([("NOT DELIVERED ON", "OUTCOME", "UCODE", "MESSAGES"), *rows])
    yield ""
    none = "no gaps in seq (the end of a run that was killed leaves none)"
    yield f"{summary.missing} records missing (gaps in seq)" if summary.missing else none


def summary_json(summary: "Summary", window_ms: int, now_ms: int) -> dict[str, object]:
    return {
        "from": as_moment(now_ms - window_ms),
        "to": as_moment(now_ms),
        "routes": {name: route.as_json(window_ms / 1000) for name, route in sorted(summary.routes.items())},
        "not_delivered": [
            {"route": name, "outcome": outcome, "ucode": code, "messages": count}
            for (name, outcome, code), count in sorted(summary.reasons.items())
        ],
        "records_missing": summary.missing,
    }


def as_json(row: dict[str, Any]) -> str:
    """Return a record with all columns as JSON in ASCII: control characters are escaped."""
    return json.dumps({name: _json_value(name, value) for name, value in row.items()})


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return format_id(value)
    return _time(value) if name in _TIMES and value is not None else value


def _uri(row: dict[str, Any], side: str) -> str:
    authority = row[f"{side}_authority"]
    if authority is None:
        return "-"
    return str(UUri(authority, *(row[f"{side}_{part}"] or 0 for part in ("ue_id", "ue_version", "resource_id"))))


def _endpoint(row: dict[str, Any], side: str) -> str:
    return "-" if row[side] is None else f"{row[side]} ({row[f'{side}_transport'] or '-'})"


def _ended(row: dict[str, Any]) -> int:
    return int(row["ts"] + (row["latency_us"] or 0))


def _time(us: int) -> str:
    try:
        moment = datetime.fromtimestamp(us // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{us} µs"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{us % 1_000_000:06d}Z"


def _length(us: int | None) -> str:
    """Format microseconds with three digits: 870µs, 12.4ms, 1.5s, 60m."""
    if us is None:
        return "-"
    if us < 0:
        return f"-{_length(-us)}"
    if us < 1000:
        return f"{us}µs"
    if us < 999_500:
        return f"{us / 1000:.3g}ms"
    return f"{us / 1_000_000:.3g}s" if us < 120_000_000 else as_span(us // 1000)
