"""The part of a streamer in its pair: on standby until it takes over, then active, and at last the handover.

The standby is this program with the networks that both hear, and nothing else: no broker, no services, no routing. The
active streamer writes its journal. A take-over is the start of any streamer that finds a journal. A streamer that has to
step back ends, and starts anew on standby: so there is one way into each role.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from streamer import __version__
from streamer.clock import Clock
from streamer.config.models import Config
from streamer.delivery.router import Additions, Router
from streamer.features.host.state import StateFile
from streamer.features.pair.config import PairConfig, pair_fingerprint
from streamer.features.pair.interest import HeardInterest, ToldInterest
from streamer.features.pair.lease import Changed, Timing
from streamer.features.pair.link import Link
from streamer.features.pair.member import FIRST, SECOND, Identity, Member
from streamer.features.pair.mirror import MirroredJournal
from streamer.features.pair.overhearing import Overhearing, OverhearingStep
from streamer.features.pair.view import PairView
from streamer.journal.entries import JournalError
from streamer.journal.journal import Journal, JournalState
from streamer.logs.audit import audit
from streamer.transports.base import LinkState, Received, SharedNetwork, UTransport
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

logger = logging.getLogger("ustreamer.pair")

_CLOSE_S = 5.0
_TRIED_S = 1.0  # for the first attempt to open the journal
_LOOK_S = 0.05
_STORED_S = 5.0  # for the standby to write what it was sent, at a handover
_PROBE_EVERY_S = 5.0
_PROBE_AT_LEAST_EVERY_S = 60.0


class Paired:
    """A streamer's part in its pair. ``end(restarts, drains)`` has the daemon end, and start anew if it ``restarts``.

    It is made before the router, which gets its `additions`, and works with that router from `stand_by` on. The constructor
    raises `TlsError` for files that cannot be used, and `NotesError`.
    """

    _router: Router

    def __init__(
        self,
        config: Config,
        clock: Clock,
        transports: Mapping[str, UTransport],
        copy: Journal,
        journal: MirroredJournal,
        end: Callable[[bool, bool], None],
    ) -> None:
        """``copy``: the file while on standby; ``journal``: the same file, once this streamer is active."""
        pair, journal_config = config.section(PairConfig), config.journal
        assert pair is not None
        assert journal_config is not None
        self._transports = transports
        self._copy, self._state_copy = copy, StateFile(copy, copy.tables)
        self._journal = journal
        self._end = end
        self._at_work = asyncio.Event()
        self._told_interest = ToldInterest()
        self._heard_interest = HeardInterest()
        self._is_standby = True
        self._is_leaving = False
        self._accepting: dict[str, bool] = {}
        self._tasks: list[asyncio.Task[None]] = []
        identity = Identity(
            FIRST if pair.listens else SECOND, pair_fingerprint(config), __version__, _sessions(config), config.authority
        )
        self.member = Member(
            identity,
            journal_config.default_pair,
            clock,
            Timing(wait_s=pair.wait_s),
            self,
            key=pair.key(),
            is_safe_at_both=pair.safe == "both",
            prefer_s=pair.prefer_s,
        )
        self._link = Link(
            listen=pair.address if pair.listens else None,
            connect=None if pair.listens else pair.address,
            key=pair.key(),
            name=identity.name,
            authority=config.authority,
            tls=pair.context(),
            on_frame=self.member.on_frame,
            on_up=self.member.on_up,
            on_down=self.member.on_down,
        )
        self.member.use(self._link)
        self.member.arrange(journal)
        self._overhearing = Overhearing(self.member.shadows)

    @property
    def additions(self) -> Additions:
        """Return the router's additions for a pair: standby, sending only with a lease, and reports of settled messages."""
        return Additions(
            observers=(self.member.settled,),
            steps=(partial(OverhearingStep, self._overhearing),),
            gates=(self.member.may_send,),
            interest=(self._told_interest,),
            is_not_alone=True,
            standby=lambda: self.member.why_not_whole() if self._is_standby else None,
        )

    def lock(self) -> None:
        """Lock the files against other streamers on this machine. Raises `FileError`."""
        self._copy.lock()

    async def stand_by(self, router: Router, stopping: asyncio.Event, on_opened: Callable[[], None]) -> None:
        """Be on standby until this streamer has to work, or the daemon to stop. ``on_opened``: the journal is open."""
        self._router = router
        works = (self._link.run(), self.member.beat(), self._look_around())
        self._tasks = [asyncio.create_task(work, name="pair") for work in works]
        for task in self._tasks:
            task.add_done_callback(self._failed)

        def opened() -> None:
            if not self._at_work.is_set():
                self.member.stand_by(self._copy, self._state_copy)
                on_opened()

        tried = self._copy.start(opened)
        for _, network in self._shared():
            network.listen(self.member.hear_aside)
        await self._overhearing.begin(router)
        await asyncio.to_thread(tried.wait, _TRIED_S)
        if self._copy.is_newer:  # it could not take over, and waiting would not help
            raise JournalError(self._copy.problem, is_newer=True)
        listening = asyncio.create_task(self._router.listening.run(), name="listening")
        waiting = [asyncio.create_task(event.wait()) for event in (self._at_work, stopping)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in (*waiting, listening):
            each.cancel()
        while not await asyncio.to_thread(tried.wait, _LOOK_S) and not stopping.is_set():
            pass  # to open a large one takes its time
        self.member.end_standby()
        if not await asyncio.to_thread(self._copy.stop, _CLOSE_S):
            logger.error("journal_not_closed file=%s reason=%s", self._copy.path, self._copy.problem or "the disk is slow")
        while not (is_locked := self._locked()) and not stopping.is_set():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)  # until the thread of the copy has ended, on a disk that hangs
        if is_locked and not stopping.is_set():
            self._is_standby = False

    def _locked(self) -> bool:
        try:
            self._journal.lock()
        except JournalError:
            return False
        return True

    def work(self, state: StateFile) -> None:
        """Replicate the journal, which has been opened, and the tables in it to the standby."""
        self.member.work(self._journal, state)

    def take_over(self) -> None:
        """Take the overheard messages that the peer has not settled. The router has started, and knows its waiting ones."""
        self._overhearing.end(self._router)
        self._heard_interest.forget(self._router)

    async def stop(self) -> None:
        """Hand over, if this streamer is active and the standby is ready; then end the link. Nothing is sent after that."""
        self._is_leaving = True
        if self.member.lease.is_active:
            await self.member.until_stored(_STORED_S)
            if why := self.member.why_not_hand_over():
                logger.warning("pair_not_handed_over reason=%s", why)
            else:
                if lacking := self.member.lacking.text:
                    logger.warning("pair_handed_over_to_less reason=%s", lacking)
                self.member.hand_over()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._journal.work_alone()  # what is still to be written is offered to the other one later

    def hand_over(self, anyway: bool = False) -> str:
        """End, hand over, and start anew on standby. Return why the peer cannot take over; empty if it can.

        ``anyway``: also to a peer without a link to nodes that this streamer hears.
        """
        why = self.member.why_not_hand_over() or ("" if anyway else self.member.lacking.text)
        if not why:
            self._leave(is_drained=self._journal.state is JournalState.OK)
        return why

    @property
    def view(self) -> PairView:
        """Return the pair as this streamer sees it now."""
        member, link = self.member, self._link
        is_active, other = member.lease.is_active, member.other
        return PairView(
            is_active,
            member.why,
            member.since_ms,
            member.lease.epoch,
            member.takeovers,
            link.is_up,
            link.problem,
            "" if other is None else other.version,
            member.lease.is_ready,
            member.is_protected,
            (member.why_not_hand_over() or member.lacking.text) if is_active else member.why_not_ready(),
            link.waiting_bytes,
            len(member.shadows),
            {"stranger": link.refused, "frame": link.ignored, "heartbeat": member.lease.ignored + member.beside.refused},
            member.differences,
            member.untried,
            len(member.lacking),
        )

    def _failed(self, task: asyncio.Task[None]) -> None:
        """Start anew after a bug in a task of the pair: without a lease, nothing may be sent."""
        if not task.cancelled() and (exc := task.exception()) is not None:
            logger.critical("pair_failed error=%r consequence=%s", exc, "it starts anew", exc_info=exc)
            self._leave(is_drained=False)

    def _leave(self, is_drained: bool) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            self._end(True, is_drained)

    def _networks(self) -> list[tuple[str, UTransport]]:
        return [(name, each) for name, each in self._transports.items() if name != LOCAL_ENDPOINT]

    def _shared(self) -> list[tuple[str, SharedNetwork]]:
        """Return the networks on which the peer hears every message as well."""
        return [(name, each.shared) for name, each in self._networks() if each.shared is not None]

    # -- as the `OwnStreamer` of the member

    def reached(self) -> Sequence[str]:
        return [name for name, transport in self._networks() if transport.state is LinkState.UP]

    def accepting(self) -> Mapping[str, bool]:
        return {} if self.member.lease.is_active else self._accepting

    def lost(self) -> Sequence[str]:
        if not self.member.lease.is_active:
            return ()
        return [name for name, each in self._networks() if each.state is not LinkState.UP]

    def adopt(self, endpoint: str, batch: list[Received]) -> bool:
        ingress = self._router.ingresses.get(endpoint)
        if ingress is None:
            return False
        self._transports[endpoint].context.events.packets_received(len(batch))
        ingress.on_receive_batch(batch)
        return True

    def role_changed(self, changed: Changed) -> None:
        role = "active" if changed.is_active else "standby"
        audit("role_changed", who="pair", where="process", role=role, epoch=changed.epoch, reason=changed.why)
        if changed.is_active:
            self._at_work.set()
        else:
            self._is_leaving = True
            self._end(True, False)  # also in the middle of a drain

    def nodes(self) -> Mapping[str, Collection[str]]:
        return {name: network.others() for name, network in self._shared()}

    def is_draining(self) -> bool:
        return self._router.is_draining

    def tell_interest(self, is_first: bool = False) -> pb.Interest | None:
        if is_first:
            self._told_interest.tell_all(self._router.interest)
        return self._told_interest.take(self._router.interest)

    def hear_interest(self, told: pb.Interest) -> None:
        self._heard_interest.take(told, self._router)

    def say_aside(self, payload: bytes) -> None:
        for _, network in self._shared():
            network.say(payload)

    def wants_to_hand_over(self, why: str) -> None:
        if not self._is_leaving:
            logger.warning("pair_hands_over reason=%s", why)
            self.hand_over(anyway=True)

    async def _look_around(self) -> None:
        """Find out, on standby, which brokers accept connections; more often while one does not or has been lost."""
        next_s = -math.inf
        while not self.member.lease.is_active:
            now_s = self._router.clock.monotonic_s()
            if now_s >= next_s or self.member.reports.latest.lost or not all(self._accepting.values()):
                next_s = now_s + _PROBE_AT_LEAST_EVERY_S
                for name, transport in self._networks():
                    if transport.shared is None and (accepts := await transport.can_connect()) is not None:
                        self._accepting[name] = accepts
            await asyncio.sleep(_PROBE_EVERY_S)


def _sessions(config: Config) -> dict[str, str]:
    """Return by endpoint under which names its broker knows this streamer, wherever the broker is."""
    named = {
        name: sorted(claim.behind_any_address for claim in each.options.claims(config.authority) if claim.behind_any_address)
        for name, each in config.endpoints.items()
    }
    return {name: " ".join(dict.fromkeys(names)) for name, names in named.items() if names}
