"""One streamer of a pair: its lease, its end of the link, and its journal, which on standby is a copy of the peer's.

The law of this file:
- Nothing is sent to any network unless `Member.may_send`.
- The epoch is on disk before anybody hears of it; if the disk fails, it is in memory, and that is logged.
- On standby, only the peer writes the journal (`Replica`); active, the router does (`MirroredJournal`).
- A source waits for the standby only while the standby answers and writes: `MirroredJournal.work_alone` is called when the
  lease, the link or the standby's report says that it does not. A standby that answers again gets a new snapshot.
- The tables of features go with the journal's entries: `streamer.features.pair.state`.
"""

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from streamer.clock import Clock
from streamer.features.host.state import StateFile
from streamer.features.pair import wire
from streamer.features.pair.beside import BesideTheLink
from streamer.features.pair.disk import NO_CLAIM, Disk
from streamer.features.pair.handing import Adoption, Offers
from streamer.features.pair.lease import STANDBY_FACTOR, Changed, Lease, Timing
from streamer.features.pair.link import Link
from streamer.features.pair.mirror import MirroredJournal, Replica, Told, disk_of_facts
from streamer.features.pair.notes import NotesFile
from streamer.features.pair.reach import Reach
from streamer.features.pair.reports import BROKER, STALE_S, Lacking, Reports, nodes_of
from streamer.features.pair.sealing import TAG_BYTES
from streamer.features.pair.sending import LONGEST_PAUSE_S, Attempts
from streamer.features.pair.shadows import Settled, Shadows
from streamer.features.pair.state import MirroredState, StateReplica
from streamer.journal import codec
from streamer.journal.journal import Journal, JournalState
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import pair_v1_pb2 as pb

logger = logging.getLogger("ustreamer.pair")

FIRST, SECOND = "a", "b"
"""The names of the streamer that listens and of the one that connects. Of two that start together, the first becomes active.
Its entries have even numbers."""

_PARITY = {True: 0, False: 1}
_SETTLED_PER_HEARTBEAT = 4
_PATIENCE_S = 5.0  # with a journal here that cannot be written, or one there that does not answer
_SESSION = b"uStreamer: the client id of one of a pair\0"
_COPY = "copy of the pair"
_MAX_REPORTED_NODES = 256  # of an endpoint; the number of all is reported as well


class Identity(NamedTuple):
    """The identity of this streamer. ``config`` is the fingerprint of the configuration that both have to have in common."""

    name: str
    config: str
    version: str
    sessions: Mapping[str, str] = {}
    """Endpoint → names that have to be the same at both streamers, so that a broker takes them for one client."""
    authority: str = ""
    """The authority of both streamers. Pairs of one fleet may have one key."""


class OwnStreamer(Protocol):
    """This streamer, as its pair sees it."""

    def reached(self) -> Sequence[str]:
        """Return the endpoints that this streamer is connected to."""

    def accepting(self) -> Mapping[str, bool]:
        """Return, on standby, by endpoint whether its broker accepts connections, as far as that is known.

        One that does may still refuse the streamer.
        """

    def lost(self) -> Sequence[str]:
        """Return the endpoints that this streamer is not connected to; on standby, none."""

    def nodes(self) -> Mapping[str, Collection[str]]:
        """Return, by endpoint, the ids of the connected nodes that are foreign to the pair, where the network has nodes."""

    def is_draining(self) -> bool:
        """Return whether this streamer is ending, and so closes its links itself."""

    def adopt(self, endpoint: str, batch: list[Received]) -> bool:
        """Take messages as if they had arrived at an endpoint; return False if there is no such endpoint."""

    def role_changed(self, changed: Changed) -> None:
        """Become active, or end at once."""

    def tell_interest(self, is_first: bool = False) -> pb.Interest | None:
        """Return the next message about the interest in topics; with ``is_first``, begin anew with all topics."""

    def hear_interest(self, told: pb.Interest) -> None:
        """On standby, listen to the topics that subscribers of the active streamer want."""

    def say_aside(self, payload: bytes) -> None:
        """Send a payload to the peer over the networks that both are connected to."""

    def wants_to_hand_over(self, why: str) -> None:
        """End, and hand over to the peer, which can do what this streamer cannot."""


class Member:
    """One streamer of a pair. `OwnStreamer.role_changed` is called when its role changes, once the epoch is on disk.

    ``settled`` observes the outcomes while it is active, ``shadows`` has the messages overheard on standby. ``state``
    replicates the features' tables. ``other``: the peer's greeting on this link; None: there is no link. ``reports``:
    those of this link. ``beside``: its heartbeats beside the link. ``lacking``: what the standby could not serve at once.
    ``differences``: how the two differ beyond their configurations, as a take-over would show it: kind → text.
    """

    def __init__(
        self,
        identity: Identity,
        path: Path,
        clock: Clock,
        timing: Timing,
        streamer: OwnStreamer,
        *,
        key: bytes,
        is_safe_at_both: bool = True,
        prefer_s: float | None = None,
    ) -> None:
        """``path``: the file of the notes. Raises `NotesError`."""
        self._identity = identity
        self._clock = clock
        self._timing = timing
        self._streamer = streamer
        self._key = key
        self._is_safe_at_both = is_safe_at_both
        self._prefer_s = prefer_s
        self._file = NotesFile(path)
        notes = self._file.notes
        self._had_peer = notes.epoch > 0  # it is not the first start of the pair
        self.lease = Lease(identity.name, secrets.randbits(63) + 1, notes.epoch, clock.monotonic_s(), timing)
        self.beside = BesideTheLink(key, identity.authority, self.lease, timing.silence_s)
        self._reach = Reach(notes.refused, clock.monotonic_s())
        self.settled = Settled()
        self.shadows = Shadows()
        self.state = MirroredState(
            lambda written: self._say(pb.Frame(state=wire.state_to_proto(written))), clock.monotonic_s
        )
        self.other: pb.Hello | None = None
        self.reports = Reports()
        self.lacking = Lacking()
        self._logged = "", 0  # of what is lacking: the text, and the most that were separate
        self.differences: Mapping[str, str] = {}
        self.takeovers = 0
        self.why = "it has just started"
        self.since_ms = clock.wall_ms()
        self._link: Link | None = None
        self._journal: Journal | None = None  # that of the standby
        self._replica: Replica | None = None
        self._state_replica: StateReplica | None = None
        self._offers: Offers | None = None
        self._adoption = Adoption(streamer.adopt)
        self._working: MirroredJournal | None = None
        self._since_s: dict[str, float] = {}
        self._attempts = Attempts()
        self._why_unshared = ""  # since the last copy was given up
        self._has_stored = asyncio.Event()
        self._has_told = False  # that everything is on both disks
        self._is_slow = False

    def use(self, link: Link) -> None:
        """Use a link to the peer, whose callbacks are `on_up`, `on_down` and `on_frame`."""
        self._link = link

    def stand_by(self, journal: Journal, state: StateFile) -> None:
        """Have the peer write an open journal and the tables in it, until `end_standby`."""
        self._journal = journal
        self._state_replica = StateReplica(
            state, lambda number, problem: self._say(pb.Frame(state_stored=pb.StateStored(number=number, problem=problem)))
        )
        self._copy_of(journal, self._disk_of(journal.facts, journal.top))

    def _copy_of(self, journal: Journal, disk: Disk) -> None:
        """Have the active streamer copy a journal from the beginning."""
        if self._offers is not None:
            self._offers.end()
        self._replica = replica = Replica(journal, disk, self._stored)
        self._offers = Offers(journal, disk, self._say, replica.delete)
        self._know(disk)
        self._greet()  # what has come before was not written

    def end_standby(self) -> None:
        """Take nothing more from the peer, because the journal is about to be closed."""
        self._journal = self._replica = self._offers = self._state_replica = None

    def arrange(self, journal: MirroredJournal) -> None:
        """Prepare a journal that is not open yet for `work`."""
        is_even = self._identity.name == FIRST
        safe, monotonic_s = self._is_safe_at_both, self._clock.monotonic_s
        journal.arrange(is_even, self._tell, safe, lambda: self.lease.epoch, self._disk_of, monotonic_s)

    def _disk_of(self, facts: Mapping[str, str], top: int) -> Disk:
        """Return the disk of a journal. Facts that the notes do not know are of another disk, or of an earlier version."""
        disk = disk_of_facts(facts, top, _PARITY[self._identity.name == FIRST])
        return disk if disk.name == self._file.notes.journal else disk_of_facts({}, disk.top, disk.parity)

    @property
    def _disk(self) -> Disk | None:
        """Return the disk of the journal; None while that is not open."""
        if self._replica is not None:
            return self._replica.disk
        return None if self._working is None else self._working.disk

    def _know(self, disk: Disk) -> None:
        """Write down the name of the disk, beside its journal."""
        if disk.name != self._file.notes.journal:
            self._file.save(journal=disk.name)

    def _check_files(self) -> None:
        """Notice that a journal was salvaged while it was in use: it is another disk, and copied anew.

        One at work goes on in a higher epoch when it hears of later work, and its disk has to say so.
        """
        if self._working is not None:
            if self.lease.is_active:
                self._working.work_in(self.lease.epoch)
            self._working.check_file()
            if self._working.disk.name != self._file.notes.journal:
                self._know(self._working.disk)
                self._greet()
        elif self._replica is not None and self._journal is not None and self._replica.is_void:
            logger.error("pair_disk_renamed reason=%s", "its journal was salvaged")
            self._copy_of(self._journal, self._disk_of({}, self._journal.top))

    def work(self, journal: MirroredJournal, state: StateFile) -> None:
        """Replicate an open journal, and the tables in it whose mirror is `state`, to the peer from now on."""
        self._working = journal
        if self.other is not None:
            journal.met(self.other.disk, wire.claim_from_proto(self.other.claim))
        self._know(journal.disk)
        self._greet()
        self.state.work(state)
        if self.lease.is_alone:
            journal.work_alone()
        self._copy_to_other()

    def configured(self, config: str) -> None:
        """Use the fingerprint of another configuration."""
        self._identity = self._identity._replace(config=config)
        self._compare()
        self._greet()

    def may_send(self) -> bool:
        """Return whether messages may be sent now. To be asked before each batch."""
        return self.lease.may_send(self._clock.monotonic_s())

    @property
    def is_whole(self) -> bool:
        """Whether this standby has written everything that the active streamer has sent of its journal.

        That is no more than its own disk says: the active streamer may have given this copy up since.
        """
        replica, state = self._replica, self._state_replica
        return replica is not None and replica.is_whole and state is not None and state.is_whole

    @property
    def is_protected(self) -> bool:
        """Whether either streamer could fail now without a loss.

        On the active streamer, this rests on what the standby has confirmed: a copy of everything, to which each transaction
        is added before it counts as written. On standby, it rests on its own disk, and on the last report of the active
        streamer, which is not older than `reports.STALE_S` and says that it rests on this copy. Unknown is not protected.
        """
        if self.lease.is_active:
            return self._working is not None and self._working.is_whole and self.state.is_whole
        return self.is_whole and not self._why_given_up()

    def why_not_ready(self) -> str:
        """Return why this standby could not take over without a loss; empty if it could."""
        if self.other is not None and not self.lease.is_ready:
            return "the other one has another configuration"
        return self.why_not_whole()

    def why_not_whole(self) -> str:
        """Return why this standby has no copy of the waiting messages; empty if it has, with whatever configuration.

        An update of both, one after the other, waits for this: the peer is the next to get the new configuration.
        """
        if self.other is None:
            return "there is no link to the other one"
        if self.is_whole:
            return self._problem() or self._why_given_up() or self.lacking.text
        problem = self._problem() or ("" if self._state_replica is None else self._state_replica.problem)
        return problem or "the copy of the other one's journal is not complete yet"

    def _why_given_up(self) -> str:
        """Return why the active streamer does not rest on the copy here; empty if it does."""
        if not self.reports.is_known(self._clock.monotonic_s()):
            return f"for {STALE_S:g} s nothing has come over the link, so it is not known whether the copy is complete"
        why = self.reports.latest.unshared
        return f"the active one does not rest on the copy here: {why}" if why else ""

    @property
    def untried(self) -> list[str]:
        """Return, on standby, a text for each broker of which it is known only that it accepts connections."""
        if self.lease.is_active:
            return []
        accepting = [name for name, accepts in self._streamer.accepting().items() if accepts]
        return [
            f"this one was never connected to the broker of endpoint {name}, which accepts connections"
            for name in filter(self._reach.is_unknown, accepting)
        ]

    def _linked(self, now_s: float) -> dict[str, Collection[str]]:
        """Return, by endpoint, the foreign nodes and brokers that this streamer is connected to or, on standby, could be."""
        linked = dict(self._streamer.nodes())
        if self.lease.is_active:
            brokers = dict.fromkeys(self._streamer.reached(), True)
        else:
            accepting = self._streamer.accepting().items()
            brokers = {name: accepts and self._reach.may_try(name, now_s) for name, accepts in accepting}
        return {name: [BROKER] if might_be else [] for name, might_be in brokers.items()} | linked

    def _compare_nodes(self, now_s: float) -> None:
        if self.lease.is_active and self._streamer.is_draining():
            return  # what it was connected to before counts: it closes its links itself
        is_pair = self.other is not None and self.other.is_active is not self.lease.is_active
        if not is_pair or not self.reports.latest.number or not self.reports.is_known(now_s):
            self.lacking.forget()
        else:
            both = self._linked(now_s), nodes_of(self.reports.latest)
            active, standby = both if self.lease.is_active else both[::-1]
            self.lacking.look(active, standby, now_s)
        self._log_lacking()

    def _log_lacking(self) -> None:
        """Log that the standby begins or ceases to lack nodes, and that more of them are separate."""
        (text, separate), lacking = self._logged, self.lacking
        self._logged = lacking.text, max(separate, lacking.separate)
        if lacking.separate > separate:
            consequence = "they are taken for programs that have a session for each of the two, and hold up no handover"
            state = {"state": ("sessions with the pair", "separate")}
            logger.info("pair_nodes_separate nodes=%d consequence=%s", lacking.separate, consequence, extra=state)
        if lacking.text and not text:
            consequence = "after a take-over, what these nodes send would be lost, and what goes to a broker would wait"
            state = {"state": ("nodes of the pair", "lacking")}
            logger.warning("pair_lacks_nodes reason=%s consequence=%s", lacking.text, consequence, extra=state)
        elif text and not lacking.text:
            logger.info("pair_nodes_alike", extra={"state": ("nodes of the pair", "alike")})

    def _find_differences(self, now_s: float) -> None:
        """Compare the two streamers by their greetings and reports, and log each difference once."""
        found = {}
        if self.reports.clocks is not None and (apart := self.reports.clocks.text):
            found["clock"] = apart
        mine, theirs = self._sessions(), {} if self.other is None else self.other.sessions
        if others := [name for name in mine if name in theirs and theirs[name] != mine[name]]:
            consequence = "after a take-over the broker gives the other one another session"
            found["client id"] = f"the two have different client ids at {', '.join(others)}: {consequence}"
        if self.other is None and now_s - self.beside.same_place_s < STALE_S:
            found["place"] = (
                "another streamer has the same place in the pair: one of the two listens, and the other one connects"
            )
        if self._offers is not None and self._offers.refused:
            found["offers"] = (
                f"{self._offers.refused} messages that this one has accepted alone are on its disk only: "
                "the active one has no endpoint of that name, or cannot read them"
            )
        for what in found.keys() - self.differences.keys():
            state = {"state": (f"{what} of the pair", "different")}
            logger.error("pair_differs what=%s reason=%s", what, found[what], extra=state)
        for what in self.differences.keys() - found.keys():
            logger.info("pair_alike what=%s", what, extra={"state": (f"{what} of the pair", "alike")})
        self.differences = found

    def _sessions(self) -> dict[str, bytes]:
        sessions = self._identity.sessions.items()
        return {
            name: hmac.digest(self._key, _SESSION + session.encode(), "sha256")[:TAG_BYTES] for name, session in sessions
        }

    def why_not_hand_over(self) -> str:
        """Return why the peer cannot take over now; empty if it can."""
        if not self.lease.is_active:
            return "this one is on standby"
        if self.other is None or self.lease.is_alone or not self.may_send():
            return "the other one does not answer"
        if not self.lease.is_ready:
            return "the other one has another configuration"
        if self.reports.latest.problem:
            return f"the other one cannot write its journal: {self.reports.latest.problem}"
        if self.state.problem:
            return f"the other one has no copy of subscriptions and pause rules: {self.state.problem}"
        return "" if self.is_protected else "the other one has no complete copy of the journal yet"

    def hear_aside(self, payload: bytes) -> None:
        """Take a payload from a network beside the link, sent by anybody: a heartbeat of the peer counts there, too."""
        now_s = self._clock.monotonic_s()
        if (heartbeat := self.beside.heard(payload, now_s)) is not None:
            self._act(self.lease.receive(heartbeat, now_s))

    async def until_stored(self, within_s: float) -> None:
        """Wait until the peer has written what it was sent: else it would send delivered messages again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._working is not None and self._working.is_mirrored and not self._working.is_stored:
                    self._has_stored.clear()
                    await self._has_stored.wait()

    def hand_over(self) -> None:
        """Step back, and have the peer take over. Nothing may be sent after that."""
        self._act(self.lease.hand_over(self._clock.monotonic_s()))

    async def beat(self) -> None:
        """Tick, and send heartbeats, reports and changes to the peer, until cancelled."""
        while True:
            self.lease.content = None if self._disk is None else self._disk.content
            self._act(self.lease.tick(self._clock.monotonic_s()))
            self._say_heartbeat()
            self._check_files()
            if self._journal is not None:
                self._journal.tick()
            self._compare_nodes(self._clock.monotonic_s())
            self._find_differences(self._clock.monotonic_s())
            self._look(self._clock.monotonic_s())
            self._say(pb.Frame(report=self._report()))
            self._note_round_trip()
            if self._reach.connected(self._streamer.reached(), self._clock.monotonic_s()):
                self._file.note(refused=dict(self._reach.refused))
                asyncio.get_running_loop().run_in_executor(None, self._file.save)
            for _ in range(_SETTLED_PER_HEARTBEAT):
                if (settled := self.settled.take(self._clock.monotonic_s())) is not None:
                    self._say(pb.Frame(settled=settled))
                if self._working is not None and (interest := self._streamer.tell_interest()) is not None:
                    self._say(pb.Frame(interest=interest))
                if (taken := self._adoption.take()) is not None:
                    self._say(pb.Frame(taken=taken))
                await asyncio.sleep(self._timing.heartbeat_s / _SETTLED_PER_HEARTBEAT)

    def on_up(self) -> None:
        """Greet the peer over a new link."""
        if self._replica is not None:
            self._replica.other_came()
        if self._state_replica is not None:
            self._state_replica.other_came()
        self._greet()
        self.lease.linked(self._clock.monotonic_s())
        self._act(self.lease.tick(self._clock.monotonic_s()))
        self._say_heartbeat()  # the next one is due later than an interrupted link may last
        for settled in self.settled.again(self._clock.monotonic_s()):
            self._say(pb.Frame(settled=settled))

    def on_down(self, reason: str) -> None:
        """Note that the link is gone. The lease decides what follows."""
        self.other = None
        self.reports.forget()
        if self._working is not None:
            self._working.link_lost()
        self.state.other_left()
        if self._offers is not None:
            self._offers.end()

    def on_frame(self, frame: pb.Frame) -> None:
        """Process a frame of the peer."""
        match frame.WhichOneof("content"):
            case "heartbeat":
                self._act(self.lease.receive(wire.heartbeat_from_proto(frame.heartbeat), self._clock.monotonic_s()))
            case "hello":
                self._met(frame.hello)
            case "batch":
                if self._replica is not None:
                    self._replica.take(wire.told_from_proto(frame.batch))
            case "state":
                if self._state_replica is not None:
                    self._state_replica.take(wire.state_from_proto(frame.state))
            case "state_stored":
                self.state.other_stored(frame.state_stored.number, frame.state_stored.problem)
            case "settled":
                self.shadows.settle(frame.settled)
            case "interest":
                if not self.lease.is_active:
                    self._streamer.hear_interest(frame.interest)
            case "stored":
                if self._working is not None:
                    self._working.other_stored(frame.stored.number, wire.claim_from_proto(frame.stored.granted))
                    self._has_stored.set()
            case "report":
                self.reports.heard(frame.report, self._clock.monotonic_s())
            case "offer":
                if self._working is not None:
                    self._adoption.offered(frame.offer)
            case "taken":
                if self._offers is not None:
                    self._offers.took(frame.taken)

    # -- on standby

    def _stored(self, told: Told) -> None:
        """Confirm a batch that is on disk here, and drop the overheard messages that are in it."""
        self.shadows.drop(_readable(row.body for row in told.batch.rows))
        stored = pb.Stored(number=told.number)
        if told.is_last and self._replica is not None:
            stored.granted.CopyFrom(wire.claim_to_proto(self._replica.disk.granted()))
        self._say(pb.Frame(stored=stored))
        if self._offers is not None and told.is_last:
            self._offers.begin()

    # -- active

    def _look(self, now_s: float) -> None:
        """Stop waiting for a standby that is gone or cannot write; hand over if it can do what this streamer cannot."""
        working = self._working
        if working is None:
            return
        if self._why_gone(now_s):
            self.state.work_alone()
        self.state.tick()
        if why := self._why_alone(working, now_s):
            if not working.is_alone or working.is_copied:
                working.work_alone()
            if why != self._why_unshared:
                self._why_unshared = why
                consequence = "what is accepted is on one disk only"
                state = {"state": (_COPY, f"alone: {why}")}
                logger.warning("pair_alone reason=%s consequence=%s", why, consequence, extra=state)
        elif not working.is_copied and self._attempts.is_due(now_s) and self.reports.is_answered(now_s):
            self._copy_to_other()
        if self._lasts_s("copy", working.is_copied and not working.is_mirrored, now_s) > _PATIENCE_S:
            working.stop_waiting()  # a large copy takes minutes over a slow link
        self._attempts.look(self.is_protected, now_s)
        if self.is_protected and not self._has_told:
            self._why_unshared = ""
            logger.info(
                "pair_protected consequence=%s", "what is accepted is on both disks", extra={"state": (_COPY, "whole")}
            )
        self._has_told = self.is_protected
        if (why := self._why_other(working, now_s)) and not self.why_not_hand_over():
            if working.state is not JournalState.FAILING and self._reach.failed(self._streamer.lost()):
                # The process ends now, and the next one is not to try again at once.
                self._file.save(refused=dict(self._reach.refused))
            self._streamer.wants_to_hand_over(why)

    def _why_alone(self, working: MirroredJournal, now_s: float) -> str:
        """Return why no source may wait for the standby; empty if the standby writes, or is expected to."""
        if why := self._why_gone(now_s):
            return why
        if self.reports.latest.problem:
            return f"the other one cannot write: {self.reports.latest.problem}"
        why, working.problem_of_copy = working.problem_of_copy, ""
        if why:
            logger.error("pair_copy_failed reason=%s consequence=%s", why, f"it is tried again within {LONGEST_PAUSE_S:g} s")
        elif working.silent_s > _PATIENCE_S:
            why = "the other one does not write"
        if why:
            self._attempts.failed(now_s)
        return why

    def _note_round_trip(self) -> None:
        """Log when answers begin to take so long that a take-over takes longer as well, and when they no longer do."""
        lease = self.lease
        if (is_slow := lease.relies_s > 2 * self._timing.relies_s) is not self._is_slow:
            self._is_slow = is_slow
            text = "pair_round_trip is_slow=%s round_trip_s=%.1f consequence=%s"
            consequence = f"the standby takes over after {STANDBY_FACTOR * lease.relies_s:.1f} s of silence"
            state = {"state": ("round trip of the pair", "slow" if is_slow else "normal")}
            level = logging.WARNING if is_slow else logging.INFO
            logger.log(level, text, is_slow, lease.round_trip_s, consequence, extra=state)

    def _why_gone(self, now_s: float) -> str:
        """Return why the standby counts as gone; empty if it does not."""
        if self.lease.is_alone:
            trip_s, bound_s = self.lease.round_trip_s, self._timing.longest_relies_s
            return "nothing answers" if trip_s < bound_s else f"an answer takes {trip_s:.1f} s, more than {bound_s:g} s"
        # One that is heard beside the link only; else the lease says when nobody is to be waited for.
        is_cut = self._lasts_s("no link", self.other is None and self.may_send(), now_s) > self._timing.silence_s
        return "there is no link" if is_cut else ""

    def _why_other(self, working: MirroredJournal, now_s: float) -> str:
        """Return why the standby should become active instead; empty if there is no reason."""
        if hangs := working.hangs:  # for some seconds already
            return f"the journal cannot be written: {hangs}"
        is_failing = working.state is JournalState.FAILING
        if self._lasts_s("journal", is_failing, now_s) > _PATIENCE_S:
            return f"the journal cannot be written: {working.problem}"
        if self.reports.latest.has_kept_state:
            return "the other one has subscriptions, pause rules or last values that are lost here"
        reached, lost = set(self._streamer.reached()), self._streamer.lost()
        is_better = self._prefer_s is not None and bool(lost) and reached < set(self.reports.latest.reaches)
        if self._lasts_s("links", is_better, now_s) <= (self._prefer_s or 0.0) or self.lacking:
            return ""
        untried = [name for name in lost if name in self.reports.latest.untried]
        evidence = f"has never tried {', '.join(untried)}" if untried else "can reach more"
        return f"there is no link to {', '.join(lost)}, and the other one {evidence}"

    def _lasts_s(self, what: str, is_so: bool, now_s: float) -> float:
        """Return for how many seconds a condition has held without a break; 0 if it does not."""
        if is_so:
            return now_s - self._since_s.setdefault(what, now_s)
        self._since_s.pop(what, None)
        return 0.0

    def _copy_to_other(self) -> None:
        """Replicate the journal to the peer, if it is linked, on standby, and able to write."""
        other = self.other
        if other is None or other.is_active or not other.disk or self.reports.latest.problem:
            return
        if self._working is not None and not self.lease.is_alone:
            self._working.other_came()
            self.state.other_came(self._working.disk.is_behind(wire.claim_from_proto(other.claim)))

    # -- both

    def _met(self, hello: pb.Hello) -> None:
        """Take the greeting of the peer."""
        self.other = hello
        self.reports.expire()
        self._compare()
        if self._working is not None:
            self._working.met(hello.disk, wire.claim_from_proto(hello.claim))
        self._copy_to_other()
        if self._working is not None and (interest := self._streamer.tell_interest(is_first=True)) is not None:
            self._say(pb.Frame(interest=interest))

    def _compare(self) -> None:
        """Rule out a take-over between different configurations: the peer would not do what this streamer does."""
        other = self.other
        if other is None:
            return
        is_alike = other.config == self._identity.config
        if is_alike is not self.lease.is_ready:
            text = "pair_configuration is_alike=%s other=%s consequence=%s"
            consequence = "each can take over for the other" if is_alike else "neither takes over for the other"
            state = {"state": ("configurations of the pair", "alike" if is_alike else "different")}
            logger.log(logging.INFO if is_alike else logging.ERROR, text, is_alike, other.config, consequence, extra=state)
        self.lease.is_ready = is_alike

    def _report(self) -> pb.Report:
        """Return the report of this streamer for the peer."""
        streamer, now_s = self._streamer, self._clock.monotonic_s()
        linked = self._linked(now_s)
        accepting = [name for name, accepts in streamer.accepting().items() if accepts]
        within_reach = [name for name in accepting if self._reach.may_try(name, now_s)]
        report = pb.Report(
            reaches=[*streamer.reached(), *within_reach],
            untried=[name for name in within_reach if self._reach.is_unknown(name)],
            lost=streamer.lost(),
            is_whole=self.is_whole,
            problem=self._problem(),
            has_kept_state=self._state_replica is not None and self._state_replica.has_kept,
            nodes=[
                pb.Nodes(endpoint=name, ids=sorted(ids)[:_MAX_REPORTED_NODES], count=len(ids))
                for name, ids in linked.items()
            ],
            unshared=self._unshared(),
        )
        return self.reports.numbered(report, self._clock.monotonic_s(), self._clock.wall_ms())

    def _unshared(self) -> str:
        """Return why the standby lacks messages that this active streamer has accepted; empty if it does not."""
        if not self.lease.is_active or self.is_protected:
            return ""
        return self._why_unshared or self.state.problem or "the copy of its journal is not complete yet"

    def _problem(self) -> str:
        """Return why this streamer cannot write its journal; empty if it can."""
        journal = self._journal or self._working
        if journal is None or journal.state is JournalState.OPENING:
            return "it is not open yet"
        return "" if journal.state is JournalState.OK else journal.problem

    def _act(self, changed: Changed | None) -> None:
        if changed is None:
            return
        self._file.save(epoch=changed.epoch)
        self.takeovers += changed.is_active
        self.why, self.since_ms = changed.why, self._clock.wall_ms()
        role = "active" if changed.is_active else "standby"
        state = {"state": ("pair", role)}
        logger.warning("pair_role role=%s epoch=%d reason=%s", role, changed.epoch, changed.why, extra=state)
        if changed.is_active and self._had_peer and not self.lease.has_heard:
            text = "pair_may_miss consequence=%s"
            logger.warning(
                text, "what the other one has accepted since they last heard each other waits on its disk until it is back"
            )
        if not changed.is_active:
            self.state.step_back()
        self._greet()
        self._say_heartbeat()
        self._streamer.role_changed(changed)

    def _say_heartbeat(self) -> None:
        heartbeat = wire.heartbeat_to_proto(self.lease.heartbeat(self._clock.monotonic_s()))
        self._say(pb.Frame(heartbeat=heartbeat))
        self._streamer.say_aside(self.beside.pack(heartbeat))

    def _greet(self) -> None:
        identity, disk = self._identity, self._disk
        self._say(
            pb.Frame(
                hello=pb.Hello(
                    disk="" if disk is None else disk.name,
                    sessions=self._sessions(),
                    claim=wire.claim_to_proto(NO_CLAIM if disk is None else disk.claim),
                    config=identity.config,
                    is_active=self.lease.is_active,
                    version=identity.version,
                )
            )
        )

    def _tell(self, told: Told) -> bool:
        return self._say(pb.Frame(batch=wire.told_to_proto(told)))

    def _say(self, frame: pb.Frame) -> bool:
        return self._link is not None and self._link.send(frame)


def _readable(bodies: Iterable[bytes]) -> Iterator[UMessage]:
    for body in bodies:
        with contextlib.suppress(codec.UnreadableError):  # the active one finds that out, too
            yield codec.unpack(body)
