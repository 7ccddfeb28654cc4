"""Chooses the subscription that brings a topic: one of its own, or a wide one for many topics. Pure.

What a subscription costs grows with all that are there: 16 000 take Zenoh 48 s of CPU. The key of each takes 3 KiB, on both
ends of every link, for as long as the link lives, also once it is unsubscribed from. So what one session ever declares for
topics is bounded:

- `MAX_OWN_SUBSCRIPTIONS` topics have a subscription of their own. One that had it gets it again.
- Further ones share a wide subscription to all topics of their authority. There are `MAX_WIDE_SUBSCRIPTIONS` of these.
- Topics of further authorities share one to all topics of everybody.

A wide subscription also brings topics that nobody asked for, so those with few topics keep their own.
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
        """``expected``: topics that are about to be opened. Authorities with too many of them get a wide one at once."""
        self._own: set[UUri] = set()  # those that ever had a subscription of their own
        self._wide: set[str] = set()  # authorities that ever had a wide one, or are about to
        self._open: dict[UUri, set[UUri]] = {}
        room = MAX_OWN_SUBSCRIPTIONS
        numbers = Counter(topic.authority for topic in expected)
        for authority, number in sorted(numbers.items(), key=_second):
            if number <= room:
                room -= number
            elif len(self._wide) < MAX_WIDE_SUBSCRIPTIONS:
                self._wide.add(authority)

    def open(self, topic: UUri) -> UUri:
        """The source filter of the subscription that brings a topic from now on: the topic itself if it is its own."""
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
        """A topic needs that subscription no longer; whether nobody does."""
        users = self._open[of]
        users.discard(topic)
        if users:
            return False
        del self._open[of]
        return True


def _second(pair: tuple[str, int]) -> int:
    return pair[1]
