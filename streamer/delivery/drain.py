"""The end of a router: takes over what has arrived, delivers what can be delivered, keeps or reports the rest.

The law of this file:
- A network that keeps what is not acknowledged (MQTT) keeps everything from now on. From the others everything is taken that
  they have brought, and they are left before anything is waited for: their senders then know that nobody listens.
- With a journal, what was taken enters it at once, whatever the bounds of the queues say. Only what makes progress is waited
  for. What cannot leave now stays in the journal; what that has no room for becomes a dead letter.
- Without a journal everything is waited for, and what is left becomes a dead letter, unless its source still has it. So it
  is with a journal that cannot be written.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from streamer.delivery.custody import Custody
from streamer.delivery.egress import Egress
from streamer.delivery.failure_notices import FailureNotices
from streamer.delivery.ingress import Ingress
from streamer.delivery.lane import Delivery, DeliveryState, Hold, Lane
from streamer.delivery.pump import Pump
from streamer.delivery.settle import Settler
from streamer.journal.journal import Journal, JournalState
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import LinkState, Presence, UTransport
from streamer.uprotocol.status import UCode
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

logger = logging.getLogger("ustreamer.drain")

_LAST_WORDS_S = 1.0  # after the drain: time for the dead letters of what was given up
_STOPPED = Failure(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "the streamer was stopped before it could be delivered")
_NOT_WRITTEN = Failure(
    Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "the streamer was stopped, and its journal had no room for it"
)


class Parts(Protocol):
    """What is drained: a router."""

    @property
    def transports(self) -> Mapping[str, UTransport]: ...
    @property
    def ingresses(self) -> Mapping[str, Ingress]: ...
    @property
    def egresses(self) -> Mapping[str, Egress]: ...
    @property
    def pump(self) -> Pump: ...
    @property
    def settler(self) -> Settler: ...
    @property
    def notices(self) -> FailureNotices: ...
    @property
    def custody(self) -> Custody: ...
    @property
    def journal(self) -> Journal | None: ...


class Drain:
    """One drain of a router."""

    def __init__(self, parts: Parts) -> None:
        self._transports = parts.transports
        self._ingresses = parts.ingresses
        self._egresses = parts.egresses
        self._pump = parts.pump
        self._settler = parts.settler
        self._notices = parts.notices
        self._custody = parts.custody
        self._journal = parts.journal

    async def run(self, within_s: float) -> int:
        """Take nothing new, and wait for deliveries for at most ``within_s`` seconds; the number of messages left."""
        self._say_what_is_waited_for(within_s)
        await self._stop_receiving()
        await self._pump.until(self._is_done, within_s)
        if LOCAL_ENDPOINT in self._ingresses:  # until now our services could answer what was taken before
            self._ingresses[LOCAL_ENDPOINT].close()
        left = self._unfinished()
        if left:
            for name, egress in self._egresses.items():
                if egress.in_flight:
                    await self._transports[name].stop()  # gives back what is unconfirmed
        if self._journal is not None:
            for ingress in self._ingresses.values():
                ingress.admit_all()
        else:
            for ingress in self._ingresses.values():
                ingress.close()
            if left:
                await self._give_up()
        return left

    def _say_what_is_waited_for(self, within_s: float) -> None:
        held = {name: egress.unsettled() for name, egress in self._egresses.items()}
        awaited = {name: self._awaited(egress) for name, egress in self._egresses.items()}
        logger.info(
            "drain_began drain_s=%s waits_for=%s left_in_journal=%s",
            within_s,
            _listed(awaited.items()),
            _listed((name, held[name] - awaited[name]) for name in held),
        )

    # -- receiving

    async def _stop_receiving(self) -> None:
        """Take what has arrived, and nothing more. Our own services go on: what was taken before is answered."""
        leaving = []
        for name, ingress in self._ingresses.items():
            if self._transports[name].keeps_unacknowledged:
                ingress.close()
            elif name != LOCAL_ENDPOINT:
                ingress.take_rest(beyond_bounds=self._journal is not None)
                leaving.append(self._leave(name, ingress))
        await asyncio.gather(*leaving)

    async def _leave(self, name: str, ingress: Ingress) -> None:
        try:
            await self._transports[name].stop_receiving()
        except Exception:  # a bug in a plugin must not keep the rest from being drained
            logger.exception("stop_receiving_failed endpoint=%s", name)
        ingress.misrouted.give_up()
        logger.info("receiving_ended endpoint=%s received=%d", name, ingress.stats.received)

    # -- waiting

    def _is_done(self) -> bool:
        if not self._unfinished():
            return True
        if not self._journal_works:
            return False
        egresses = self._egresses.values()
        is_sending = any(egress.in_flight and egress.transport.state is LinkState.UP for egress in egresses)
        return not is_sending and not any(self._awaited(egress) for egress in egresses)

    @property
    def _journal_works(self) -> bool:
        return self._journal is not None and self._journal.state is JournalState.OK

    def _awaited(self, egress: Egress) -> int:
        """How many messages for an endpoint are waited for. With a journal, those that cannot leave now are not."""
        if not self._journal_works:
            return egress.unsettled()
        if egress.transport.state is not LinkState.UP:
            return 0
        lanes = (lane for queue in egress.queues for lane in queue.lanes.values() if _is_stuck(lane))
        return egress.unsettled() - sum(lane.waiting_messages for lane in lanes)

    def _unfinished(self) -> int:
        held = sum(egress.unsettled() for egress in self._egresses.values())
        return held + sum(len(ingress.backlog) for ingress in self._ingresses.values())

    # -- the rest

    async def _give_up(self) -> None:
        """Without a journal: what is in our custody becomes a dead letter."""
        for egress in self._egresses.values():
            egress.unpack_all()
        for queue in [queue for egress in self._egresses.values() for queue in egress.queues if queue.source]:
            for delivery in list(queue.waiting()):
                if delivery.received.is_kept or not delivery.received.source_keeps:
                    self._fail(delivery, _STOPPED)
        for ingress in self._ingresses.values():
            ingress.give_up(_STOPPED)
        await self._last_words()

    async def give_up_unwritten(self) -> int:
        """With a journal, after the drain: what is not in it and nowhere else becomes a dead letter; the number of them."""
        unwritten = [each for each in self._custody.unwritten() if each.state is DeliveryState.QUEUED]
        for delivery in unwritten:
            self._fail(delivery, _NOT_WRITTEN)
        if unwritten:
            await self._last_words()
        return len(unwritten)

    def _fail(self, delivery: Delivery, failure: Failure) -> None:
        delivery.lane.drop(delivery)
        self._settler.fail(delivery, failure)

    async def _last_words(self) -> None:
        self._pump.run()
        await self._pump.until(lambda: not any(queue.messages for queue in self._notices.queues()), _LAST_WORDS_S)


def _is_stuck(lane: Lane) -> bool:
    """Whether what waits in a lane cannot leave now. Whether anybody listens may still be found out in a moment."""
    is_unknown = lane.hold == Hold.ABSENT and lane.presence is Presence.UNKNOWN
    return bool(lane.hold) and not is_unknown


def _listed(numbers: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{name}:{number}" for name, number in numbers if number) or "nothing"
