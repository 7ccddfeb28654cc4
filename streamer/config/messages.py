"""Turns pydantic's errors into sentences of the form "expected ..., found ...".

The raw values are used only for what was found, and for the keys that would be valid there.
"""

import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from streamer.config.checks import nearest
from streamer.config.models import POLICY_KEYS, Config, QueuePolicy, RouteConfig
from streamer.config.permissions import load_verifier
from streamer.config.secrets import WITHHELD, is_plain_key
from streamer.plugins import Settings
from streamer.transports.errors import ConfigurationError
from streamer.transports.installed import load_transport

Location = tuple[str | int, ...]

_LONGEST_TEXT = 60
_FEW_KEYS = 9

RENAMED = {"dispatch": "queue_policy"}
"""Keys of earlier versions → their present names. The earlier ones are refused like any other unknown key."""

_WHOLE, _NUMBER, _MAPPING, _TRUTH = "a whole number", "a number", "a mapping of keys", "true or false"
_EXPECTED = {
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "list_type": "a list",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "path_type": "a path",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "too_short": "at least {min_length} in the list",
    "too_long": "at most {max_length} in the list",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "literal_error": "{expected}",
    "enum": "{expected}",
}


def place(error: ErrorDetails) -> Location:
    """Return the location of an error in the file."""
    location = error["loc"]
    if location[:1] == ("routes",) and location[2:3] == ("queue_policy",):  # in the file these keys are in the route itself
        location = location[:2] + location[3:]
    if location[-1:] == ("[key]",):
        location = location[:-1]
    key, _ = _keyed(error)
    return location + tuple(key.split(".")) if key else location


def is_about_key(error: ErrorDetails) -> bool:
    """Whether the error is about a key, not its value."""
    return error["type"] == "extra_forbidden" or error["loc"][-1:] == ("[key]",)


def sentence(error: ErrorDetails, data: Any, found: str, root: type[BaseModel] = Config) -> str:
    """Return what was expected and what was found. ``found`` describes the value; ``data`` is the whole file, a ``root``."""
    kind, context = error["type"], error.get("ctx") or {}
    location = place(error)
    if kind == "missing":
        return "expected this key, which is required; found none"
    if kind == "extra_forbidden":
        if location == ("state",) and issubclass(root, Config):
            return "this key is gone; move the file that it names beside the journal: journal-state.db for journal.db"
        if (instead := _instead(location, data, root)) is not None:
            return f"this key is gone, {instead} now; leave the key out"
        valid = valid_keys(location[:-1], data, root)
        known = RENAMED.get(str(location[-1]))
        hint = f"; it is called {known!r} now" if known in valid else _nearest(location, valid, data, root)
        if not is_plain_key(location[-1]):
            hint = "; is there a space behind the colon?"
        return f"unknown key; expected one of {', '.join(valid)}{hint}"
    if kind == "choice":
        return f"expected {context['what']}, found {found}{context['hint']}"
    if kind == "check":
        return error["msg"]
    if kind == "expected":
        return error["msg"] if found == _MAPPING_FOUND else f"{error['msg']}, found {found}"
    if kind == "value_error":
        _, text = _keyed(error)
        return f"{text}, found {found}" if text.startswith("expected") and found != _MAPPING_FOUND else text
    if kind not in _EXPECTED:
        return f"{error['msg'][:1].lower()}{error['msg'][1:]}, found {found}"
    if _EXPECTED[kind] is _MAPPING:
        return f"expected {_mapping(location, data, root)}, found {found}"
    expected = _EXPECTED[kind].format_map({k: f"{v:.15g}" if isinstance(v, float) else v for k, v in context.items()})
    hint = ""
    if kind in ("literal_error", "enum") and isinstance(error["input"], str) and found != WITHHELD:
        hint = nearest(error["input"], [part.strip("'") for part in expected.replace(" or ", ", ").split(", ")])
    if kind == "string_type" and isinstance(error["input"], int | float):
        hint = "; put it in quotes"
    return f"expected {expected}, found {found}{hint}"


def _instead(location: Location, data: Any, root: type[BaseModel]) -> str | None:
    """Return the constant or the key that an earlier key has become, for a message. None: the key is no earlier one."""
    kind, key = _plain(_kind_at(location[:-1], data, root)), str(location[-1])
    if kind is RouteConfig and key in QueuePolicy.__class_vars__:
        kind = QueuePolicy
    if not (isinstance(kind, type) and issubclass(kind, Settings) and key in kind.__class_vars__):
        return None
    if key in kind.replaced():
        return f"{kind.replaced()[key][1]} sets it"
    value = getattr(kind, key)
    if isinstance(value, BaseModel):
        return f"its values are always {', '.join(f'{name} {each}' for name, each in value)}"
    return f"its value is always {described(value) if value is not None else 'null'}"


def _mapping(location: Location, data: Any, root: type[BaseModel]) -> str:
    """Return what is expected in place of a section: its keys if they are few, and null if that is allowed."""
    kind = _kind_at(location, data, root)
    valid = valid_keys(location, data, root)
    expected = f"a mapping with the keys {', '.join(valid)}" if 0 < len(valid) <= _FEW_KEYS else _MAPPING
    return f"null or {expected}" if types.NoneType in typing.get_args(kind) else expected


def _nearest(location: Location, valid: list[str], data: Any, root: type[BaseModel]) -> str:
    """Return the probable meaning of an unknown key: that name in a section below, else the nearest name here."""
    wrong = location[-1]
    below = [f"{key}.{wrong}" for key in valid if wrong in valid_keys((*location[:-1], key), data, root)]
    return f"; did you mean {' or '.join(map(repr, below))}?" if below else nearest(wrong, valid)


_MAPPING_FOUND = "a mapping"


def shown_key(key: str | int) -> str:
    """Return a key for a message, without secrets."""
    return repr(key) if is_plain_key(key) else WITHHELD


def described(value: Any) -> str:
    """Describe a value, for the end of a sentence."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST_TEXT else value[: _LONGEST_TEXT - 3] + "...")
    if isinstance(value, Mapping):
        return _MAPPING_FOUND
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return f"a {type(value).__name__}"


def kind_of(value: Any) -> str:
    """Describe the type of a value whose text must not be shown."""
    if isinstance(value, str):
        return "text"
    return "a number" if isinstance(value, int | float) and not isinstance(value, bool) else described(value)


def valid_keys(location: Location, data: Any, root: type[BaseModel] = Config) -> list[str]:
    """Return the keys that the mapping at ``location`` may have, in a file that is a ``root``."""
    kind = _plain(_kind_at(location, data, root))
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return []
    names = [info.alias or name for name, info in kind.model_fields.items()]
    return [name for name in names if name != "queue_policy"] + list(POLICY_KEYS) if kind is RouteConfig else names


def _kind_at(location: Location, data: Any, root: type[BaseModel]) -> Any:
    """Return the annotation of the value at ``location``; None: no model has one."""
    kind: Any = root
    for depth, part in enumerate(location):
        kind = _plain(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if part == "options" and (location[0], depth) in (("endpoints", 2), ("permissions", 2)):
                kind = _options_model(location, data)
            elif kind is RouteConfig and part in POLICY_KEYS:
                kind = _plain(RouteConfig.model_fields["queue_policy"].annotation).model_fields[part].annotation
            else:
                fields = {info.alias or name: info for name, info in kind.model_fields.items()}
                kind = fields[str(part)].annotation if part in fields else None
        else:
            kind = (typing.get_args(kind) or (None,))[-1]  # the type of a list's items, or of a dict's values
    return kind


def _plain(kind: Any) -> Any:
    """Return an annotation without ``| None`` and ``Annotated``."""
    while True:
        if typing.get_origin(kind) is typing.Annotated:
            kind = typing.get_args(kind)[0]
        elif typing.get_origin(kind) in (types.UnionType, typing.Union):
            kind = next((part for part in typing.get_args(kind) if part is not types.NoneType), None)
        else:
            return kind


def _options_model(location: Location, data: Any) -> type[BaseModel] | None:
    try:
        section = data[location[0]][location[1]]
        if location[0] == "endpoints":
            return load_transport(section["transport"]).Options
        options: type[BaseModel] = load_verifier(section["verifier"]).Options
        return options
    except (LookupError, TypeError, ImportError):
        return None


def _keyed(error: ErrorDetails) -> tuple[str, str]:
    """Return the key that a transport's error names, and the rest of its text."""
    cause = (error.get("ctx") or {}).get("error")
    if error["type"] != "value_error" or cause is None:
        return "", error["msg"]
    if isinstance(cause, ConfigurationError):
        return cause.key, str(cause)
    key, colon, text = str(cause).partition(": ")
    given = error["input"]
    if colon and key.replace("_", "").replace(".", "").isalnum() and isinstance(given, Mapping):
        return key, text
    return "", str(cause)
