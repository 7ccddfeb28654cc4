"""The uSubscription service: takes what came, decides, writes it down, and only then says anything.

    core ──► inbox ──► one turn: decide all of it ──► one transaction ──► router told ──► answers and Updates said ──► done

What comes while a transaction is being written waits for the next turn. A request is done with, to the router, when its
answer is safe there. Updates are kept in an outbox until they are, in the same transaction as what they tell.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from streamer.clock import Clock
from streamer.config import services as config
from streamer.services.router import RouterForServices
from streamer.services.state import StateError, StateFile, Statement
from streamer.services.usubscription import rows, wire
from streamer.services.usubscription.answers import Answers
from streamer.services.usubscription.book import Book, Limits
from streamer.services.usubscription.entries import Change
from streamer.services.usubscription.outbox import Entry, Outbox
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import InvalidMessageError, UMessage, UMessageType
from streamer.uprotocol.protobuf import message_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION

OWNER = "subscription"
"""Who is behind the interest, for the router."""

TICK_S = 1.0
"""How late what is due by the clock may be."""

AGAIN_S = 1.0
"""Pause before a transaction that failed is tried again."""

LOG_EVERY = 60
"""Of the failures of one transaction, the first and every so many are logged."""

logger = logging.getLogger("ustreamer.usubscription")

Done = Callable[[], None]


@dataclass
class Turn:
    """What is to be written, and then said: for each message that came, its answer if any, and how to be done with it."""

    statements: list[Statement] = field(default_factory=list)
    topics: dict[UUri, None] = field(default_factory=dict)
    said: list[tuple[list[UMessage], Done]] = field(default_factory=list)
    kept: list[Entry] = field(default_factory=list)


class USubscription:
    """core.usubscription on our own authority and on those of ``options.local``."""

    TABLES: ClassVar[Mapping[str, str]] = rows.TABLES

    def __init__(
        self,
        transport: LocalTransport,
        state: StateFile,
        router: RouterForServices,
        options: config.UsubscriptionConfig,
        authority: str,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._state = state
        self._router = router
        self._clock = clock
        self._authority = authority
        self._timeout_ms = round(options.remote_timeout_s * 1000)
        limits = Limits(options.max_subscriptions, options.max_observers, self._timeout_ms)
        self._book = Book(authority, options.local or (), limits)
        self._answers = Answers(self._book, options.page)
        self._inbox: list[tuple[UMessage, Done]] = []
        self._woken = asyncio.Event()
        self._outbox = Outbox(transport)
        self._last_ms = 0
        transport.serve(USUBSCRIPTION, self._take)

    def restore(self) -> None:
        """Read what is on disk and tell who wants what. Blocks: before the router starts. Raises `StateError`."""
        remotes = rows.remotes(self._state, self._timeout_ms)
        self._book.load(rows.subscriptions(self._state), rows.observers(self._state), remotes)
        self._outbox.restore(rows.outbox(self._state))
        for topic in list(self._book.topics):
            if interested := self._book.interested(topic):
                self._router.set_interest(topic, interested, OWNER)
        logger.info("usubscription_restored %s", " ".join(f"{name}={count}" for name, count in self.gauges().items()))

    def gauges(self) -> Mapping[str, int]:
        """How many there are of what."""
        return {**self._book.gauges(), "unsent": len(self._outbox), "waiting": len(self._inbox)}

    async def run(self) -> None:
        """Serve until cancelled."""
        await self.begin()
        while True:
            await self._wait()
            await self.turn()

    async def begin(self) -> None:
        """Say again what may not have been said before the restart."""
        now_ms = self._last_ms = self._clock.wall_ms()
        self._outbox.send((), now_ms)
        turn = Turn()
        self._note(turn, now_ms, self._book.begin(now_ms), [], _nothing)
        await self._finish(turn)

    async def turn(self) -> None:
        """Decide about all that came and all that is due; write it; say it."""
        batch, self._inbox = self._inbox, []
        now_ms = self._clock.wall_ms()
        if now_ms < self._last_ms:
            self._book.mend(now_ms)
        self._last_ms = now_ms
        turn = Turn([rows.safe(number) for number in self._outbox.take_safe()])
        self._note(turn, now_ms, self._book.tick(now_ms), [], _nothing)
        for message, done in batch:
            try:
                answer, change = self._decide(now_ms, message)
            except Exception:  # a fault in one message's handling must not cost the others theirs
                logger.exception(
                    "usubscription_failed source=%s sink=%s", message.attributes.source, message.attributes.sink
                )
                answer, change = _refused(now_ms, message, UCode.INTERNAL, "the service failed"), Change()
            self._note(turn, now_ms, change, answer, done)
        await self._finish(turn)

    def _take(self, message: UMessage, done: Done) -> None:
        self._inbox.append((message, done))
        self._woken.set()

    async def _wait(self) -> None:
        if not self._inbox:
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._woken.wait()

    def _decide(self, now_ms: int, message: UMessage) -> tuple[list[UMessage], Change]:
        attributes = message.attributes
        if message.is_expired(now_ms):
            return [], Change()  # whoever asked has been told, or does not wait any longer
        if attributes.type is UMessageType.REQUEST:
            try:
                proto, change = self._answers.answer(now_ms, message)
            except UStatusError as exc:
                return _refused(now_ms, message, exc.code, exc.message), Change()
            return [wire.answer(now_ms, message, proto)], change
        if attributes.sink == USUBSCRIPTION.at(self._authority):
            if attributes.type is UMessageType.RESPONSE and attributes.reqid is not None:
                topic = self._book.asked(attributes.reqid)
                if topic is not None and attributes.source.authority == topic.authority:
                    return [], self._book.reply(now_ms, wire.reply(message))
            elif attributes.type is UMessageType.NOTIFICATION:
                told = wire.told(message, attributes.sink)
                if told is not None:
                    return [], self._book.told(now_ms, told)
        return [], Change()

    def _note(self, turn: Turn, now_ms: int, change: Change, answer: list[UMessage], done: Done) -> None:
        """Add what a change needs to be written and said. At once: the entries in it go on changing."""
        turn.statements += rows.statements(change, self._book.remotes.get)
        turn.topics.update(dict.fromkeys(sorted(change.topics)))
        turn.said.append((answer, done))
        kept = [wire.update(now_ms, update) for update in change.updates]
        orders = [wire.command(self._authority, order) for order in change.orders]
        if change.is_flushed:
            kept += orders  # nothing else remembers them
        elif orders:
            turn.said.append((orders, _nothing))
        for message in kept:
            number = self._outbox.number()
            turn.statements.append(rows.kept(number, message_to_proto(message).SerializeToString()))
            turn.kept.append((number, message))

    async def _finish(self, turn: Turn) -> None:
        await self._write(turn.statements)
        for topic in turn.topics:
            self._router.set_interest(topic, self._book.interested(topic), OWNER)
        for messages, done in turn.said:
            self._transport.say(messages, done)
        self._outbox.send(turn.kept, self._clock.wall_ms())

    async def _write(self, statements: list[Statement]) -> None:
        """Until it is on disk: nothing that is not may be said, and what comes meanwhile waits."""
        failures = 0
        while True:
            try:
                await self._state.write(statements)
            except StateError as exc:
                if failures % LOG_EVERY == 0:
                    logger.error("state_not_written failures=%d error=%s consequence=%s", failures + 1, exc, "answers wait")
                failures += 1
                await asyncio.sleep(AGAIN_S)
            else:
                if failures:
                    logger.info("state_written failures=%d", failures)
                return


def _refused(now_ms: int, message: UMessage, code: UCode, text: str) -> list[UMessage]:
    if message.attributes.type is not UMessageType.REQUEST:
        return []
    try:
        return [wire.failure(now_ms, message, code, text)]
    except InvalidMessageError:
        return []  # there is no address to answer to


def _nothing() -> None:
    """Nobody waits."""
