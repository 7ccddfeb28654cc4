"""An index of values by patterns of addresses. Pure."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_INSTANCE, ANY_RESOURCE, ANY_TYPE, ANY_VERSION, UUri

V = TypeVar("V")

_Shape = tuple[tuple[int, ...], int]
"""The place of each named authority, counted from 1 (0: any authority), and the bits of the numbers that are wildcards."""

_Key = tuple[tuple[str, ...], int]


class PatternIndex(Generic[V]):
    """Values, each for one or several patterns that have to match as many addresses.

    A look-up costs one access for each combination of wildcards in use. Wildcards have all bits set: an address whose bits
    are set where a shape has wildcards equals the only pattern of that shape that matches it.
    """

    def __init__(self) -> None:
        self._by_shape: dict[_Shape, dict[_Key, V]] = {}

    def setdefault(self, value: V, *patterns: UUri) -> V:
        """Return the value for exactly these patterns, which is ``value`` if there was none."""
        return self._by_shape.setdefault(_shape(patterns), {}).setdefault(_key(patterns), value)

    def remove(self, *patterns: UUri) -> None:
        """Remove the value for exactly these patterns. Raises KeyError."""
        shape = _shape(patterns)
        del self._by_shape[shape][_key(patterns)]
        if not self._by_shape[shape]:
            del self._by_shape[shape]

    def matching(self, *addresses: UUri) -> Iterator[V]:
        """Yield the values whose patterns match the addresses, which have no wildcards."""
        authorities, numbers = _key(addresses)
        names = (ANY_AUTHORITY, *authorities)
        for (places, wildcards), values in self._by_shape.items():
            value = values.get((tuple([names[place] for place in places]), numbers | wildcards))
            if value is not None:
                yield value


def _shape(patterns: tuple[UUri, ...]) -> _Shape:
    places = [0 if pattern.authority == ANY_AUTHORITY else place for place, pattern in enumerate(patterns, 1)]
    return tuple(places), _numbers(map(_wildcards, patterns))


def _wildcards(pattern: UUri) -> UUri:
    instance = ANY_INSTANCE << 16 if pattern.instance_id == ANY_INSTANCE else 0
    kind = ANY_TYPE if pattern.type_id == ANY_TYPE else 0
    version = ANY_VERSION if pattern.version == ANY_VERSION else 0
    return UUri("", instance | kind, version, ANY_RESOURCE if pattern.resource == ANY_RESOURCE else 0)


def _key(uris: tuple[UUri, ...]) -> _Key:
    return tuple([uri.authority for uri in uris]), _numbers(uris)


def _numbers(uris: Iterable[UUri]) -> int:
    numbers = 0
    for _, ue_id, version, resource in uris:
        numbers = numbers << 56 | ue_id << 24 | version << 16 | resource
    return numbers
