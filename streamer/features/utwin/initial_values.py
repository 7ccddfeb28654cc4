"""Initial values: sends the last value of a topic to authorities that have just subscribed to it.

Once, and only where nobody has had it: an authority that gets a copy of its own has had what arrived while it was
interested. On a network where all share one message, so has everybody there, if an authority there was interested.

A uEntity listens once it knows that it is subscribed. So a value waits for `DELAY_S`, and longer if there is no room for it.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from streamer.clock import Clock
from streamer.delivery.inbound.refusals import Admission
from streamer.delivery.router import Router
from streamer.features.utwin.last_values import LastValue, LastValues, without_token
from streamer.routing.interest import Interest, names_of
from streamer.uprotocol.uri import UUri

logger = logging.getLogger("ustreamer.initial")

DELAY_S = 1.0
"""From a subscription to the first attempt to send the last value."""

_MAX_WAITING_TOPICS = 10_000
_REMEMBERED_ABSENCES = 10_000  # authorities that were interested in a topic and are not now
_ATTEMPTS_PER_ROUND = 256  # to send a value
_FULL_TOPICS_PER_ROUND = 64  # topics without room, each of which costs an attempt
_LOOKED_AT_PER_ATTEMPT = 200  # values that are compared with a wide subscription


class _Newcomers:
    """Authorities that have subscribed to a topic or pattern, each with the number of values that had arrived before."""

    def __init__(self, due_s: float) -> None:
        self.due_s = due_s
        self.latest_s = due_s + DELAY_S
        self.after: dict[str, int] = {}
        self.topics: deque[UUri] | None = None
        """The topics whose values are still to be sent; None: not yet looked up."""


class InitialValues:
    """Newcomers, by the topic or pattern they subscribed to. ``count`` is the number of values sent.

    They wait until they are due. Then their values are sent, in as many rounds as it takes.
    """

    def __init__(self, values: LastValues, clock: Clock) -> None:
        self.count = 0
        self._values = values
        self._clock = clock
        self._topics: Sequence[UUri] = ()
        self._subscribed: dict[UUri, Mapping[str, int]] = {}
        self._waiting: dict[UUri, _Newcomers] = {}
        self._sending: dict[UUri, _Newcomers] = {}
        self._until: OrderedDict[tuple[UUri, str], int] = OrderedDict()
        self._is_full = False

    def use(self, topics: Sequence[UUri]) -> None:
        """Send the last values of topics that match one of these patterns."""
        self._topics = topics

    @property
    def is_waiting(self) -> bool:
        """Whether there are newcomers."""
        return bool(self._waiting or self._sending)

    def interest_changed(self, topic: UUri, before: Mapping[str, int], is_new: bool) -> None:
        """Note who was interested in a topic before subscribers came or went."""
        if self._topics and is_new:
            self._subscribed.setdefault(topic, before)

    def interest_used(self, interest: Interest) -> None:
        """Compare who is interested now with what was noted: what arrives from now on goes to those."""
        changed, self._subscribed = self._subscribed, {}
        number = self._values.count
        for topic, before in changed.items():
            now = interest.at(topic)
            for authority in before.keys() - now.keys():
                self._left(topic, authority, number)
            for authority in now.keys() - before.keys():
                self._joined(topic, authority, number)

    def _left(self, topic: UUri, authority: str, number: int) -> None:
        newcomers = self._waiting.get(topic)
        after = None if newcomers is None else newcomers.after.pop(authority, None)
        if after is None:
            if topic in self._sending:
                self._sending[topic].after.pop(authority, None)
            self._had(topic, authority, number)
        elif topic.has_wildcard:  # what came since it joined was sent to it; what was there before was not
            for each, _ in self._values.since(after):
                if topic.matches(each):
                    self._had(each, authority, number)
        elif (value := self._values.get(topic)) is not None and value.number > after:
            self._had(topic, authority, number)

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
            if len(self._waiting) + len(self._sending) >= _MAX_WAITING_TOPICS:
                if not self._is_full:
                    logger.warning("initial_values_left_out topics=%d", _MAX_WAITING_TOPICS)
                self._is_full = True
                return
            newcomers = self._waiting[topic] = _Newcomers(due_s)
        newcomers.due_s = min(due_s, newcomers.latest_s)
        newcomers.after[authority] = number

    def go_on(self, router: Router) -> None:
        """Send the values that are due, as far as there is room, and not too many at once."""
        now_s = self._clock.monotonic_s()
        for topic in [topic for topic, each in self._waiting.items() if each.due_s <= now_s and topic not in self._sending]:
            self._sending[topic] = self._waiting.pop(topic)
        left, late = _ATTEMPTS_PER_ROUND, 0
        for topic, newcomers in list(self._sending.items()):
            if newcomers.topics is None:
                newcomers.topics = deque(self._topics_of(topic) if newcomers.after else ())
                left -= len(self._values) // _LOOKED_AT_PER_ATTEMPT if topic.has_wildcard else 0
            while newcomers.topics and left > 0:
                left -= 1
                each = newcomers.topics.popleft()
                if not self._send(each, newcomers, router):
                    newcomers.topics.append(each)
                    late += 1
                    break
            del self._sending[topic]
            if newcomers.topics:
                self._sending[topic] = newcomers  # behind the others
            if left <= 0 or late == _FULL_TOPICS_PER_ROUND:
                break
        self._is_full = self._is_full and len(self._waiting) + len(self._sending) >= _MAX_WAITING_TOPICS

    def _topics_of(self, subscribed: UUri) -> Iterator[UUri]:
        """Yield each topic with a value that a subscription is about, and whose value is to be sent."""
        known = (topic for topic, _ in self._values.listed()) if subscribed.has_wildcard else (subscribed,)
        for topic in known:
            if subscribed.matches(topic) and any(pattern.matches(topic) for pattern in self._topics):
                yield topic

    def _send(self, topic: UUri, newcomers: _Newcomers, router: Router) -> bool:
        """Send the value of a topic to those of the newcomers who have not had it; return whether there was room for it."""
        value = self._values.get(topic)
        if value is None:
            return True
        waited_s = self._clock.monotonic_s() - value.at_s
        if value.message.is_expired(self._clock.wall_ms(), waited_s):
            return True
        table, interested, names = router.table, router.interest.of(topic), names_of(topic)
        at = {name: router.interest.at(name) for name in names}
        new = {authority for authority in interested if self._is_new(authority, at, value)}
        chosen = new & newcomers.after.keys()
        served = {home for authority in interested.keys() - new for home in table.homes(authority)}
        homes = {home for authority in chosen for home in table.homes(authority)} - served
        message = without_token(value.message)
        for ingress in table.homes(topic.authority) if chosen else ():
            became = router.ingresses[ingress].send_again(message, waited_s, chosen, homes)
            if became is Admission.LATER:
                return False
            if became is Admission.TAKEN:
                self.count += 1
                shared = homes - set(table.addressed)
                for authority in new:
                    is_reached = authority in chosen or not shared.isdisjoint(table.homes(authority))
                    if is_reached and self._waits_elsewhere(authority, names, newcomers):
                        self._had(topic, authority, value.number)
                break
        return True

    def _is_new(self, authority: str, interested: Mapping[UUri, Container[str]], value: LastValue) -> bool:
        """Whether an authority that is ``interested`` in a topic by some of its names has not had its value."""
        for name, authorities in interested.items():
            if value.number <= self._until.get((name, authority), -1):
                return False
            if authority in authorities:
                after = max((each.after.get(authority, -1) for each in self._newcomers(name)), default=-1)
                if value.number > after:
                    return False
        return True

    def _waits_elsewhere(self, authority: str, names: Iterable[UUri], apart_from: _Newcomers) -> bool:
        waiting = (each for name in names for each in self._newcomers(name) if each is not apart_from)
        return any(authority in each.after for each in waiting)

    def _newcomers(self, name: UUri) -> list[_Newcomers]:
        return [there[name] for there in (self._waiting, self._sending) if name in there]
