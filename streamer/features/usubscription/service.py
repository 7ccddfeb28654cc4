"""The uSubscription service: takes messages, decides, writes the changes to disk, and only then sends anything.

    endpoint `core` ──► inbox ──► decide all ──► one transaction ──► interest ──► responses, Updates ──► done

Messages that arrive while a transaction is being written are in the next one. Under a flood, a transaction has many of them;
if one subscription changes several times in a transaction, observers are notified only of the last change. A Request for a
list ends its transaction: listing all subscriptions takes a tenth of a second, and blocks the event loop. For the router, a
Request is delivered once its Response is safe with the router. Updates are written to an outbox in the same transaction as
the change that they report, and stay there until they are safe with the router.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from streamer.clock import Clock
from streamer.features.host.access import Access
from streamer.features.host.router import RouterForServices
from streamer.features.host.rpc import log_refusal
from streamer.features.host.service import Service
from streamer.features.host.state import StateError, StateFile, Statement
from streamer.features.usubscription import config, rows, wire
from streamer.features.usubscription.entries import Change, ListedSubscription, Update
from streamer.features.usubscription.methods import Methods
from streamer.features.usubscription.outbox import Entry, Outbox, size_of
from streamer.features.usubscription.quotas import Limits
from streamer.features.usubscription.registry import SubscriptionRegistry
from streamer.features.usubscription.versions import VERSIONS
from streamer.logs.audit import DENIED, audit
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import InvalidMessageError, UMessage, UMessageType
from streamer.uprotocol.protobuf import message_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION

OWNER = "subscription"
"""The owner of this interest in topics, for the router."""

TICK_S = 1.0
"""The longest delay of expiries and repetitions that are due."""

RETRY_S = 1.0
"""Wait before a failed transaction is repeated."""

LOG_EVERY = 60
"""The first and every 60th failure of one transaction are logged."""

_MAX_OBSERVER_UPDATES = 20_000
"""The most notifications of observers in one transaction. If more subscriptions change together, observers miss the rest."""

logger = logging.getLogger("ustreamer.usubscription")

Done = Callable[[], None]


@dataclass
class Transaction:
    """Statements to write, then messages to send: for each message that was taken, its responses and its ``done``."""

    statements: list[Statement] = field(default_factory=list)
    topics: dict[UUri, None] = field(default_factory=dict)
    messages: list[tuple[list[UMessage], Done]] = field(default_factory=list)
    requests: list[tuple[UMessage, Done]] = field(default_factory=list)
    """The Requests that were taken."""
    queued: list[Entry] = field(default_factory=list)
    observed: dict[tuple[UUri | None, int, UUri, UUri], Update] = field(default_factory=dict)
    """Notifications of observers, and (None) publications, by observer, version, topic and subscriber: of many changes in
    one transaction, the last one."""
    bytes: int = 0
    """Size of ``queued`` as the outbox counts it."""
    left_out: int = 0
    """Number of notifications that are left out because too much changed in one transaction."""


class USubscription(Service):
    """core.usubscription for our own authority and the local ones."""

    TABLES: ClassVar[Mapping[str, str]] = rows.TABLES

    def __init__(
        self,
        transport: LocalTransport,
        file: StateFile,
        router: RouterForServices,
        options: config.UsubscriptionConfig,
        access: Access,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._file = file
        self._router = router
        self._clock = clock
        self._authority = access.authority
        self._registry = SubscriptionRegistry(access, Limits.of(options))
        self._methods = Methods(self._registry, options, access)
        self._next: tuple[config.UsubscriptionConfig, Access] | None = None
        self._inbox: list[tuple[UMessage, Done, float]] = []  # with the times of arrival (monotonic)
        self._woken = asyncio.Event()
        self._outbox = Outbox(transport)
        self._last_ms = 0
        for version in VERSIONS.values():
            transport.serve(version.ENTITY, self._take)

    def restore(self) -> None:
        """Read the tables, and set the interest in the router, which must not run yet. Blocks. Raises `StateError`."""
        remotes = rows.remotes(self._file, self._registry.limits.remote_timeout_ms)
        self._registry.load(rows.subscriptions(self._file), rows.observers(self._file), remotes)
        self._outbox.restore(rows.outbox(self._file), self._clock.monotonic_s())
        for topic in list(self._registry.topics):
            if interested := self._registry.interested(topic):
                self._router.set_interest(topic, interested, OWNER)
        gauges = self.gauges()
        logger.info("usubscription_restored " + " ".join(f"{name}=%d" for name in gauges), *gauges.values())

    def gauges(self) -> Mapping[str, int]:
        """Return the number of entries by kind, for the metrics."""
        return {**self._registry.gauges(), "unsent": len(self._outbox), "waiting": len(self._inbox)}

    def listed(self) -> Iterator[ListedSubscription]:
        """Yield the subscriptions of the time of the call, oldest first, each with its state at the time of its yield."""
        for entry in list(self._registry.subscriptions):
            terms = entry.attributes
            yield ListedSubscription(
                entry.topic, entry.subscriber, entry.state, terms.expire_ms, terms.period_ms, entry.version
            )

    def use(self, options: config.UsubscriptionConfig, access: Access) -> None:
        """Apply other permissions, limits and local authorities from the next transaction on."""
        self._next = (options, access)
        self._woken.set()

    async def run(self) -> None:
        """Run the service until cancelled."""
        await self.begin()
        while True:
            await self._wait()
            await self.run_once()

    async def begin(self) -> None:
        """Send again the messages and commands that may not have been sent before the restart."""
        now_ms = self._last_ms = self._clock.wall_ms()
        self._outbox.send((), now_ms, self._clock.monotonic_s())
        transaction = Transaction()
        self._add_change(transaction, now_ms, self._registry.begin(now_ms), [], _nothing)
        await self._commit(transaction)
        self._log_set_aside()

    async def run_once(self) -> None:
        """Handle all waiting messages and due entries in one transaction: write the changes, then send the responses."""
        batch, self._inbox = self._inbox, []
        now_ms = self._clock.wall_ms()
        if now_ms < self._last_ms:
            self._registry.clock_set_back(now_ms)
        self._last_ms = now_ms
        transaction = Transaction([rows.delete_message(number) for number in self._outbox.take_safe()])
        self._add_change(transaction, now_ms, self._registry.tick(now_ms), [], _nothing)
        if self._next is not None:
            (options, access), self._next = self._next, None
            self._methods.access, self._methods.options = access, options
            self._registry.use_limits(Limits.of(options))
            self._add_change(transaction, now_ms, self._registry.permit(now_ms, access), [], _nothing)
            self._log_set_aside()
        now_s = self._clock.monotonic_s()
        for taken, (message, done, since_s) in enumerate(batch, 1):
            try:
                response, change = self._decide(now_ms, message, now_s - since_s)
            except Exception:  # a fault in handling one message must not cost the others their responses
                logger.exception(
                    "usubscription_failed source=%s sink=%s", message.attributes.source, message.attributes.sink
                )
                response, change = _refused(now_ms, message, UCode.INTERNAL, "the service failed"), Change()
            self._add_change(transaction, now_ms, change, response, done)
            if message.attributes.type is UMessageType.REQUEST:
                transaction.requests.append((message, done))
            if self._methods.is_list(message):
                self._inbox = batch[taken:]
                break
        await self._commit(transaction)

    def _take(self, message: UMessage, done: Done) -> None:
        self._inbox.append((message, done, self._clock.monotonic_s()))
        self._woken.set()

    async def _wait(self) -> None:
        if self._inbox:
            await asyncio.sleep(0)  # an empty transaction would not let the event loop run
        else:
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._woken.wait()

    def _log_set_aside(self) -> None:
        if count := self._registry.gauges()["set_aside"]:
            text = "usubscription_set_aside entries=%d consequence=%s"
            logger.warning(text, count, "the configuration does not permit them: they have no effect until it does")

    def _decide(self, now_ms: int, message: UMessage, waited_s: float) -> tuple[list[UMessage], Change]:
        attributes = message.attributes
        if message.is_expired(now_ms, waited_s):
            return [], Change()  # the requester has got its DEADLINE_EXCEEDED, or waits no longer
        if attributes.type is UMessageType.REQUEST:
            try:
                proto, change, is_reset = self._methods.call(now_ms, message)
            except UStatusError as exc:
                if exc.code is UCode.PERMISSION_DENIED:
                    audit(DENIED, **self._caller(message), reason=exc.message)
                log_refusal(message, exc)
                return _refused(now_ms, message, exc.code, exc.message), Change()
            if is_reset:
                audit("reset", **self._caller(message), subscriptions=len(change.subscriptions))
            return [wire.granted(now_ms, message, proto)], change
        version = VERSIONS.get(attributes.source.version)
        if attributes.sink == USUBSCRIPTION.at(self._authority) and version is not None:
            if attributes.type is UMessageType.RESPONSE and attributes.reqid is not None:
                topic = self._registry.topic_of(attributes.reqid)
                if topic is not None and attributes.source.authority == topic.authority:
                    return [], self._registry.answered(now_ms, version.command_response(message))
            elif attributes.type is UMessageType.NOTIFICATION:
                update = version.received_update(message, attributes.sink)
                if update is not None:
                    return [], self._registry.update_received(now_ms, update)
        return [], Change()

    def _caller(self, message: UMessage) -> dict[str, str]:
        return self._methods.access.caller(message.attributes.source)._asdict()

    def _add_change(
        self, transaction: Transaction, now_ms: int, change: Change, response: list[UMessage], done: Done
    ) -> None:
        """Add the statements and messages of a change to the transaction, before another call changes the same entries."""
        transaction.statements += rows.statements(change, self._registry.remotes.get)
        transaction.topics.update(dict.fromkeys(sorted(change.topics)))
        transaction.messages.append((response, done))
        for update in change.updates:
            if not VERSIONS[update.version].reports(update):
                continue
            if not update.is_observed:
                self._queue_update(transaction, now_ms, update)
                continue
            key = update.sink, update.version, update.topic, update.subscriber
            if transaction.observed.pop(key, None) is None and len(transaction.observed) >= _MAX_OBSERVER_UPDATES:
                transaction.left_out += 1
            else:
                transaction.observed[key] = update
        commands = [VERSIONS[each.version].command_message(self._authority, each) for each in change.commands]
        if change.is_flushed:
            for command in commands:  # nothing else keeps these commands
                self._queue_message(transaction, command)
        elif commands:
            transaction.messages.append((commands, _nothing))

    def _queue_update(self, transaction: Transaction, now_ms: int, update: Update) -> None:
        """Add an Update to the outbox, unless the transaction has filled the outbox alone."""
        if transaction.bytes >= self._outbox.max_bytes:
            transaction.left_out += 1
        else:
            self._queue_message(transaction, VERSIONS[update.version].update_message(now_ms, update))

    def _queue_message(self, transaction: Transaction, message: UMessage) -> None:
        number = self._outbox.number()
        transaction.statements.append(rows.keep_message(number, message_to_proto(message).SerializeToString()))
        transaction.queued.append((number, message))
        transaction.bytes += size_of(message)

    async def _commit(self, transaction: Transaction) -> None:
        for update in transaction.observed.values():
            self._queue_update(transaction, self._last_ms, update)
        if transaction.left_out:
            text = "usubscription_updates_given_up count=%d consequence=%s"
            logger.warning(
                text, transaction.left_out, "subscribers and observers miss some of the changes that came together"
            )
        if transaction.statements:
            await self._write_or_refuse(transaction)
        for topic in transaction.topics:
            self._router.set_interest(topic, self._registry.interested(topic), OWNER, is_new=True)
        await asyncio.sleep(0)  # the router applies the change before anybody is notified
        for messages, done in transaction.messages:
            self._transport.emit(messages, done)
        self._outbox.send(transaction.queued, self._clock.wall_ms(), self._clock.monotonic_s())

    async def _write_or_refuse(self, transaction: Transaction) -> None:
        """Write. While the disk hangs, answer Requests with an error: it is not known whether their changes will count."""
        writing = asyncio.create_task(self._write(transaction.statements), name="usubscription-write")
        try:
            while not (await asyncio.wait((writing,), timeout=TICK_S))[0]:
                if hangs := self._file.hangs:
                    refused = {id(done) for _, done in transaction.requests}
                    transaction.messages = [each for each in transaction.messages if id(each[1]) not in refused]
                    self._refuse(transaction.requests, f"{hangs}: the change may be in effect later")
                    transaction.requests = []
                    waiting = [each[:2] for each in self._inbox if each[0].attributes.type is UMessageType.REQUEST]
                    self._inbox = [each for each in self._inbox if each[0].attributes.type is not UMessageType.REQUEST]
                    self._refuse(waiting, f"{hangs}: nothing has changed")
            writing.result()
        finally:
            writing.cancel()

    def _refuse(self, requests: list[tuple[UMessage, Done]], why: str) -> None:
        for message, done in requests:
            self._transport.emit(_refused(self._clock.wall_ms(), message, UCode.UNAVAILABLE, why), done)

    async def _write(self, statements: list[Statement]) -> None:
        """Repeat the write until it succeeds: nothing may be sent before. Messages that arrive meanwhile wait."""
        failures = 0
        while True:
            try:
                await self._file.write(statements)
            except StateError as exc:
                if failures % LOG_EVERY == 0:
                    logger.error(
                        "state_not_written failures=%d error=%s consequence=%s",
                        failures + 1,
                        exc,
                        "responses wait",
                        extra={"state": ("writes of subscriptions", "failing")},
                    )
                failures += 1
                await asyncio.sleep(RETRY_S)
            else:
                if failures:
                    logger.info("state_written failures=%d", failures, extra={"state": ("writes of subscriptions", "ok")})
                return


def _refused(now_ms: int, message: UMessage, code: UCode, text: str) -> list[UMessage]:
    if message.attributes.type is not UMessageType.REQUEST:
        return []
    try:
        return [wire.refused(now_ms, message, code, text)]
    except InvalidMessageError:
        return []  # the Request has no source to answer


def _nothing() -> None:
    """Do nothing: nobody waits for these messages."""
