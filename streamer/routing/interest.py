"""Which authorities are interested in which topics, by live subscriptions or multicast registrations. Pure.

Interest is recorded by authority, not by uEntity: a message that crosses a network is addressed to a device, and
distributed there.
"""

from collections.abc import Iterable, KeysView, Mapping
from typing import Protocol

from streamer.uprotocol.uri import ANY_INSTANCE, ANY_VERSION, UUri
from streamer.uprotocol.uuid import made_ms

EVERY_MESSAGE = 0
"""The sample period with which every message passes."""

_NOBODY: Mapping[str, int] = {}


class InterestObserver(Protocol):
    """Observes changes of the interest in topics. It may neither wait nor fail."""

    def interest_changed(self, topic: UUri, before: Mapping[str, int], is_new: bool) -> None:
        """Observe that other authorities than ``before`` are interested in a topic, or with other periods.

        ``is_new``: subscribers have come or gone.
        """

    def interest_used(self, interest: "Interest") -> None:
        """Observe that what arrives from now on goes to those who are interested now."""


class Interest:
    """Topic → authority → sample period in ms. Several owners may set it; the shortest period of an authority counts."""

    def __init__(self) -> None:
        self._merged: dict[UUri, Mapping[str, int]] = {}
        self._by_owner: dict[UUri, dict[str, Mapping[str, int]]] = {}
        self._wide = 0  # number of topics that stand for any instance or version

    def at(self, topic: UUri) -> Mapping[str, int]:
        """Return the authorities that are interested in exactly this topic, which may stand for any instance or version."""
        return self._merged.get(topic, _NOBODY)

    def of(self, topic: UUri) -> Mapping[str, int]:
        """Return the authorities that are interested in a topic, or in any instance or version of it."""
        return _merged(self.at(name) for name in names_of(topic)) if self._wide else self.at(topic)

    def topics(self) -> KeysView[UUri]:
        """Return every topic that an authority is interested in."""
        return self._merged.keys()

    def change(self, topic: UUri, interested: Mapping[str, int], owner: str) -> bool:
        """Set the authorities interested in ``topic`` as far as ``owner`` knows; return whether the interest has changed."""
        owners = self._by_owner.setdefault(topic, {})
        if interested:
            owners[owner] = dict(interested)
        else:
            owners.pop(owner, None)
        merged = _merged(owners.values())
        before = self.at(topic)
        if topic.has_wildcard:
            self._wide += bool(merged) - bool(before)
        if merged:
            self._merged[topic] = merged
        else:
            self._merged.pop(topic, None)
            del self._by_owner[topic]
        return merged != before


def names_of(topic: UUri) -> set[UUri]:
    """Return the topic, and those that stand for any instance or version of it."""
    names = {topic, topic._replace(ue_id=ANY_INSTANCE << 16 | topic.type_id)}
    return names | {name._replace(version=ANY_VERSION) for name in names}


def _merged(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    merged: dict[str, int] = {}
    for each in parts:
        for authority, period_ms in each.items():
            merged[authority] = min(period_ms, merged.get(authority, period_ms))
    return merged


class Sampler:
    """Lets one message of a flow pass per ``period_ms``, by the creation times in the ids."""

    __slots__ = ("_last_ms", "period_ms")

    def __init__(self, period_ms: int) -> None:
        self.period_ms = period_ms
        self._last_ms: int | None = None

    def lets_pass(self, message_id: bytes, now_ms: int) -> bool:
        """Whether the message with this id passes. The first one does, and the first after each period."""
        made = made_ms(message_id, now_ms)
        # A sender's clock that was set back must not silence a topic: a large distance in either direction passes.
        if self._last_ms is not None and abs(made - self._last_ms) < self.period_ms:
            return False
        self._last_ms = made
        return True
