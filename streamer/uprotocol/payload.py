"""Payloads for people and programs: as JSON, as text, or in hexadecimal."""

import json
from math import isinf
from typing import Any

_JSON_LEVELS = 100
"""Deeper JSON is shown as text: other parsers may support fewer levels."""


def payload_as(payload: bytes, form: str, is_cut: bool = False) -> dict[str, Any]:
    """Return the payload as JSON or text if ``form`` requests that and the payload is such; otherwise in hexadecimal."""
    if form == "json" and not is_cut:
        try:
            found = json.loads(payload, parse_constant=_refuse_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            pass
        else:
            if _is_within(found, _JSON_LEVELS):
                return {"json": found}
    if form == "text":
        return {"text": payload.decode(errors="replace")}
    if form == "json":
        try:
            return {"text": payload.decode()}
        except UnicodeDecodeError:
            pass
    return {"hex": payload.hex()}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if isinf(number := float(text)):  # JSON would not have it
        raise ValueError(f"{text} is too large")
    return number


def _is_within(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested at most this many levels deep."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return levels > 0 and all(_is_within(each, levels - 1) for each in value)
