"""All subscriptions and observers, and what happens to them (004 §4 to §9). Pure: time is passed in, nothing is done.

Every call that may change something returns a `Change`: what is to be written, and said after that. Before other calls,
`tick` is to be called with the same time. A topic is local if its authority is one of ours, else remote. Of a remote
topic, all our subscribers stand as its service says (`Remote`); the last one to leave a subscribed topic stays in
UNSUBSCRIBE_PENDING until there is an answer, of whatever kind.

Longer than most files here: what clients ask for, what time does and what other services say share their rules.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from streamer.services.usubscription.alarms import Alarms
from streamer.services.usubscription.entries import Change, Observer, Reply, Standing, Subscription, Told, Update, Wish
from streamer.services.usubscription.index import Index
from streamer.services.usubscription.remote import Command, Remote, Step
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

EXPIRED = "expired"


class Limits(NamedTuple):
    """``subscriptions`` also bounds the remote topics that are being left."""

    subscriptions: int
    observers: int
    remote_timeout_ms: int


class Book:
    """``local``: the authorities whose topics are local, ``authority`` among them."""

    def __init__(self, authority: str, local: Collection[str], limits: Limits) -> None:
        self._authority = authority
        self._local = frozenset(local) | {authority}
        self._limits = limits
        self._index = Index()
        self._remotes: dict[UUri, Remote] = {}
        self._asked: dict[bytes, UUri] = {}  # the topic of every command that is open
        self._left: dict[UUri, tuple[Command, ...]] = {}  # what was open at the last Reset, until the topic is wanted again
        self._ends: Alarms[int] = Alarms()
        self._repeats: Alarms[UUri] = Alarms()
        self._number = 0

    # What there is

    @property
    def subscriptions(self) -> Iterable[Subscription]:
        """All, in the order in which they came."""
        return self._index.all()

    @property
    def observers(self) -> list[Observer]:
        """All, topic by topic."""
        return [observer for topic in self._index.topics.values() for observer in topic.observers.values()]

    @property
    def remotes(self) -> Mapping[UUri, Remote]:
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
        """Which authorities want ``topic``, with the shortest period (ms) asked for there; our own is not among them."""
        interested = self._index.interested(topic)
        interested.pop(self._authority, None)
        return interested

    def of_topic(self, topic: UUri, offset: int, most: int) -> tuple[list[Subscription], bool]:
        """At most ``most`` subscriptions after ``offset``, and whether there are more (004 §4.3, §4.4)."""
        return _page(self._index.topic(topic).subscriptions.values(), offset, most)

    def of_subscriber(self, subscriber: UUri, offset: int, most: int) -> tuple[list[Subscription], bool]:
        """As `of_topic`, for one subscriber."""
        return _page(self._index.subscribers.get(subscriber, {}).values(), offset, most)

    def of_everybody(self, offset: int, most: int) -> tuple[list[Subscription], bool]:
        """As `of_topic`, for every topic: dispatchers ask so, the document does not say."""
        return _page(self._index.all(), offset, most)

    def asked(self, command: bytes) -> UUri | None:
        """The topic of a command that is open."""
        return self._asked.get(command)

    def next_ms(self) -> int | None:
        """When `tick` is needed next."""
        return min((time for time in (self._ends.next_ms(), self._repeats.next_ms()) if time is not None), default=None)

    # Start

    def load(self, subscriptions: Iterable[Subscription], observers: Iterable[Observer], remotes: Iterable[Remote]) -> None:
        """Take what was on disk, in the order of the numbers, into an empty book."""
        for entry in subscriptions:
            self._index.add(entry)
            self._number = max(self._number, entry.number)
            self._set_end(entry)
        for observer in observers:
            self._index.observe(observer)
            self._number = max(self._number, observer.number)
        for remote in remotes:
            remote.asked = self._asked
            self._asked.update(dict.fromkeys(remote.commands, remote.topic))
            self._remotes[remote.topic] = remote

    def begin(self, now_ms: int) -> Change:
        """After `load`: send again what may not have been sent, and follow a change of what is local."""
        change = Change()
        for topic in [topic for topic in self._remotes if topic.authority in self._local]:
            self._forget(change, topic)
        for topic, there in list(self._index.topics.items()):
            if topic.authority in self._local:
                for entry in list(there.subscriptions.values()):
                    if entry.standing is Standing.UNSUBSCRIBE_PENDING:
                        self._drop(change, entry)
                    else:
                        self._stand(change, entry, Standing.SUBSCRIBED)
            elif topic not in self._remotes:
                for entry in list(there.subscriptions.values()):
                    if entry.standing is Standing.UNSUBSCRIBE_PENDING:  # the other row is lost: the file was damaged
                        self._drop(change, entry)
                if there.subscriptions:
                    self._first(change, now_ms, topic)
                for entry in list(there.subscriptions.values()):
                    self._stand(change, entry, Standing.SUBSCRIBE_PENDING)
        for remote in [remote for topic, remote in self._remotes.items() if topic not in change.remotes]:
            change.orders += remote.resume(now_ms)
            if remote.wanted and not self._index.topic(remote.topic).subscriptions:  # as above
                change.orders += remote.leave(now_ms)
            self._changed(change, remote)
        return change

    def mend(self, now_ms: int) -> None:
        """The clock has gone back."""
        for remote in self._remotes.values():
            remote.mend(now_ms)
            self._repeats.set(remote.topic, remote.next_ms())

    # What clients ask for

    def subscribe(self, now_ms: int, topic: UUri, subscriber: UUri, via: str, wish: Wish) -> tuple[Standing, Change]:
        """004 §4.1. Returns the standing to answer. Raises `UStatusError`: a first one is over, or too many."""
        change = Change()
        known = self._index.topic(topic).subscriptions.get(subscriber)
        if known is not None and known.standing is not Standing.UNSUBSCRIBE_PENDING:
            self._renew(change, now_ms, known, via, wish)
            return known.standing, change
        if wish.expire_ms is not None and wish.expire_ms <= now_ms:
            raise UStatusError(UCode.INVALID_ARGUMENT, "attributes.expire: expected a time to come")
        self._check_room(topic, known)
        if known is not None:  # it was leaving and comes back: as if for the first time
            self._take_out(change, known)
        standing = Standing.SUBSCRIBED
        if topic.authority not in self._local:
            remote = self._remotes.get(topic)
            if remote is None or not remote.wanted:
                for leaving in list(self._index.topic(topic).subscriptions.values()):
                    self._drop(change, leaving)
                remote = self._first(change, now_ms, topic, wish.period_ms)
            standing = remote.standing
        self._number += 1
        entry = Subscription(self._number, topic, subscriber, via, standing, wish)
        self._index.add(entry)
        self._set_end(entry)
        self._written(change, entry)
        self._tell(change, entry)
        self._sample(change, now_ms, topic)
        return standing, change

    def unsubscribe(self, now_ms: int, topic: UUri, subscriber: UUri) -> Change:
        """004 §4.2. No subscription: nothing changes."""
        change = Change()
        entry = self._index.topic(topic).subscriptions.get(subscriber)
        if entry is not None and entry.standing is not Standing.UNSUBSCRIBE_PENDING:
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
            self._index.ignore(known)
            known = known._replace(via=via)
        self._index.observe(known)
        change.observers[known.number] = known
        return change

    def unregister(self, topic: UUri, uri: UUri) -> Change:
        """004 §7.2.2. Not registered: nothing changes."""
        change = Change()
        known = self._index.topic(topic).observers.get(uri)
        if known is not None:
            self._index.ignore(known)
            change.observers[known.number] = None
        return change

    def reset(self, now_ms: int) -> Change:
        """004 §9: everything goes. Other devices' services hear it once, as far as they hear it; maybe late."""
        change = Change(is_flushed=True)
        for entry in self._index.all():
            entry.standing = Standing.UNSUBSCRIBED
            self._tell(change, entry)
            change.topics.add(entry.topic)
        for remote in self._remotes.values():
            change.orders += remote.farewell(now_ms)
        self._left = {topic: open_ for topic, open_ in self._left.items() if open_[-1].deadline_ms > now_ms}
        self._left |= {topic: tuple(remote.commands.values()) for topic, remote in self._remotes.items()}
        self._index = Index()
        self._remotes.clear()
        self._asked.clear()
        self._ends.clear()
        self._repeats.clear()
        return change

    # What happens without them

    def tick(self, now_ms: int) -> Change:
        """Time has passed: what has expired ends, what was not answered is sent again."""
        change = Change()
        for number in self._ends.due(now_ms):
            entry = self._index.by_number.get(number)
            if entry is not None and entry.standing is not Standing.UNSUBSCRIBE_PENDING:
                self._leave(change, now_ms, entry, EXPIRED)
        for topic in list(self._repeats.due(now_ms)):
            remote = self._remotes.get(topic)
            if remote is not None:
                self._follow(change, now_ms, remote, Step(remote.tick(now_ms)))
        return change

    def reply(self, now_ms: int, reply: Reply) -> Change:
        """Another device's service, or a dispatcher for it, has answered a command. Unknown: nothing changes."""
        change = Change()
        remote = self._remotes.get(self._asked.get(reply.id, _NO_TOPIC))
        if remote is not None:
            self._follow(change, now_ms, remote, remote.reply(now_ms, reply))
        return change

    def told(self, now_ms: int, told: Told) -> Change:
        """Another device's service has said how we stand to one of its topics."""
        change = Change()
        remote = self._remotes.get(told.topic)
        if remote is not None:
            self._follow(change, now_ms, remote, remote.told(now_ms, told))
        return change

    # Rules that the above share

    def _check_room(self, topic: UUri, known: Subscription | None) -> None:
        most = self._limits.subscriptions
        if known is None and len(self._index.by_number) >= most:
            raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"there are {most} subscriptions already")
        if topic.authority not in self._local and topic not in self._remotes and len(self._remotes) >= most:
            raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"there are {most} topics of other devices already")

    def _renew(self, change: Change, now_ms: int, entry: Subscription, via: str, wish: Wish) -> None:
        """Subscribe again: it ends later or as before; the rest is as the latest request says."""
        expire_ms = entry.wish.expire_ms
        if expire_ms is not None:
            expire_ms = None if wish.expire_ms is None else max(expire_ms, wish.expire_ms)
        wish = wish._replace(expire_ms=expire_ms)
        if (entry.wish, entry.via) == (wish, via):
            return
        self._index.count(entry, -1)
        entry.wish, entry.via = wish, via
        self._index.count(entry, 1)
        self._set_end(entry)
        self._written(change, entry)
        self._sample(change, now_ms, entry.topic)

    def _leave(self, change: Change, now_ms: int, entry: Subscription, message: str) -> None:
        remote = self._remotes.get(entry.topic)
        is_last = len(self._index.topic(entry.topic).subscriptions) == 1
        if remote is None or not is_last:
            self._drop(change, entry, message)
            self._sample(change, now_ms, entry.topic)
            return
        if remote.standing is Standing.SUBSCRIBED:
            self._stand(change, entry, Standing.UNSUBSCRIBE_PENDING, message)
            self._ends.set(entry.number, None)
        else:
            self._drop(change, entry, message)
        change.orders += remote.leave(now_ms)
        self._changed(change, remote)

    def _follow(self, change: Change, now_ms: int, remote: Remote, step: Step) -> None:
        """Let every subscriber of a remote topic stand as its service says."""
        change.orders += step.orders
        self._changed(change, remote)
        if step.standing is not None:
            for entry in list(self._index.topic(remote.topic).subscriptions.values()):
                if step.standing is Standing.UNSUBSCRIBED:
                    self._drop(change, entry, step.message)
                else:
                    self._stand(change, entry, step.standing, step.message)

    def _first(self, change: Change, now_ms: int, topic: UUri, period_ms: int | None = None) -> Remote:
        """Begin with a remote topic, or begin again."""
        remote = self._remotes.get(topic)
        if remote is None:
            remote = self._remotes[topic] = Remote(topic, self._limits.remote_timeout_ms, asked=self._asked)
            remote.inherit(now_ms, self._left.pop(topic, ()))
        if period_ms is None:
            period_ms = min(self._index.interested(topic).values(), default=0)
        change.orders += remote.subscribe(now_ms, period_ms)
        self._changed(change, remote)
        return remote

    def _sample(self, change: Change, now_ms: int, topic: UUri) -> None:
        remote = self._remotes.get(topic)
        if remote is not None and remote.wanted:
            change.orders += remote.sample(now_ms, min(self._index.interested(topic).values(), default=0))
            self._changed(change, remote)

    def _changed(self, change: Change, remote: Remote) -> None:
        change.remotes.add(remote.topic)
        if remote.is_over:
            del self._remotes[remote.topic]
            self._repeats.set(remote.topic, None)
        else:
            self._repeats.set(remote.topic, remote.next_ms())

    def _forget(self, change: Change, topic: UUri) -> None:
        for command in self._remotes.pop(topic).commands:
            self._asked.pop(command, None)
        self._repeats.set(topic, None)
        change.remotes.add(topic)

    def _stand(self, change: Change, entry: Subscription, standing: Standing, message: str = "") -> None:
        if entry.standing is standing:
            return
        self._index.count(entry, -1)
        entry.standing = standing
        self._index.count(entry, 1)
        self._written(change, entry)
        self._tell(change, entry, message)

    def _drop(self, change: Change, entry: Subscription, message: str = "") -> None:
        self._take_out(change, entry)
        entry.standing = Standing.UNSUBSCRIBED
        self._tell(change, entry, message)

    def _take_out(self, change: Change, entry: Subscription) -> None:
        self._index.remove(entry)
        self._ends.set(entry.number, None)
        change.subscriptions[entry.number] = None
        change.topics.add(entry.topic)

    def _set_end(self, entry: Subscription) -> None:
        leaving = entry.standing is Standing.UNSUBSCRIBE_PENDING
        self._ends.set(entry.number, None if leaving else entry.wish.expire_ms)

    def _written(self, change: Change, entry: Subscription) -> None:
        change.subscriptions[entry.number] = entry
        change.topics.add(entry.topic)

    def _tell(self, change: Change, entry: Subscription, message: str = "") -> None:
        """An Update to the subscriber, and to each observer of the topic that is not the subscriber (004 §7.1, §7.2)."""
        first = Update(entry.subscriber, entry.via, entry.topic, entry.subscriber, entry.standing, message, entry.wish)
        change.updates.append(first)
        for observer in self._index.topic(entry.topic).observers.values():
            if observer.uri != entry.subscriber:
                change.updates.append(first._replace(sink=observer.uri, via=observer.via))


_NO_TOPIC = UUri("", 0, 0, 0)


def _page(entries: Iterable[Subscription], offset: int, most: int) -> tuple[list[Subscription], bool]:
    listed = (entry for entry in entries if entry.standing is not Standing.UNSUBSCRIBE_PENDING)
    found = list(islice(listed, offset, offset + most + 1))
    return found[:most], len(found) > most
