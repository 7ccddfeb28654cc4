"""Keeps secrets out of the configuration file and out of messages about it.

Passwords and keys come from files, named by ``*_file`` keys. A file that contains a secret itself is refused, and no message
shows the secret. Nor do messages show values that may be secrets although they are elsewhere: values from the environment,
and everything in an address except host and port.
"""

import re
from collections.abc import Iterable
from typing import Any

from streamer.config.checks import Finding

WITHHELD = "(withheld)"

_NAME = (
    r"passw(?:or)?d|passphrase|passcode|secret|token|credential|(?:api|secret|access|private)[_-]?key"
    r"|(?<![a-z])(?:pw|pwd|psk)(?![a-z])"
)
_SECRET = re.compile(_NAME, re.IGNORECASE)
_KEY = rf"(?<![\w.-])[\w.-]{{0,64}}?(?:{_NAME})s?(?:[_-]?(?:base64|b64|pem|hex))?"
_GIVEN = re.compile(
    rf"({_KEY}\\?[\"']?\s*[=:]\s*)"
    r"(\\\"(?:[^\"\\\n]|\\[^\"\n])*\\\"|\"(?:[^\"\\\n]|\\[^\n])*\"|'[^'\n]*'|[\"']?[^\s\"',;&]+)"
    rf"|({_KEY}\s+)((?=[^\s]*\d)[\w.+/=~-]{{5,}}|[\w.+/=~-]{{16,}})"
    r"|((?:(?:proxy-)?authorization|(?:set-)?cookie)\\?[\"']?\s*[:=]\s*\\?[\"']?)([^\"'\\\n]+)"
    r"|([?&][\w.%-]{1,64}=)([^&\s\"'<>\\]+)",
    re.IGNORECASE,
)
"""Matches a key that may hold a secret and its value, wherever they stand in a text: with a sign between them, or with a
space if the value looks like one; the header of a login; and a setting in the query of an address."""
_HOLDS_SECRET = re.compile(rf"(?:{_NAME})s?(?:[_-]?(?:base64|b64|pem|hex))?$", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)(.*)(?:@|%40)")
_PLAIN_KEY = re.compile(r"[\w.*+/ -]{0,64}")
_LETTERS = re.compile(r"[A-Za-z_-]+")
_GIVES_SECRET = re.compile(rf"(?:{_NAME})[\w.-]*[=:\s]\s*\S", re.IGNORECASE)
"""Matches a text that looks like a key with a secret as its value."""
_PORT = re.compile(r"(?:://|^\w+/)(?:\[[^\]]*\]|[^:/?#;\[]*):([^/?#;]*)")
_SETTINGS = re.compile(r"[?#;]", re.DOTALL)
"""Matches the start of an address's settings: of a URL, and of Zenoh's ``tls/host:7447#NAME=VALUE;NAME=VALUE``."""
_WEBSOCKET = re.compile(r"wss?://[^/?#]*/(?=.)", re.IGNORECASE)
"""Matches the address of a WebSocket up to its path, if it has one."""
_SETTING = re.compile(r"[?#;&]\s*([^=?#;&\s]+)=([^;&]*)")
_NAMES_A_FILE = re.compile(r"private_key$", re.IGNORECASE)
"""Matches a setting of an address that names a file; Zenoh's other form of it ends in ``_base64``."""
_SHORTEST = 3
"""Shorter secrets are not searched for in messages: they would match by chance."""


def is_secret_name(name: object) -> bool:
    """Whether the value of a key with this name may be a secret."""
    return isinstance(name, str) and bool(_SECRET.search(name))


def is_secret_file(name: str) -> bool:
    """Whether the file that a key with this name names holds a secret."""
    stem = name.removesuffix("_file")
    return stem != name and (is_secret_name(stem) or stem in ("key", "headers") or stem.endswith("_key"))


def is_secret_location(location: tuple[str | int, ...]) -> bool:
    """Whether the value at ``location`` may be a secret. The names of endpoints do not count."""
    if location[:1] == ("endpoints",):
        location = location[2:]
    return any(is_secret_name(part) for part in location)


def is_plain_key(key: object) -> bool:
    """Whether a key may be shown. In ``{password:text}``, where a space is missing, the key contains the value, too.

    Of a key with a secret's name, only letters may be shown.
    """
    if not isinstance(key, str):
        return True
    return bool((_LETTERS if is_secret_name(key) else _PLAIN_KEY).fullmatch(key))


def dotted(location: tuple[str | int, ...]) -> str:
    """Return the location as text: ``routes[0].from``. Keys below a secret's name are left out."""
    text = ""
    for depth, part in enumerate(location):
        shown = _shown_key(part)
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{shown}"
        if is_secret_location(location[: depth + 1]):
            break
    return text


def is_secret_line(line: str) -> bool:
    """Whether a line of the file may hold a secret."""
    return is_secret_name(line) or bool(_CREDENTIALS.search(line))


def is_secret_value(text: str) -> bool:
    """Whether a value looks like a key with a secret as its value: ``password=text``."""
    return bool(_GIVES_SECRET.search(text))


def without_secrets(data: Any) -> tuple[Any, list[Finding], list[str]]:
    """Return ``data`` without its secrets, a mistake for each secret, and the secrets. No mistake quotes a secret."""
    mistakes: list[Finding] = []
    secrets: list[str] = []
    return _clean(data, (), mistakes, secrets), mistakes, secrets


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with every one of ``secrets`` replaced, also in the form of `repr`."""
    for secret in sorted({form for each in secrets for form in (each, repr(each)[1:-1])}, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, WITHHELD)
    return text


def without_given(text: str) -> str:
    """Return ``text`` with the values of keys that may hold a secret replaced, as in ``password=text``."""
    return _GIVEN.sub(lambda found: f"{next(filter(None, found.groups()))}{WITHHELD}", text)


def without_settings(address: str) -> str:
    """Return the part of an address that may be shown: host and port; nothing of an address with a user.

    The path of a WebSocket may be its password.
    """
    port = _PORT.search(address)
    if "@" in address or "%40" in address or (port is not None and not port[1].isdecimal()):
        return WITHHELD
    if (socket := _WEBSOCKET.match(address)) is not None:
        return f"{socket[0]}{WITHHELD}"
    settings = _SETTINGS.search(address)
    return address if settings is None else f"{address[: settings.start()]}{settings[0]}{WITHHELD}"


def _clean(data: Any, location: tuple[str | int, ...], mistakes: list[Finding], secrets: list[str]) -> Any:
    if isinstance(data, dict):
        kept = {}
        for key, value in data.items():
            here = (*location, key)
            is_name = location == ("endpoints",)
            if not is_plain_key(key):
                secrets.append(key)
            if _HOLDS_SECRET.search(key) and not is_name and value is not None:
                mistakes.append(Finding(here, _in_a_file(key, location)))
                secrets += _texts(value)
            else:
                kept[key] = _clean(value, here, mistakes, secrets)
        return kept
    if isinstance(data, list):
        return [_clean(value, (*location, index), mistakes, secrets) for index, value in enumerate(data)]
    if isinstance(data, str) and (match := _CREDENTIALS.search(data)):
        mistakes.append(
            Finding(location, "expected a URL without user and password: these go to username and password_file")
        )
        secrets += [match[1], match[1].partition(":")[2]]  # the user is no secret, and often a word in our messages
        return _CREDENTIALS.sub("", data)
    if isinstance(data, str) and (found := [setting for setting in _SETTING.findall(data) if _is_secret_setting(*setting)]):
        names = ", ".join(str(_shown_key(name)) for name, _ in found)
        text = f"a secret does not belong here ({names}); expected the name of a file that holds it, or a config_file"
        mistakes.append(Finding(location, text))
        secrets += [value for _, value in found]
        return data[: _SETTING.search(data).start()]  # type: ignore[union-attr]  # there is at least one match
    return data


def _is_secret_setting(name: str, value: str) -> bool:
    return bool(value and _HOLDS_SECRET.search(name)) and not _NAMES_A_FILE.search(name)


def _in_a_file(key: str, location: tuple[str | int, ...]) -> str:
    if "options" not in location[2:3]:
        return "a secret does not belong here; expected a *_file key in an endpoint's options that names a file with it"
    return f"a secret does not belong here; expected {_shown_key(key)}_file, the path of a file that holds it"


def _shown_key(key: object) -> object:
    return key if is_plain_key(key) else WITHHELD


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    return [str(value)]
