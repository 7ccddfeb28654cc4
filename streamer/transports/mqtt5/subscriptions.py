"""Counts which MQTT topic filters are needed: several uProtocol filters can map to the same one. Pure.

The rules of a shared subscription (MQTT 5.0):

- [MQTT-4.8.2-1], [MQTT-4.8.2-2] its filter is ``$share/NAME/FILTER``. Clients with the same name and filter share it, and
  each message goes to one of them.
- [MQTT-3.8.3-4] it never has No Local. Our own messages are recognised without it: their source does not live behind this
  endpoint, or their id was seen.
- 4.8.2: a broker without shared subscriptions says so in its CONNACK; then no shared filter is requested.
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
"""The problem of a broker without shared subscriptions if the options have ``share``, and what to do."""

NO_WILDCARDS = "it has no subscriptions with wildcards; use a broker that has them"
"""The problem of a broker without wildcards (MQTT 5, 3.2.2.3.11), which ends a connection that requests one."""

_PACKET_BYTES = 1 + 4 + 2 + 1  # of a SUBSCRIBE without filters, at most: type, length, packet id, no properties
_SHARE = "$share/"  # no authority contains a $
_PROBLEMS_AT_MOST = 10


class Subscriptions:
    """Counts the users of each topic filter. Remembers filters that the broker refused or still has to remove.

    Each of ``brokers`` has filters of its own to remove. ``broker`` is the number of the connected one.
    """

    def __init__(self, brokers: int = 1) -> None:
        self.broker = 0
        self._needed: Counter[str] = Counter()
        self._unneeded: list[dict[str, None]] = [{} for _ in range(brokers)]
        self._refused: dict[str, str] = {}  # and the broker's reason

    def open(self, pattern: str) -> bool:
        """Add a user to a filter. Return True if it is the first."""
        self._needed[pattern] += 1
        for unneeded in self._unneeded:
            unneeded.pop(pattern, None)
        return self._needed[pattern] == 1

    def close(self, pattern: str) -> bool:
        """Remove a user from a filter. Return True if it was the last: then the caller has to unsubscribe."""
        self._needed[pattern] -= 1
        if self._needed[pattern] > 0:
            return False
        del self._needed[pattern]
        self._refused.pop(pattern, None)
        for unneeded in self._unneeded:
            unneeded[pattern] = None
        return True

    def refused(self, pattern: str, reason: str) -> None:
        """Record that the broker refused a filter, unless the filter was closed meanwhile."""
        if pattern in self._needed:
            self._refused[pattern] = reason

    def granted(self, pattern: str) -> None:
        """Record that the broker granted a filter."""
        self._refused.pop(pattern, None)

    def is_refused(self, pattern: str) -> bool:
        """Return whether the broker has refused a filter, and not granted it since."""
        return pattern in self._refused

    def problems(self) -> list[str]:
        """Return a sentence for each topic filter that the broker refused."""
        refused = islice(self._refused.items(), _PROBLEMS_AT_MOST)
        return [f"the broker refused the subscription {pattern!r}: {reason}" for pattern, reason in refused]

    def needed(self) -> list[str]:
        """Return all topic filters that have a user."""
        return list(self._needed)

    def unneeded(self) -> list[str]:
        """Return the topic filters without a user that the broker has not confirmed to be removed."""
        return list(self._unneeded[self.broker])

    def unshared(self) -> list[str]:
        """Return the unshared forms of shared filters: an earlier run without ``share`` may have left them subscribed."""
        plain = (pattern.split("/", 2)[2] for pattern in self._needed if is_shared(pattern))
        return [pattern for pattern in plain if pattern not in self._needed]

    def removed(self, patterns: Iterable[str]) -> None:
        """Record that the broker has removed these filters."""
        for pattern in patterns:
            self._unneeded[self.broker].pop(pattern, None)


def batches(patterns: Iterable[str], max_packet_bytes: int | None = None) -> Iterator[Sequence[str]]:
    """Yield the patterns in groups that fit into one packet each, without those that are `is_too_long`."""
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
    """Return whether a pattern does not fit into a packet that the broker accepts (MQTT-3.2.2-15). None: no limit."""
    return max_packet_bytes is not None and _PACKET_BYTES + _size(pattern) > max_packet_bytes


def _size(pattern: str) -> int:
    return len(pattern.encode()) + 3  # with the length field and the options


def filters_for(
    source: UUri, sink: UUri | None, structure: Structure, own_authority: str, share: str | None
) -> tuple[str, ...]:
    """Return the topic filters for two uProtocol filters. With ``share``, streamers with that name share the messages.

    Messages to this streamer itself are not shared: only it has its subscriptions, its pause rules, and the Requests that
    wait for Responses. It may get two copies, with one id, of messages that match both filters.

    There is no off-vehicle topic filter without a sink: there every message has one, so none matches.
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
    """Return whether a topic filter matches more than one topic."""
    return "+" in pattern  # no authority contains one, and # is in none of our filters


def is_shared(pattern: str) -> bool:
    """Return whether a topic filter is that of a shared subscription."""
    return pattern.startswith(_SHARE)


def subscribe_to(pattern: str) -> TopicFilter:
    """Return a subscription at least once, without our own messages and without retained ones, which uProtocol lacks."""
    return TopicFilter(
        pattern,
        max_qos=QoS.AT_LEAST_ONCE,
        no_local=not is_shared(pattern),
        retain_as_published=True,
        retain_handling=RetainHandling.SEND_NEVER,
    )
