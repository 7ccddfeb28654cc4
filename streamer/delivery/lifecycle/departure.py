"""Disconnects endpoints: all when the daemon ends (`Drain`), or one that a reload removes or changes (`Leaving`).

The law of this file:
- Receiving ends. Messages are delivered for a limited time. The transport stops. The rest is stored or dead-lettered.
- A network that retransmits unacknowledged messages (MQTT) keeps all later ones. From other networks (Zenoh) everything that
  has arrived is taken, and receiving ends before one endpoint waits for anything, so that senders see that nobody listens.
- A drain with a journal leaves networks that do not retransmit last, because what is sent there after that is lost. The
  router goes on receiving from them, into the journal, while earlier messages make progress and sent ones may be confirmed.
  Then the drain waits briefly for messages in flight. The rest stays in the journal; what it has no room for becomes a dead
  letter.
- One of a pair that steps back delivers nothing more. What has arrived from other networks than MQTT, also in the sockets
  after a pause, enters the journal, whatever the bounds of the queues say: its peer may not have heard it (`take_arrivals`).
- A drain without a journal, or with one that cannot be written, first stops receiving everywhere, then waits for everything.
  What is left becomes dead letters, except for messages that their source still has.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.lanes.lane import QUEUED, Hold, Lane
from streamer.delivery.outbound.egress import Egress
from streamer.delivery.router import Router
from streamer.journal.entries import JournalError
from streamer.journal.journal import JournalState
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import LinkState, Presence, UTransport
from streamer.transports.claims import Claim
from streamer.transports.errors import ConfigurationError
from streamer.uprotocol.status import UCode
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

logger = logging.getLogger("ustreamer.leaving")
drain_logger = logging.getLogger("ustreamer.drain")

_REMOVED = Failure(
    Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "its endpoint was removed from the configuration before it could be delivered"
)
_CAME_FROM_REMOVED = Failure(
    Outcome.REJECTED, UCode.UNAVAILABLE, "the endpoint that it came from was removed while it waited for room"
)
_CONFIRMATIONS_S = 4.0  # for sent messages: a live receiver is heard every 2.5 s, unless its lease is longer
_ANSWERS_S = 1.0  # for messages in flight, once receiving has ended
_LAST_NOTICES_S = 1.0  # after the drain: for the dead letters of messages that were given up
_STOPPED = Failure(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "the streamer was stopped before it could be delivered")
_NOT_WRITTEN = Failure(
    Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "the streamer was stopped, and its journal had no room for it"
)
_MESSAGES_PER_LOOP_CYCLE = 100  # given up before the event loop goes on with others
_MAX_WAITING_LETTERS = 1000  # that the journal has not begun to write
_TRY_AGAIN_S = 1.0

TRANSPORT_CALL_S = 15.0
"""How long a transport may take for one call. Those of this project take a few seconds at most."""


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


async def take_arrivals(router: Router) -> None:
    """Leave networks that retransmit, and take what has arrived from others, for the caller to write to the journal."""
    outside = {name: each for name, each in router.transports.items() if name != LOCAL_ENDPOINT}
    await stop_all({name: each for name, each in outside.items() if each.source_retransmits})
    await asyncio.gather(*(stop_receiving(router.ingresses[name], each, True) for name, each in outside.items()))


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


def _settled(egress: Egress) -> int:
    return sum(queue.stats.settled for queue in egress.queues)


def _may_be_confirmed(egress: Egress, now_s: float) -> bool:
    """Whether the network may soon report that sent messages have arrived. Other networks need `unconfirmed_s`."""
    is_sent = egress.store is not None and egress.store.may_confirm
    return is_sent and egress.transport.arrived_until_s(now_s) > -math.inf


def _listed(numbers: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{name}:{number}" for name, number in numbers if number) or "nothing"


class Leaving:
    """Disconnects one endpoint while the others go on. Once the daemon has to stop, only `end_session` still waits."""

    def __init__(self, name: str, router: Router, within_s: float) -> None:
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
        task.add_done_callback(lambda task: self._router.pump.go_on(self._egress))
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
                    self._egress.evict(delivery, _REMOVED)
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
                settler.end_unconfirmed(lane, summary)
        is_tried = False
        while not (is_tried and self._router.is_draining):
            is_tried = True
            try:
                unpack_all(egress)
                return
            except JournalError as exc:
                logger.error("batch_not_read endpoint=%s error=%s", egress.name, exc)
                await asyncio.sleep(_TRY_AGAIN_S)


class Drain:
    """Disconnects all endpoints of a router, because the daemon ends."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._transports = router.transports
        self._ingresses = router.ingresses
        self._egresses = router.egresses
        self._journal = router.journal

    async def run(self, within_s: float) -> int:
        """Stop receiving, and deliver queued messages for at most ``within_s`` seconds; return how many are left.

        That includes Requests to the streamer's services and their Responses. The messages left stay in the journal. Without
        one, those in custody become dead letters; the sources of the others still have them.
        """
        self._log_what_is_awaited(within_s)
        if self._journal_works:
            for name, ingress in self._outside():
                if self._transports[name].source_retransmits:
                    ingress.close()
            await self._router.pump.until(self._progress(), within_s)
            within_s = min(within_s, _ANSWERS_S)
        await self._stop_receiving()
        await self._router.pump.until(self._is_done, within_s)
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
        drain_logger.info(
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
        until_s = self._router.clock.monotonic_s() + _CONFIRMATIONS_S
        goals = {egress: _settled(egress) + egress.unsettled() for egress in self._egresses.values()}

        def is_made() -> bool:
            now_s = self._router.clock.monotonic_s()
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
                    queue.owner.evict(delivery, _STOPPED)
        for ingress in self._ingresses.values():
            ingress.give_up(_STOPPED)
        await self._send_last_notices()

    async def give_up_unwritten(self) -> int:
        """After `run`: dead-letter the messages that neither the journal nor a source has; return their number."""
        given_up = 0
        for delivery in self._router.custody.unwritten():
            # A dead letter is not queued any more if the dead letter of another message has evicted it.
            if delivery.state is QUEUED and not delivery.received.source_retransmits:
                delivery.lane.queue.owner.evict(delivery, _NOT_WRITTEN)
                given_up += 1
        if given_up:
            await self._send_last_notices()
        return given_up

    async def _send_last_notices(self) -> None:
        self._router.pump.run()
        await self._router.pump.until(
            lambda: not any(queue.messages for queue in self._router.notices.queues()), _LAST_NOTICES_S
        )
