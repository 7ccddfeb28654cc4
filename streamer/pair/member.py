"""One side of a pair: its lease, its end of the link, and its journal, which is the other one's copy until it works.

The law of this file:
- Nothing is sent to any network unless `Member.may_send`.
- The epoch is on disk before anybody hears of it.
- On standby, the journal is written by the other side only (`Replica`); active, by the router (`MirroredJournal`).
- What is alone waits for nobody: `MirroredJournal.work_alone` is called when, and only when, the lease says so. What answers
  again is told everything again.
- The state file of the services goes with the journal: `streamer.pair.state`.
"""

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from streamer.clock import Clock
from streamer.journal.journal import Journal
from streamer.pair import notes, wire
from streamer.pair.lease import Changed, Lease, Timing
from streamer.pair.link import Link
from streamer.pair.mirror import MirroredJournal, Replica, Told
from streamer.pair.shadows import Settled, Shadows
from streamer.pair.state import MirroredState, StateFile, StateReplica
from streamer.uprotocol.proto import pair_v1_pb2 as pb

logger = logging.getLogger("ustreamer.pair")

FIRST = "a"
"""The name of the side that listens. Of two that start together, it works; its entries have even numbers."""

_PARITY = {True: 0, False: 1}
_NOTED_EVERY_S = 1.0
_SETTLED_PER_HEARTBEAT = 4


class Identity(NamedTuple):
    """Who this side is: ``config`` is the fingerprint of what both have to have in common."""

    name: str
    config: str
    version: str


class Member:
    """One side. ``changed`` is called when it begins or ends to work, once the epoch is on disk.

    ``settled`` observes the outcomes while it is active, ``shadows`` has what is heard on standby. ``state`` mirrors the
    services' state file.
    """

    def __init__(
        self, identity: Identity, path: Path, clock: Clock, timing: Timing, changed: Callable[[Changed], None]
    ) -> None:
        """``path``: that of the notes. Raises `NotesError`."""
        self._identity = identity
        self._path = path
        self._clock = clock
        self._timing = timing
        self._changed = changed
        self._noted_s = clock.monotonic_s()
        self._notes = notes.read(path)
        self._saving = threading.Lock()  # a thread writes what is shared, the event loop an epoch
        self._save()
        run = secrets.randbits(63) + 1
        self.lease = Lease(identity.name, run, self._notes.epoch, clock.monotonic_s(), timing)
        self.settled = Settled()
        self.shadows = Shadows()
        self.state = MirroredState(lambda written: self._say(pb.Frame(state=wire.state_to_proto(written))))
        self.other: pb.Hello | None = None
        self._link: Link | None = None
        self._replica: Replica | None = None
        self._state_replica: StateReplica | None = None
        self._working: MirroredJournal | None = None

    @property
    def name(self) -> str:
        """Return its name in the pair."""
        return self._identity.name

    def use(self, link: Link) -> None:
        """Use a link, whose callbacks are `on_up`, `on_down` and `on_frame`."""
        self._link = link

    def stand_by(self, journal: Journal, state: StateFile) -> None:
        """Have the other side write an open journal, and the state file, until `leave_standby`."""
        self._replica = Replica(journal, self._is_mine, lambda number: self._say(pb.Frame(stored=pb.Stored(number=number))))
        self._state_replica = StateReplica(state, self._answer_state)
        self._greet()  # what it was told before has gone nowhere

    def leave_standby(self) -> None:
        """Write nothing more for the other side; to be called before journal and state file are closed."""
        self._replica = self._state_replica = None

    def _answer_state(self, number: int, problem: str) -> None:
        self._say(pb.Frame(state_stored=pb.StateStored(number=number, problem=problem)))

    def _is_mine(self, number: int) -> bool:
        """Whether an entry is this side's own, and not known to be on the disk of the other one that is there now."""
        if number % 2 != _PARITY[self._identity.name == FIRST]:
            return False
        return self.other is None or self.other.disk != self._notes.other or number > self._notes.shared

    def work(self, journal: MirroredJournal, state: StateFile) -> None:
        """Have the other side copy an open journal, and the state file whose mirror is `state`, from now on."""
        self.leave_standby()
        self._working = journal
        self.state.work(state)
        if self.lease.is_alone:
            journal.work_alone()
        self._copy_to_other()

    def arrange(self, journal: MirroredJournal) -> None:
        """Prepare a journal that is not open yet for `work`."""
        journal.arrange(self._identity.name == FIRST, self._tell)

    def may_send(self) -> bool:
        """Whether messages may be sent now; to be asked before each batch."""
        return self.lease.may_send(self._clock.monotonic_s())

    @property
    def is_whole(self) -> bool:
        """Whether it has a copy of everything that waits at the other side, and of its state file."""
        replica, state = self._replica, self._state_replica
        return replica is not None and replica.is_whole and state is not None and state.is_whole

    async def beat(self) -> None:
        """Tick, and say so, until cancelled."""
        while True:
            self._act(self.lease.tick(self._clock.monotonic_s()))
            self._say_heartbeat()
            self._wait_or_not()
            await self._note_shared()
            for _ in range(_SETTLED_PER_HEARTBEAT):
                if ids := self.settled.take():
                    self._say(pb.Frame(settled=pb.Settled(ids=ids)))
                await asyncio.sleep(self._timing.heartbeat_s / _SETTLED_PER_HEARTBEAT)

    def _wait_or_not(self) -> None:
        """Wait for the other side as long as the lease does; if it answers again, tell it everything again."""
        if self._working is None:
            return
        if not self.lease.is_alone:
            if not self._working.is_telling:
                self._copy_to_other()
        elif not self._working.is_alone:
            logger.warning("pair_alone consequence=%s", "what is accepted is on one disk only")
            self._working.work_alone()
            self.state.work_alone()
        self.state.tick(self._clock.monotonic_s())

    async def _note_shared(self) -> None:
        """Write down what the other side has, from time to time: what is not written down comes twice after a crash."""
        now_s, working, other = self._clock.monotonic_s(), self._working, self.other
        if working is None or other is None or now_s < self._noted_s + _NOTED_EVERY_S:
            return
        if (working.shared, other.disk) != (self._notes.shared, self._notes.other):
            self._noted_s = now_s
            self._notes = self._notes._replace(shared=working.shared, other=other.disk)
            await asyncio.to_thread(self._save)

    def _save(self) -> None:
        with self._saving:
            notes.write(self._path, self._notes)

    def on_up(self) -> None:
        """There is a link: say who this is."""
        if self._replica is not None:
            self._replica.other_came()
        if self._state_replica is not None:
            self._state_replica.other_came()
        self._greet()

    def on_down(self, reason: str) -> None:
        """The link is gone; the lease decides what follows."""
        self.other = None
        self.state.other_left()
        logger.warning("pair_link_lost reason=%s", reason)

    def on_frame(self, frame: pb.Frame) -> None:
        """Take what the other side says."""
        match frame.WhichOneof("content"):
            case "heartbeat":
                self._act(self.lease.receive(wire.heartbeat_from_proto(frame.heartbeat), self._clock.monotonic_s()))
            case "hello":
                self._met(frame.hello)
            case "batch":
                if self._replica is not None:
                    told = frame.batch
                    batch = wire.batch_from_proto(told)
                    self._replica.take(Told(told.number, batch, told.is_snapshot_begin, told.is_snapshot_end))
            case "state":
                if self._state_replica is not None:
                    self._state_replica.take(wire.state_from_proto(frame.state))
            case "state_stored":
                self.state.other_stored(frame.state_stored.number, frame.state_stored.problem)
            case "settled":
                self.shadows.settle(frame.settled.ids)
            case "stored":
                if self._working is not None:
                    self._working.other_stored(frame.stored.number)

    def _met(self, hello: pb.Hello) -> None:
        """The other side has said who it is. With another configuration it would not do what this one does."""
        self.other = hello
        is_alike = hello.config == self._identity.config
        if self.lease.is_ready is not is_alike and not is_alike:
            logger.error("pair_differs other=%s consequence=%s", hello.config, "neither takes over for the other")
        self.lease.is_ready = is_alike
        self._copy_to_other()

    def _copy_to_other(self) -> None:
        """Tell the other side everything, if it is there and on standby. One that does not answer yet is told later."""
        if self._working is not None and self.other is not None and not self.other.is_active and not self.lease.is_alone:
            self._working.other_came()
            self.state.other_came()

    def _act(self, changed: Changed | None) -> None:
        if changed is None:
            return
        self._notes = self._notes._replace(epoch=changed.epoch)
        self._save()
        logger.warning(
            "pair_role is_active=%s epoch=%d reason=%s",
            changed.is_active,
            changed.epoch,
            changed.why,
            extra={"state": ("pair", "active" if changed.is_active else "on standby")},
        )
        if not changed.is_active:
            self.state.step_back()
        self._greet()
        self._say_heartbeat()
        self._changed(changed)

    def _say_heartbeat(self) -> None:
        self._say(pb.Frame(heartbeat=wire.heartbeat_to_proto(self.lease.heartbeat(self._clock.monotonic_s()))))

    def _greet(self) -> None:
        identity = self._identity
        self._say(
            pb.Frame(
                hello=pb.Hello(
                    disk=self._notes.disk,
                    config=identity.config,
                    is_active=self.lease.is_active,
                    version=identity.version,
                )
            )
        )

    def _tell(self, told: Told) -> bool:
        packed = wire.batch_to_proto(told.batch)
        packed.number, packed.is_snapshot_begin, packed.is_snapshot_end = told.number, told.is_first, told.is_last
        return self._say(pb.Frame(batch=packed))

    def _say(self, frame: pb.Frame) -> bool:
        return self._link is not None and self._link.send(frame)
