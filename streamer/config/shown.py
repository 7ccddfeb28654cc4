"""Shows the configuration in use: every key with its value, defaults included, without secrets."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamer.config.models import Config
from streamer.config.secrets import WITHHELD, is_secret_file, is_secret_name, without_settings
from streamer.uprotocol.uri import ANY_AUTHORITY

DIGITS = 12
"""The length of a fingerprint: 48 bits, because a metric is a floating-point number and cannot hold more than 53."""

_THIS = "(of this streamer)"
_OF_ONE = frozenset(("client_id", "username"))
"""Keys of options whose values no two streamers share."""
_AUTHORITY = re.compile(r"\[[^\]]*\]|[a-z0-9._~-]+")


def shown(config: Config) -> dict[str, Any]:
    """Return an equivalent of the file, in JSON's types. A route has the keys in which it differs from ``queue_policy``."""
    data: dict[str, Any] = shown_value(config.model_dump(mode="json", by_alias=True), ())
    for route in data["routes"]:
        own = route.pop("queue_policy")
        route |= {key: value for key, value in own.items() if value != data["queue_policy"][key]}
    return data


def fingerprint(config: Config) -> str:
    """Return `DIGITS` hexadecimal digits: equal for equivalent configurations, and with high probability only for them."""
    return digest(config.model_dump(mode="json", by_alias=True))


def cohort(config: Config) -> str:
    """Return `DIGITS` hexadecimal digits: equal for all streamers of a fleet that are configured alike.

    What tells single streamers apart does not count: the authorities of the streamer and of those who live behind its
    endpoints, by whatever name, client ids, user names and secrets, and where files are. Neither do values that are the
    defaults, so that a version with a new key changes nothing.
    """
    names = {config.authority: "{own}"}
    for name, endpoint in config.endpoints.items():
        for number, authority in enumerate(endpoint.authorities):
            if authority != ANY_AUTHORITY:
                names.setdefault(authority, f"{{{name}.{number}}}")
    own = re.compile(rf"(?<![a-z0-9]){re.escape(config.authority)}(?![a-z0-9])")
    data = _without_names(config.model_dump(by_alias=True, exclude_defaults=True), own, names)
    return digest(shown_value(data, ()))


def digest(data: Any) -> str:
    """Return `DIGITS` hexadecimal digits for values of JSON's types."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:DIGITS]


def _without_names(value: Any, own: re.Pattern[str], names: Mapping[str, str]) -> Any:
    """Return a part of the configuration in JSON's types, with ``names`` in place of the authorities."""
    if isinstance(value, Mapping):
        found = {str(key): _without_names(each, own, names) for key, each in value.items()}
        return {
            _renamed(key, own, names): _THIS if key in _OF_ONE and isinstance(each, str) else each
            for key, each in found.items()
        }
    if isinstance(value, list | tuple):
        return [_without_names(each, own, names) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(str(_without_names(each, own, names)) for each in value)
    if isinstance(value, bool | int | float | None):
        return value
    return _renamed(value, own, names) if isinstance(value, str) else _THIS if isinstance(value, Path) else str(value)


def _renamed(text: str, own: re.Pattern[str], names: Mapping[str, str]) -> str:
    return _AUTHORITY.sub(lambda match: names.get(match[0], match[0]), own.sub("{own}", text))


def shown_value(value: Any, location: tuple[str | int, ...]) -> Any:
    """Return a value without secrets that environment variables may have inserted. Paths of secret files are kept."""
    if isinstance(value, dict):
        return {key: shown_value(each, (*location, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [shown_value(each, (*location, index)) for index, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    name = location[-1]
    if name == "username" or (is_secret_name(name) and not is_secret_file(str(name))):
        return WITHHELD
    is_option = location[0] == "endpoints" and location[2:3] == ("options",)
    return without_settings(value) if is_option else value
