"""A model of a pair: two processes with disks and clocks, the link between them, a broker, a network that both hear.

The decisions are those of `features.pair.lease`; the rest is as simple as it can be, and says what the code around it has to
do. Two kinds of messages come in: the broker's are acknowledged, and handed over to whoever has the session; those of the
vehicle's network are heard by whoever runs, and not acknowledged. Whoever may send delivers what it has. Each direction
between the two has a delay, and can be cut. The broker gives the session to the one that has connected last, and ends it
again and again while there is a thief.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from streamer.features.pair.lease import Changed, Heartbeat, Lease, Timing

STEP_S = 0.05
TIMING = Timing()
RECONNECTS_S = 0.5, 10.0
"""The first and the longest wait after the end of a session."""
THIEF_S = 0.3
"""A thief takes each session after so long."""


class Row(NamedTuple):
    """A message goes to the other one: of the active one before it is acknowledged, of one that steps back, to be taken."""

    message: int
    is_handed_over: bool = False


class Stored(NamedTuple):
    message: int


class Done(NamedTuple):
    message: int


class Hello(NamedTuple):
    """The first words on a new link: which disk it has."""

    disk: int


class Waiting(NamedTuple):
    """Everything that waits on the disk of the active one; what else the other has of this disk has been dealt with."""

    disk: int
    messages: frozenset[int]


Letter = Heartbeat | Row | Stored | Done | Hello | Waiting


@dataclass
class Disk:
    """What survives a crash. ``waiting``: message → the disk of the other one that has it, too, or 0.

    ``replica``: message → the disk of the other one that it is from.
    """

    number: int
    epoch: int = 0
    waiting: dict[int, int] = field(default_factory=dict)
    replica: dict[int, int] = field(default_factory=dict)
    done: dict[int, None] = field(default_factory=dict)


class Node:
    """A process, its disk, and its clock, which runs at ``rate``."""

    def __init__(self, world: "World", name: str, rate: float) -> None:
        self.world = world
        self.name = name
        self.rate = rate
        self.disk = Disk(world.number())
        self.is_running = False
        self.is_paused = False
        self.other: Node
        self.start()

    def start(self) -> None:
        """Start the process, if it does not run."""
        if self.is_running:
            return
        self.is_running, self.is_paused = True, False
        self.lease = Lease(self.name, self.world.number(), self.disk.epoch, self.now_s, TIMING)
        self.inbox: list[tuple[float, Letter]] = []
        self.shadows: dict[int, None] = {}
        self.unacknowledged: dict[int, None] = {}
        self.beat_s = self.now_s
        self.other_disk = 0
        self.has_session = False
        self.connected_s = self.reconnects_s = self.world.now_s
        self.retry_s = 0.0
        self.world.new_link()

    def crash(self) -> None:
        """End the process; the disk stays."""
        self.is_running = False
        self.world.new_link()

    def lose_disk(self) -> None:
        """End the process, and replace its disk. What only this disk had is lost."""
        self.crash()
        there = {*self.other.disk.waiting, *self.other.disk.replica, *self.other.disk.done, *self.world.at_broker}
        self.world.owed -= {*self.disk.waiting, *self.disk.replica} - there
        self.disk = Disk(self.world.number())

    @property
    def now_s(self) -> float:
        return self.world.now_s * self.rate

    @property
    def may_send(self) -> bool:
        return self.is_running and not self.is_paused and self.lease.may_send(self.now_s)

    def tell(self, letter: Letter) -> None:
        self.world.carry(self, letter)

    def step(self) -> None:
        """What the event loop does in one turn: timers first, then what has arrived, then sending."""
        if self.now_s - self.beat_s >= TIMING.heartbeat_s:
            self.beat_s = self.now_s
            self.act(self.lease.tick(self.now_s))
            self.tell(self.lease.heartbeat(self.now_s))
        due = [letter for at_s, letter in self.inbox if at_s <= self.world.now_s]
        self.inbox = [each for each in self.inbox if each[0] > self.world.now_s]
        for letter in due:
            self.take(letter)
        if self.lease.is_active:
            self.work()

    def act(self, changed: Changed | None) -> None:
        """What a change of roles means: the epoch is on disk first."""
        if changed is None:
            return
        self.disk.epoch = changed.epoch
        self.world.roles_changed += 1
        if changed.is_active:
            for message in [*self.disk.replica, *self.shadows]:
                if message not in self.disk.done:
                    self.disk.waiting.setdefault(message, 0)
            self.disk.replica.clear()
            self.shadows.clear()
            self.tell_what_waits()
        else:
            self.has_session = False
            self.unacknowledged.clear()
            self.hand_over()

    def tell_what_waits(self) -> None:
        """At work, on a new link: what the other one has to have, and nothing else of this disk."""
        self.tell(Waiting(self.disk.number, frozenset(self.disk.waiting)))
        for message in self.disk.waiting:
            self.tell(Row(message))

    def hand_over(self) -> None:
        """On standby: what the other one has is its business; the rest is handed to it until it says that it is stored."""
        self.give_up_shared()
        for message in self.disk.waiting:
            self.tell(Row(message, is_handed_over=True))

    def give_up_shared(self) -> None:
        """What the other one has on the disk that is there now is its business."""
        for message, disk in list(self.disk.waiting.items()):
            if disk and disk == self.other_disk:
                del self.disk.waiting[message]
                self.disk.replica[message] = disk

    def take(self, letter: Letter) -> None:
        match letter:
            case Heartbeat():
                was_active = self.lease.is_active
                self.act(self.lease.receive(letter, self.now_s))
                if not was_active and not self.lease.is_active and letter.is_active:
                    self.hand_over()
            case Hello():
                self.other_disk = letter.disk
                if self.lease.is_active:
                    self.tell_what_waits()
            case Waiting():
                self.give_up_shared()
                for message, disk in list(self.disk.replica.items()):
                    if disk != letter.disk or message not in letter.messages:
                        del self.disk.replica[message]
                        if disk != letter.disk:
                            self.disk.waiting[message] = 0
                self.hand_over()
            case Row():
                self.take_row(letter)
            case Stored():
                if letter.message in self.disk.waiting:
                    self.disk.waiting[letter.message] = self.other_disk
                    if not self.lease.is_active:
                        self.hand_over()
                self.acknowledge(letter.message)
            case Done():
                self.disk.replica.pop(letter.message, None)
                self.shadows.pop(letter.message, None)
                self.disk.waiting.pop(letter.message, None)
                self.disk.done[letter.message] = None

    def take_row(self, row: Row) -> None:
        if row.is_handed_over and not self.lease.is_active:
            return  # it is offered again, once somebody works
        if row.message in self.disk.done:
            self.tell(Done(row.message))
            return
        if row.is_handed_over:
            self.disk.waiting.setdefault(row.message, self.other_disk)
        elif not self.lease.is_active and row.message not in self.disk.waiting:
            self.disk.replica[row.message] = self.other_disk
        self.shadows.pop(row.message, None)
        self.tell(Stored(row.message))

    def hear(self, message: int) -> None:
        """A message of the vehicle's network."""
        if message in self.disk.done:
            return
        if self.lease.is_active:
            self.accept(message)
        elif message not in self.disk.replica:
            self.shadows[message] = None

    def accept(self, message: int) -> None:
        if message not in self.disk.waiting and message not in self.disk.done:
            self.disk.waiting[message] = 0
            self.tell(Row(message))

    def acknowledge(self, message: int) -> None:
        if message in self.unacknowledged and self.has_session:
            self.world.acknowledged(message)
            del self.unacknowledged[message]

    def lose_session(self) -> None:
        """The broker has ended the session. Connect anew after a wait that doubles, and do everything else as before."""
        self.has_session = False
        self.unacknowledged.clear()
        has_lived = self.world.now_s - self.connected_s > RECONNECTS_S[1]
        self.retry_s = RECONNECTS_S[0] if has_lived or not self.retry_s else min(2 * self.retry_s, RECONNECTS_S[1])
        self.reconnects_s = self.world.now_s + self.retry_s

    def work(self) -> None:
        """Connect to the broker, take what it has, deliver what waits."""
        if not self.has_session and self.world.now_s >= self.reconnects_s and self.world.connect(self):
            self.has_session, self.connected_s = True, self.world.now_s
        if self.has_session:
            for message in self.world.at_broker:
                self.unacknowledged[message] = None
                self.accept(message)
        for message in list(self.unacknowledged):
            is_done, shared = message in self.disk.done, self.disk.waiting.get(message, 0)
            if is_done or shared or self.lease.is_alone:
                self.acknowledge(message)
        if not self.may_send:
            return
        for message in list(self.disk.waiting):
            self.world.delivered(self, message)
            del self.disk.waiting[message]
            self.disk.done[message] = None
            self.tell(Done(message))


class World:
    """Time, the link, the broker and the receivers. ``said`` is what every receiver got, by whom and when."""

    def __init__(self, rates: tuple[float, float]) -> None:
        self.now_s = 0.0
        self._numbers = 0
        self.deaf: set[str] = set()
        """The names of those to whom nothing comes over the link."""
        self.delay_s = {"a": 0.0, "b": 0.0}
        """How long a letter to each takes."""
        self.has_broker = True
        self.has_thief = False
        self.roles_changed = 0
        self.session: Node | None = None
        self.at_broker: dict[int, None] = {}
        self.said: list[tuple[int, str, float]] = []
        self.owed: set[int] = set()
        self.disturbed_s = -1e9  # when a direction was last cut, or became slower
        self.nobody_since_s = 0.0
        self.longest_pause_s = 0.0
        """For how long nobody could send at most, while no machine was away."""
        self.nodes: list[Node] = []
        self.nodes = [Node(self, name, rate) for name, rate in zip("ab", rates, strict=True)]
        self.nodes[0].other, self.nodes[1].other = self.nodes[1], self.nodes[0]
        self.new_link()

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def new_link(self) -> None:
        """What was on its way is lost, and both say hello again."""
        if len(self.nodes) < 2:
            return
        for node in self.nodes:
            node.inbox = []
        if all(node.is_running for node in self.nodes):
            for node in self.nodes:
                node.tell(Hello(node.disk.number))

    def carry(self, sender: Node, letter: Letter) -> None:
        receiver = sender.other
        if receiver.is_running and receiver.name not in self.deaf:
            last_s = receiver.inbox[-1][0] if receiver.inbox else 0.0  # nothing overtakes
            receiver.inbox.append((max(last_s, self.now_s + self.delay_s[receiver.name]), letter))

    def delay(self, name: str, seconds: float) -> None:
        """Have letters to one take so long."""
        if self.delay_s[name] != seconds:
            self.delay_s[name], self.disturbed_s = seconds, self.now_s

    def connect(self, node: Node) -> bool:
        """The broker ends the session of whoever has had it."""
        if not self.has_broker:
            return False
        before = self.session
        if before is not None and before is not node and before.is_running and before.has_session:
            before.lose_session()
        self.session = node
        return True

    def acknowledged(self, message: int) -> None:
        self.at_broker.pop(message, None)

    def delivered(self, node: Node, message: int) -> None:
        self.said.append((message, node.name, self.now_s))

    def publish(self, at_broker: bool) -> None:
        """A new message, of the cloud or of the vehicle. It is owed if anybody took responsibility for it."""
        message = self.number()
        if at_broker:
            self.at_broker[message] = None
            self.owed.add(message)
            return
        for node in self.nodes:
            if node.is_running and not node.is_paused:
                node.hear(message)

    def run(self, seconds: float) -> None:
        """Let time pass. At no time may both send, unless they did not hear each other a moment ago."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += STEP_S
            if self.deaf:
                self.disturbed_s = self.now_s
            for node in self.nodes:
                if node.is_running and not node.is_paused:
                    node.step()
            session = self.session
            if self.has_thief and session and session.has_session and self.now_s - session.connected_s >= THIEF_S:
                session.lose_session()
            settles_s = 2 * TIMING.silence_s + 2 * max(self.delay_s.values())
            senders = [node for node in self.nodes if node.may_send]
            if len(senders) > 1:
                assert self.now_s - self.disturbed_s < settles_s, "both send, though they hear each other"
            if senders or not all(node.is_running and not node.is_paused for node in self.nodes):
                self.nobody_since_s = self.now_s
            self.longest_pause_s = max(self.longest_pause_s, self.now_s - self.nobody_since_s)
