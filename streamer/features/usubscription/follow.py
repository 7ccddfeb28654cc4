"""Follows a uSubscription service elsewhere instead of running one (004 §4.4, §7.2).

`Follower` fetches the subscriptions of every configured topic and subscriber periodically, and registers for notifications
about every known topic. The result is on disk: after a restart it applies until the service has answered.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar

from google.protobuf.message import Message

from streamer.clock import Clock
from streamer.features.host.access import Access
from streamer.features.host.router import RouterForServices
from streamer.features.host.service import Service
from streamer.features.host.state import Row, StateError, StateFile, Statement
from streamer.features.usubscription import config, wire
from streamer.features.usubscription.entries import ListedSubscription, SubscriptionState
from streamer.features.usubscription.followed import Followed, Query, Relation
from streamer.features.usubscription.rows import UINT32, within
from streamer.features.usubscription.service import OWNER, TICK_S
from streamer.features.usubscription.versions import VERSIONS
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import InvalidMessageError, Options, UMessage, UMessageType, UPayloadFormat, request
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION

_REFUSALS = (UCode.INVALID_ARGUMENT, UCode.PERMISSION_DENIED, UCode.UNIMPLEMENTED)
"""Codes of a service that does not list everybody's subscriptions. RESOURCE_EXHAUSTED is not one of them: it is also the
answer if the list is too long for a message, or a dispatcher had no room for the Request. Then the known subscriptions stay,
and the query is repeated."""

logger = logging.getLogger("ustreamer.usubscription")


class Follower(Service):
    """Keeps the subscriptions of the service ``options.external`` that the configuration wants followed."""

    TABLES: ClassVar[Mapping[str, str]] = {
        "usubscription_followed": """CREATE TABLE usubscription_followed (
            topic TEXT NOT NULL, subscriber TEXT NOT NULL, period_ms INTEGER NOT NULL, PRIMARY KEY (topic, subscriber)
        ) STRICT"""
    }

    def __init__(
        self,
        transport: LocalTransport,
        file: StateFile,
        router: RouterForServices,
        options: config.UsubscriptionConfig,
        access: Access,
        clock: Clock,
    ) -> None:
        external = options.external
        if external is None:
            raise ValueError("usubscription.external: expected a service to follow")
        self._transport = transport
        self._file = file
        self._router = router
        self._clock = clock
        self._access = access
        self._ourselves = USUBSCRIPTION.at(access.authority)
        self._service = external.service
        self._version = VERSIONS[external.service.version]
        self._ttl_ms = round(options.remote_timeout_s * 1000)
        self._refresh_ms = round(external.refresh_s * 1000)
        self._subscribers = frozenset(external.subscribers)
        self._topics = frozenset(external.topics)
        self._followed = Followed(external.topics, external.subscribers, options.max_subscriptions)
        self._queries = [
            *(Query(topic=topic) for topic in external.topics),
            *(Query(subscriber=subscriber) for subscriber in external.subscribers),
            Query(),
        ]
        self._open: dict[bytes, Query] = {}
        self._registered: dict[UUri | None, int] = {}  # topic (None: all) → renewal of its registration, ms
        self._statements: dict[Relation, Statement] = {}
        self._woken = asyncio.Event()
        self._failures = 0
        for version in VERSIONS.values():
            transport.serve(version.ENTITY, self._take)

    def restore(self) -> None:
        """Read the tables, and set the interest in the router, which must not run yet. Blocks. Raises `StateError`."""
        topics = set()
        found = self._file.read(
            "SELECT topic, subscriber, period_ms FROM usubscription_followed",
            lambda row: (_relation_of(row), within("period_ms", row[2], UINT32)),
        )
        for relation, period_ms in found:
            self._followed.set(relation, period_ms)
            topics.add(relation[0])
        for name in sorted(topics):
            self._router.set_interest(name, self._interested(name), OWNER)

    def use(self, options: config.UsubscriptionConfig, access: Access) -> None:
        """Apply other permissions and limits from now on. The followed service, topics and subscribers stay."""
        self._access = access
        self._ttl_ms = round(options.remote_timeout_s * 1000)
        self._followed.most = options.max_subscriptions
        for name in sorted(self._followed.topics):
            self._router.set_interest(name, self._interested(name), OWNER)

    def listed(self) -> Iterator[ListedSubscription]:
        """Yield every subscription that is known now."""
        version = self._service.version
        for (topic, subscriber), period_ms in self._followed.all():
            yield ListedSubscription(topic, subscriber, SubscriptionState.SUBSCRIBED, None, period_ms, version)

    def gauges(self) -> Mapping[str, int]:
        """Return the number of entries by kind, for the metrics."""
        return {
            "subscriptions": self._followed.count,
            "topics": len(self._followed.topics),
            "left_out": self._followed.left_out,
            "unanswered": len(self._open),
        }

    async def run(self) -> None:
        """Follow the service until cancelled."""
        while True:
            self._woken.clear()
            await self.run_once()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._woken.wait()

    async def run_once(self) -> None:
        """Send the Requests that are due, and write changed subscriptions to disk."""
        self._send_due()
        await self._write()

    def _take(self, message: UMessage, done: Callable[[], None]) -> None:
        attributes, now_ms = message.attributes, self._clock.wall_ms()
        if attributes.type is UMessageType.REQUEST:
            with contextlib.suppress(InvalidMessageError):  # there is no address to answer to
                text = f"the uSubscription service is {self._service}"
                self._transport.emit([wire.refused(now_ms, message, UCode.UNAVAILABLE, text)], done)
                return
        elif attributes.type is UMessageType.RESPONSE:
            query = self._open.pop(attributes.reqid or b"", None)
            if query is not None and attributes.source == self._at(self._version.FETCH_SUBSCRIPTIONS):
                self._answered(now_ms, query, message)
        elif attributes.source == self._at(CHANGES) and attributes.sink == self._ourselves:
            self._update_received(message)
        self._woken.set()
        done()

    def _send_due(self) -> None:
        now_ms = self._clock.wall_ms()
        for query in self._queries:
            query.due_ms = min(query.due_ms, now_ms + self._patience_ms(query))  # the clock may have been set back
            if query.due_ms <= now_ms:
                if query.request is not None:
                    self._open.pop(query.request, None)
                    query.unanswered += 1
                query.begin()
                self._fetch_page(now_ms, query)
        by_topic = self._version.REGISTERS_BY_TOPIC
        topics: list[UUri | None] = [*sorted(self._followed.topics)] if by_topic else [None]
        for topic in topics:
            due_ms = self._registered.get(topic, 0)
            if not now_ms < due_ms <= now_ms + self._refresh_ms:
                self._registered[topic] = now_ms + self._refresh_ms
                self._call(now_ms, self._version.REGISTER, self._version.registration(topic))
        for topic in [topic for topic in self._registered if topic not in topics]:
            del self._registered[topic]
            self._call(now_ms, self._version.UNREGISTER, self._version.registration(topic))

    def _patience_ms(self, query: Query) -> int:
        return query.patience_ms(self._refresh_ms, self._ttl_ms)

    def _fetch_page(self, now_ms: int, query: Query) -> None:
        query.due_ms = now_ms + self._patience_ms(query)
        query.request = self._call(now_ms, self._version.FETCH_SUBSCRIPTIONS, self._version.query_request(query))
        self._open[query.request] = query

    def _at(self, resource: int) -> UUri:
        return self._service._replace(resource=resource)

    def _call(self, now_ms: int, method: int, proto: Message) -> bytes:
        options = Options(payload_format=UPayloadFormat.PROTOBUF)
        message = request(now_ms, self._ourselves, self._at(method), self._ttl_ms, proto.SerializeToString(), options)
        self._transport.emit([message])
        return message.id

    def _answered(self, now_ms: int, query: Query, message: UMessage) -> None:
        query.request = None
        code = message.attributes.commstatus or UCode.OK
        is_for_all = query.topic is None and query.subscriber is None
        if is_for_all and code in _REFUSALS:
            if not query.is_bare:
                query.is_bare = True
                query.begin()
                self._fetch_page(now_ms, query)
                return
            query.unanswered = 0
            query.due_ms = now_ms + self._refresh_ms
            query.is_bare = False  # try again at times: the service may have been upgraded, or permit it by then
            self._apply((relation, None) for relation in self._followed.refused_all())
            return
        try:
            if code is not UCode.OK:
                raise UStatusError(code, "")
            page = self._version.page(message)
        except UStatusError as exc:
            if not query.failures:
                about = query.topic or query.subscriber or "everybody"
                logger.warning("usubscription_fetch_failed service=%s about=%s error=%s", self._service, about, exc)
            query.failed(now_ms, self._refresh_ms)
            return
        query.failures = 0
        query.pages.update(page.found)
        query.offset += page.entries
        if page.has_more and page.entries and query.offset <= self._followed.most:
            self._fetch_page(now_ms, query)
        else:
            self._apply(self._followed.finish(query))
            query.unanswered = 0
            query.due_ms = now_ms + self._refresh_ms

    def _update_received(self, message: UMessage) -> None:
        try:
            relation, period_ms = self._version.followed_change(message)
        except UStatusError as exc:
            logger.debug("usubscription_update_unreadable source=%s error=%s", message.attributes.source, exc)
            return
        for query in self._open.values():
            if query.topic in (None, relation[0]) and query.subscriber in (None, relation[1]):
                query.updates[relation] = period_ms
        if self._followed.covers(relation):
            self._apply([(relation, period_ms)])

    def _apply(self, changes: Iterable[tuple[Relation, int | None]]) -> None:
        changed = set()
        for relation, period_ms in changes:
            if not _is_plain(relation):
                continue
            if self._followed.set(relation, period_ms):
                names = (str(relation[0]), str(relation[1]))
                if period_ms is None:
                    sql = "DELETE FROM usubscription_followed WHERE topic = ? AND subscriber = ?"
                    self._statements[relation] = (sql, names)
                else:
                    sql = "INSERT OR REPLACE INTO usubscription_followed VALUES (?, ?, ?)"
                    self._statements[relation] = (sql, (*names, period_ms))
                changed.add(relation[0])
        for topic in sorted(changed):
            self._router.set_interest(topic, self._interested(topic), OWNER, is_new=True)
        self._woken.set()

    def _interested(self, topic: UUri) -> dict[str, int]:
        interested = self._followed.interested(topic, self._is_permitted)
        interested.pop(self._access.authority, None)
        return interested

    def _is_permitted(self, subscriber: UUri, topic: UUri) -> bool:
        """Whether a subscription is in effect: the followed service may not have checked its subscriber."""
        if subscriber in self._subscribers or (topic in self._topics and self._access.is_named(subscriber.authority)):
            return True
        return self._access.may_subscribe(subscriber, topic)

    async def _write(self) -> None:
        """Write the changes. If that fails, the next call writes them: the service has them anyway."""
        statements, self._statements = self._statements, {}
        try:
            await self._file.write(list(statements.values()))
        except StateError as exc:
            self._statements = {**statements, **self._statements}
            if not self._failures:
                logger.error("state_not_written error=%s consequence=%s", exc, "a restart begins with older subscriptions")
            self._failures += 1
        else:
            self._failures = 0


def _relation_of(row: Row) -> Relation:
    """Return the topic and subscriber of a row. Raises ValueError."""
    relation = UUri.parse(row[0]), UUri.parse(row[1])
    if not _is_plain(relation):
        raise ValueError("expected a topic and a subscriber, no wildcard for an authority")
    return relation


def _is_plain(relation: Relation) -> bool:
    """Whether topic and subscriber are valid: the followed service may send anything."""
    topic, subscriber = relation
    try:
        wire.check_topic(topic.check())
        subscriber.check()
    except (ValueError, UStatusError):
        return False
    return bool(subscriber.authority) and not subscriber.has_wildcard
