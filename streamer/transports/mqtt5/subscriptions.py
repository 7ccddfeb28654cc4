"""Which MQTT topic filters are needed: several uProtocol filters can map to the same one. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mqtt5 import QoS, RetainHandling, TopicFilter

BATCH = 50
"""Filters per SUBSCRIBE or UNSUBSCRIBE: brokers limit the size of packets."""


class Subscriptions:
    """Counts the users of each topic filter, and remembers which subscriptions the broker still has to remove."""

    def __init__(self) -> None:
        self._needed: Counter[str] = Counter()
        self._unneeded: dict[str, None] = {}

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
        self._unneeded[pattern] = None
        return True

    def is_needed(self, pattern: str) -> bool:
        """Whether it has a user."""
        return pattern in self._needed

    def needed(self) -> list[str]:
        """Every topic filter that has a user."""
        return list(self._needed)

    def unneeded(self) -> list[str]:
        """The topic filters without a user, until the broker has confirmed that it removed them."""
        return list(self._unneeded)

    def removed(self, patterns: Iterable[str]) -> None:
        """The broker does not have these any more."""
        for pattern in patterns:
            self._unneeded.pop(pattern, None)


def batches(patterns: Sequence[str]) -> Iterator[Sequence[str]]:
    """The patterns in groups for one packet each."""
    for start in range(0, len(patterns), BATCH):
        yield patterns[start : start + BATCH]


def subscribe_to(pattern: str) -> TopicFilter:
    """At least once, nothing that we sent ourselves, and no retained messages: uProtocol has none."""
    return TopicFilter(
        pattern,
        max_qos=QoS.AT_LEAST_ONCE,
        no_local=True,
        retain_as_published=True,
        retain_handling=RetainHandling.SEND_NEVER,
    )
