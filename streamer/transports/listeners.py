"""The registry of listeners by filter, and the pull buffers, which all transports share.

The registry does not know the wire. A message that matches several filters of a listener is delivered to it once. The
cost of a message is the same with ten topics and with thousands.
"""

import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from streamer.transports.base import ListenerOptions
from streamer.transports.errors import Unwanted
from streamer.transports.events import TransportEvents
from streamer.transports.received import Received, Refused, UListener
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import LAST_METHOD, UUri

Filter = tuple[UUri, UUri | None]

V = TypeVar("V")

_PULL_BUFFER = 1000
_RESPONSE: Final = UMessageType.RESPONSE  # looking up a member of an enumeration is slow


class FilterIndex(Generic[V]):
    """A value per filter. Topics are found by hash; filters with a sink or a wildcard, which are few, are compared."""

    def __init__(self) -> None:
        self._values: dict[Filter, V] = {}
        self._topics: dict[UUri, tuple[int, V]] = {}  # with the filter's number, which gives the order
        self._others: dict[Filter, tuple[int, V]] = {}
        self._next = 0

    def __contains__(self, of: Filter) -> bool:
        return of in self._values

    def filters(self) -> list[Filter]:
        """Return all filters, in the order in which they were added."""
        return list(self._values)

    def values(self) -> list[V]:
        """Return the values of all filters, in the same order."""
        return list(self._values.values())

    def get(self, of: Filter) -> V | None:
        """Return the value of a filter, or None."""
        return self._values.get(of)

    def add(self, of: Filter, value: V) -> None:
        """Add a new filter with its value."""
        self._values[of] = value
        if is_topic(of):
            self._topics[of[0]] = (self._next, value)
        else:
            self._others[of] = (self._next, value)
        self._next += 1

    def pop(self, of: Filter) -> V | None:
        """Remove a filter. Return its value, or None."""
        if is_topic(of):
            self._topics.pop(of[0], None)
        else:
            self._others.pop(of, None)
        return self._values.pop(of, None)

    def matching(self, attributes: Attributes) -> list[V]:
        """Return the values of the filters that match a message, in the order in which the filters were added."""
        found = [numbered for of, numbered in self._others.items() if filter_matches(*of, attributes)]
        if attributes.type is UMessageType.PUBLISH and attributes.sink is None:
            topic = self._topics.get(attributes.source)
            if topic is not None:
                insort(found, topic, key=_number)
        return [value for _, value in found]


def _number(numbered: tuple[int, object]) -> int:
    return numbered[0]


def is_topic(of: Filter) -> bool:
    """Return whether a filter is for one topic: no message with another source matches it."""
    source, sink = of
    return sink is None and not source.has_wildcard


class ListenerRegistry:
    """Filters and their listeners, with the limits of uP-L1. Messages without a listener are reported to ``events``.

    The listeners of a flow are in its slot; ``flows`` are those of the endpoint.
    """

    def __init__(self, limits: ListenerOptions, events: TransportEvents, flows: Flows) -> None:
        self._limits = limits
        self._events = events
        self._listeners: FilterIndex[list[UListener]] = FilterIndex()
        self._count = 0
        self._flows = flows

    def add(self, source: UUri, sink: UUri | None, listener: UListener) -> bool:
        """Register a listener. Return True for a new filter. Idempotent. Raises INVALID_ARGUMENT, RESOURCE_EXHAUSTED."""
        check_filter(source, sink)
        present = self._listeners.get((source, sink)) or []
        if listener in present:
            return False
        if len(present) >= self._limits.max_listeners_per_filter:
            raise UStatusError(
                UCode.RESOURCE_EXHAUSTED, f"{len(present)} listeners on {describe(source, sink)}: the limit per filter"
            )
        if self._count >= self._limits.max_listeners:
            raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"{self._count} listeners: the limit of this transport")
        if not present:
            self._listeners.add((source, sink), present)
        present.append(listener)
        self._count += 1
        self._flows.changed(source)
        return len(present) == 1

    def remove(self, source: UUri, sink: UUri | None, listener: UListener) -> bool:
        """Unregister a listener. Return True if it was the filter's last. Raises INVALID_ARGUMENT, NOT_FOUND."""
        check_filter(source, sink)
        present = self._listeners.get((source, sink)) or []
        if listener not in present:
            raise UStatusError(UCode.NOT_FOUND, f"not registered on {describe(source, sink)}")
        present.remove(listener)
        self._count -= 1
        self._flows.changed(source)
        if present:
            return False
        self._listeners.pop((source, sink))
        return True

    def filters(self) -> list[Filter]:
        """Return all filters that have a listener."""
        return self._listeners.filters()

    def matching(self, attributes: Attributes) -> tuple[UListener, ...]:
        """Return the listeners for a message, each once. They are looked up once for a flow."""
        flow = self._flows.of(attributes)
        found: tuple[UListener, ...] | None = flow.listeners
        if found is None:
            unique: dict[UListener, None] = {}
            for listeners in self._listeners.matching(flow):
                unique.update(dict.fromkeys(listeners))
            found = flow.listeners = tuple(unique)
        return found

    def deliver(self, batch: Sequence[Received]) -> None:
        """Deliver a batch to its listeners, in order. Invalid messages are refused.

        A message without a listener is released at once.
        """
        flows = self._flows
        runs: dict[UListener, list[Received]] = {}
        refused: list[Refused] = []
        for received in batch:
            attributes = received.message.attributes
            shared = attributes.shared
            listeners: tuple[UListener, ...] | None = shared.listeners if shared.flows is flows else None
            if listeners is None:
                listeners = self.matching(shared)
            if not listeners:
                received.release()
                self._events.packets_unwanted(Unwanted.NO_LISTENER, 1, attributes)
                continue
            if shared.shared_problems or attributes is not shared or shared.type is _RESPONSE:
                problems = attributes.problems
                if problems:
                    text = f"invalid attributes: {'; '.join(problems)}"
                    refused.append(Refused(received, UCode.INVALID_ARGUMENT, text))
                    continue
            received.holders = len(listeners)
            for listener in listeners:
                run = runs.get(listener)
                if run is None:
                    runs[listener] = [received]
                else:
                    run.append(received)
        for listener, run in runs.items():
            listener.on_receive_batch(run)
        if refused:
            self._events.messages_refused(refused)


def filter_matches(source: UUri, sink: UUri | None, attributes: Attributes) -> bool:
    """Return whether a filter matches a message. A filter without a sink matches Publish messages without a sink."""
    if not source.matches(attributes.source):
        return False
    if sink is None:
        return attributes.type is UMessageType.PUBLISH and attributes.sink is None
    return attributes.sink is not None and sink.matches(attributes.sink)


def describe(source: UUri, sink: UUri | None) -> str:
    """Return the text of a filter for people."""
    return f"{source}" if sink is None else f"{source} → {sink}"


class PullBuffer(UListener):
    """Buffers messages for `receive`, oldest first. A full buffer drops its oldest message."""

    def __init__(self, now_ms: Callable[[], int], size: int = _PULL_BUFFER) -> None:
        self._now_ms = now_ms
        self._waiting: deque[Received] = deque()
        self._size = size

    def on_receive(self, received: Received) -> None:
        if len(self._waiting) >= self._size:
            self._waiting.popleft().release()
        received.since_s = received.since_s or time.monotonic()
        self._waiting.append(received)

    def pull(self) -> UMessage:
        """Return the earliest message that is not expired. Raises NOT_FOUND."""
        now_ms = self._now_ms()
        while self._waiting:
            received = self._waiting.popleft()
            received.release()
            if not received.message.is_expired(now_ms, time.monotonic() - received.since_s):
                return received.message
        raise UStatusError(UCode.NOT_FOUND, "no message")


def check_filter(source: UUri, sink: UUri | None) -> None:
    """Raise INVALID_ARGUMENT if no listener may be registered for this source and sink (uP-L1, table of resource ids)."""
    try:
        source.check()
        if sink is not None:
            sink.check()
    except ValueError as exc:
        raise UStatusError(UCode.INVALID_ARGUMENT, str(exc)) from exc
    any_source = source.resource == 0xFFFF
    source_is_method = 1 <= source.resource <= LAST_METHOD
    if sink is None:
        allowed = source.is_topic or any_source
    elif sink.resource == 0:
        allowed = source.is_topic or source_is_method or any_source
    elif sink.is_method:
        allowed = source.resource == 0
    else:
        allowed = any_source and sink.resource == 0xFFFF
    if not allowed:
        raise UStatusError(
            UCode.INVALID_ARGUMENT,
            f"no listener for source resource {source.resource:X} with "
            + ("no sink" if sink is None else f"sink resource {sink.resource:X}"),
        )
