"""All subscriptions and observers, and the rules by which they change (004 §4 to §9). Pure: time is passed in, no I/O.

Every call that may change something returns a `Change`: the caller writes its entries, then sends its messages. Before other
calls, the caller calls `tick` with the same time. A topic is local if its authority is one of ours, else remote. All our
subscribers of a remote topic have the state that its service reports (`RemoteTopic`). The last one to leave a subscribed
topic stays in UNSUBSCRIBE_PENDING until there is a response, whatever its code.

Longer than most files here: requests of clients, the passing of time and messages of other services share their rules.
"""

from collections.abc import Collection, Iterable, Mapping

from streamer.features.host.access import Access
from streamer.features.usubscription.book import Book, known_to, observers_of
from streamer.features.usubscription.entries import (
    Cause,
    Change,
    CommandResponse,
    Observer,
    ReceivedUpdate,
    SubscribeAttributes,
    Subscription,
    SubscriptionState,
)
from streamer.features.usubscription.index import Index, listed
from streamer.features.usubscription.quotas import Limits, check_observer, check_subscription
from streamer.features.usubscription.remote_topic import RemoteTopic, Step
from streamer.features.usubscription.remote_topics import RemoteTopics
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

EXPIRED = "expired"

_NO_TOPIC = UUri("", 0, 0, 0)


class SubscriptionRegistry:
    """``access`` decides which topics are local, and who may subscribe. Lower ``limits`` do not remove entries."""

    def __init__(self, access: Access, limits: Limits) -> None:
        self._access = access
        self._book = Book()
        self._remotes = RemoteTopics()
        self.use_limits(limits)

    @property
    def _index(self) -> Index:
        return self._book.index

    def use_limits(self, limits: Limits) -> None:
        """Apply other limits from now on."""
        self.limits = limits
        self._remotes.use_version(limits.remote_version)

    # Contents

    @property
    def subscriptions(self) -> Iterable[Subscription]:
        """Return all subscriptions, oldest first."""
        return self._index.all()

    @property
    def observers(self) -> list[Observer]:
        """Return all observers, topic by topic."""
        return list(observers_of(self._index))

    @property
    def remotes(self) -> Mapping[UUri, RemoteTopic]:
        return self._remotes.by_topic

    @property
    def topics(self) -> Collection[UUri]:
        """Return every topic with a subscription or an observer."""
        return self._index.topics.keys()

    def gauges(self) -> dict[str, int]:
        """Return the number of entries by kind, for the metrics."""
        return {
            "subscriptions": len(self._index.by_number),
            "topics": len(self._index.topics),
            "subscribers": len(self._index.subscribers),
            "observers": self._index.observers,
            "set_aside": len(self._book.aside.by_number) + self._book.aside.observers,
            "remote_topics": len(self._remotes),
            "remote_pending": sum(not remote.is_confirmed for remote in self._remotes.all()),
        }

    def interested(self, topic: UUri) -> dict[str, int]:
        """Return authority → the shortest sample period (ms) of its subscribers of ``topic``; without our own authority."""
        interested = self._index.interested(topic)
        interested.pop(self._access.authority, None)
        return interested

    def matching(self, topic: UUri | None, subscriber: UUri | None) -> Iterable[Subscription]:
        """Return the subscriptions that match both patterns (None: all), oldest first, except those that are leaving."""
        return listed(self._index.matching(topic, subscriber))

    def topic_of(self, command: bytes) -> UUri | None:
        """Return the topic of a command without a response; None: there is no such command."""
        return self._remotes.topic_of(command)

    # Start

    def load(self, entries: Iterable[Subscription], observers: Iterable[Observer], remotes: Iterable[RemoteTopic]) -> None:
        """Add the entries from disk, in the order of their numbers, to the empty registry."""
        for entry in entries:
            self._book.load(entry, self._counts(entry))
        for observer in observers:
            self._book.load_observer(observer, self._access.may_observe(observer.uri, observer.topic))
        for remote in remotes:
            self._remotes.load(remote)

    def begin(self, now_ms: int) -> Change:
        """Adapt the loaded entries to the configuration, and repeat commands that may not have been sent."""
        change = Change()
        for entry in self._book.aside.all():
            self._book.notify_set_aside(change, entry)
        self._adapt(change, now_ms)
        for remote in [remote for remote in self._remotes.all() if remote.topic not in change.remotes]:
            change.commands += remote.resume(now_ms)
            self._leave_if_unwanted(change, now_ms, remote)
            self._set_period(change, now_ms, remote.topic)
        return change

    def permit(self, now_ms: int, access: Access) -> Change:
        """Apply other permissions and local authorities from now on."""
        change, book = Change(), self._book
        self._access = access
        for entry in [entry for entry in book.index.all() if not self._counts(entry)]:
            book.set_aside(change, entry)
        book.take_back(entry for entry in book.aside.all() if self._counts(entry))
        book.sort_observers(access.may_observe)
        self._adapt(change, now_ms)
        for remote in self._remotes.all():
            self._leave_if_unwanted(change, now_ms, remote)
            self._set_period(change, now_ms, remote.topic)
        return change

    def _counts(self, entry: Subscription) -> bool:
        """Whether a subscription is in effect: it is permitted, or is ending anyway."""
        leaving = entry.state is SubscriptionState.UNSUBSCRIBE_PENDING
        return leaving or self._access.may_subscribe(entry.subscriber, entry.topic)

    def _adapt(self, change: Change, now_ms: int) -> None:
        """Give every subscription the state that follows from the present configuration and its topic's service."""
        for topic in [topic for topic in self.remotes if topic.authority in self._access.local]:
            self._forget(change, topic)
        for topic, there in list(self._index.topics.items()):
            state, remote = SubscriptionState.SUBSCRIBED, self._remotes.get(topic)
            is_back = any(entry.state is SubscriptionState.UNSUBSCRIBED for entry in there.subscriptions.values())
            is_new = topic.authority in self._access.local or remote is None or (is_back and not remote.wanted)
            if is_new:  # what was leaving has left; the remote topic may have been lost with a damaged file
                for entry in list(there.subscriptions.values()):
                    if entry.state is SubscriptionState.UNSUBSCRIBE_PENDING:
                        self._book.end(change, entry)
            if not there.subscriptions:
                continue
            if topic.authority not in self._access.local:
                state = self._subscribe_there(change, now_ms, topic).state if is_new or remote is None else remote.state
            for entry in list(there.subscriptions.values()):
                if is_new or entry.state is SubscriptionState.UNSUBSCRIBED:
                    self._book.set_state(change, entry, state)

    def _leave_if_unwanted(self, change: Change, now_ms: int, remote: RemoteTopic) -> None:
        if remote.wanted and not self._index.topic(remote.topic).subscriptions:  # set aside, or lost with a damaged file
            change.commands += remote.leave(now_ms)
        self._changed_remote(change, remote)

    def clock_set_back(self, now_ms: int) -> None:
        """Bring deadlines nearer: the clock was set back."""
        self._remotes.clock_set_back(now_ms)

    # Requests of clients

    def subscribe(
        self, now_ms: int, topic: UUri, subscriber: UUri, via: str, attributes: SubscribeAttributes, version: int = 3
    ) -> tuple[SubscriptionState, Change]:
        """Subscribe (004 §4.1). Return the state for the response. Raises `UStatusError` if there are too many entries.

        If the expiry has passed, no subscription is made, and an earlier one ends.
        """
        change = Change()
        known = known_to(self._index, topic, subscriber)
        is_there = known is not None and known.state is not SubscriptionState.UNSUBSCRIBE_PENDING
        has_expired = attributes.expire_ms is not None and attributes.expire_ms <= now_ms
        if known is not None and is_there:
            self._renew(change, now_ms, known, via, version, attributes, is_notified=not has_expired)
            if has_expired:
                self._leave(change, now_ms, known, EXPIRED)
        if has_expired:
            return SubscriptionState.UNSUBSCRIBED, change
        if known is not None and is_there:
            return known.state, change
        self._check_room(topic, subscriber, known)
        if known is not None:  # it was leaving: this is a first subscription again
            self._book.remove(change, known)
        state = SubscriptionState.SUBSCRIBED
        if topic.authority not in self._access.local:
            remote = self._remotes.get(topic)
            if remote is None or not remote.wanted:
                for leaving in list(self._index.topic(topic).subscriptions.values()):
                    self._book.end(change, leaving)
                remote = self._subscribe_there(change, now_ms, topic, attributes.period_ms)
            state = remote.state
        entry = Subscription(self._book.next_number(), topic, subscriber, via, state, attributes, version)
        self._book.add(change, entry)
        self._set_period(change, now_ms, topic)
        return state, change

    def unsubscribe(self, now_ms: int, topic: UUri, subscriber: UUri) -> Change:
        """Unsubscribe (004 §4.2). Without a subscription nothing changes."""
        change = Change()
        entry = known_to(self._index, topic, subscriber)
        if entry is not None and entry.state is not SubscriptionState.UNSUBSCRIBE_PENDING:
            self._leave(change, now_ms, entry, "", Cause.LEFT)
        elif (entry := known_to(self._book.aside, topic, subscriber)) is not None:
            self._book.forget_aside(change, entry)
        return change

    def register(self, topic: UUri | None, uri: UUri, via: str) -> Change:
        """Register an observer (004 §7.2.1). ``topic`` None: of all topics. Raises `UStatusError` if there are too many."""
        change = Change()
        known = self._index.observers_of(topic).get(uri)
        if known is not None and known.via == via:
            return change
        if known is None:
            check_observer(self.limits, self._index, topic, uri)
            known = Observer(self._book.next_number(), topic, uri, via)
        else:
            self._index.remove_observer(known)
            known = known._replace(via=via)
        self._index.add_observer(known)
        change.observers[known.number] = known
        return change

    def unregister(self, topic: UUri | None, uri: UUri) -> Change:
        """Unregister an observer (004 §7.2.2). Without a registration nothing changes."""
        change = Change()
        known = self._index.observers_of(topic).get(uri)
        if known is not None:
            self._book.remove_observer(change, known)
        elif (known := self._book.aside.observers_of(topic).get(uri)) is not None:
            self._book.forget_observer_aside(change, known)
        return change

    def reset(self, now_ms: int) -> Change:
        """Delete and notify everything (004 §9). Each service elsewhere gets one Unsubscribe per topic, not repeated."""
        change = Change(is_flushed=True)
        for entry in self._index.all():
            entry.state = SubscriptionState.UNSUBSCRIBED
            self._book.notify(change, entry)
            change.topics.add(entry.topic)
        self._book.dismiss(change, (each for each in observers_of(self._index) if not self._is_notified_of_end(each)))
        change.commands += self._remotes.flush(now_ms)
        self._book.clear()
        return change

    def reset_of(self, now_ms: int, authority: str) -> Change:
        """Delete all entries of one authority's uEntities: the Reset of a service elsewhere."""
        change, book = Change(), self._book
        for entry in [entry for entry in book.index.all() if entry.subscriber.authority == authority]:
            if entry.state is not SubscriptionState.UNSUBSCRIBE_PENDING:
                self._leave(change, now_ms, entry, "")
        book.forget_rest_of(change, authority)
        return change

    # Other events

    def tick(self, now_ms: int) -> Change:
        """End subscriptions that have expired by ``now_ms``, and repeat commands without a response."""
        change = Change()
        for number in self._book.expiries.take(now_ms):
            entry = self._index.by_number.get(number)
            if entry is not None and entry.state is not SubscriptionState.UNSUBSCRIBE_PENDING:
                self._leave(change, now_ms, entry, EXPIRED)
            elif (entry := self._book.aside.by_number.get(number)) is not None:
                self._book.forget_aside(change, entry)
        for remote in self._remotes.due(now_ms):
            self._apply(change, remote, remote.tick(now_ms))
        return change

    def answered(self, now_ms: int, response: CommandResponse) -> Change:
        """Apply the response, of a service elsewhere or a dispatcher, to a command; ignore it if the command is not open."""
        change = Change()
        remote = self._remotes.get(self.topic_of(response.id) or _NO_TOPIC)
        if remote is not None:
            self._apply(change, remote, remote.answered(now_ms, response))
        return change

    def update_received(self, now_ms: int, update: ReceivedUpdate) -> Change:
        """Apply the state of our subscription that another device's service has sent."""
        change = Change()
        remote = self._remotes.get(update.topic)
        if remote is not None:
            self._apply(change, remote, remote.update_received(now_ms, update))
        return change

    # Shared rules

    def _is_notified_of_end(self, observer: Observer) -> bool:
        """Whether the end of a subscription notifies this observer when all subscriptions end."""
        return observer.topic is not None and bool(self._index.topic(observer.topic).subscriptions)

    def _check_room(self, topic: UUri, subscriber: UUri, known: Subscription | None) -> None:
        most = self.limits.subscriptions
        if known is None:
            if len(self._index.by_number) + len(self._book.aside.by_number) >= most:
                raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"there are {most} subscriptions already")
            check_subscription(self.limits, self._index, topic, subscriber, self._access.is_named)
        if topic.authority not in self._access.local and topic not in self.remotes and len(self._remotes) >= most:
            raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"there are {most} topics of other devices already")

    def _renew(
        self,
        change: Change,
        now_ms: int,
        entry: Subscription,
        via: str,
        version: int,
        attributes: SubscribeAttributes,
        is_notified: bool,
    ) -> None:
        """Apply a repeated Subscribe: its attributes replace the earlier ones."""
        if (entry.attributes, entry.via, entry.version) == (attributes, via, version):
            return
        is_notified = is_notified and entry.attributes.terms != attributes.terms
        self._index.count(entry, -1)
        entry.attributes, entry.via, entry.version = attributes, via, version
        self._index.count(entry, 1)
        self._book.set_expiry(entry)
        self._book.changed(change, entry)
        if is_notified:
            self._book.notify(change, entry, cause=Cause.TERMS)
        self._set_period(change, now_ms, entry.topic)

    def _leave(self, change: Change, now_ms: int, entry: Subscription, message: str, cause: Cause = Cause.STATE) -> None:
        remote = self._remotes.get(entry.topic)
        is_last = len(self._index.topic(entry.topic).subscriptions) == 1
        if remote is None or not is_last:
            self._book.end(change, entry, message, cause)
            self._set_period(change, now_ms, entry.topic)
            return
        if remote.state is SubscriptionState.SUBSCRIBED:
            self._book.set_state(change, entry, SubscriptionState.UNSUBSCRIBE_PENDING, message, cause)
            self._book.set_expiry(entry)
            if cause is Cause.LEFT:
                entry.attributes = entry.attributes._replace(expire_ms=None)
        else:
            self._book.end(change, entry, message, cause)
        change.commands += remote.leave(now_ms)
        self._changed_remote(change, remote)

    def _apply(self, change: Change, remote: RemoteTopic, step: Step) -> None:
        """Give every subscriber of a remote topic the state in ``step``, and add its commands to ``change``."""
        change.commands += step.commands
        self._changed_remote(change, remote)
        if step.state is not None:
            for entry in list(self._index.topic(remote.topic).subscriptions.values()):
                if step.state is SubscriptionState.UNSUBSCRIBED:
                    self._book.end(change, entry, step.message)
                else:
                    self._book.set_state(change, entry, step.state, step.message)

    def _subscribe_there(self, change: Change, now_ms: int, topic: UUri, period_ms: int | None = None) -> RemoteTopic:
        """Subscribe to a remote topic at its service, for the first time or after leaving it."""
        remote = self._remotes.open(now_ms, topic, self.limits.remote_timeout_ms)
        if period_ms is None:
            period_ms = min(self._index.interested(topic).values(), default=0)
        change.commands += remote.subscribe(now_ms, period_ms)
        self._changed_remote(change, remote)
        return remote

    def _set_period(self, change: Change, now_ms: int, topic: UUri) -> None:
        remote = self._remotes.get(topic)
        if remote is not None and remote.wanted:
            change.commands += remote.set_period(now_ms, min(self._index.interested(topic).values(), default=0))
            self._changed_remote(change, remote)

    def _changed_remote(self, change: Change, remote: RemoteTopic) -> None:
        change.remotes.add(remote.topic)
        self._remotes.changed(remote)

    def _forget(self, change: Change, topic: UUri) -> None:
        self._remotes.forget(topic)
        change.remotes.add(topic)
