"""The service's entries, and what follows from changing one: rows to write, notifications, expiry. Pure.

A subscription that the configuration permits no longer is set aside as UNSUBSCRIBED: it has no effect, but stays on
disk for a configuration that permits it again.
"""

from collections.abc import Callable, Iterable, Iterator

from streamer.due import Due
from streamer.features.usubscription.entries import (
    NEWEST,
    Cause,
    Change,
    Observer,
    SubscribeAttributes,
    Subscription,
    SubscriptionState,
    Update,
)
from streamer.features.usubscription.index import Index
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION_4

NOT_PERMITTED = "no longer permitted"


class Book:
    """``index`` has the entries in effect, ``aside`` those that are set aside."""

    def __init__(self) -> None:
        self.index = Index()
        self.aside = Index()
        self.expiries: Due[int] = Due()
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def load(self, entry: Subscription, counts: bool) -> None:
        """Add a subscription from disk. ``counts``: it is in effect; otherwise it is set aside."""
        (self.index if counts else self.aside).add(entry)
        self._number = max(self._number, entry.number)
        self.set_expiry(entry)

    def load_observer(self, observer: Observer, counts: bool) -> None:
        """Add an observer from disk. ``counts``: it is in effect; otherwise it is set aside."""
        (self.index if counts else self.aside).add_observer(observer)
        self._number = max(self._number, observer.number)

    def clear(self) -> None:
        """Remove every entry from memory."""
        self.index, self.aside = Index(), Index()
        self.expiries.clear()

    def add(self, change: Change, entry: Subscription) -> None:
        """Add a new subscription, and note its row in ``change``."""
        self.index.add(entry)
        self.set_expiry(entry)
        self.changed(change, entry)
        self.notify(change, entry)

    def changed(self, change: Change, entry: Subscription) -> None:
        change.subscriptions[entry.number] = entry
        change.topics.add(entry.topic)

    def set_state(
        self, change: Change, entry: Subscription, state: SubscriptionState, message: str = "", cause: Cause = Cause.STATE
    ) -> None:
        if entry.state is state:
            return
        self.index.count(entry, -1)
        entry.state = state
        self.index.count(entry, 1)
        self.changed(change, entry)
        self.notify(change, entry, message, cause)

    def set_expiry(self, entry: Subscription) -> None:
        leaving = entry.state is SubscriptionState.UNSUBSCRIBE_PENDING
        self.expiries.set(entry.number, None if leaving else entry.attributes.expire_ms)

    def remove(self, change: Change, entry: Subscription) -> None:
        """Delete a subscription without notifying anybody."""
        self.index.remove(entry)
        self.expiries.set(entry.number, None)
        change.subscriptions[entry.number] = None
        change.topics.add(entry.topic)

    def end(self, change: Change, entry: Subscription, message: str = "", cause: Cause = Cause.STATE) -> None:
        """Delete a subscription, and notify of its end."""
        self.remove(change, entry)
        if entry.has_left:
            cause = Cause.LEFT
        entry.state = SubscriptionState.UNSUBSCRIBED
        self.notify(change, entry, message, cause)

    def remove_observer(self, change: Change, observer: Observer) -> None:
        self.index.remove_observer(observer)
        change.observers[observer.number] = None

    def notify(self, change: Change, entry: Subscription, message: str = "", cause: Cause = Cause.STATE) -> None:
        """Add the notifications of a change to ``change`` (004 §7; v4, "Subscription Change Notifications").

        They go to the subscriber, the observers and the topic of changes. A subscriber that observes its own subscription
        is notified once in each version.
        """
        about = entry.topic, entry.subscriber, entry.state, message, entry.attributes
        change.updates.append(Update(entry.subscriber, entry.via, *about, entry.version, cause))
        for observer in (*self.index.topic(entry.topic).observers.values(), *self.index.of_all.values()):
            is_notified = observer.uri == entry.subscriber and observer.version == entry.version
            if not is_notified or (cause is Cause.LEFT and entry.version == NEWEST):
                change.updates.append(Update(observer.uri, observer.via, *about, observer.version, cause, is_observed=True))
        change.updates.append(Update(None, entry.via, *about, NEWEST, cause, is_observed=True))

    def dismiss(self, change: Change, observers: Iterable[Observer]) -> None:
        """Notify observers that they are registered no longer."""
        for observer in observers:
            topic = observer.topic or USUBSCRIPTION_4.at(observer.via, CHANGES)
            about = topic, observer.uri, SubscriptionState.UNSUBSCRIBED, "reset", SubscribeAttributes()
            change.updates.append(Update(observer.uri, observer.via, *about, observer.version))

    # Set aside

    def set_aside(self, change: Change, entry: Subscription) -> None:
        """Set aside a subscription that is permitted no longer."""
        self.index.remove(entry)
        self.aside.add(entry)
        change.topics.add(entry.topic)
        self.notify_set_aside(change, entry)

    def notify_set_aside(self, change: Change, entry: Subscription) -> None:
        """Notify that a subscription is set aside, unless it was notified before."""
        if entry.state is not SubscriptionState.UNSUBSCRIBED:
            entry.state = SubscriptionState.UNSUBSCRIBED
            change.subscriptions[entry.number] = entry
            self.notify(change, entry, NOT_PERMITTED)

    def take_back(self, entries: Iterable[Subscription]) -> None:
        """Put subscriptions that are permitted again into effect. Their state is still UNSUBSCRIBED."""
        found = list(entries)
        for entry in found:
            self.aside.remove(entry)
        if found:
            self._build(sorted([*self.index.all(), *found], key=_number), list(observers_of(self.index)))

    def forget_aside(self, change: Change, entry: Subscription) -> None:
        """Delete a subscription that was set aside."""
        self.aside.remove(entry)
        self.expiries.set(entry.number, None)
        change.subscriptions[entry.number] = None

    def forget_observer_aside(self, change: Change, observer: Observer) -> None:
        """Delete an observer that was set aside."""
        self.aside.remove_observer(observer)
        change.observers[observer.number] = None

    def sort_observers(self, may_observe: Callable[[UUri, UUri | None], bool]) -> None:
        """Put the observers that may observe their topic into effect, and set the others aside."""
        everybody = sorted([*observers_of(self.index), *observers_of(self.aside)], key=_number)
        for observer in list(observers_of(self.aside)):
            self.aside.remove_observer(observer)
        counts: list[Observer] = []
        for observer in everybody:
            if may_observe(observer.uri, observer.topic):
                counts.append(observer)
            else:
                self.aside.add_observer(observer)
        self._build(list(self.index.all()), counts)

    def _build(self, entries: Iterable[Subscription], observers: Iterable[Observer]) -> None:
        """Put these entries into effect, in this order."""
        self.index = Index()
        for entry in entries:
            self.index.add(entry)
        for observer in observers:
            self.index.add_observer(observer)

    def forget_rest_of(self, change: Change, authority: str) -> None:
        """Delete an authority's observers and its entries that are set aside."""
        for entry in [entry for entry in self.aside.all() if entry.subscriber.authority == authority]:
            self.forget_aside(change, entry)
        self.dismiss(change, [each for each in observers_of(self.index) if each.uri.authority == authority])
        for index in (self.index, self.aside):
            for observer in [each for each in observers_of(index) if each.uri.authority == authority]:
                index.remove_observer(observer)
                change.observers[observer.number] = None


def _number(entry: Subscription | Observer) -> int:
    return entry.number


def observers_of(index: Index) -> Iterator[Observer]:
    """Yield all observers: topic by topic, then those of all topics."""
    yield from (observer for topic in index.topics.values() for observer in topic.observers.values())
    yield from index.of_all.values()


def known_to(index: Index, topic: UUri, subscriber: UUri) -> Subscription | None:
    """Return the subscription of one uEntity to one topic."""
    return index.topic(topic).subscriptions.get(subscriber)
