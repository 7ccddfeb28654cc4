"""The types of the configuration's values: what each accepts, and the message for everything else."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from streamer.plugins import Settings
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_RESOURCE, UriError, UUri, is_authority

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MOST = (1 << 63) - 1
"""The largest number that SQLite and protobuf can keep."""

_UNITS = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1 << 40}
_SIZE = re.compile(r"(\d{1,19}(?:\.\d{1,19})?) ?([A-Za-z]*)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{,252}")
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):(\d{1,5})")
_PARTS = "//authority/ue_id/version/resource, the authority in lower case and the rest in hex"

OWN_NAME = "{identity}"
"""Stands for the authority whose name is the identity itself."""


def expected(what: str) -> PydanticCustomError:
    """Return the error of an unexpected value. `streamer.config.messages` adds what was found."""
    return PydanticCustomError("expected", "expected {what}", {"what": what})


def too_small(key: str, value: int, other: str, bound: int) -> PydanticCustomError:
    """Return the error of two keys whose values do not fit; one of them may be a default."""
    return PydanticCustomError("check", "{text}", {"text": f"expected at least {other}: {key} is {value}, {other} {bound}"})


def _size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)) and match[2] in _UNITS:
        size = int(float(match[1]) * _UNITS[match[2]]) if "." in match[1] else int(match[1]) * _UNITS[match[2]]
    else:
        raise expected("a size: a number of bytes, or text such as 64MiB, 512KiB, 1GiB, 10MB")
    if size < 1:
        raise expected("a size of at least 1 byte")
    if size > MOST:
        raise expected("a size of less than 8388608 TiB")
    return size


def _host_port(value: Any) -> Any:
    match = _HOST_PORT.fullmatch(value) if isinstance(value, str) else None  # a number alone is a port without a host
    if not match or int(match[2]) > 0xFFFF:
        raise expected("host:port, such as 127.0.0.1:9464 or [::1]:9464")
    return value


def _authority(text: str) -> str:
    if not is_authority(text):
        raise expected('an authority: at most 128 lower-case letters, digits and -._~, an IP literal in brackets, or "*"')
    return text


def _single_authority(text: str) -> str:
    if text == ANY_AUTHORITY or not is_authority(text):
        raise expected(
            "one authority, no wildcard: at most 128 lower-case letters, digits and -._~, or an IP literal in brackets"
        )
    return text


def _spoken_for(text: str) -> str:
    if text != OWN_NAME and not is_authority(text):
        raise expected(f'an authority, "*" for all, or "{OWN_NAME}" for the one that is called as the identity is')
    return text


def _pattern(value: Any) -> UUri:
    error = expected(f"a pattern of topics such as //veh1/FFFFFFFF/FF/FFFF: {_PARTS}")
    if not isinstance(value, str | UUri):
        raise error
    try:
        uri = UUri.parse(value) if isinstance(value, str) else value.check()
    except UriError as exc:
        raise error from exc
    if not uri.authority:
        raise error
    if not uri.is_topic and uri.resource != ANY_RESOURCE:
        raise expected("a topic, resource 8000 to FFFE, or FFFF for all of them")
    return uri


def _exact(value: Any, error: PydanticCustomError) -> UUri:
    try:
        uri = UUri.parse(value) if isinstance(value, str) else value.check()
    except (UriError, AttributeError) as exc:
        raise error from exc
    if not isinstance(uri, UUri) or not uri.authority:
        raise error
    return uri


def _exactly(what: str, fits: Callable[[UUri], bool]) -> Callable[[Any], UUri]:
    """Return a validator for UUris with an authority that ``fits``. Its error for others says what was expected."""

    def check(value: Any) -> UUri:
        uri = _exact(value, expected(what))
        if not fits(uri):
            raise expected(what)
        return uri

    return check


_topic = _exactly(
    "a topic without wildcards such as //veh1/A8000/2/8A50: resource 8000 to FFFE",
    lambda uri: uri.is_topic and not uri.has_wildcard,
)
_entity = _exactly(
    "a uEntity without wildcards such as //veh1/A8000/2/0: resource 0", lambda uri: uri.is_entity and not uri.has_wildcard
)
_any_pattern = _exactly(f"a pattern such as //veh1/FFFFFFFF/FF/FFFF: {_PARTS}", lambda uri: True)
_method_pattern = _exactly(
    "a pattern of methods such as //veh1/FFFFFFFF/FF/FFFF: resource 1 to 7FFF, or FFFF for all of them",
    lambda uri: uri.is_method or uri.resource == ANY_RESOURCE,
)
_entity_pattern = _exactly("a pattern of uEntities such as //veh1/FFFFFFFF/FF/0: resource 0", lambda uri: uri.is_entity)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise expected("a name of letters, digits and _ . -")
    return text


def _host_name(text: str) -> str:
    if not _HOST_NAME.fullmatch(text):
        raise expected("the name of a host: at most 253 letters, digits and -._, without a port")
    return text


def _file(value: Any) -> Any:
    if isinstance(value, str) and value.endswith("/"):
        raise expected("the path of a file, not of a folder: without / at its end")
    return value


Size = Annotated[
    int,
    BeforeValidator(_size),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST}, {"type": "string", "pattern": rf"^{_SIZE.pattern}$"}]}
    ),
]
Authority = Annotated[str, AfterValidator(_authority)]
SingleAuthority = Annotated[str, AfterValidator(_single_authority)]
SpokenFor = Annotated[str, AfterValidator(_spoken_for)]
_AS_URI = WithJsonSchema({"type": "string", "pattern": "^([uU][pP]:)?//"})
Pattern = Annotated[UUri, PlainValidator(_pattern), PlainSerializer(str), _AS_URI]
Topic = Annotated[UUri, PlainValidator(_topic), PlainSerializer(str), _AS_URI]
Entity = Annotated[UUri, PlainValidator(_entity), PlainSerializer(str), _AS_URI]
EntityPattern = Annotated[UUri, PlainValidator(_entity_pattern), PlainSerializer(str), _AS_URI]
AnyPattern = Annotated[UUri, PlainValidator(_any_pattern), PlainSerializer(str), _AS_URI]
MethodPattern = Annotated[UUri, PlainValidator(_method_pattern), PlainSerializer(str), _AS_URI]
Name = Annotated[str, AfterValidator(_name)]
HostName = Annotated[str, AfterValidator(_host_name)]
FolderPath = Annotated[Path, Field(strict=False)]
HostPort = Annotated[str, BeforeValidator(_host_port)]
"""A host name or an address, in brackets if it is of IPv6, and a port."""

FilePath = Annotated[FolderPath, BeforeValidator(_file)]
Count = Annotated[int, Field(ge=1, le=MOST)]


class Section(Settings):
    """A part of the configuration: frozen, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        populate_by_name=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def is_constant(cls, key: str, value: Any) -> bool:
        if isinstance(value, str) and (match := _SIZE.fullmatch(value)) and match[2] in _UNITS:
            value = _size(value)
        return super().is_constant(key, value)


class RateConfig(Section):
    """How fast messages may go, as a token bucket: so many per second, and ``burst_s`` seconds' worth at once."""

    messages: Annotated[float, Field(gt=0)] | None = None
    """Messages per second. None: any number."""
    bytes: Size | None = None
    """Bytes per second. None: any number."""
    burst_s: ClassVar[float] = 2
    """After a pause, so many seconds' worth may go at once."""

    @model_validator(mode="after")
    def _limits_something(self) -> "RateConfig":
        if self.messages is None and self.bytes is None:
            raise expected("messages, bytes or both: how many per second")
        return self
