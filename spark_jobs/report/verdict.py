"""The verdict of a date for machines: ``verdict-DATE.json``, and ``verdict.json``, which is that of the newest date.

The decision is that of the report's headline (`sentences.judged`). docs/verdict.schema.json describes the content; `FORMAT`
goes up if a reader of it would be misled, not for a new key, kind or figure.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from spark_jobs.report import MODE, sentences
from spark_jobs.report.reading import CLOCK_MS, FAULTS
from spark_jobs.report.sections import Figures
from spark_jobs.slo_file import LIMITS
from spark_jobs.storage import Storage

FORMAT = 1
STREAMERS = FILES = 20
_FILE = re.compile(r"verdict-(\d{4}-\d\d-\d\d)\.json")

Verdict = dict[str, Any]


def verdict(figures: Figures, left_out: Mapping[str, str] | None = None) -> Verdict:
    """The verdict of a date. `left_out`: the trace files that were left out, and why, as far as known."""
    level, text = sentences.verdict(figures)
    streamers, more = _streamers(figures)
    audit = figures["audit"]
    return {
        "format": FORMAT,
        "date": figures["date"],
        "created": figures["created"],
        "level": level,
        "text": text,
        "reasons": [
            reason._asdict() | {"help": f"report-{figures['date']}.html#do-{reason.kind}"}
            for reason in sentences.judged(figures)[1]
        ],
        "within_limits": [reason._asdict() for reason, is_beyond in sentences.noticed(figures) if not is_beyond],
        "limits": {**LIMITS, **figures.get("limits", {})},
        "usual": figures["usual"],
        "figures": _figures(figures),
        "streamers": streamers,
        "more_streamers": more,
        "pairs": [
            {name: pair[name] for name in ("src_authority", "sink_authority", "lost")}
            for pair in (audit["pairs"] if audit else ())
            if pair["lost"]
        ],
        "files_left_out": [{"file": path, "reason": why} for path, why in sorted((left_out or {}).items())[:FILES]],
        "jobs_failed": figures.get("jobs_failed"),
        "tables_missing": figures["missing"],
    }


def put(storage: Storage, found: Verdict, to: str) -> tuple[str, bool]:
    """Write a verdict to the folder `to`, and as that of the newest date if it is. Returns the path, and whether it says
    something else than the one before. Raises OSError."""
    folder = to.rstrip("/")
    path = f"{folder}/verdict-{found['date']}.json"
    before = _read(storage.read_text(path))
    text = json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    storage.write_text(path, text, MODE)
    dates = [match[1] for name in storage.names(f"{folder}/verdict-*.json") if (match := _FILE.fullmatch(name))]
    if found["date"] >= max(dates):
        storage.write_text(f"{folder}/verdict.json", text, MODE)
    return path, any(before.get(name) != found[name] for name in ("level", "reasons", "jobs_failed"))


def newest(storage: Storage, to: str) -> Verdict | None:
    """The verdict of the newest date that has one, in a format that is known here."""
    found = _read(storage.read_text(f"{to.rstrip('/')}/verdict.json"))
    return found if found.get("format") == FORMAT else None


def _read(text: str | None) -> Verdict:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _figures(figures: Figures) -> Figures:
    key = {line["name"]: line["value"] for line in figures["key"]}
    health, slo = figures["health"], figures["slo"]
    return {
        "messages": key["messages"],
        "failed": key["failed"],
        "lost": key["lost"] if figures["audit"] else None,
        "unknown": sentences.status(figures["audit"], "unknown") if figures["audit"] else None,
        "objectives": slo["objectives"] if slo else None,
        "objectives_met": slo["met"] if slo else None,
        **{name: health["totals"][name] if health else None for name in ("streamers", "records", *FAULTS)},
    }


def _streamers(figures: Figures) -> tuple[list[Figures], bool]:
    """The streamers with a fault, the worst first, and whether there are more of them."""
    found: dict[str, Figures] = {}
    for row in figures["findings"]["between"] if figures["findings"] else ():
        for name in (row["last_streamer"], *(row["missing_at"] or "").split(",")):
            lost = found.setdefault(name, {"messages_lost": 0})
            lost["messages_lost"] += row["messages"]
    health, fan_out = figures["health"], figures["fan_out"]
    more = False
    if health:
        for row in health["rows"]:
            faults = {name: row[name] for name in FAULTS if row[name]}
            more = bool(faults and health["more"])
            if faults:
                found.setdefault(row["streamer"], {}).update(faults)
        for row in health["clocks"]:
            if abs(row["clock_skew_ms"]) >= CLOCK_MS:
                found.setdefault(row["streamer"], {})["clock_skew_ms"] = row["clock_skew_ms"]
        more = more or bool(health["more_clocks"])
    if fan_out:
        for row in fan_out["lacking"]:
            if row["missing"]:
                found.setdefault(row["streamer"], {})["broadcasts_missing"] = row["missing"]
        more = more or bool(fan_out["more_lacking"])
    named = [{"streamer": name, **faults} for name, faults in found.items()]
    return named[:STREAMERS], more or len(named) > STREAMERS
