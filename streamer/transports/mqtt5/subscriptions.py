"""Which MQTT topic filters are needed: several uProtocol filters can map to the same one. Pure.

The rules of a shared subscription (MQTT 5.0):

- [MQTT-4.8.2-1], [MQTT-4.8.2-2] its filter is ``$share/NAME/FILTER``. Whoever has the same name and filter shares it, and
  each message goes to one of them.
- [MQTT-3.8.3-4] it never has No Local. What we sent ourselves is recognised without it: it comes from an authority that
  does not live here, or has an id that was seen.
- 4.8.2: without shared subscriptions, a broker says so in its CONNACK, and is not asked for any.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from mqtt5 import QoS, RetainHandling, TopicFilter

from streamer.transports.mqtt5.wire import Structure, topic_filter
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri

BATCH = 8
"""Filters per SUBSCRIBE or UNSUBSCRIBE: AWS IoT Core takes no more."""

NO_SHARING = "it has no shared subscriptions; remove share from the options, or use a broker that has them"
"""What is wrong with a broker that cannot do what ``share`` asks for, and what to do."""

NO_WILDCARDS = "it has no subscriptions with wildcards; use a broker that has them"
"""The same for filters with wildcards (MQTT 5, 3.2.2.3.11): to ask it for one ends the connection."""

_PACKET_BYTES = 1 + 4 + 2 + 1  # of a SUBSCRIBE without any filter, at most: type, length, packet id, no properties
_SHARE = "$share/"  # no authority contains a $
_PROBLEMS_AT_MOST = 10


class Subscriptions:
    """Counts the users of each topic filter, and remembers what the broker refused and what it still has to remove."""

    def __init__(self) -> None:
        self._needed: Counter[str] = Counter()
        self._unneeded: dict[str, None] = {}
        self._refused: dict[str, str] = {}  # and the broker's reason

    def open(self, pattern: str) -> bool:
        """One more user; True if it is the first."""
        self._needed[pattern] += 1
        self._unneeded.pop(pattern, None)
        return self._needed[pattern] == 1

    def close(self, pattern: str) -> bool:
        """One user less; True if it was the last. The broker has to remove the subscription then: see `unneeded`."""
        self._needed[pattern] -= 1
        if self._needed[pattern] > 0:
            return False
        del self._needed[pattern]
        self._refused.pop(pattern, None)
        self._unneeded[pattern] = None
        return True

    def refused(self, pattern: str, reason: str) -> None:
        """The broker does not give us what matches. A filter that was closed meanwhile is no problem."""
        if pattern in self._needed:
            self._refused[pattern] = reason

    def granted(self, pattern: str) -> None:
        """The broker has subscribed us."""
        self._refused.pop(pattern, None)

    def is_refused(self, pattern: str) -> bool:
        """Whether the broker does not give us what matches, as far as we know."""
        return pattern in self._refused

    def problems(self) -> list[str]:
        """A sentence for each topic filter that the broker refused."""
        refused = islice(self._refused.items(), _PROBLEMS_AT_MOST)
        return [f"the broker refused the subscription {pattern!r}: {reason}" for pattern, reason in refused]

    def needed(self) -> list[str]:
        """Every topic filter that has a user."""
        return list(self._needed)

    def unneeded(self) -> list[str]:
        """The topic filters without a user, until the broker has confirmed that it removed them."""
        return list(self._unneeded)

    def unshared(self) -> list[str]:
        """What an earlier run, before there was a share, may have left in the session: it would bring every message."""
        plain = (pattern.split("/", 2)[2] for pattern in self._needed if is_shared(pattern))
        return [pattern for pattern in plain if pattern not in self._needed]

    def removed(self, patterns: Iterable[str]) -> None:
        """The broker does not have these any more."""
        for pattern in patterns:
            self._unneeded.pop(pattern, None)


def batches(patterns: Iterable[str], max_packet_bytes: int | None = None) -> Iterator[Sequence[str]]:
    """The patterns in groups for one packet each, which the broker takes. Without those that are `is_too_long`."""
    batch: list[str] = []
    size = _PACKET_BYTES
    for pattern in patterns:
        if is_too_long(pattern, max_packet_bytes):
            continue
        added = _size(pattern)
        if len(batch) >= BATCH or (max_packet_bytes is not None and size + added > max_packet_bytes):
            yield batch
            batch, size = [], _PACKET_BYTES
        batch.append(pattern)
        size += added
    if batch:
        yield batch


def is_too_long(pattern: str, max_packet_bytes: int | None) -> bool:
    """Whether no packet that the broker takes has room for this pattern (MQTT-3.2.2-15). None: it takes all."""
    return max_packet_bytes is not None and _PACKET_BYTES + _size(pattern) > max_packet_bytes


def _size(pattern: str) -> int:
    return len(pattern.encode()) + 3  # its length before it, its options behind it


def filters_for(
    source: UUri, sink: UUri | None, structure: Structure, own_authority: str, share: str | None
) -> tuple[str, ...]:
    """The topic filters to subscribe to for two uProtocol filters. With ``share``, the streamers of that name divide it.

    What is addressed to this streamer itself is not divided: nobody else has its subscriptions, its pause rules, and the
    Requests that it waits for the answers of. Of what matches both filters it may get two copies, with one id.

    None off-vehicle for a filter without sink: there every message has one, so nothing matches.
    """
    if sink is None and structure == "off-vehicle":
        return ()
    pattern = topic_filter(source, sink, structure, own_authority)
    if share is None or (sink is not None and sink.authority in ("", own_authority)):
        return (pattern,)
    shared = f"{_SHARE}{share}/{pattern}"
    if sink is None or sink.authority != ANY_AUTHORITY:
        return (shared,)
    return shared, topic_filter(source, sink._replace(authority=own_authority), structure, own_authority)


def has_wildcard(pattern: str) -> bool:
    """Whether a topic filter matches more than one topic."""
    return "+" in pattern  # no authority contains one, and # is in none of our filters


def is_shared(pattern: str) -> bool:
    """Whether a topic filter is that of a shared subscription."""
    return pattern.startswith(_SHARE)


def subscribe_to(pattern: str) -> TopicFilter:
    """At least once, nothing that we sent ourselves, and no retained messages: uProtocol has none."""
    return TopicFilter(
        pattern,
        max_qos=QoS.AT_LEAST_ONCE,
        no_local=not is_shared(pattern),
        retain_as_published=True,
        retain_handling=RetainHandling.SEND_NEVER,
    )
