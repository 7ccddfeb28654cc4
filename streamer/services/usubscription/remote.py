"""One topic of another device: what its service was asked, and what we know from its answers (004 §4.1, §4.2, §8). Pure.

The law of this file:

- What we want (`wanted`) changes with our subscribers, and each change begins a new epoch. A command is sent at once then,
  and again until it is answered: at once after silence, later and later after a failure that came early.
- An answer counts only in the epoch of its command.
- Commands can overtake each other on their way. As long as one that asks for the contrary may still arrive, the other side
  may change its mind after its answer: so when the last of those has ended by its TTL, or by an answer that is not older
  than the command's own, the command is sent once more. Only OK tells when something was carried out: who made another
  answer, and by which clock, is not known. Commands that may still arrive are kept over a restart for that reason.
- A service's Updates can overtake its answers, and the other way round. One that is older than the last answer is not
  followed; an answer that is not newer than an UNSUBSCRIBED that came before it is no confirmation, and leads to asking
  again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from streamer.services.usubscription.entries import Order, Reply, Standing, Told
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import created_ms, new_id

MAX_OPEN = 32
"""Commands on their way at once; with more of them, the next one waits until one has ended."""

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000

REFUSALS = frozenset(
    {
        UCode.INVALID_ARGUMENT,
        UCode.NOT_FOUND,
        UCode.ALREADY_EXISTS,
        UCode.PERMISSION_DENIED,
        UCode.UNAUTHENTICATED,
        UCode.FAILED_PRECONDITION,
        UCode.OUT_OF_RANGE,
        UCode.UNIMPLEMENTED,
        UCode.DATA_LOSS,
    }
)
"""Answers to Subscribe that will not change. INTERNAL and UNKNOWN are none: a dispatcher on the way may say so."""

NOT_DELIVERED = frozenset({UCode.DEADLINE_EXCEEDED, UCode.UNAVAILABLE, UCode.RESOURCE_EXHAUSTED})
"""Answers that may come from a dispatcher on the way: an Unsubscribe is sent again."""


_UNKNOWN_MS = 1 << 62
"""Later than every answer."""


class Command(NamedTuple):
    """A Request that is on its way, or whose answer is."""

    id: bytes
    subscribe: bool
    epoch: int
    deadline_ms: int


class Step(NamedTuple):
    """What follows: commands to send, and the standing that our subscribers have now (None: as before)."""

    orders: list[Order]
    standing: Standing | None = None
    message: str = ""


@dataclass(slots=True)
class Remote:
    """``is_confirmed``: what we want was answered, nothing is to be sent. ``latest``: the last command, while it is open."""

    topic: UUri
    timeout_ms: int
    wanted: bool = False
    standing: Standing = Standing.UNSUBSCRIBED
    is_confirmed: bool = True
    epoch: int = 0
    period_ms: int = 0
    answered_ms: int = 0
    commands: dict[bytes, Command] = field(default_factory=dict)
    latest: bytes | None = None
    due_ms: int | None = None
    failures: int = 0
    is_pending_there: bool = False
    """The other service has said SUBSCRIBE_PENDING: its Update is to come."""
    doubted_ms: int | None = None
    """When the other service said UNSUBSCRIBED (its clock), while the latest command was open."""
    contrary_ms: int = 0
    """When the last contrary command that ended since the latest was sent has been carried out (the other's clock)."""
    is_unconfirmed: bool = False
    """A command has ended without an answer since the last confirmation: an Update may tell late what became of it."""
    asked: dict[bytes, UUri] = field(default_factory=dict)
    """The open commands of all remote topics, each with its topic."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do or to wait for."""
        return not self.wanted and self.is_confirmed and not self.commands

    def next_ms(self) -> int | None:
        """When `tick` is needed; None if only after an answer."""
        times = [command.deadline_ms for command in self.commands.values()]
        if self.due_ms is not None and self._has_room:
            times.append(self.due_ms)
        return min(times, default=None)

    def subscribe(self, now_ms: int, period_ms: int) -> list[Order]:
        """The first subscriber has come."""
        self.period_ms = period_ms
        return self._turn(now_ms, wanted=True, standing=Standing.SUBSCRIBE_PENDING)

    def leave(self, now_ms: int) -> list[Order]:
        """The last subscriber has gone."""
        return self._turn(now_ms, wanted=False, standing=Standing.UNSUBSCRIBED)

    def farewell(self, now_ms: int) -> list[Order]:
        """Everything is flushed: as `leave`, and there is room for it. Not repeated; what is open is for `inherit`."""
        for name in list(self.commands)[: -MAX_OPEN // 2]:
            del self.commands[name]
        return self.leave(now_ms)

    def inherit(self, now_ms: int, commands: Iterable[Command]) -> None:
        """Take over what was open before everything was flushed: it may arrive, but its answers do not count."""
        for command in commands:
            if command.deadline_ms > now_ms:
                self.commands[command.id] = command._replace(epoch=-1)
                self.asked[command.id] = self.topic

    def sample(self, now_ms: int, period_ms: int) -> list[Order]:
        """The fastest sample period of our subscribers is now this one."""
        if period_ms == self.period_ms or not self.wanted:
            return []
        self.period_ms = period_ms
        if self.latest is None and not self.is_confirmed and not self.is_pending_there:
            return []  # the next attempt will say so
        return self._send(now_ms)

    def resume(self, now_ms: int) -> list[Order]:
        """After a restart: what was not answered may never have been sent."""
        self.mend(now_ms)
        self.contrary_ms = _UNKNOWN_MS  # neither of the two is kept
        self.is_unconfirmed = True
        return [] if self.is_confirmed else self._send(now_ms)

    def mend(self, now_ms: int) -> None:
        """The clock may have gone back: nothing is further away than it can be."""
        for command in self.commands.values():
            if command.deadline_ms > now_ms + self.timeout_ms:
                self.commands[command.id] = command._replace(deadline_ms=now_ms + self.timeout_ms)
        if self.due_ms is not None:
            self.due_ms = min(self.due_ms, now_ms + max(self.timeout_ms, LONGEST_PAUSE_MS))

    def tick(self, now_ms: int) -> list[Order]:
        """Time has passed."""
        for command in [each for each in self.commands.values() if each.deadline_ms <= now_ms]:
            if command.id == self.latest:
                self.failures = 0
            self._end(command, None)
        return self._pump(now_ms)

    def reply(self, now_ms: int, reply: Reply) -> Step:
        """An answer has come to one of `commands`."""
        command = self.commands[reply.id]
        is_latest = command.id == self.latest
        done_ms = reply.created_ms if reply.code is UCode.OK else None
        self._end(command, done_ms)
        if done_ms is not None and done_ms <= self.contrary_ms:
            is_latest = False  # a contrary one may have been carried out after it: it is sent once more
        step = Step([])
        if command.epoch == self.epoch:
            if self.wanted:
                step = self._subscribe_answered(now_ms, reply, is_latest)
            else:
                step = self._unsubscribe_answered(now_ms, reply, is_latest)
        elif done_ms is not None:
            self.answered_ms = max(self.answered_ms, done_ms)
        return step._replace(orders=self._pump(now_ms))

    def told(self, now_ms: int, told: Told) -> Step:
        """The other service has said by itself how we stand to the topic."""
        if not self.wanted or self._has_contrary:
            return Step([])
        if told.standing is Standing.SUBSCRIBED and told.created_ms >= self.answered_ms:
            if self.is_pending_there:
                self._confirm()
            self.answered_ms = told.created_ms
            return Step([], self._subscribed())
        if told.standing is not Standing.UNSUBSCRIBED:
            return Step([])
        is_settled = self.is_confirmed or self.is_pending_there
        is_sure = is_settled or (self.standing is Standing.SUBSCRIBED and not self.is_unconfirmed)
        if is_sure and told.created_ms > self.answered_ms:
            self.answered_ms = told.created_ms
            return self._refused(told.message)
        if is_settled:
            return Step(self._send(now_ms))  # older than the answer, or as old: asking is the way to know
        if told.created_ms >= self.answered_ms:
            self.doubted_ms = told.created_ms
        return Step([])

    def _turn(self, now_ms: int, wanted: bool, standing: Standing) -> list[Order]:
        self.wanted = wanted
        self.standing = standing
        self.epoch += 1
        self.failures = 0
        return self._send(now_ms)

    def _subscribe_answered(self, now_ms: int, reply: Reply, is_latest: bool) -> Step:
        if reply.code is UCode.OK and reply.standing is not None:
            self.answered_ms = max(self.answered_ms, reply.created_ms)
            if reply.standing is Standing.SUBSCRIBED:
                if self.doubted_ms is not None and reply.created_ms <= self.doubted_ms:
                    return Step([])  # if it was the latest, another one is sent now
                if is_latest:
                    self._confirm()
                return Step([], self._subscribed())
            if not is_latest:
                return Step([])  # the latest one will tell
            if reply.standing is Standing.UNSUBSCRIBED:
                return self._refused_for_good(reply.message)
            self.is_pending_there = True
            self.failures = 0
            self.due_ms = now_ms + self.timeout_ms  # its Update may be lost
        elif reply.code in REFUSALS and is_latest:
            return self._refused_for_good(reply.message or reply.code.name)
        elif is_latest:
            self._failed(now_ms, reply)
        return Step([])

    def _unsubscribe_answered(self, now_ms: int, reply: Reply, is_latest: bool) -> Step:
        if reply.code is UCode.OK:
            self.answered_ms = max(self.answered_ms, reply.created_ms)
        if is_latest and reply.code in NOT_DELIVERED:
            self._failed(now_ms, reply)
        elif is_latest:
            self._confirm()
        return Step([], Standing.UNSUBSCRIBED)

    def _subscribed(self) -> Standing:
        self.standing = Standing.SUBSCRIBED
        return self.standing

    def _refused_for_good(self, message: str) -> Step:
        """What it answers to a Subscribe that is still open will be the same: nothing is to be undone."""
        for command in [each for each in self.commands.values() if each.subscribe]:
            self._forget(command)
        return self._refused(message)

    def _refused(self, message: str) -> Step:
        self.wanted = False
        self.standing = Standing.UNSUBSCRIBED
        self.epoch += 1
        self.contrary_ms = 0
        self._confirm()
        return Step([], Standing.UNSUBSCRIBED, message)

    def _confirm(self) -> None:
        self.is_confirmed = True
        self.is_pending_there = False
        self.is_unconfirmed = False
        self.latest = None
        self.due_ms = None
        self.failures = 0

    def _failed(self, now_ms: int, reply: Reply) -> None:
        pause_ms = min(FIRST_PAUSE_MS << min(self.failures, 16), LONGEST_PAUSE_MS)
        self.failures += 1
        self.due_ms = max(now_ms, min(created_ms(reply.id), now_ms) + pause_ms)

    @property
    def _has_room(self) -> bool:
        return len(self.commands) < MAX_OPEN

    @property
    def _has_contrary(self) -> bool:
        return any(command.subscribe is not self.wanted for command in self.commands.values())

    def _forget(self, command: Command) -> None:
        del self.commands[command.id]
        self.asked.pop(command.id, None)
        if command.id == self.latest:
            self.latest = None

    def _end(self, command: Command, done_ms: int | None) -> None:
        """``done_ms``: when it was carried out (the other's clock), if that is known."""
        self._forget(command)
        if done_ms is None:
            self.is_unconfirmed = True
            done_ms = _UNKNOWN_MS
        if command.subscribe is self.wanted:
            return
        self.contrary_ms = max(self.contrary_ms, done_ms)
        if self._has_contrary:
            return
        is_late = self.contrary_ms >= self.answered_ms and (self.is_confirmed or self.is_pending_there)
        if is_late or (self.contrary_ms == _UNKNOWN_MS and self.latest is not None):
            self.is_confirmed = False
            self.is_pending_there = False
            self.latest = None
            self.due_ms = None

    def _pump(self, now_ms: int) -> list[Order]:
        if self.is_confirmed or self.latest is not None or (self.due_ms is not None and self.due_ms > now_ms):
            return []
        return self._send(now_ms)

    def _send(self, now_ms: int) -> list[Order]:
        self.is_confirmed = False
        self.is_pending_there = False
        self.contrary_ms = 0
        self.doubted_ms = None  # what is asked now is answered later than that was said
        self.latest = None
        self.due_ms = None
        if not self._has_room:
            return []
        command = Command(new_id(now_ms), self.wanted, self.epoch, now_ms + self.timeout_ms)
        self.commands[command.id] = command
        self.asked[command.id] = self.topic
        self.latest = command.id
        return [Order(command.id, self.topic, self.wanted, self.period_ms if self.wanted else 0, self.timeout_ms)]
