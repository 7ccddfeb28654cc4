"""Multicast ids, and the uProtocol topics that they stand for (joynr's concept of stateless broadcasts).

A multicast id is the text ``provider/broadcast/partition...``: the provider is a uEntity as a URI, the broadcast is named as
in its interface, the partition is a path of any length, as in ``//veh1/A8000/2/0/doorOpened/front/left``. uProtocol topics
are numbers, so a catalogue maps each id to a topic. This module has the grammar, the wildcards, and the lookup in both
directions. Pure.

A receiver may use ``+`` for one segment of the partition, and ``*`` at its end for any number of segments, including none:
``a/b/*`` matches ``a/b`` as well, as in joynr's C++ and Java, and as ``a/b/#`` does in MQTT. A sender may not use them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from os.path import commonprefix
from typing import NamedTuple

from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_RESOURCE, UriError, UUri, everything_at

ONE_SEGMENT = "+"
ANY_SEGMENTS = "*"

MAX_ID_LENGTH = 1024
"""Characters of a multicast id."""

_SEGMENT = re.compile(r"[A-Za-z0-9]+")
_BROADCAST = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER_PARTS = 4  # authority, ue_id, version, resource
_COMPARED = 20  # names with the same beginning, among which the nearest one is searched

Partition = tuple[str, ...]
"""The segments; none for a broadcast that is published without a partition."""


class MulticastId(NamedTuple):
    """A provider, the name of its broadcast, and a partition. With wildcards in the partition it is a receiver's pattern."""

    provider: UUri
    broadcast: str
    partition: Partition = ()

    @classmethod
    def parse(cls, text: str) -> "MulticastId":
        """Read the text form. Raises `UStatusError` (INVALID_ARGUMENT) with what was expected."""
        if len(text) > MAX_ID_LENGTH:
            raise _invalid(f"a multicast id of {len(text)} characters: expected at most {MAX_ID_LENGTH}")
        scheme, slashes, rest = text.partition("//")
        parts = rest.split("/")
        if not slashes or scheme.lower() not in ("", "up:") or len(parts) <= _PROVIDER_PARTS:
            raise _invalid(f"{text!r}: expected //authority/ue_id/version/0/broadcast, then the partition's segments")
        try:
            provider = UUri.parse("//" + "/".join(parts[:_PROVIDER_PARTS]))
        except UriError as exc:
            raise _invalid(f"{text!r}: the provider: {exc}") from None
        if not provider.authority or provider.has_wildcard or not provider.is_entity:
            raise _invalid(f"{text!r}: expected a provider with an authority, without wildcards, and with resource 0")
        broadcast, *partition = parts[_PROVIDER_PARTS:]
        try:
            return cls(provider, check_broadcast(broadcast), check_partition(partition, wildcards=True))
        except ValueError as exc:
            raise _invalid(f"{text!r}: {exc}") from None

    def __str__(self) -> str:
        return "/".join((str(self.provider), self.broadcast, *self.partition))

    @property
    def has_wildcard(self) -> bool:
        return ONE_SEGMENT in self.partition or ANY_SEGMENTS in self.partition


def check_broadcast(name: str) -> str:
    """Return ``name`` if it can name a broadcast (an identifier of Franca IDL), else raise `ValueError`."""
    if not _BROADCAST.fullmatch(name):
        raise ValueError(f"broadcast {name!r}: expected letters, digits and _, no digit first")
    return name


def check_partition(segments: Iterable[str], *, wildcards: bool) -> Partition:
    """Return the segments if a partition may have them, else raise `ValueError`. Case matters."""
    partition = tuple(segments)
    for position, segment in enumerate(partition):
        if _SEGMENT.fullmatch(segment):
            continue
        if wildcards and segment == ONE_SEGMENT:
            continue
        if wildcards and segment == ANY_SEGMENTS:
            if position == len(partition) - 1:
                continue
            raise ValueError(f"partition {'/'.join(partition)!r}: expected {ANY_SEGMENTS} only at the end")
        choices = f", {ONE_SEGMENT} for one segment, or {ANY_SEGMENTS} at the end" if wildcards else ", no wildcards"
        raise ValueError(f"partition segment {segment!r}: expected letters and digits (A-Z, a-z, 0-9){choices}")
    return partition


def split_partition(text: str) -> Partition:
    """Return the segments of a text such as ``front/left``, unchecked; none of an empty text."""
    return tuple(text.split("/")) if text else ()


@dataclass(slots=True)
class _Node:
    """A node in the tree of one broadcast's partitions: the topic of this partition, and the nodes below."""

    topic: UUri | None = None
    below: dict[str, "_Node"] = field(default_factory=dict)

    def all(self) -> Iterator[UUri]:
        if self.topic is not None:
            yield self.topic
        for node in self.below.values():
            yield from node.all()

    def matching(self, partition: Partition) -> Iterator[UUri]:
        """Yield the topics at this node and below that match a partition with or without wildcards, each once."""
        if not partition:
            if self.topic is not None:
                yield self.topic
            return
        first, rest = partition[0], partition[1:]
        if first == ANY_SEGMENTS:
            yield from self.all()
        elif first == ONE_SEGMENT:
            for node in self.below.values():
                yield from node.matching(rest)
        elif (below := self.below.get(first)) is not None:
            yield from below.matching(rest)


class Catalogue:
    """All multicast ids that can be published, each with its topic; no two have the same topic. Immutable."""

    def __init__(self, entries: Mapping[MulticastId, int] | None = None) -> None:
        """``entries``: ids without wildcards, each with the resource of its topic at the provider. Raises `ValueError`."""
        self._topics: dict[MulticastId, UUri] = {}
        self._ids: dict[UUri, MulticastId] = {}
        self._trees: dict[tuple[UUri, str], _Node] = {}
        for multicast_id, resource in (entries or {}).items():
            self._add(multicast_id, multicast_id.provider._replace(resource=resource))
        self.topics: frozenset[UUri] = frozenset(self._ids)
        """All topics that are multicast."""

    def _add(self, multicast_id: MulticastId, topic: UUri) -> None:
        check_partition(multicast_id.partition, wildcards=False)
        if len(str(multicast_id)) > MAX_ID_LENGTH:
            raise ValueError(f"{str(multicast_id)[:100]}...: expected a multicast id of at most {MAX_ID_LENGTH} characters")
        if not topic.is_topic:
            raise ValueError(f"{multicast_id}: expected the resource of a topic (8000 to FFFE), found {topic.resource:X}")
        if (other := self._ids.setdefault(topic, multicast_id)) != multicast_id:
            raise ValueError(f"{topic} is the topic of {other} already; {multicast_id} needs one of its own")
        self._topics[multicast_id] = topic
        node = self._trees.setdefault((multicast_id.provider, multicast_id.broadcast), _Node())
        for segment in multicast_id.partition:
            node = node.below.setdefault(segment, _Node())
        node.topic = topic

    def __len__(self) -> int:
        return len(self._topics)

    def id_of(self, topic: UUri) -> MulticastId | None:
        """Return the multicast id of a topic; None if it has none."""
        return self._ids.get(topic)

    def resolve(self, multicast_id: MulticastId, may_know: Callable[[UUri], bool]) -> UUri:
        """Return the topic on which a multicast is published. Raises `UStatusError`: INVALID_ARGUMENT, NOT_FOUND.

        ``may_know`` tells whether the requester may learn of topics that match a pattern.
        """
        if multicast_id.has_wildcard:
            raise _invalid(f"{multicast_id}: expected one partition, without wildcards: this is for a sender")
        topic = self._topics.get(multicast_id)
        if topic is None:
            raise UStatusError(UCode.NOT_FOUND, f"{multicast_id}: {self._missing(multicast_id, may_know)}")
        return topic

    def expand(self, pattern: MulticastId) -> frozenset[UUri]:
        """Return the topics that match ``pattern``. The cost grows with their number, not with that of the catalogue."""
        tree = self._trees.get((pattern.provider, pattern.broadcast))
        return frozenset(() if tree is None else tree.matching(pattern.partition))

    def expand_known(self, pattern: MulticastId, may_know: Callable[[UUri], bool]) -> frozenset[UUri]:
        """Do as `expand`, but raise `UStatusError` (NOT_FOUND) if no topic matches, which is most likely a typing error.

        ``may_know``: as for `resolve`.
        """
        topics = self.expand(pattern)
        if not topics:
            raise UStatusError(UCode.NOT_FOUND, f"{pattern}: {self._missing(pattern, may_know)}")
        return topics

    def _missing(self, wanted: MulticastId, may_know: Callable[[UUri], bool]) -> str:
        """Return the part of an id that is not in the catalogue, and the nearest name if the requester may know it."""
        own = {broadcast for provider, broadcast in self._trees if provider == wanted.provider}
        compared = wanted.provider._replace(resource=ANY_RESOURCE) if own else everything_at(ANY_AUTHORITY)
        if not may_know(compared):
            return "the catalogue does not have it"
        if not own:
            providers = dict.fromkeys(str(provider) for provider, _ in self._trees)
            return f"the catalogue has no provider {wanted.provider}{_nearest(str(wanted.provider), providers)}"
        if wanted.broadcast not in own:
            return f"the catalogue has no such broadcast of this provider{_nearest(wanted.broadcast, own)}"
        partitions = (
            "/".join(known.partition) for known in self._topics if known[:2] == (wanted.provider, wanted.broadcast)
        )
        return f"the catalogue has no such partition{_nearest('/'.join(wanted.partition), partitions)}"


def _nearest(text: str, names: Iterable[str]) -> str:
    def shared(name: str) -> int:
        return len(commonprefix((text, name)))  # noqa: RUF071  # letters are compared, not paths

    alike = sorted(names, key=lambda name: (-shared(name), name))[:_COMPARED]
    close = get_close_matches(text, alike, n=1, cutoff=0)
    return f"; the nearest is {close[0]!r}" if close else ""


def _invalid(text: str) -> UStatusError:
    return UStatusError(UCode.INVALID_ARGUMENT, text)
