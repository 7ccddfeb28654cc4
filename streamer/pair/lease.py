"""Which of two streamers is active: leases, epochs and take-over. Pure: no I/O, and the caller passes the time in.

Each of the two sends the other a heartbeat every `Timing.heartbeat_s`, which names the last one it has got. There is no
third one to ask, so each decides by what it hears and by its own monotonic clock:

- The active one may send while the other has answered a heartbeat of less than `Timing.lease_s` ago. The standby takes
  over after it has heard nothing for `Timing.take_over_s`, which is longer. So while both run and hear each other, at most
  one of them sends.
- If nothing answers any more, the active one holds its messages until the other would have taken over, and then goes on
  alone: the other has failed, or the link is cut and both work, and who is behind them gets messages twice.
- A process that did not run for a while knows nothing. It sends nothing and takes over nothing before it has listened for
  as long.
- Every take-over makes a higher epoch. Whoever is active and hears of a higher one steps back.
- Whom a broker throws out, because another has connected with its client id, steps back as well, and takes over nothing for
  a while; unless it knows that the other is on standby, so that it was a stranger.
- Who hands over says so in its heartbeats, and takes over nothing for a while. The other one works from when it hears that.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

_DOUBLINGS = 30
_KEPT_HEARTBEATS = 64  # sent ones whose answer may still come


class Timing(NamedTuple):
    """Seconds by a monotonic clock."""

    heartbeat_s: float = 0.2
    lease_s: float = 0.8
    """How long an answer is good for, from the sending of what it answers."""
    take_over_s: float = 1.0
    """How much silence ends a lease for the standby: more than `lease_s`, by what two clocks may differ."""
    alone_s: float = 1.5
    """How much silence makes the active one go on alone: more than `take_over_s`."""
    wait_s: float = 10.0
    """How long one that has just started waits for the other, before it works alone."""
    pause_s: float = 0.6
    """A time between two ticks that is longer than this means that the process did not run."""
    stand_back_s: float = 3.0
    """How long one that the broker has thrown out takes over nothing; twice as long each time, until it hears the other."""
    longest_stand_back_s: float = 60.0
    again_s: float = 10.0
    """Two ends of a session within this time are one after the other."""
    brief_s: float = 3.0
    """A session that lived for less was brief."""


class Heartbeat(NamedTuple):
    """What one says to the other. ``run`` is a random number of the process, ``number`` counts its heartbeats.

    ``heard_run`` and ``heard_number`` are those of the last heartbeat that it has got; ``name`` is its place in the pair.
    """

    name: str
    run: int
    number: int
    epoch: int
    is_active: bool
    heard_run: int = 0
    heard_number: int = 0
    yields: bool = False
    """Whether it has handed over, and the other is to take over at once."""


@dataclass(slots=True)
class Changed:
    """What has changed with a call: the caller persists ``epoch`` before it acts on ``is_active``."""

    is_active: bool
    epoch: int
    why: str


class Lease:
    """One side. ``name`` differs between the two; of two that start together with equal epochs, the smaller name works.

    ``epoch`` is the highest one that is known; ``is_alone``: nothing has answered for so long that the other counts as gone;
    ``is_ready``: it may take over, which its caller decides; ``ignored`` counts heartbeats that were old or its own.
    """

    def __init__(self, name: str, run: int, epoch: int, now_s: float, timing: Timing, thrown_out: int = 0) -> None:
        """``thrown_out``: how often a broker has ended its session before this start, since the other one was heard."""
        self.name = name
        self.epoch = epoch
        self.is_active = False
        self.is_alone = False
        self.is_ready = True
        self.is_yielding = False
        self.ignored = 0
        self._run = run
        self._timing = timing
        self._number = 0
        self._sent_s: dict[int, float] = {}
        self._answered_s: float | None = None  # when the latest heartbeat that was answered had been sent
        self._heard: Heartbeat | None = None
        self._ticked_s = now_s
        self._quiet_since_s = now_s  # it ran, and heard nothing, since then
        self._patience_s = timing.wait_s  # how much silence ends its standby
        self.times_thrown_out = thrown_out
        self._session_ended_s = -math.inf
        self._not_before_s = now_s + (self._stand_back_s if thrown_out else 0.0)

    def heartbeat(self, now_s: float) -> Heartbeat:
        """Return the next heartbeat to send; to be called only after `tick` at the same time."""
        self._number += 1
        self._sent_s[self._number] = now_s
        if len(self._sent_s) > _KEPT_HEARTBEATS:
            del self._sent_s[next(iter(self._sent_s))]
        heard = self._heard
        run, number = (0, 0) if heard is None else (heard.run, heard.number)
        return Heartbeat(self.name, self._run, self._number, self.epoch, self.is_active, run, number, self.is_yielding)

    def may_send(self, now_s: float) -> bool:
        """Whether messages may be sent now: to be asked before each batch."""
        if not self.is_active or now_s - self._ticked_s > self._timing.pause_s:
            return False
        return self.is_alone or self._is_answered(now_s)

    @property
    def has_heard(self) -> bool:
        """Whether the other one was heard since this process has started."""
        return self._heard is not None

    def has_just_sent(self, run: int, number: int, now_s: float) -> bool:
        """Whether a heartbeat was sent by this process within `Timing.take_over_s`."""
        sent_s = self._sent_s.get(number) if run == self._run else None
        return sent_s is not None and now_s - sent_s < self._timing.take_over_s

    def tick(self, now_s: float) -> Changed | None:
        """Notice silence; to be called every `Timing.heartbeat_s`."""
        timing = self._timing
        if now_s - self._ticked_s > timing.pause_s:
            # It listens for as long as a take-over needs; what one that has just started has waited before is not lost.
            waited_s = 0.0 if self.is_active else max(0.0, self._patience_s - timing.take_over_s)
            self._quiet_since_s = max(self._quiet_since_s, now_s - waited_s)
            self.is_alone = False
        self._ticked_s = now_s
        quiet_s = now_s - self._quiet_since_s
        if self.is_active and now_s - self._session_ended_s > timing.longest_stand_back_s:
            self.times_thrown_out = 0  # nobody has taken its session for long
        if self.is_active:
            self.is_alone = self.is_alone or quiet_s > timing.alone_s
            return None
        if not self.is_ready or now_s < self._not_before_s or quiet_s <= self._patience_s:
            return None
        self.is_alone = True
        return self._take_over(self.epoch, f"nothing was heard for {quiet_s:.1f} s")

    def receive(self, heartbeat: Heartbeat, now_s: float) -> Changed | None:
        """Take a heartbeat of the other, whose authenticity the caller has checked. Old and doubled ones change nothing."""
        heard = self._heard
        if heartbeat.name == self.name or (heard is not None and not _is_newer(heartbeat, heard)):
            is_double = heard is not None and (heartbeat.run, heartbeat.number) == (heard.run, heard.number)
            self.ignored += not is_double  # it comes over several ways
            return None
        self._heard = heartbeat
        self._quiet_since_s = now_s
        self.times_thrown_out = 0
        sent_s = self._sent_s.get(heartbeat.heard_number) if heartbeat.heard_run == self._run else None
        if sent_s is not None:
            self._answered_s = sent_s
            self.is_alone = False
        if heartbeat.is_active:
            return self._heard_active(heartbeat)
        if self.is_active:
            if heartbeat.epoch > self.epoch:  # it has worked since, and waits for what to do
                return self._take_over(heartbeat.epoch, "the other has worked since and is on standby")
            return None
        is_fresh = sent_s is not None and now_s - sent_s < self._timing.lease_s  # else it may work by now
        return self._heard_standby(heartbeat, is_fresh, now_s)

    def session_ended(self, is_taken_over: bool, lived_s: float, now_s: float) -> Changed | None:
        """Judge the end of a session at a broker that lived for so long: was this one thrown out? See `thrown_out`.

        Some brokers do not say that another has connected with its client id. Two that take the session from each other end
        each other's soon after they have begun, so the second brief end counts.
        """
        is_again = now_s - self._session_ended_s < self._timing.again_s and lived_s < self._timing.brief_s
        self._session_ended_s = now_s
        return self.thrown_out(now_s) if is_taken_over or is_again else None

    def thrown_out(self, now_s: float) -> Changed | None:
        """Step back: a broker has ended the session, because another has connected with its client id.

        Do nothing if the other one is known to be on standby.
        """
        if self.is_active and not self.is_alone and self._is_answered(now_s):
            return None
        self.times_thrown_out += 1
        self._not_before_s = now_s + self._stand_back_s
        return self._step_back(self.epoch, "the broker has given the session to another") if self.is_active else None

    def hand_over(self, now_s: float) -> Changed:
        """Step back, and have the other one take over, which was seen to be ready for it."""
        self._not_before_s = now_s + self._timing.stand_back_s
        self.is_yielding = True
        return self._step_back(self.epoch, "handed over")

    @property
    def _stand_back_s(self) -> float:
        timing = self._timing
        return min(timing.stand_back_s * 2.0 ** min(self.times_thrown_out - 1, _DOUBLINGS), timing.longest_stand_back_s)

    def _is_answered(self, now_s: float) -> bool:
        return self._answered_s is not None and now_s - self._answered_s < self._timing.lease_s

    def _heard_active(self, heartbeat: Heartbeat) -> Changed | None:
        self._patience_s = self._timing.take_over_s
        self.is_yielding = False
        if not self.is_active:
            self.epoch = max(self.epoch, heartbeat.epoch)
            return None
        if (heartbeat.epoch, self.name) > (self.epoch, heartbeat.name):
            return self._step_back(heartbeat.epoch, f"the other works in epoch {heartbeat.epoch}")
        return None

    def _heard_standby(self, heartbeat: Heartbeat, is_fresh: bool, now_s: float) -> Changed | None:
        """Both are on standby: the one with the higher epoch worked last, and works once the other has heard it.

        It does so even if neither is to take over from the other, or nobody would work.
        """
        if not is_fresh or now_s < self._not_before_s or (heartbeat.yields and not self.is_ready):
            return None
        if heartbeat.yields:
            return self._take_over(max(self.epoch, heartbeat.epoch), "the other hands over")
        if (self.epoch, heartbeat.name) > (heartbeat.epoch, self.name):
            return self._take_over(max(self.epoch, heartbeat.epoch), "both are on standby")
        return None

    def _take_over(self, epoch: int, why: str) -> Changed:
        self.is_active, self.is_yielding = True, False
        self.epoch = epoch + 1
        self._answered_s = None
        self._sent_s.clear()  # only an answer to what says so proves that the other one knows
        return Changed(True, self.epoch, why)

    def _step_back(self, epoch: int, why: str) -> Changed:
        self.is_active = self.is_alone = False
        self.epoch = max(self.epoch, epoch)
        self._patience_s = self._timing.take_over_s
        return Changed(False, self.epoch, why)


def _is_newer(heartbeat: Heartbeat, heard: Heartbeat) -> bool:
    return heartbeat.run != heard.run or heartbeat.number > heard.number
