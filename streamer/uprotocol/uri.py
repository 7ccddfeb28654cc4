"""UUri: the address of a uEntity, a topic or a method, and the patterns that match addresses (uProtocol basics, `uri.adoc`).

Text form: ``up://authority/ue_id/version/resource``, hexadecimal in upper case without leading zeros; the scheme may be left
out (``//authority/...``), a local URI has no authority (``/3BA/3/9876``). Authorities are compared as text; only the case of
an IP literal is normalised when it is read.
"""

import re
from functools import lru_cache
from ipaddress import IPv6Address
from typing import NamedTuple, TypeVar

ANY_AUTHORITY = "*"
ANY_UE_ID = 0xFFFF_FFFF
ANY_TYPE = 0xFFFF
ANY_INSTANCE = 0xFFFF
ANY_VERSION = 0xFF
ANY_RESOURCE = 0xFFFF

FIRST_TOPIC = 0x8000
LAST_TOPIC = 0xFFFE
LAST_METHOD = 0x7FFF

MAX_AUTHORITY_LENGTH = 128
Part = TypeVar("Part", str, int)

_SCHEME = "up:"
_SHOWN = 64  # characters that an error quotes of a text that is too long
_LONGEST_TEXT = 256  # twice what a URI needs, because of leading zeros

_NAME = re.compile(r"[a-z0-9\-._~]+")
_IPV6 = re.compile(r"[0-9a-f:.]+")  # no zone: RFC 3986 has none
_IP_FUTURE = re.compile(r"v[0-9a-f]+\.[a-z0-9\-._~:]+")  # no sub-delims: some networks use them as wildcards
_HEX = re.compile(r"[0-9A-Fa-f]+")


class UriError(ValueError):
    """The text or the numbers are not a valid UUri; the message says what was expected."""


class UUri(NamedTuple):
    """A uProtocol URI.

    ``authority`` is empty for a local URI; ``ue_id`` holds the instance id in its upper and the type id in its lower
    16 bits; ``version`` has 8 and ``resource`` 16 bits. The constructor does not check ranges, `parse` and `check` do.
    """

    authority: str
    ue_id: int
    version: int
    resource: int

    @classmethod
    def parse(cls, text: str) -> "UUri":
        """Read the text form. Raises `UriError`. Results are cached, because many messages have few names."""
        return _parse(text)

    def __str__(self) -> str:
        authority = f"//{self.authority}" if self.authority else ""
        return f"{authority}/{self.ue_id:X}/{self.version:X}/{self.resource:X}"

    @property
    def type_id(self) -> int:
        return self.ue_id & 0xFFFF

    @property
    def instance_id(self) -> int:
        return self.ue_id >> 16

    def check(self) -> "UUri":
        """Return self if every field is in range, else raise `UriError`."""
        if self.authority and not is_authority(self.authority):
            raise UriError(
                f"authority {_quoted(self.authority, MAX_AUTHORITY_LENGTH)}: expected at most {MAX_AUTHORITY_LENGTH} "
                "lower-case letters, digits and -._~, or an IP literal in brackets, or *"
            )
        for name, value, bits in (("ue_id", self.ue_id, 32), ("version", self.version, 8), ("resource", self.resource, 16)):
            if not 0 <= value < 1 << bits:
                raise UriError(f"{name} {value:#x}: expected at most {bits} bits")
        return self

    @property
    def has_wildcard(self) -> bool:
        """Whether any field is a wildcard, which makes this a pattern rather than a name."""
        return (
            self.authority == ANY_AUTHORITY
            or self.type_id == ANY_TYPE
            or self.instance_id == ANY_INSTANCE
            or self.version == ANY_VERSION
            or self.resource == ANY_RESOURCE
        )

    def matches(self, other: "UUri") -> bool:
        """Whether this pattern matches ``other``; a pattern without wildcards matches only itself."""
        return (
            self.authority in (ANY_AUTHORITY, other.authority)
            and (self.type_id in (ANY_TYPE, other.type_id))
            and (self.instance_id in (ANY_INSTANCE, other.instance_id))
            and (self.version in (ANY_VERSION, other.version))
            and (self.resource in (ANY_RESOURCE, other.resource))
        )

    def common(self, other: "UUri") -> "UUri | None":
        """Return the pattern of what this pattern and another one both match; None if nothing is."""
        authority = _common(self.authority, other.authority, ANY_AUTHORITY)
        type_id = _common(self.type_id, other.type_id, ANY_TYPE)
        instance = _common(self.instance_id, other.instance_id, ANY_INSTANCE)
        version = _common(self.version, other.version, ANY_VERSION)
        resource = _common(self.resource, other.resource, ANY_RESOURCE)
        if authority is None or type_id is None or instance is None or version is None or resource is None:
            return None
        return UUri(authority, instance << 16 | type_id, version, resource)

    @property
    def is_topic(self) -> bool:
        return FIRST_TOPIC <= self.resource <= LAST_TOPIC

    @property
    def is_method(self) -> bool:
        return 1 <= self.resource <= LAST_METHOD

    @property
    def is_entity(self) -> bool:
        """Whether this names the uEntity itself: an RPC response address or a notification's sink."""
        return self.resource == 0


def _common(one: Part, other: Part, wildcard: Part) -> Part | None:
    if one == wildcard:
        return other
    return one if other in (one, wildcard) else None


def is_authority(text: str) -> bool:
    """Whether ``text`` can be an authority (`*` included)."""
    if len(text) > MAX_AUTHORITY_LENGTH:
        return False
    if text.startswith("[") and text.endswith("]"):
        return _is_ip_address(text[1:-1])
    return text == ANY_AUTHORITY or bool(_NAME.fullmatch(text))


def _is_ip_address(text: str) -> bool:
    """Whether ``text`` may stand in the brackets of an IP literal (RFC 3986, 3.2.2): lower case, no zone."""
    if _IP_FUTURE.fullmatch(text):
        return True
    if not _IPV6.fullmatch(text):
        return False
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def everything_at(authority: str) -> UUri:
    """Return the pattern for any resource of any uEntity at ``authority``."""
    return UUri(authority, ANY_UE_ID, ANY_VERSION, ANY_RESOURCE)


def _quoted(text: str, longest: int) -> str:
    """Return the text as an error quotes it: only its beginning if it is longer than ``longest``."""
    return repr(text) if len(text) <= longest else f"{text[:_SHOWN]!r}..."


@lru_cache(maxsize=8192)
def _parse(text: str) -> UUri:
    if len(text) > _LONGEST_TEXT:
        raise UriError(f"{_quoted(text, _LONGEST_TEXT)}: expected at most {_LONGEST_TEXT} characters")
    rest = text[len(_SCHEME) :] if text[: len(_SCHEME)].lower() == _SCHEME else text
    if rest.startswith("//"):  # an empty authority is none: up:///3BA/3/9876, as in the examples of mqtt_5.adoc
        authority, _, path = rest[2:].partition("/")
        if authority.startswith("["):
            authority = authority.lower()
        segments = path.split("/")
    elif rest.startswith("/"):
        authority, segments = "", rest[1:].split("/")
    else:
        raise UriError(f"{text!r}: expected up://authority/ue_id/version/resource, //authority/... or /ue_id/...")
    if len(segments) != 3:
        raise UriError(f"{text!r}: expected exactly three path segments (ue_id/version/resource)")
    if not all(_HEX.fullmatch(segment) for segment in segments):
        raise UriError(f"{text!r}: expected hexadecimal path segments, and no query, fragment or port")
    ue_id, version, resource = (int(segment, 16) for segment in segments)
    try:
        return UUri(authority, ue_id, version, resource).check()
    except UriError as exc:
        raise UriError(f"{text!r}: {exc}") from None
