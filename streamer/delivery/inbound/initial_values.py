"""Initial values: sends the last value of a topic to authorities that have just subscribed to it.

Once, and only where nobody has had it: an authority that gets a copy of its own has had what arrived while it was
interested. On a network where all share one message, so has everybody there, if an authority there was interested.

A uEntity listens once it knows that it is subscribed. So a value waits for `DELAY_S`, and longer if there is no room for it.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from streamer.clock import Clock
from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.inbound.refusals import Admission
from streamer.routing.interest import Interest
from streamer.routing.table import RoutingTable
from streamer.uprotocol.last_values import LastValue, LastValues, without_token
from streamer.uprotocol.uri import UUri

logger = logging.getLogger("ustreamer.initial")

DELAY_S = 1.0
"""From a subscription to the first attempt to send the last value."""

_MAX_WAITING_TOPICS = 10_000
_REMEMBERED_ABSENCES = 10_000  # authorities that were interested in a topic and are not now
_TOPICS_PER_ROUND = 256
_FULL_TOPICS_PER_ROUND = 64  # topics without room, each of which costs an attempt


class _Newcomers:
    """Authorities that have subscribed to a topic, each with the number of values that had arrived before."""

    def __init__(self, due_s: float) -> None:
        self.due_s = due_s
        self.latest_s = due_s + DELAY_S
        self.after: dict[str, int] = {}


class InitialValues:
    """Newcomers, by the topic or pattern they subscribed to. ``count`` is the number of values sent."""

    def __init__(self, ingresses: Mapping[str, Ingress], interest: Interest, values: LastValues, clock: Clock) -> None:
        self.count = 0
        self._ingresses = ingresses
        self._interest = interest
        self._values = values
        self._clock = clock
        self._topics: Sequence[UUri] = ()
        self._subscribed: dict[UUri, Mapping[str, int]] = {}
        self._waiting: dict[UUri, _Newcomers] = {}
        self._until: OrderedDict[tuple[UUri, str], int] = OrderedDict()
        self._is_full = False

    def use(self, topics: Sequence[UUri]) -> None:
        """Send the last values of topics that match one of these patterns."""
        self._topics = topics

    @property
    def is_waiting(self) -> bool:
        """Whether there are newcomers."""
        return bool(self._waiting)

    def interest_changes(self, topic: UUri, before: Mapping[str, int]) -> None:
        """Note who was interested in a topic before subscribers came or went."""
        if self._topics:
            self._subscribed.setdefault(topic, before)

    def interest_changed(self) -> None:
        """Compare who is interested now with what was noted: what arrives from now on goes to those."""
        changed, self._subscribed = self._subscribed, {}
        number = self._values.count
        for topic, before in changed.items():
            now = self._interest.at(topic)
            for authority in before.keys() - now.keys():
                self._left(topic, authority, number)
            for authority in now.keys() - before.keys():
                self._joined(topic, authority, number)

    def _left(self, topic: UUri, authority: str, number: int) -> None:
        newcomers = self._waiting.get(topic)
        after = None if newcomers is None else newcomers.after.pop(authority, None)
        if after is None:
            self._had(topic, authority, number)
            return
        for each, value in self._last_values_of(topic):  # before it was sent those that were there
            if value.number > after:
                self._had(each, authority, number)

    def _had(self, topic: UUri, authority: str, number: int) -> None:
        """Remember that an authority has had the values of a topic, or of what it stands for, up to a number."""
        self._until[topic, authority] = number
        self._until.move_to_end((topic, authority))
        if len(self._until) > _REMEMBERED_ABSENCES:
            self._until.popitem(last=False)

    def _joined(self, topic: UUri, authority: str, number: int) -> None:
        due_s = self._clock.monotonic_s() + DELAY_S
        newcomers = self._waiting.get(topic)
        if newcomers is None:
            if len(self._waiting) >= _MAX_WAITING_TOPICS:
                if not self._is_full:
                    logger.warning("initial_values_left_out topics=%d", len(self._waiting))
                self._is_full = True
                return
            newcomers = self._waiting[topic] = _Newcomers(due_s)
        newcomers.due_s = min(due_s, newcomers.latest_s)
        newcomers.after[authority] = number

    def go_on(self, table: RoutingTable) -> None:
        """Send the values that are due, as far as there is room."""
        now_s = self._clock.monotonic_s()
        done, late = 0, 0
        for topic, newcomers in list(self._waiting.items()):
            if newcomers.due_s > now_s:
                continue
            del self._waiting[topic]
            if not self._send(topic, newcomers, table):
                self._waiting[topic] = newcomers  # behind the others
                late += 1
            done += 1
            if done == _TOPICS_PER_ROUND or late == _FULL_TOPICS_PER_ROUND:
                break
        self._is_full = self._is_full and len(self._waiting) >= _MAX_WAITING_TOPICS

    def _send(self, subscribed: UUri, newcomers: _Newcomers, table: RoutingTable) -> bool:
        """Send the last values of what was subscribed to; return whether there was room for all of them."""
        has_room = True
        now_ms = self._clock.wall_ms()
        for topic, value in self._last_values_of(subscribed):
            if not value.message.is_expired(now_ms) and any(pattern.matches(topic) for pattern in self._topics):
                has_room &= self._send_value(subscribed, topic, value, newcomers, table)
        return has_room

    def _last_values_of(self, subscribed: UUri) -> Iterator[tuple[UUri, LastValue]]:
        """Yield each topic that a subscription to ``subscribed`` is about, with its last value."""
        if subscribed.has_wildcard:
            yield from (each for each in self._values.listed() if subscribed.matches(each[0]))
        elif (value := self._values.get(subscribed)) is not None:
            yield subscribed, value

    def _send_value(
        self, subscribed: UUri, topic: UUri, value: LastValue, newcomers: _Newcomers, table: RoutingTable
    ) -> bool:
        """Send one value to the newcomers who have not had it; return whether there was room for it."""
        interested = self._interest.of(topic)
        new = {
            authority
            for authority, number in newcomers.after.items()
            if value.number <= number
            and value.number > self._until.get((subscribed, authority), 0)
            and value.number > self._until.get((topic, authority), 0)
            and authority in interested
            and not self._interest.is_interested_otherwise(authority, topic, subscribed)
        }
        served = {home for authority in interested.keys() - new for home in table.homes(authority)}
        homes = {home for authority in new for home in table.homes(authority)} - served
        message = without_token(value.message)
        for ingress in table.homes(topic.authority) if new else ():
            became = self._ingresses[ingress].send_again(message, new, homes)
            if became is Admission.LATER:
                return False
            if became is Admission.TAKEN:
                self.count += 1
                break
        return True
