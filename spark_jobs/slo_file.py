"""Reads and checks the file of targets. `config/slo.yaml` explains what they mean."""

import difflib
import math
from pathlib import Path
from typing import Any, NamedTuple

import yaml

OBJECTIVES = ("availability", "p99_latency_ms", "expiry_rate")
_PATTERNS = ("streamer", "route")
_KEYS = ("name", *_PATTERNS, *OBJECTIVES)


class SloFileError(ValueError):
    """The file cannot be used. The text names file, key, what was expected, and the nearest valid name."""


class Target(NamedTuple):
    """One objective for the routes that its patterns match."""

    name: str
    streamer: str
    route: str
    objective: str
    target: float


def load(file: str) -> list[Target]:
    """The targets of a file, in its order. Raises SloFileError."""
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise SloFileError(f"{file}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SloFileError(f"{file}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise SloFileError(f"{file}: expected a mapping with the key slos")
    _only(file, "", content, ("slos",))
    entries = content.get("slos")
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
