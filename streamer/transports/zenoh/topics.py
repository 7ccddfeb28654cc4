"""Chooses the subscription that brings a topic: one of its own, or a wide one for many topics. Pure.

The cost of a subscription grows with the number of subscriptions: 16 000 take Zenoh 48 s of CPU. Each key takes 3 KiB, on
both ends of every link, for as long as the link lives, also after its subscription was undeclared. So the number of
subscriptions that one session ever declares for topics is bounded:

- `MAX_OWN_SUBSCRIPTIONS` topics have a subscription of their own. A topic that had one gets it again.
- Further topics share a wide subscription to all topics of their authority, of which there are `MAX_WIDE_SUBSCRIPTIONS`.
- Topics of further authorities share one subscription to all topics of all authorities.

A wide subscription also brings unrequested topics, so authorities with few topics get subscriptions of their own.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at

MAX_OWN_SUBSCRIPTIONS: Final = 256
MAX_WIDE_SUBSCRIPTIONS: Final = 256

_EVERYTHING: Final = everything_at(ANY_AUTHORITY)


class Topics:
    """The open topics of one session, by the source filter of the subscription that brings them."""

    def __init__(self, expected: Iterable[UUri] = ()) -> None:
        """``expected``: topics that are about to be opened. Authorities with too many get a wide subscription at once."""
        self._own: set[UUri] = set()  # topics that ever had a subscription of their own
        self._wide: set[str] = set()  # authorities that ever had a wide subscription, or are about to
        self._open: dict[UUri, set[UUri]] = {}
        room = MAX_OWN_SUBSCRIPTIONS
        numbers = Counter(topic.authority for topic in expected)
        for authority, number in sorted(numbers.items(), key=_second):
            if number <= room:
                room -= number
            elif len(self._wide) < MAX_WIDE_SUBSCRIPTIONS:
                self._wide.add(authority)

    def open(self, topic: UUri) -> UUri:
        """Open a topic. Return the source filter of its subscription: the topic itself, if it gets its own."""
        of = self._choose(topic)
        self._open.setdefault(of, set()).add(topic)
        return of

    def _choose(self, topic: UUri) -> UUri:
        authority = topic.authority
        if topic in self._own:
            return topic
        if authority not in self._wide:
            if len(self._own) < MAX_OWN_SUBSCRIPTIONS:
                self._own.add(topic)
                return topic
            if len(self._wide) >= MAX_WIDE_SUBSCRIPTIONS:
                return _EVERYTHING
            self._wide.add(authority)
        return everything_at(authority)

    def close(self, topic: UUri, of: UUri) -> bool:
        """Close a topic of the subscription ``of``. Return whether no other topic needs that subscription."""
        users = self._open[of]
        users.discard(topic)
        if users:
            return False
        del self._open[of]
        return True


def _second(pair: tuple[str, int]) -> int:
    return pair[1]
