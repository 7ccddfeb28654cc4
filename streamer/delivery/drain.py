"""The orderly end of a router: takes what has arrived, delivers what can be delivered, and keeps or dead-letters the rest.

The law of this file:
- With a journal, networks that do not retransmit are left last, because what is sent there after that is lost. The router
  goes on receiving from them, into the journal, while earlier messages make progress and sent ones may be confirmed. Then
  the drain waits briefly for messages in flight. The rest stays in the journal; what it has no room for becomes a dead
  letter.
- Without a journal, or with one that cannot be written, all endpoints stop receiving first, and the drain waits for all
  messages. What is left becomes dead letters, except for messages that their source still has.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable

from streamer.delivery.egress import Egress
from streamer.delivery.ingress import Ingress
from streamer.delivery.lane import QUEUED, Delivery
from streamer.delivery.leaving import RouterView, sendable, stop_all, stop_receiving, unpack_all
from streamer.journal.journal import JournalState
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import LinkState
from streamer.uprotocol.status import UCode
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

logger = logging.getLogger("ustreamer.drain")

_CONFIRMATIONS_S = 4.0  # for sent messages: a live receiver is heard every 2.5 s, unless its lease is longer
_ANSWERS_S = 1.0  # for messages in flight, once receiving has ended
_LAST_NOTICES_S = 1.0  # after the drain: for the dead letters of messages that were given up
_STOPPED = Failure(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "the streamer was stopped before it could be delivered")
_NOT_WRITTEN = Failure(
    Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "the streamer was stopped, and its journal had no room for it"
)


class Drain:
    """One drain of a router."""

    def __init__(self, router: RouterView) -> None:
        self._transports = router.transports
        self._ingresses = router.ingresses
        self._egresses = router.egresses
        self._pump = router.pump
        self._settler = router.settler
        self._notices = router.notices
        self._custody = router.custody
        self._journal = router.journal
        self._clock = router.clock

    async def run(self, within_s: float) -> int:
        """Stop receiving, and deliver for at most ``within_s`` seconds; return the number of messages left."""
        self._log_what_is_awaited(within_s)
        if self._journal_works:
            for name, ingress in self._outside():
                if self._transports[name].source_retransmits:
                    ingress.close()
            await self._pump.until(self._progress(), within_s)
            within_s = min(within_s, _ANSWERS_S)
        await self._stop_receiving()
        await self._pump.until(self._is_done, within_s)
        if LOCAL_ENDPOINT in self._ingresses:  # until now the streamer's services could answer earlier Requests
            self._ingresses[LOCAL_ENDPOINT].close()
        left = self._unfinished()
        if left:
            sending = [name for name, egress in self._egresses.items() if egress.in_flight]
            await stop_all({name: self._transports[name] for name in sending})  # unconfirmed messages return to their lanes
        if self._journal is not None:
            for ingress in self._ingresses.values():
                ingress.admit_all()
        else:
            for ingress in self._ingresses.values():
                ingress.close()
            if left:
                await self._give_up()
        return left

    def _log_what_is_awaited(self, within_s: float) -> None:
        unsettled = {name: egress.unsettled() for name, egress in self._egresses.items()}
        awaited = {name: self._awaited(egress) for name, egress in self._egresses.items()}
        logger.info(
            "drain_began drain_s=%s waits_for=%s left_in_journal=%s",
            within_s,
            _listed(awaited.items()),
            _listed((name, unsettled[name] - awaited[name]) for name in unsettled),
        )

    # -- receiving

    async def _stop_receiving(self) -> None:
        """Take what has arrived, then stop receiving. The streamer's services go on, to answer earlier Requests."""
        has_journal = self._journal is not None
        await asyncio.gather(*(stop_receiving(each, self._transports[name], has_journal) for name, each in self._outside()))

    def _outside(self) -> list[tuple[str, Ingress]]:
        return [(name, ingress) for name, ingress in self._ingresses.items() if name != LOCAL_ENDPOINT]

    # -- waiting

    def _progress(self) -> Callable[[], bool]:
        """Return a test whether what the router has now is settled, as far as it can be. More messages arrive meanwhile."""
        until_s = self._clock.monotonic_s() + _CONFIRMATIONS_S
        goals = {egress: _settled(egress) + egress.unsettled() for egress in self._egresses.values()}

        def is_made() -> bool:
            now_s = self._clock.monotonic_s()
            return not any(
                _settled(egress) < goal and (sendable(egress) or (now_s < until_s and _may_be_confirmed(egress, now_s)))
                for egress, goal in goals.items()
            )

        return is_made

    def _is_done(self) -> bool:
        if not self._unfinished():
            return True
        if not self._journal_works:
            return False
        return not any(egress.in_flight and egress.transport.state is LinkState.UP for egress in self._egresses.values())

    @property
    def _journal_works(self) -> bool:
        return self._journal is not None and self._journal.state is JournalState.OK

    def _awaited(self, egress: Egress) -> int:
        """Return for how many messages of an endpoint the drain waits; with a journal, only for those that can be sent."""
        return sendable(egress) if self._journal_works else egress.unsettled()

    def _unfinished(self) -> int:
        queued = sum(egress.unsettled() for egress in self._egresses.values())
        return queued + sum(len(ingress.backlog) for ingress in self._ingresses.values())

    # -- the rest

    async def _give_up(self) -> None:
        """Without a journal: dead-letter the messages that no source retransmits."""
        for egress in self._egresses.values():
            unpack_all(egress)
        for queue in [queue for egress in self._egresses.values() for queue in egress.queues if queue.source]:
            for delivery in list(queue.waiting()):
                if delivery.received.is_acknowledged or not delivery.received.source_retransmits:
                    self._fail(delivery, _STOPPED)
        for ingress in self._ingresses.values():
            ingress.give_up(_STOPPED)
        await self._send_last_notices()

    async def give_up_unwritten(self) -> int:
        """After the drain: dead-letter the messages that neither the journal nor a source has; return their number."""
        given_up = 0
        for delivery in self._custody.unwritten():
            # A dead letter is not queued any more if the dead letter of another message has evicted it.
            if delivery.state is QUEUED and not delivery.received.source_retransmits:
                self._fail(delivery, _NOT_WRITTEN)
                given_up += 1
        if given_up:
            await self._send_last_notices()
        return given_up

    def _fail(self, delivery: Delivery, failure: Failure) -> None:
        delivery.lane.drop(delivery)
        self._settler.give_up(delivery, failure)

    async def _send_last_notices(self) -> None:
        self._pump.run()
        await self._pump.until(lambda: not any(queue.messages for queue in self._notices.queues()), _LAST_NOTICES_S)


def _settled(egress: Egress) -> int:
    return sum(queue.stats.settled for queue in egress.queues)


def _may_be_confirmed(egress: Egress, now_s: float) -> bool:
    """Whether the network may soon report that sent messages have arrived. Other networks need `unconfirmed_s`."""
    is_sent = egress.store is not None and egress.store.may_confirm
    return is_sent and egress.transport.arrived_until_s(now_s) > -math.inf


def _listed(numbers: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{name}:{number}" for name, number in numbers if number) or "nothing"
