"""All subscriptions and observers, and the rules by which they change (004 §4 to §9). Pure: time is passed in, no I/O.

Every call that may change something returns a `Change`: what to write, and what to send after that. Before other calls, call
`tick` with the same time. A topic is local if its authority is one of ours, else remote. All our subscribers of a remote
topic have the state that its service reports (`RemoteTopic`). The last one to leave a subscribed topic stays in
UNSUBSCRIBE_PENDING until there is a response, whatever its code.

Longer than most files here: requests of clients, the passing of time and messages of other services share their rules.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from streamer.services.usubscription.entries import (
    Change,
    CommandResponse,
    Observer,
    ReceivedUpdate,
    SubscribeAttributes,
    Subscription,
    SubscriptionState,
    Update,
)
from streamer.services.usubscription.index import Index, page_of
from streamer.services.usubscription.remote_topic import OpenCommand, RemoteTopic, Step
from streamer.services.usubscription.timers import Timers
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

EXPIRED = "expired"

_NO_TOPIC = UUri("", 0, 0, 0)


class Limits(NamedTuple):
    """``subscriptions`` is also the bound for remote topics, with those that are being left."""

    subscriptions: int
    observers: int
    remote_timeout_ms: int


class SubscriptionRegistry:
    """``local``: the authorities whose topics are local, ``authority`` among them."""

    def __init__(self, authority: str, local: Collection[str], limits: Limits) -> None:
        self._authority = authority
        self._local = frozenset(local) | {authority}
        self._limits = limits
        self._index = Index()
        self._remotes: dict[UUri, RemoteTopic] = {}
        self._commands: dict[bytes, UUri] = {}  # the topic of every open command
        # Commands that were open at the last Reset, until somebody subscribes to their topic again.
        self._flushed: dict[UUri, tuple[OpenCommand, ...]] = {}
        self._expiries: Timers[int] = Timers()
        self._repeats: Timers[UUri] = Timers()
        self._number = 0

    # Contents

    @property
    def subscriptions(self) -> Iterable[Subscription]:
        """All, oldest first."""
        return self._index.all()

    @property
    def observers(self) -> list[Observer]:
        """All, topic by topic."""
        return [observer for topic in self._index.topics.values() for observer in topic.observers.values()]

    @property
    def remotes(self) -> Mapping[UUri, RemoteTopic]:
        return self._remotes

    @property
    def topics(self) -> Collection[UUri]:
        """Every topic with a subscription or an observer."""
        return self._index.topics.keys()

    def gauges(self) -> dict[str, int]:
        """How many there are of what."""
        return {
            "subscriptions": len(self._index.by_number),
            "topics": len(self._index.topics),
            "subscribers": len(self._index.subscribers),
            "observers": self._index.observers,
            "remote_topics": len(self._remotes),
            "remote_pending": sum(not remote.is_confirmed for remote in self._remotes.values()),
        }

    def interested(self, topic: UUri) -> dict[str, int]:
        """Authority → the shortest sample period (ms) of its subscribers of ``topic``; without our own authority."""
        interested = self._index.interested(topic)
        interested.pop(self._authority, None)
        return interested

    def of_topic(self, topic: UUri, offset: int, most: int) -> tuple[list[Subscription], bool]:
        """At most ``most`` subscriptions after ``offset``, and whether there are more (004 §4.3, §4.4)."""
        return page_of(self._index.topic(topic).subscriptions.values(), offset, most)

    def of_subscriber(self, subscriber: UUri, offset: int, most: int) -> tuple[list[Subscription], bool]:
        """As `of_topic`, for one subscriber."""
        return page_of(self._index.subscribers.get(subscriber, {}).values(), offset, most)

    def of_everybody(self, offset: int, most: int) -> tuple[list[Subscription], bool]:
        """As `of_topic`, for every topic: dispatchers ask for that, the document does not mention it."""
        return page_of(self._index.all(), offset, most)

    def topic_of(self, command: bytes) -> UUri | None:
        """The topic of an open command."""
        return self._commands.get(command)

    def next_ms(self) -> int | None:
        """When `tick` is needed next."""
        return min((time for time in (self._expiries.next_ms(), self._repeats.next_ms()) if time is not None), default=None)

    # Start

    def load(self, entries: Iterable[Subscription], observers: Iterable[Observer], remotes: Iterable[RemoteTopic]) -> None:
        """Take over what was on disk, in the order of the numbers. The registry is empty before."""
        for entry in entries:
            self._index.add(entry)
            self._number = max(self._number, entry.number)
            self._set_expiry(entry)
        for observer in observers:
            self._index.add_observer(observer)
            self._number = max(self._number, observer.number)
        for remote in remotes:
            remote.topics = self._commands
            self._commands.update(dict.fromkeys(remote.open_commands, remote.topic))
            self._remotes[remote.topic] = remote

    def begin(self, now_ms: int) -> Change:
        """After `load`: send again what may not have been sent, and adapt to a change of the local authorities."""
        change = Change()
        for topic in [topic for topic in self._remotes if topic.authority in self._local]:
            self._forget(change, topic)
        for topic, there in list(self._index.topics.items()):
            if topic.authority in self._local:
                for entry in list(there.subscriptions.values()):
                    if entry.state is SubscriptionState.UNSUBSCRIBE_PENDING:
                        self._end(change, entry)
                    else:
                        self._set_state(change, entry, SubscriptionState.SUBSCRIBED)
            elif topic not in self._remotes:
                for entry in list(there.subscriptions.values()):
                    if entry.state is SubscriptionState.UNSUBSCRIBE_PENDING:  # its remote topic was lost with a damaged file
                        self._end(change, entry)
                if there.subscriptions:
                    self._subscribe_there(change, now_ms, topic)
                for entry in list(there.subscriptions.values()):
                    self._set_state(change, entry, SubscriptionState.SUBSCRIBE_PENDING)
        for remote in [remote for topic, remote in self._remotes.items() if topic not in change.remotes]:
            change.commands += remote.resume(now_ms)
            if remote.wanted and not self._index.topic(remote.topic).subscriptions:  # they were lost with a damaged file
                change.commands += remote.leave(now_ms)
            self._changed_remote(change, remote)
        return change

    def clock_set_back(self, now_ms: int) -> None:
        """The clock was set back."""
        for remote in self._remotes.values():
            remote.clock_set_back(now_ms)
            self._repeats.set(remote.topic, remote.next_ms())

    # Requests of clients

    def subscribe(
        self, now_ms: int, topic: UUri, subscriber: UUri, via: str, attributes: SubscribeAttributes
    ) -> tuple[SubscriptionState, Change]:
        """004 §4.1. Returns the state for the response. Raises `UStatusError`: expired already, or too many."""
        change = Change()
        known = self._index.topic(topic).subscriptions.get(subscriber)
        if known is not None and known.state is not SubscriptionState.UNSUBSCRIBE_PENDING:
            self._renew(change, now_ms, known, via, attributes)
            return known.state, change
        if attributes.expire_ms is not None and attributes.expire_ms <= now_ms:
            raise UStatusError(UCode.INVALID_ARGUMENT, "attributes.expire: expected a time to come")
        self._check_room(topic, known)
        if known is not None:  # it was leaving: this is a first subscription again
            self._remove(change, known)
        state = SubscriptionState.SUBSCRIBED
        if topic.authority not in self._local:
            remote = self._remotes.get(topic)
            if remote is None or not remote.wanted:
                for leaving in list(self._index.topic(topic).subscriptions.values()):
                    self._end(change, leaving)
                remote = self._subscribe_there(change, now_ms, topic, attributes.period_ms)
            state = remote.state
        self._number += 1
        entry = Subscription(self._number, topic, subscriber, via, state, attributes)
        self._index.add(entry)
        self._set_expiry(entry)
        self._changed_entry(change, entry)
        self._notify(change, entry)
        self._set_period(change, now_ms, topic)
        return state, change

    def unsubscribe(self, now_ms: int, topic: UUri, subscriber: UUri) -> Change:
        """004 §4.2. Without a subscription nothing changes."""
        change = Change()
        entry = self._index.topic(topic).subscriptions.get(subscriber)
        if entry is not None and entry.state is not SubscriptionState.UNSUBSCRIBE_PENDING:
            self._leave(change, now_ms, entry, "")
        return change

    def register(self, topic: UUri, uri: UUri, via: str) -> Change:
        """004 §7.2.1. Raises `UStatusError` if there are too many observers."""
        change = Change()
        known = self._index.topic(topic).observers.get(uri)
        if known is not None and known.via == via:
            return change
        if known is None:
            if self._index.observers >= self._limits.observers:
                raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"there are {self._limits.observers} registrations already")
            self._number += 1
            known = Observer(self._number, topic, uri, via)
        else:
            self._index.remove_observer(known)
            known = known._replace(via=via)
        self._index.add_observer(known)
        change.observers[known.number] = known
        return change

    def unregister(self, topic: UUri, uri: UUri) -> Change:
        """004 §7.2.2. Without a registration nothing changes."""
        change = Change()
        known = self._index.topic(topic).observers.get(uri)
        if known is not None:
            self._index.remove_observer(known)
            change.observers[known.number] = None
        return change

    def reset(self, now_ms: int) -> Change:
        """004 §9: delete everything. Other devices' services are sent one Unsubscribe each, which is not repeated."""
        change = Change(is_flushed=True)
        for entry in self._index.all():
            entry.state = SubscriptionState.UNSUBSCRIBED
            self._notify(change, entry)
            change.topics.add(entry.topic)
        for remote in self._remotes.values():
            change.commands += remote.leave_for_good(now_ms)
        self._flushed = {topic: open_ for topic, open_ in self._flushed.items() if open_[-1].deadline_ms > now_ms}
        self._flushed |= {topic: tuple(remote.open_commands.values()) for topic, remote in self._remotes.items()}
        self._index = Index()
        self._remotes.clear()
        self._commands.clear()
        self._expiries.clear()
        self._repeats.clear()
        return change

    # Other events

    def tick(self, now_ms: int) -> Change:
        """Time has passed: end what has expired, and repeat commands without a response."""
        change = Change()
        for number in self._expiries.due(now_ms):
            entry = self._index.by_number.get(number)
            if entry is not None and entry.state is not SubscriptionState.UNSUBSCRIBE_PENDING:
                self._leave(change, now_ms, entry, EXPIRED)
        for topic in list(self._repeats.due(now_ms)):
            remote = self._remotes.get(topic)
            if remote is not None:
                self._apply(change, now_ms, remote, Step(remote.tick(now_ms)))
        return change

    def answered(self, now_ms: int, response: CommandResponse) -> Change:
        """Another device's service, or a dispatcher for it, has answered a command. If that is not open nothing changes."""
        change = Change()
        remote = self._remotes.get(self._commands.get(response.id, _NO_TOPIC))
        if remote is not None:
            self._apply(change, now_ms, remote, remote.answered(now_ms, response))
        return change

    def update_received(self, now_ms: int, update: ReceivedUpdate) -> Change:
        """Another device's service has sent the state of our subscription to one of its topics."""
        change = Change()
        remote = self._remotes.get(update.topic)
        if remote is not None:
            self._apply(change, now_ms, remote, remote.update_received(now_ms, update))
        return change

    # Shared rules

    def _check_room(self, topic: UUri, known: Subscription | None) -> None:
        most = self._limits.subscriptions
        if known is None and len(self._index.by_number) >= most:
            raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"there are {most} subscriptions already")
        if topic.authority not in self._local and topic not in self._remotes and len(self._remotes) >= most:
            raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"there are {most} topics of other devices already")

    def _renew(self, change: Change, now_ms: int, entry: Subscription, via: str, attributes: SubscribeAttributes) -> None:
        """Subscribe again: the expiry is never brought forward; everything else is as in the latest request."""
        expire_ms = entry.attributes.expire_ms
        if expire_ms is not None:
            expire_ms = None if attributes.expire_ms is None else max(expire_ms, attributes.expire_ms)
        attributes = attributes._replace(expire_ms=expire_ms)
        if (entry.attributes, entry.via) == (attributes, via):
            return
        self._index.count(entry, -1)
        entry.attributes, entry.via = attributes, via
        self._index.count(entry, 1)
        self._set_expiry(entry)
        self._changed_entry(change, entry)
        self._set_period(change, now_ms, entry.topic)

    def _leave(self, change: Change, now_ms: int, entry: Subscription, message: str) -> None:
        remote = self._remotes.get(entry.topic)
        is_last = len(self._index.topic(entry.topic).subscriptions) == 1
        if remote is None or not is_last:
            self._end(change, entry, message)
            self._set_period(change, now_ms, entry.topic)
            return
        if remote.state is SubscriptionState.SUBSCRIBED:
            self._set_state(change, entry, SubscriptionState.UNSUBSCRIBE_PENDING, message)
            self._expiries.set(entry.number, None)
        else:
            self._end(change, entry, message)
        change.commands += remote.leave(now_ms)
        self._changed_remote(change, remote)

    def _apply(self, change: Change, now_ms: int, remote: RemoteTopic, step: Step) -> None:
        """Give every subscriber of a remote topic the state that its service reports."""
        change.commands += step.commands
        self._changed_remote(change, remote)
        if step.state is not None:
            for entry in list(self._index.topic(remote.topic).subscriptions.values()):
                if step.state is SubscriptionState.UNSUBSCRIBED:
                    self._end(change, entry, step.message)
                else:
                    self._set_state(change, entry, step.state, step.message)

    def _subscribe_there(self, change: Change, now_ms: int, topic: UUri, period_ms: int | None = None) -> RemoteTopic:
        """Subscribe to a remote topic at its service, for the first time or again."""
        remote = self._remotes.get(topic)
        if remote is None:
            remote = self._remotes[topic] = RemoteTopic(topic, self._limits.remote_timeout_ms, topics=self._commands)
            remote.inherit(now_ms, self._flushed.pop(topic, ()))
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
        if remote.is_over:
            del self._remotes[remote.topic]
            self._repeats.set(remote.topic, None)
        else:
            self._repeats.set(remote.topic, remote.next_ms())

    def _forget(self, change: Change, topic: UUri) -> None:
        for command in self._remotes.pop(topic).open_commands:
            self._commands.pop(command, None)
        self._repeats.set(topic, None)
        change.remotes.add(topic)

    def _set_state(self, change: Change, entry: Subscription, state: SubscriptionState, message: str = "") -> None:
        if entry.state is state:
            return
        self._index.count(entry, -1)
        entry.state = state
        self._index.count(entry, 1)
        self._changed_entry(change, entry)
        self._notify(change, entry, message)

    def _end(self, change: Change, entry: Subscription, message: str = "") -> None:
        self._remove(change, entry)
        entry.state = SubscriptionState.UNSUBSCRIBED
        self._notify(change, entry, message)

    def _remove(self, change: Change, entry: Subscription) -> None:
        self._index.remove(entry)
        self._expiries.set(entry.number, None)
        change.subscriptions[entry.number] = None
        change.topics.add(entry.topic)

    def _set_expiry(self, entry: Subscription) -> None:
        leaving = entry.state is SubscriptionState.UNSUBSCRIBE_PENDING
        self._expiries.set(entry.number, None if leaving else entry.attributes.expire_ms)

    def _changed_entry(self, change: Change, entry: Subscription) -> None:
        change.subscriptions[entry.number] = entry
        change.topics.add(entry.topic)

    def _notify(self, change: Change, entry: Subscription, message: str = "") -> None:
        """Update the subscriber, and each observer of the topic that is not the subscriber (004 §7.1, §7.2)."""
        first = Update(entry.subscriber, entry.via, entry.topic, entry.subscriber, entry.state, message, entry.attributes)
        change.updates.append(first)
        for observer in self._index.topic(entry.topic).observers.values():
            if observer.uri != entry.subscriber:
                change.updates.append(first._replace(sink=observer.uri, via=observer.via))
