"""The state of our subscription to one topic of another device's service (004 §4.1, §4.2, §8). Pure.

The law of this file:

- The state that we want (`wanted`) changes with our subscribers, and each change begins a new epoch. A command is then sent
  at once, and repeated until there is a response: at once if none came within the TTL, after a growing wait if it failed.
- A response counts only in the epoch of its command.
- A confirmed subscription is sent again every ``timeout_ms``, and within that time after a start: a service that has lost it
  notifies nobody. If the service has it, the repetition changes nothing.
- Commands can overtake each other. As long as an opposite one may still arrive, the service may change the state after its
  response. So when the last of the opposite commands has ended, by its TTL or by a response that is not older than the one
  to the latest command, the latest command is sent once more. Only OK shows when a command was carried out: another code may
  come from a dispatcher with another clock. Therefore, commands that may still arrive are on disk.
- Updates and responses of a service can overtake each other. An Update that is older than the last response is ignored. A
  response that is not newer than an UNSUBSCRIBED which arrived before it confirms nothing: the command is sent once more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from streamer.backoff import Backoff, wait_s
from streamer.features.usubscription.entries import NEWEST, Command, CommandResponse, ReceivedUpdate, SubscriptionState
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import created_ms, new_id

BACKOFF = Backoff(initial_ms=1_000, factor=2.0, max_ms=60_000, jitter=0.0)
"""The waits before a failed call of another service is repeated."""

MAX_OPEN = 32
"""The most commands without a response; beyond that, the next one waits until one has ended."""

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
"""Codes after which Subscribe is not repeated. INTERNAL and UNKNOWN may come from a dispatcher in between."""

NOT_DELIVERED = frozenset({UCode.DEADLINE_EXCEEDED, UCode.UNAVAILABLE, UCode.RESOURCE_EXHAUSTED})
"""Codes that may come from a dispatcher in between. Unsubscribe is repeated after them."""

_UNKNOWN_MS = 1 << 62
"""Later than every response."""


class OpenCommand(NamedTuple):
    """A command whose response may still arrive."""

    id: bytes
    subscribe: bool
    epoch: int
    deadline_ms: int


class Step(NamedTuple):
    """The result of an event: commands to send, and the new state of our subscribers (None: unchanged)."""

    commands: list[Command]
    state: SubscriptionState | None = None
    message: str = ""


@dataclass(slots=True)
class RemoteTopic:
    """``is_confirmed``: the service has confirmed the state that we want. ``latest``: the id of the last command while it is
    open, else empty. ``version``: that of core.usubscription in which commands are sent.
    """

    topic: UUri
    timeout_ms: int
    wanted: bool = False
    state: SubscriptionState = SubscriptionState.UNSUBSCRIBED
    is_confirmed: bool = True
    epoch: int = 0
    period_ms: int = 0
    answered_ms: int = 0
    open_commands: dict[bytes, OpenCommand] = field(default_factory=dict)
    latest: bytes = b""
    due_ms: int | None = None
    failures: int = 0
    is_pending_there: bool = False
    """The other service has answered SUBSCRIBE_PENDING: its Update will follow."""
    unsubscribed_ms: int | None = None
    """When the other service sent UNSUBSCRIBED (ms, its clock) while the latest command was open."""
    opposite_ms: int = 0
    """When the last opposite command that ended after the latest was sent was carried out (ms, the service's clock)."""
    is_unconfirmed: bool = False
    """Whether `wanted` changed or a command failed since the last confirmation: an Update may be of an earlier state."""
    topics: dict[bytes, UUri] = field(default_factory=dict)
    """The topic of every open command, of all remote topics."""
    version: int = NEWEST

    @property
    def is_over(self) -> bool:
        """Whether the remote topic can be forgotten: no subscription is wanted or confirmed, no command is open."""
        return not self.wanted and self.is_confirmed and not self.open_commands

    def next_ms(self) -> int | None:
        """Return the time (ms) at which the caller has to call `tick`; None: not before a response."""
        times = [command.deadline_ms for command in self.open_commands.values()]
        if self._has_room and self.due_ms is not None:
            times.append(self.due_ms)
        return min(times, default=None)

    def subscribe(self, now_ms: int, period_ms: int) -> list[Command]:
        """Want a subscription: there is a first subscriber. Return the commands to send."""
        self.period_ms = period_ms
        return self._begin_epoch(now_ms, wanted=True, state=SubscriptionState.SUBSCRIBE_PENDING)

    def leave(self, now_ms: int) -> list[Command]:
        """Want no subscription: the last subscriber has left. Return the commands to send."""
        return self._begin_epoch(now_ms, wanted=False, state=SubscriptionState.UNSUBSCRIBED)

    def leave_without_retry(self, now_ms: int) -> list[Command]:
        """Leave for a flush: as `leave`, but the command is not repeated. Open commands go to the successor's `inherit`."""
        for name in list(self.open_commands)[: -MAX_OPEN // 2]:
            del self.open_commands[name]
        return self.leave(now_ms)

    def inherit(self, now_ms: int, commands: Iterable[OpenCommand]) -> None:
        """Add commands that were open before a flush: they may still arrive, but their responses are ignored."""
        for command in commands:
            if command.deadline_ms > now_ms:
                self.open_commands[command.id] = command._replace(epoch=-1)
                self.topics[command.id] = self.topic

    def set_period(self, now_ms: int, period_ms: int) -> list[Command]:
        """Set the shortest sample period of our subscribers. Return the commands to send."""
        if period_ms == self.period_ms or not self.wanted:
            return []
        self.period_ms = period_ms
        if not self.latest and not self.is_confirmed and not self.is_pending_there:
            return []  # the next attempt will carry it
        return self._send(now_ms)

    def resume(self, now_ms: int) -> list[Command]:
        """Return the commands to send after a restart: one without a response may never have been sent."""
        self.clock_set_back(now_ms)
        self.opposite_ms = _UNKNOWN_MS  # neither of the two is on disk
        self.is_unconfirmed = True
        self.due_ms = now_ms + self._spread_ms if self.is_confirmed and self.wanted else self.due_ms
        return [] if self.is_confirmed else self._send(now_ms)

    def clock_set_back(self, now_ms: int) -> None:
        """Bring deadlines nearer, at most to their full length: the clock was set back."""
        for command in self.open_commands.values():
            if command.deadline_ms > now_ms + self.timeout_ms:
                self.open_commands[command.id] = command._replace(deadline_ms=now_ms + self.timeout_ms)
        if self.due_ms is not None:
            self.due_ms = min(self.due_ms, now_ms + max(self.timeout_ms, BACKOFF.max_ms))

    def tick(self, now_ms: int) -> Step:
        """End commands whose TTL is over by ``now_ms``, and repeat those that are due."""
        for command in [each for each in self.open_commands.values() if each.deadline_ms <= now_ms]:
            if command.id == self.latest:
                self.failures = 0
            self._end(command, None)
        return Step(self._send_due(now_ms))

    def answered(self, now_ms: int, response: CommandResponse) -> Step:
        """Apply the response to one of `open_commands`."""
        command = self.open_commands[response.id]
        is_latest = command.id == self.latest
        done_ms = response.created_ms if response.code is UCode.OK else None
        self._end(command, done_ms)
        if done_ms is not None and done_ms <= self.opposite_ms:
            is_latest = False  # an opposite one may have been carried out after it: it is sent once more
        step = Step([])
        if command.epoch == self.epoch:
            if self.wanted:
                step = self._subscribe_answered(now_ms, response, is_latest)
            else:
                step = self._unsubscribe_answered(now_ms, response, is_latest)
        elif done_ms is not None:
            self.answered_ms = max(self.answered_ms, done_ms)
        return step._replace(commands=self._send_due(now_ms))

    def update_received(self, now_ms: int, update: ReceivedUpdate) -> Step:
        """Apply the state of our subscription that the other service has sent."""
        if not self.wanted or self._has_opposite:
            return Step([])
        if update.state is SubscriptionState.SUBSCRIBED and update.created_ms >= self.answered_ms:
            if self.is_pending_there:
                self._confirm(now_ms)
            self.answered_ms = update.created_ms
            return Step([], self._subscribed())
        if update.state is not SubscriptionState.UNSUBSCRIBED:
            return Step([])
        is_settled = self.is_confirmed or self.is_pending_there
        is_sure = is_settled or (self.state is SubscriptionState.SUBSCRIBED and not self.is_unconfirmed)
        if is_sure and update.created_ms > self.answered_ms:
            self.answered_ms = update.created_ms
            return self._refused(update.message)._replace(commands=self._send_due(now_ms))
        if is_settled:
            return Step(self._send(now_ms))  # not newer than the response: send the command again for the present state
        if update.created_ms >= self.answered_ms:
            self.unsubscribed_ms = update.created_ms
        return Step([])

    def _begin_epoch(self, now_ms: int, wanted: bool, state: SubscriptionState) -> list[Command]:
        self.wanted, self.state = wanted, state
        self.epoch += 1
        self.failures = 0
        self.is_unconfirmed = True
        return self._send(now_ms)

    def _subscribe_answered(self, now_ms: int, response: CommandResponse, is_latest: bool) -> Step:
        if response.code is UCode.OK and response.state is not None:
            self.answered_ms = max(self.answered_ms, response.created_ms)
            if response.state is SubscriptionState.SUBSCRIBED:
                if self.unsubscribed_ms is not None and response.created_ms <= self.unsubscribed_ms:
                    return Step([])  # if it was the latest, the next one is sent now
                if is_latest:
                    self._confirm(now_ms)
                return Step([], self._subscribed())
            if not is_latest:
                return Step([])  # the response to the latest one decides
            if response.state is SubscriptionState.UNSUBSCRIBED:
                return self._refused_for_good(response.message)
            self.is_pending_there = True
            self.failures = 0
            self.due_ms = now_ms + self.timeout_ms  # unless its Update arrives
        elif response.code in REFUSALS and is_latest:
            return self._refused_for_good(response.message or response.code.name)
        elif is_latest:
            self._failed(now_ms, response)
        return Step([])

    def _unsubscribe_answered(self, now_ms: int, response: CommandResponse, is_latest: bool) -> Step:
        if response.code is UCode.OK:
            self.answered_ms = max(self.answered_ms, response.created_ms)
        if is_latest and response.code in NOT_DELIVERED:
            self._failed(now_ms, response)
        elif is_latest:
            self._confirm(None)
        return Step([], SubscriptionState.UNSUBSCRIBED)

    def _subscribed(self) -> SubscriptionState:
        self.state = SubscriptionState.SUBSCRIBED
        return self.state

    def _refused_for_good(self, message: str) -> Step:
        """Other open Subscribes will be refused as well: there is nothing to undo."""
        for command in [each for each in self.open_commands.values() if each.subscribe]:
            self._forget(command)
        return self._refused(message)

    def _refused(self, message: str) -> Step:
        """Send Unsubscribe: the service may have set an earlier subscription aside, and permit it again later."""
        was_subscribed = self.state is SubscriptionState.SUBSCRIBED
        self.wanted = False
        self.state = SubscriptionState.UNSUBSCRIBED
        self.epoch += 1
        self.opposite_ms = 0
        self._confirm(None)
        self.is_confirmed = not was_subscribed
        return Step([], SubscriptionState.UNSUBSCRIBED, message)

    def _confirm(self, now_ms: int | None) -> None:
        """Note the confirmation. ``now_ms``: a subscription is sent again ``timeout_ms`` later; None: nothing is."""
        self.is_confirmed = True
        self.is_pending_there = False
        self.is_unconfirmed = False
        self.latest = b""
        self.due_ms = None if now_ms is None else now_ms + self.timeout_ms - self._spread_ms // 4
        self.failures = 0

    @property
    def _spread_ms(self) -> int:
        """Return a delay below ``timeout_ms`` that depends on the topic, so that topics are not all sent together."""
        return crc32(str(self.topic).encode()) % self.timeout_ms

    def _failed(self, now_ms: int, response: CommandResponse) -> None:
        self.failures += 1
        self.due_ms = max(now_ms, min(created_ms(response.id), now_ms) + wait_ms(self.failures))

    @property
    def _has_room(self) -> bool:
        return len(self.open_commands) < MAX_OPEN

    @property
    def _has_opposite(self) -> bool:
        return any(command.subscribe is not self.wanted for command in self.open_commands.values())

    def _forget(self, command: OpenCommand) -> None:
        del self.open_commands[command.id]
        self.topics.pop(command.id, None)
        if self.latest == command.id:
            self.latest = b""

    def _end(self, command: OpenCommand, done_ms: int | None) -> None:
        """Remove an open command. ``done_ms``: when the service carried it out (its clock); None: not known."""
        self._forget(command)
        if done_ms is None:
            self.is_unconfirmed = True
            done_ms = _UNKNOWN_MS
        if command.subscribe is self.wanted:
            return
        self.opposite_ms = max(self.opposite_ms, done_ms)
        if self._has_opposite:
            return
        is_late = self.opposite_ms >= self.answered_ms and (self.is_confirmed or self.is_pending_there)
        if is_late or (self.opposite_ms == _UNKNOWN_MS and self.latest):
            self.is_confirmed = False
            self.is_pending_there = False
            self.latest = b""
            self.due_ms = None

    def _send_due(self, now_ms: int) -> list[Command]:
        if self.latest or (self.is_confirmed if self.due_ms is None else self.due_ms > now_ms):
            return []
        return self._send(now_ms)

    def _send(self, now_ms: int) -> list[Command]:
        self.is_confirmed = False
        self.is_pending_there = False
        self.opposite_ms = 0
        self.unsubscribed_ms = None  # the response to this command will be newer
        self.latest = b""
        self.due_ms = None
        if not self._has_room:
            return []
        command = OpenCommand(new_id(now_ms), self.wanted, self.epoch, now_ms + self.timeout_ms)
        self.open_commands[command.id] = command
        self.topics[command.id] = self.topic
        self.latest = command.id
        period_ms = self.period_ms if self.wanted else 0
        return [Command(command.id, self.topic, self.wanted, period_ms, self.timeout_ms, self.version)]


def wait_ms(failures: int) -> int:
    """Return the wait (ms) before a call is repeated, after this number of failures in a row, at least 1."""
    return round(wait_s(BACKOFF, failures, 0.5) * 1000)
