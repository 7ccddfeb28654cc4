"""Reads and checks the file of what is expected of a night. `config/slo.yaml` explains its keys."""

import difflib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

OBJECTIVES = ("availability", "p99_latency_ms", "expiry_rate")
_PATTERNS = ("streamer", "route")
_KEYS = ("name", *_PATTERNS, *OBJECTIVES)
LIMITS = {
    "lost_per_million": 1.0,
    "unknown": 0.001,
    "broadcasts_missing": 0.001,
    "silent": 0.01,
    "files_left_out": 0.01,
    "records_missing": 0.01,
    "records_impossible": 0.01,
    "clocks_wrong": 0.01,
    "unusual_hours": 0.01,
    "objectives_not_met": 0.01,
}
"""The defaults. By the kind of a reason in the verdict, and the lost messages of a million."""


class SloFileError(ValueError):
    """The file cannot be used. The text names file, key, what was expected, and the nearest valid name."""


class Target(NamedTuple):
    """One objective for the routes that its patterns match."""

    name: str
    streamer: str
    route: str
    objective: str
    target: float


class Rules(NamedTuple):
    """The content of the file: objectives, limits of the verdict, and patterns of gateways that are expected no more."""

    targets: list[Target]
    limits: Mapping[str, float]
    retired: list[str]


NONE = Rules([], LIMITS, [])
"""The rules without a file."""


def load(file: str | None) -> Rules:
    """The rules of a file, its targets in their order. Raises SloFileError."""
    if file is None:
        return NONE
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise SloFileError(f"{file}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SloFileError(f"{file}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise SloFileError(f"{file}: expected a mapping with the keys slos, limits and retired")
    _only(file, "", content, ("slos", "limits", "retired"))
    if not isinstance(limits := content.get("limits", {}), dict):
        raise SloFileError(f"{file}: limits: expected a mapping")
    _only(file, "limits.", limits, tuple(LIMITS))
    for name, value in limits.items():
        most = 1_000_000 if name == "lost_per_million" else 1
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise SloFileError(f"{file}: limits.{name}: expected a number from 0 to {most}, got {value!r}")
    retired = content.get("retired", [])
    if not isinstance(retired, list) or not all(isinstance(each, str) and each for each in retired):
        raise SloFileError(f"{file}: retired: expected a list of streamers, in which * stands for any text")
    return Rules(_targets(file, content.get("slos", [])), LIMITS | limits, retired)


def regex(pattern: str) -> str:
    """A pattern of names as a regular expression of Spark and DuckDB: ``*`` matches any text, all else matches itself."""
    return "^" + ".*".join(re.escape(part) for part in pattern.split("*")) + "$"


def _targets(file: str, entries: Any) -> list[Target]:
    if not isinstance(entries, list):
        raise SloFileError(f"{file}: slos: expected a list")
    targets: list[Target] = []
    names: set[str] = set()
    for number, entry in enumerate(entries):
        found = _entry(file, f"slos[{number}]", entry)
        if found[0].name in names:
            raise SloFileError(f"{file}: slos[{number}].name: {found[0].name!r} is already taken: expected a unique name")
        names.add(found[0].name)
        targets += found
    return targets


def _entry(file: str, where: str, entry: Any) -> list[Target]:
    if not isinstance(entry, dict):
        raise SloFileError(f"{file}: {where}: expected a mapping with name, route and at least one objective")
    _only(file, f"{where}.", entry, _KEYS)
    texts = {"streamer": "*", "route": "*"} | {key: entry[key] for key in ("name", *_PATTERNS) if key in entry}
    for key in ("name", *_PATTERNS):
        if not isinstance(texts.get(key), str) or not texts[key]:
            raise SloFileError(
                f"{file}: {where}.{key}: expected a string" + (f", got {texts[key]!r}" if key in texts else "")
            )
    given = [key for key in OBJECTIVES if key in entry]
    if not given:
        raise SloFileError(f"{file}: {where}: expected at least one of {', '.join(OBJECTIVES)}")
    return [Target(**texts, objective=key, target=_number(file, f"{where}.{key}", key, entry[key])) for key in given]


def _number(file: str, where: str, objective: str, value: Any) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if objective == "p99_latency_ms":
        if not 0 < number < math.inf:
            raise SloFileError(f"{file}: {where}: expected a number of ms above 0, got {value!r}")
    elif not 0 < number < 1:
        # 1 (or a rate of 0) cannot be kept, and there would be no error budget
        raise SloFileError(f"{file}: {where}: expected a share between 0 and 1, both excluded, got {value!r}")
    return number


def _only(file: str, prefix: str, given: dict[Any, Any], allowed: tuple[str, ...]) -> None:
    for key in given:
        if key not in allowed:
            near = difflib.get_close_matches(str(key), allowed, 1, 0.5)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise SloFileError(f"{file}: {prefix}{key}: expected one of {', '.join(allowed)}{hint}")
