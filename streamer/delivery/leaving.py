"""Disconnects an endpoint: when the daemon ends, when a reload removes the endpoint, or to restart it with other options.

A network that retransmits unacknowledged messages (MQTT) keeps all later ones. From other networks (Zenoh) everything that
has arrived is taken, and receiving ends before the endpoint waits for anything, so that senders see that nobody listens.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from streamer.clock import Clock
from streamer.delivery.custody import Custody
from streamer.delivery.egress import Egress
from streamer.delivery.failure_notices import FailureNotices
from streamer.delivery.ingress import Ingress
from streamer.delivery.lane import QUEUED, Hold, Lane
from streamer.delivery.pump import Pump
from streamer.delivery.settle import Settler
from streamer.journal.entries import JournalError
from streamer.journal.journal import Journal
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import LinkState, Presence, UTransport
from streamer.transports.claims import Claim
from streamer.transports.errors import ConfigurationError
from streamer.uprotocol.status import UCode

logger = logging.getLogger("ustreamer.leaving")

_REMOVED = Failure(
    Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "its endpoint was removed from the configuration before it could be delivered"
)
_CAME_FROM_REMOVED = Failure(
    Outcome.REJECTED, UCode.UNAVAILABLE, "the endpoint that it came from was removed while it waited for room"
)
_MESSAGES_PER_LOOP_CYCLE = 100  # given up before the event loop goes on with others
_MAX_WAITING_LETTERS = 1000  # that the journal has not begun to write
_TRY_AGAIN_S = 1.0

TRANSPORT_CALL_S = 15.0
"""How long a transport may take for one call. Those of this project take a few seconds at most."""


class RouterView(Protocol):
    """The parts of a router that draining it or leaving one of its endpoints needs."""

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
    def clock(self) -> Clock: ...
    @property
    def is_draining(self) -> bool: ...
    @property
    def journal(self) -> Journal | None: ...


async def attempt(call: Callable[[], Awaitable[None]], what: str, endpoint: str) -> None:
    """Call a transport; log if it fails or takes too long, so that it holds up neither other endpoints nor a stop."""
    try:
        async with asyncio.timeout(TRANSPORT_CALL_S):
            await call()
    except ConfigurationError as exc:
        logger.error(what + "_failed endpoint=%s key=%s reason=%s", endpoint, exc.key, exc)
    except TimeoutError:
        logger.error(what + "_failed endpoint=%s reason=%s", endpoint, f"no end after {TRANSPORT_CALL_S:g} s")
    except Exception:  # a bug in a plugin
        logger.exception(what + "_failed endpoint=%s", endpoint)


async def stop_all(transports: Mapping[str, UTransport]) -> None:
    """Stop transports at the same time, so that a link that takes long to close does not hold up the others."""
    await asyncio.gather(*(attempt(transport.stop, "stop", name) for name, transport in transports.items()))


async def stop_receiving(ingress: Ingress, transport: UTransport, beyond_bounds: bool) -> None:
    """Take the messages that have arrived, and none after them.

    ``beyond_bounds``: with a journal, take them whatever the bounds of the queues say.
    """
    if transport.source_retransmits:
        ingress.close()
        return
    ingress.take_rest(beyond_bounds)
    await attempt(transport.stop_receiving, "stop_receiving", ingress.name)
    ingress.misrouted.give_up()
    logger.info("receiving_ended endpoint=%s received=%d", ingress.name, ingress.stats.received)


def may_exclude(transport: UTransport, others: Iterable[UTransport]) -> bool:
    """Whether a transport may need the port or the session of one of the others, so that both cannot run at once.

    A broker ends a connection when another one comes with the same client id, over whatever address.
    """
    return _any_claim(Claim.may_exclude, transport, others)


def excludes(transport: UTransport, others: Iterable[UTransport]) -> bool:
    """Whether one of the others has the port or the session of a transport."""
    return _any_claim(Claim.excludes, transport, others)


def _any_claim(test: Callable[[Claim, Claim], bool], transport: UTransport, others: Iterable[UTransport]) -> bool:
    """Whether ``test`` holds for a claim of a transport and one of the others."""
    authority = transport.context.authority
    claimed = [claim for other in others for claim in other.options.claims(authority)]
    return any(test(claim, other) for claim in transport.options.claims(authority) for other in claimed)


def movable(egress: Egress) -> int:
    """Return how many messages for an endpoint can be sent now, or were sent and are not confirmed."""
    if egress.transport.state is not LinkState.UP:
        return 0
    lanes = (lane for queue in egress.queues for lane in queue.lanes.values() if _is_stuck(lane))
    return egress.unsettled() - sum(lane.waiting_messages for lane in lanes)


def sendable(egress: Egress) -> int:
    """Return how many messages for an endpoint can be sent now, or are in flight."""
    if egress.transport.state is not LinkState.UP:
        return 0
    lanes = (lane for queue in egress.queues for lane in queue.lanes.values() if not _is_stuck(lane))
    return egress.in_flight + sum(lane.waiting_messages for lane in lanes)


def _is_unconfirmed(egress: Egress) -> bool:
    return egress.in_flight > 0 or (egress.store is not None and egress.store.may_confirm)


def _is_stuck(lane: Lane) -> bool:
    """Whether the messages in a lane cannot be sent soon. While presence is unknown, they may be."""
    is_unknown = lane.hold == Hold.ABSENT and lane.presence is Presence.UNKNOWN
    return bool(lane.hold) and not is_unknown


def unpack_all(egress: Egress) -> None:
    """Unpack all messages that are to be sent again, however much memory that takes.

    Raises `JournalError` if the journal cannot be read now: call again later.
    """
    for lane in [lane for queue in egress.queues for lane in queue.lanes.values() if lane.redeliveries]:
        egress.unpack(lane, whole=True)


class Leaving:
    """Disconnects one endpoint while the others go on. Once the daemon has to stop, only `end_session` still waits."""

    def __init__(self, name: str, router: RouterView, within_s: float) -> None:
        self._transport = router.transports[name]
        self._ingress = router.ingresses[name]
        self._egress = router.egresses[name]
        self._router = router
        self._within_s = within_s
        self._has_journal = router.journal is not None

    async def stop_receiving(self) -> None:
        """Stop receiving, and wait until the backlog has entered the queues.

        Messages that find no room in time are rejected, or left unacknowledged if their source retransmits.
        """
        ingress = self._ingress
        await stop_receiving(ingress, self._egress.transport, self._has_journal)
        await self._until(lambda: not ingress.has_backlog)
        ingress.give_up(_CAME_FROM_REMOVED)
        ingress.backlog.remove(lambda received: True)

    async def pause(self) -> None:
        """For an endpoint that is only changed: send nothing more, and wait for confirmations. It still receives."""
        egress = self._egress
        egress.suspend()
        self._log_what_is_awaited(egress.in_flight + sum(queue.unconfirmed for queue in egress.queues))
        await self._until(lambda: egress.transport.state is not LinkState.UP or not _is_unconfirmed(egress))

    async def leave(self) -> None:
        """After `pause`: stop the transport. Unconfirmed messages return to their lanes."""
        await stop_receiving(self._ingress, self._egress.transport, self._has_journal)
        await self._stop()

    async def end_session(self, successor: UTransport) -> None:
        """After `leave`, with the successor started: take what the network keeps for the session of the earlier transport.

        A stop waits for it, because no later process would know of that session, and the network goes on filling it.
        """
        name = self._egress.name
        if excludes(self._transport, (other for each, other in self._router.transports.items() if each != name)):
            return  # another endpoint has its session now
        call = partial(self._transport.end_session, successor)
        task = asyncio.create_task(attempt(call, "end_session", name), name=f"end-session-{name}")
        task.add_done_callback(lambda task: self._router.pump.settled(self._egress))
        await self._router.pump.until(task.done, self._within_s)
        task.cancel()
        await asyncio.wait((task,))

    async def deliver(self) -> None:
        """Deliver the messages that can be delivered, then stop the transport."""
        self._log_what_is_awaited(movable(self._egress))
        await self._until(lambda: not movable(self._egress))
        await self._stop()

    async def give_up(self) -> int:
        """After `deliver`: dead-letter the rest; return the number of messages.

        If the daemon has to stop meanwhile, the others stay in the journal, and the next start dead-letters them.
        """
        await self._until_unpacked()
        given_up = 0
        while waiting := [delivery for queue in self._egress.queues for delivery in queue.waiting()]:
            for delivery in waiting:  # meanwhile notices for this endpoint may arrive
                if (given_up and given_up % _MESSAGES_PER_LOOP_CYCLE == 0) or self._router.custody.has_many_letters(
                    _MAX_WAITING_LETTERS
                ):
                    self._router.pump.run()
                    await asyncio.sleep(0)
                    if not await self._goes_on():
                        return given_up
                if delivery.state is QUEUED:  # not evicted or expired meanwhile
                    delivery.lane.drop(delivery)
                    self._router.settler.give_up(delivery, _REMOVED)
                given_up += 1
            self._router.pump.run()  # this also settles what has expired elsewhere
        return given_up

    def _log_what_is_awaited(self, messages: int) -> None:
        logger.info("endpoint_drain_began endpoint=%s drain_s=%g waits_for=%d", self._egress.name, self._within_s, messages)

    async def _goes_on(self) -> bool:
        """Wait until the journal can take more dead letters. Return False once the daemon has to stop."""
        custody = self._router.custody
        while not (is_stopping := self._has_journal and self._router.is_draining):
            if not custody.has_many_letters(_MAX_WAITING_LETTERS):
                break
            await custody.until_flushed(_TRY_AGAIN_S)
        return not is_stopping

    async def _until(self, condition: Callable[[], bool]) -> None:
        await self._router.pump.until(lambda: condition() or self._router.is_draining, self._within_s)

    async def _stop(self) -> None:
        await attempt(self._egress.transport.stop, "stop", self._egress.name)

    async def _until_unpacked(self) -> None:
        """Settle sent messages, which nothing can confirm now, and unpack those that were to be sent again.

        If the daemon has to stop while these cannot be read, they stay in the journal.
        """
        egress, settler = self._egress, self._router.settler
        if egress.store is not None:
            for lane, summary in egress.store.take_all(self._router.clock.monotonic_s()):
                settler.unconfirmed_for_good(lane, summary)
        is_tried = False
        while not (is_tried and self._router.is_draining):
            is_tried = True
            try:
                unpack_all(egress)
                return
            except JournalError as exc:
                logger.error("batch_not_read endpoint=%s error=%s", egress.name, exc)
                await asyncio.sleep(_TRY_AGAIN_S)
