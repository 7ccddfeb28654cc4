"""Shows the configuration in use: every key with its value, defaults included, without secrets."""

import hashlib
import json
from typing import Any

from streamer.config.models import Config
from streamer.config.secrets import WITHHELD, is_secret_file, is_secret_name, without_settings

DIGITS = 12
"""The length of a fingerprint: 48 bits, because a metric is a floating-point number and cannot hold more than 53."""


def shown(config: Config) -> dict[str, Any]:
    """Return an equivalent of the file, in JSON's types. A route has the keys in which it differs from ``queue_policy``."""
    data: dict[str, Any] = _without_secrets(config.model_dump(mode="json", by_alias=True), ())
    for route in data["routes"]:
        own = route.pop("queue_policy")
        route |= {key: value for key, value in own.items() if value != data["queue_policy"][key]}
    return data


def fingerprint(config: Config) -> str:
    """Return `DIGITS` hexadecimal digits: equal for equivalent configurations, and with high probability only for them."""
    text = json.dumps(config.model_dump(mode="json", by_alias=True), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _without_secrets(value: Any, location: tuple[str | int, ...]) -> Any:
    """Return a value without secrets that environment variables may have inserted. Paths of secret files are kept."""
    if isinstance(value, dict):
        return {key: _without_secrets(each, (*location, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_secrets(each, (*location, index)) for index, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    name = location[-1]
    if name == "username" or (is_secret_name(name) and not is_secret_file(str(name))):
        return WITHHELD
    is_option = location[0] == "endpoints" and location[2:3] == ("options",)
    return without_settings(value) if is_option else value
