"""Registers listeners at every endpoint: those that the routing table and live subscriptions need, and no others.

The filters of the routing table are registered at the start and at a reload, all or none. Those of subscriptions are
registered and unregistered topic by topic at runtime, so that a topic that nobody is interested in is not even received. A
filter that both need is registered once, and unregistered when neither needs it.

A network that cannot tell who listens (`UTransport.shared`) takes whoever has subscribed for the receiver. Another node of
this streamer may be on such a network: the other one of a pair, or another endpoint. There, filters are narrowed to sources
that live on the endpoint's own side, so that nothing matches them that one of these nodes sends (`narrowed`).
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from streamer.delivery.inbound.ingress import Ingress
from streamer.routing.interest import Interest
from streamer.routing.table import RoutingTable
from streamer.transports.base import UTransport
from streamer.transports.listeners import Filter
from streamer.uprotocol.status import UStatusError
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_RESOURCE, UUri, everything_at
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, EntityId

_TOPICS_PER_LOOP_CYCLE = 100  # before the event loop goes on with others

logger = logging.getLogger("ustreamer.subscriber")


class Listening:
    """The listeners of every endpoint."""

    def __init__(
        self,
        transports: Mapping[str, UTransport],
        ingresses: Mapping[str, Ingress],
        interest: Interest,
        is_not_alone: bool = False,
    ) -> None:
        """``is_not_alone``: another streamer of this authority hears the same shared networks."""
        self.is_standby = False
        """Whether that one is active: then filters that may match what that one sends are left out."""
        self._is_not_alone = is_not_alone
        self._transports = transports
        self._ingresses = ingresses
        self._interest = interest
        self._table: RoutingTable | None = None
        self._always: dict[str, set[Filter]] = {name: set() for name in transports}
        self._topics: dict[str, set[UUri]] = {name: set() for name in transports}
        self._dirty: OrderedDict[UUri, None] = OrderedDict()
        self._refused: dict[UUri, None] = {}
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()

    @property
    def refused(self) -> int:
        """Topics that somebody is interested in and that a transport refused to listen to."""
        return len(self._refused)

    async def use(self, table: RoutingTable, changed: Mapping[str, UTransport] | None = None) -> None:
        """Register the filters that a table needs, and that are not registered yet.

        ``changed``: transports that will replace those of the same name. All filters are registered there; the caller calls
        `replaced` for each that it uses. Raises `UStatusError`; nothing has changed then.
        """
        changed = changed or {}
        async with self._lock:
            added: list[tuple[str, Filter]] = []
            try:
                for name, ingress in self._present():
                    needed = self._needed(name, table)
                    if name in changed:
                        for wanted in needed:
                            await changed[name].register_listener(*wanted, ingress)
                        continue
                    for wanted in needed - self._always[name]:
                        if not self._is_topic(name, wanted):
                            await self._transports[name].register_listener(*wanted, ingress)
                        added.append((name, wanted))
            except BaseException:
                for name, registered in added:
                    if not self._is_topic(name, registered):
                        await self._unregister(name, registered)
                raise
            for name, registered in added:
                self._always[name].add(registered)

    def add(self, endpoint: str) -> None:
        """Add an endpoint. The next `use` registers the filters that it needs."""
        self._always[endpoint] = set()
        self._topics[endpoint] = set()

    def replaced(self, endpoint: str, table: RoutingTable) -> None:
        """Record that a changed transport, whose filters `use` has registered, is in use. `leave` registers its topics."""
        self._always[endpoint] = self._needed(endpoint, table)
        self._topics[endpoint] = set()

    def remove(self, endpoint: str) -> None:
        """Forget an endpoint that is being left, with all its filters."""
        del self._always[endpoint], self._topics[endpoint]

    async def leave(self, table: RoutingTable) -> None:
        """Unregister the filters that ``table`` does not need, and register topics that somebody is interested in."""
        self._table = table
        self._dirty.update(dict.fromkeys(self._interest.topics()))
        self._dirty.update(dict.fromkeys(topic for topics in self._topics.values() for topic in topics))
        await self.catch_up()  # before anything is unregistered, so that what is still needed has no gap
        async with self._lock:
            for name, _ in self._present():
                for unwanted in self._always[name] - self._needed(name, table):
                    self._always[name].discard(unwanted)
                    if not self._is_topic(name, unwanted):
                        await self._unregister(name, unwanted)
            self._retry(len(self._refused))
        await self.catch_up()

    def _needed(self, endpoint: str, table: RoutingTable) -> set[Filter]:
        """Return the filters that an endpoint always needs, narrowed if another own node may be on its network."""
        needed = set(always(endpoint, table))
        shared = [name for name, transport in self._transports.items() if transport.shared is not None]
        if endpoint not in shared or not (self._is_not_alone or len(shared) > 1):
            return needed
        if ANY_AUTHORITY not in table.authorities.get(endpoint, ()):
            return set(narrowed(needed, table.authorities.get(endpoint, ())))
        return {each for each in needed if not (self.is_standby and matches_sent(each, endpoint, table))}

    async def _unregister(self, endpoint: str, unwanted: Filter) -> None:
        try:
            await self._transports[endpoint].unregister_listener(*unwanted, self._ingresses[endpoint])
        except Exception:  # a bug in a plugin; messages that still arrive find no route
            logger.exception("unlistening_failed endpoint=%s", endpoint)

    def _present(self) -> list[tuple[str, Ingress]]:
        """Return the endpoints that are not being left."""
        return [(name, ingress) for name, ingress in self._ingresses.items() if name in self._always]

    def _is_topic(self, endpoint: str, registered: Filter) -> bool:
        """Whether a filter is also registered for a subscription."""
        source, sink = registered
        return sink is None and source in self._topics[endpoint]

    def change(self, topic: UUri) -> None:
        """Have `run` register or unregister a topic in which the interest has changed."""
        self._dirty[topic] = None
        self._changed.set()

    async def run(self) -> None:
        """Register and unregister topics as the interest in them changes, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.catch_up()

    async def catch_up(self) -> None:
        """Register and unregister the topics that have changed."""
        async with self._lock:
            if self._table is None:
                return
            done = 0
            while self._dirty:
                topic, _ = self._dirty.popitem(last=False)
                try:
                    self._retry(await self._follow(topic, self._table))
                except Exception:  # a bug in a plugin costs its topic, and must not end the daemon
                    logger.exception("listening_failed topic=%s", topic)
                done += 1
                if done % _TOPICS_PER_LOOP_CYCLE == 0:
                    await asyncio.sleep(0)

    def _retry(self, room: int) -> None:
        """Try ``room`` refused topics again, because so many listeners were unregistered."""
        for topic in list(self._refused)[:room]:
            self._dirty[topic] = None

    async def _follow(self, topic: UUri, table: RoutingTable) -> int:
        """Register or unregister one topic where needed; return the number of listeners unregistered."""
        needed = set(where(topic, self._interest.at(topic), table))
        left = 0
        is_refused = False
        for name, ingress in self._present():
            topics = self._topics[name]
            is_always = (topic, None) in self._always[name]
            if topic in topics and name not in needed:
                topics.discard(topic)
                if not is_always:
                    await self._transports[name].unregister_listener(topic, None, ingress)
                    left += 1
            elif topic not in topics and name in needed:
                try:
                    if not is_always:
                        await self._transports[name].register_listener(topic, None, ingress)
                except UStatusError as exc:
                    if topic not in self._refused:
                        logger.error("listener_refused endpoint=%s topic=%s reason=%s", name, topic, exc)
                    is_refused = True
                    continue
                topics.add(topic)
        if is_refused:
            self._refused[topic] = None
        else:
            self._refused.pop(topic, None)
        return left


def always(endpoint: str, table: RoutingTable) -> Iterable[Filter]:
    """Yield the filters that an endpoint always needs: messages to this streamer or other endpoints, and publish patterns.

    Messages that no route allows are received as well, so that their senders get a report. An endpoint that the table does
    not have needs none.
    """
    anyone = everything_at(ANY_AUTHORITY)
    if endpoint == LOCAL_ENDPOINT:
        yield anyone, anyone
        yield anyone, None
        return
    if endpoint not in table.authorities:
        return
    elsewhere = (listed for name, listed in table.authorities.items() if name != endpoint)
    sinks = {table.authority, *(authority for listed in elsewhere for authority in listed)}
    if ANY_AUTHORITY in sinks:
        sinks = {ANY_AUTHORITY}
    yield from ((anyone, everything_at(authority)) for authority in sorted(sinks))
    if ANY_AUTHORITY not in sinks:
        served = [(authority, EntityId(*entity)) for authority, *entity in sorted(table.services) if authority not in sinks]
        yield from ((anyone, entity.at(authority, ANY_RESOURCE)) for authority, entity in served)
    yield from ((pattern, None) for route in table.routes_from(endpoint) for pattern in route.publish)


def narrowed(filters: Iterable[Filter], listed: Iterable[str]) -> Iterator[Filter]:
    """Yield filters in place of ``filters`` that match only messages from these authorities."""
    for source, sink in filters:
        if source.authority == ANY_AUTHORITY:
            yield from ((source._replace(authority=authority), sink) for authority in listed)
        else:
            yield source, sink


def matches_sent(wanted: Filter, endpoint: str, table: RoutingTable) -> bool:
    """Return whether a filter of an endpoint that takes `*` may match what the streamer itself sends there."""
    source, sink = wanted
    if source.authority != ANY_AUTHORITY:
        return False
    if sink is None or sink.authority == ANY_AUTHORITY:
        return True
    return sink.authority != table.authority and endpoint in table.homes(sink.authority)


def where(topic: UUri, interested: Mapping[str, int], table: RoutingTable) -> Iterable[str]:
    """Yield the endpoints that need a listener for a topic, for the interested authorities, in addition to `always`."""
    homes = table.homes(topic.authority)
    for endpoint in homes:
        routes = [route for route in table.routes_from(endpoint) if route.target not in homes]
        if any(pattern.matches(topic) for route in routes for pattern in route.publish):
            continue
        if any(route.target in table.homes(authority) for route in routes for authority in interested):
            yield endpoint
