"""The configuration in use, in the form that is shown: every key with its value, defaults included, without secrets."""

import hashlib
import json
from typing import Any

from streamer.config.models import Config
from streamer.config.secrets import WITHHELD, is_secret_file, is_secret_name, without_settings

DIGITS = 12
"""The length of a fingerprint: 48 bits, because a metric is a floating-point number and cannot hold more than 53."""


def shown(config: Config) -> dict[str, Any]:
    """What a file could contain to mean the same, in JSON's types. A route has the keys in which it differs from
    ``queue_policy``."""
    data: dict[str, Any] = _without_secrets(config.model_dump(mode="json", by_alias=True), ())
    for route in data["routes"]:
        own = route.pop("queue_policy")
        route |= {key: value for key, value in own.items() if value != data["queue_policy"][key]}
    return data


def fingerprint(config: Config) -> str:
    """`DIGITS` hexadecimal digits: the same for configurations that mean the same, and for hardly any others."""
    text = json.dumps(config.model_dump(mode="json", by_alias=True), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _without_secrets(value: Any, location: tuple[str | int, ...]) -> Any:
    """Secrets stand in files, so the paths of these are shown. What an environment variable may have put here is not."""
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
