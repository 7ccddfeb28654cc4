"""Which MQTT topic filters are wanted: several uProtocol filters can map to the same one. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mqtt5 import QoS, RetainHandling, TopicFilter

BATCH = 50
"""Filters per SUBSCRIBE or UNSUBSCRIBE: brokers limit the size of packets."""


class Subscriptions:
    """Counts who wants a topic filter, and remembers which ones the broker still has to hear about."""

    def __init__(self) -> None:
        self._wanted: Counter[str] = Counter()
        self._unwanted: dict[str, None] = {}

    def open(self, pattern: str) -> bool:
        """One more wants it; True if it was the first."""
        self._wanted[pattern] += 1
        self._unwanted.pop(pattern, None)
        return self._wanted[pattern] == 1

    def close(self, pattern: str) -> bool:
        """One fewer wants it; True if it was the last. The broker is to forget it: see `unwanted`."""
        self._wanted[pattern] -= 1
        if self._wanted[pattern] > 0:
            return False
        del self._wanted[pattern]
        self._unwanted[pattern] = None
        return True

    def is_wanted(self, pattern: str) -> bool:
        """Whether somebody wants it."""
        return pattern in self._wanted

    def wanted(self) -> list[str]:
        """Every topic filter that somebody wants."""
        return list(self._wanted)

    def unwanted(self) -> list[str]:
        """The topic filters that nobody wants any more, as long as the broker did not confirm that it forgot them."""
        return list(self._unwanted)

    def forgotten(self, patterns: Iterable[str]) -> None:
        """The broker does not have these any more."""
        for pattern in patterns:
            self._unwanted.pop(pattern, None)


def batches(patterns: Sequence[str]) -> Iterator[Sequence[str]]:
    """As many as fit into one packet each."""
    for start in range(0, len(patterns), BATCH):
        yield patterns[start : start + BATCH]


def subscribe_to(pattern: str) -> TopicFilter:
    """At least once, never what we sent ourselves, never retained messages: uProtocol has none."""
    return TopicFilter(
        pattern,
        max_qos=QoS.AT_LEAST_ONCE,
        no_local=True,
        retain_as_published=True,
        retain_handling=RetainHandling.SEND_NEVER,
    )
