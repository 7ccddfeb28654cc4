"""Decide which of two streamers is active: leases, epochs and take-over. Pure: no I/O, and the caller passes the time in.

Each streamer of a pair sends its peer a heartbeat every `Timing.heartbeat_s`. A heartbeat names the last one that its sender
has received, and says for how long its sender will rely on an answer to it (`Heartbeat.relies_s`). There is no third machine
to ask, and nobody else's judgement counts: not a broker's, not a connection's. The law of this file:

- **Lease.** The active streamer may send while it relies on an answer: until a heartbeat's sending plus its `relies_s`, if
  the peer has answered that heartbeat by then. A later answer is none.
- **Take-over.** The standby does not take over before a heartbeat's arrival plus its `relies_s` times `STANDBY_FACTOR`, for
  every heartbeat that it has received. An arrival is later than the sending, and two clocks differ by less than the factor.
  So while each of the two hears the other, at most one of them sends, whatever the round trip.
- **The lease follows the round trip.** A streamer relies for longer when its answers have taken longer, up to
  `Timing.longest_relies_s`. A peer of a version that says nothing of it counts on `Timing.relies_s`, and gets no other.
- **Alone.** An active streamer whose heartbeats nobody answers in time holds its messages until the standby would have
  taken over (`ALONE_FACTOR`), and then sends without a lease. It is alone because nothing is *answered*: what it hears of
  the standby meanwhile does not say that the standby hears it.
- **Pauses.** A process that did not run for a while knows nothing. It takes over nothing, answers nothing, and sends nothing
  without a lease, before it has listened for as long as it would wait after a heartbeat.
- **Epochs.** Every take-over makes a higher epoch. An active streamer that hears of a higher one steps back.
- **Handover.** A streamer that hands over says so in its heartbeats, and takes over nothing for a while. The peer takes over
  when it hears that.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

STANDBY_FACTOR = 1.25
"""The standby waits for so many times as long as the active streamer relies: two clocks may differ by a tenth each."""

ALONE_FACTOR = 2.0
"""The active streamer is alone once it had no answer for so many times as long as it relies: longer than the standby waits,
and the standby's announcement is on its way."""

_ROUND_TRIP_FACTOR = 2.0
_SLACK_S = 0.4  # with a heartbeat every 0.2 s, an answer is up to that much older than the round trip of the network
_MEASURED_S = 10.0  # for so long a round trip counts
_KEPT_HEARTBEATS = 128  # sent heartbeats whose answer may still come


class Timing(NamedTuple):
    """Seconds by a monotonic clock."""

    heartbeat_s: float = 0.2
    relies_s: float = 0.8
    """The shortest time for which an answer is relied on, from the sending of the heartbeat that it answers."""
    longest_relies_s: float = 5.0
    """The longest such time. With a longer round trip there is no lease, and the active streamer is alone."""
    wait_s: float = 10.0
    """How long a streamer that has just started waits for its peer before it takes over."""
    pause_s: float = 0.6
    """A time between two ticks that is longer than this means that the process did not run."""
    stand_back_s: float = 3.0
    """How long a streamer that hands over takes over nothing."""

    @property
    def silence_s(self) -> float:
        """How long the standby waits at least, in silence, before it takes over."""
        return STANDBY_FACTOR * self.relies_s


_UNKNOWN = -1, -1  # of a journal that is not open


class Heartbeat(NamedTuple):
    """A sign of life. ``run`` is a random number of the sender's process, ``number`` counts its heartbeats.

    ``heard_run`` and ``heard_number`` are those of the last heartbeat that the sender has received (0: none, or not since
    its process was paused). ``name`` is the sender's place in the pair.
    """

    name: str
    run: int
    number: int
    epoch: int
    is_active: bool
    heard_run: int = 0
    heard_number: int = 0
    yields: bool = False
    """Whether the sender has handed over, and the receiver is to take over at once."""
    relies_s: float = 0.0
    """For how long the sender will rely on an answer to this heartbeat, from its sending; 0: an earlier version."""
    has_epoch: int = 0
    """With ``has_position``: up to where the sender's disk has everything (`disk.Disk.content`); -1: it is not open."""
    has_position: int = 0


@dataclass(slots=True)
class Changed:
    """The role after a call. The caller persists ``epoch`` before it acts on ``is_active``."""

    is_active: bool
    epoch: int
    why: str


class Lease:
    """The lease of one streamer of a pair.

    ``name`` differs between the two; of two that start together with equal epochs, the one with the smaller name takes over.
    ``epoch`` is the highest known one. ``is_alone``: an active streamer sends without a lease, because nothing was answered
    in time. ``is_ready``: the streamer may take over, which its caller decides. ``ignored`` counts old and own heartbeats.
    """

    def __init__(self, name: str, run: int, epoch: int, now_s: float, timing: Timing) -> None:
        self.name = name
        self.epoch = epoch
        self.is_active = False
        self.is_alone = False
        self.is_ready = True
        self.is_yielding = False
        self.content: tuple[int, int] | None = (0, 0)
        self.ignored = 0
        self._started_s = now_s
        self.run = run
        self._timing = timing
        self._number = 0
        self._sent: dict[int, tuple[float, float]] = {}  # number of a heartbeat → when it was sent, and its `relies_s`
        self._answered_number = 0
        self._answered_s = now_s  # when the last heartbeat was sent that was answered in time
        self._relies_until_s = -math.inf
        self._round_trips: deque[tuple[float, float]] = deque()  # when measured, seconds
        self._heard: Heartbeat | None = None
        self._answers = 0, 0  # run and number of the heartbeat that the next one answers
        self._ticked_s = now_s
        self._ran_since_s = now_s
        self._quiet_since_s = now_s
        self._patience_s = timing.wait_s  # how much silence ends its standby
        self._promised_until_s = -math.inf  # the peer may rely on this streamer's standby until then
        self._not_before_s = now_s

    @property
    def has_heard(self) -> bool:
        """Whether this process has received a heartbeat of the peer."""
        return self._heard is not None

    @property
    def round_trip_s(self) -> float:
        """The longest time that an answer has taken lately; 0 if none was measured."""
        return max((seconds for _, seconds in self._round_trips), default=0.0)

    @property
    def relies_s(self) -> float:
        """For how long the next heartbeat relies on an answer."""
        timing, heard = self._timing, self._heard
        if heard is None or not heard.relies_s:
            return timing.relies_s
        return min(max(timing.relies_s, _ROUND_TRIP_FACTOR * self.round_trip_s + _SLACK_S), timing.longest_relies_s)

    def heartbeat(self, now_s: float) -> Heartbeat:
        """Return the next heartbeat to send. To be called only after `tick` at the same time."""
        while self._round_trips and now_s - self._round_trips[0][0] > _MEASURED_S:
            self._round_trips.popleft()
        self._number += 1
        relies_s = self.relies_s
        self._sent[self._number] = now_s, relies_s
        if len(self._sent) > _KEPT_HEARTBEATS:
            del self._sent[next(iter(self._sent))]
        run, number = self._answers
        has = self.content or _UNKNOWN
        return Heartbeat(
            self.name, self.run, self._number, self.epoch, self.is_active, run, number, self.is_yielding, relies_s, *has
        )

    def may_send(self, now_s: float) -> bool:
        """Return whether messages may be sent now. To be asked before each batch."""
        if not self.is_active or now_s - self._ticked_s > self._timing.pause_s:
            return False
        return self.is_alone or now_s < self._relies_until_s

    def has_just_sent(self, run: int, number: int, now_s: float) -> bool:
        """Return whether this process has sent a heartbeat so lately that an answer to it may come in time."""
        sent = self._sent.get(number) if run == self.run else None
        return sent is not None and now_s - sent[0] < self._timing.longest_relies_s

    def tick(self, now_s: float) -> Changed | None:
        """Notice pauses and silence. To be called every `Timing.heartbeat_s`."""
        if now_s - self._ticked_s > self._timing.pause_s:
            self._ran_since_s = now_s
            # After a start, what it has waited before the pause is not lost.
            waited_s = 0.0 if self.is_active else max(0.0, self._patience_s - self._silence_s)
            self._quiet_since_s = max(self._quiet_since_s, now_s - waited_s)
            self._answers = 0, 0
            self.is_alone = False
        self._ticked_s = now_s
        if self.is_active:
            self.is_alone = self.is_alone or now_s > self._alone_from_s
            return None
        quiet_s = now_s - self._quiet_since_s
        if quiet_s <= self._patience_s or now_s <= self._promised_until_s or not self._may_take_over(now_s):
            return None
        return self._take_over(self.epoch, f"nothing was heard for {quiet_s:.1f} s", now_s, is_alone=True)

    def receive(self, heartbeat: Heartbeat, now_s: float) -> Changed | None:
        """Process a heartbeat of the peer, whose authenticity the caller has checked. Ignore old and doubled ones."""
        heard = self._heard
        if heartbeat.name == self.name or (heard is not None and not _is_newer(heartbeat, heard)):
            is_double = heard is not None and (heartbeat.run, heartbeat.number) == (heard.run, heard.number)
            self.ignored += not is_double  # a heartbeat comes over several ways
            return None
        self._heard = heartbeat
        self._answers = heartbeat.run, heartbeat.number
        self._quiet_since_s = now_s
        self._promised_until_s = max(self._promised_until_s, now_s + self._silence_s)
        is_answer = self._take_answer(heartbeat, now_s)
        if heartbeat.is_active:
            return self._heard_active(heartbeat, now_s)
        if not self.is_active:
            return self._heard_standby(heartbeat, is_answer, now_s)
        if heartbeat.epoch > self.epoch:  # the peer was active later, and waits
            return self._take_over(heartbeat.epoch, "the other has worked since and is on standby", now_s)
        return None

    def linked(self, now_s: float) -> None:
        """Note that the peer has proved itself on a new link: if it was never heard, its first heartbeat is on its way."""
        if self._heard is None:
            self._promised_until_s = max(self._promised_until_s, now_s + self._timing.longest_relies_s)

    def hand_over(self, now_s: float) -> Changed:
        """Step back, and have the peer take over, which the caller has found ready."""
        self._not_before_s = now_s + max(self._timing.stand_back_s, ALONE_FACTOR * self.relies_s)
        self.is_yielding = True
        return self._step_back(self.epoch, "handed over")

    @property
    def _silence_s(self) -> float:
        """How long this streamer, on standby, waits after a heartbeat."""
        told_s = self._heard.relies_s if self._heard is not None else 0.0
        return STANDBY_FACTOR * (told_s or self._timing.relies_s)

    @property
    def _unanswered_since_s(self) -> float:
        """Since when this process runs, and nobody has answered a heartbeat in time."""
        return max(self._answered_s, self._ran_since_s)

    @property
    def _alone_from_s(self) -> float:
        """When the peer has taken over, if it takes over at all: it may have received any heartbeat, answered or not."""
        since_s = self._unanswered_since_s
        waits = [min(sent_s, since_s) + ALONE_FACTOR * relies_s for sent_s, relies_s in self._sent.values()]
        return max(since_s + ALONE_FACTOR * self.relies_s, *waits, -math.inf)

    def _may_take_over(self, now_s: float) -> bool:
        return self.is_ready and now_s >= self._not_before_s

    def _take_answer(self, heartbeat: Heartbeat, now_s: float) -> bool:
        """Note which heartbeat this one answers. Return whether it does so in time."""
        sent = self._sent.get(heartbeat.heard_number) if heartbeat.heard_run == self.run else None
        if sent is None:
            return False
        sent_s, relies_s = sent
        if heartbeat.heard_number > self._answered_number:
            self._answered_number = heartbeat.heard_number
            if sent_s >= self._ran_since_s:  # else the pause is in it
                self._round_trips.append((now_s, now_s - sent_s))
        if not heartbeat.relies_s:  # the peer's process may just have been replaced by one of an earlier version
            relies_s = min(relies_s, self._timing.relies_s)
            self._relies_until_s = min(self._relies_until_s, now_s)
        if now_s >= sent_s + relies_s:
            return False
        self._answered_s = max(self._answered_s, sent_s)
        self._relies_until_s = max(self._relies_until_s, sent_s + relies_s)
        self.is_alone = False
        return True

    def _heard_active(self, heartbeat: Heartbeat, now_s: float) -> Changed | None:
        self._patience_s = self._silence_s
        self.is_yielding = False
        if not self.is_active:
            self.epoch = max(self.epoch, heartbeat.epoch)
            return None
        if (heartbeat.epoch, self.name) > (self.epoch, heartbeat.name):
            return self._step_back(heartbeat.epoch, f"the other works in epoch {heartbeat.epoch}")
        return None

    def _heard_standby(self, heartbeat: Heartbeat, is_answer: bool, now_s: float) -> Changed | None:
        """Decide which of two on standby takes over: the one whose disk has more, once the other has heard it.

        With equal disks, the higher epoch wins, then the name. Both wait for a while until both journals are open.

        `is_ready` does not count: with different configurations, neither would be active. Heartbeats that are no answers
        may be old, and the peer active by now; so without answers it waits for longer than the peer would.
        """
        timing = self._timing
        is_cut = now_s - self._unanswered_since_s > timing.wait_s + ALONE_FACTOR * timing.longest_relies_s
        if not (is_answer or is_cut) or now_s < self._not_before_s or (heartbeat.yields and not self.is_ready):
            return None
        epoch = max(self.epoch, heartbeat.epoch)
        if heartbeat.yields:
            return self._take_over(epoch, "the other hands over", now_s)
        here, there = self.content or _UNKNOWN, (heartbeat.has_epoch, heartbeat.has_position)
        if not heartbeat.relies_s:
            there = here  # an earlier version does not say
        elif _UNKNOWN in (here, there) and now_s - self._started_s < timing.wait_s:
            return None
        if (here, self.epoch, heartbeat.name) > (there, heartbeat.epoch, self.name):
            return self._take_over(epoch, "both are on standby", now_s, is_alone=is_cut)
        return None

    def _take_over(self, epoch: int, why: str, now_s: float, *, is_alone: bool = False) -> Changed:
        self.is_active, self.is_yielding, self.is_alone = True, False, is_alone
        self.epoch = epoch + 1
        self._relies_until_s = -math.inf
        self._answered_s = now_s
        self._sent.clear()  # only an answer to a heartbeat that says so proves that the peer knows
        return Changed(True, self.epoch, why)

    def _step_back(self, epoch: int, why: str) -> Changed:
        self.is_active = self.is_alone = False
        self.epoch = max(self.epoch, epoch)
        self._patience_s = self._silence_s
        return Changed(False, self.epoch, why)


def _is_newer(heartbeat: Heartbeat, heard: Heartbeat) -> bool:
    return heartbeat.run != heard.run or heartbeat.number > heard.number
