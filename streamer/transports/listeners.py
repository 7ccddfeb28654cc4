"""Who listens to what: the registry and the pull buffers that the transports share.

It knows filters and listeners, not the wire. A message that matches several filters of one listener reaches it once.
"""

from collections import deque
from collections.abc import Callable, Sequence

from streamer.transports.base import ListenerOptions, Received, UListener, check_filter
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

Filter = tuple[UUri, UUri | None]

_CACHE_SIZE = 8192
_PULL_BUFFER = 1000


class ListenerRegistry:
    """Filters and their listeners, with the limits of uP-L1."""

    def __init__(self, limits: ListenerOptions) -> None:
        self._limits = limits
        self._listeners: dict[Filter, list[UListener]] = {}
        self._count = 0
        self._cache: dict[Attributes, tuple[UListener, ...]] = {}

    def add(self, source: UUri, sink: UUri | None, listener: UListener) -> bool:
        """Register; True if this filter is new. Idempotent. Raises INVALID_ARGUMENT, RESOURCE_EXHAUSTED."""
        check_filter(source, sink)
        present = self._listeners.get((source, sink), [])
        if listener in present:
            return False
        if len(present) >= self._limits.max_listeners_per_filter:
            raise UStatusError(
                UCode.RESOURCE_EXHAUSTED, f"{len(present)} listeners on {describe(source, sink)}: the limit per filter"
            )
        if self._count >= self._limits.max_listeners:
            raise UStatusError(UCode.RESOURCE_EXHAUSTED, f"{self._count} listeners: the limit of this transport")
        self._listeners.setdefault((source, sink), []).append(listener)
        self._count += 1
        self._cache.clear()
        return not present

    def remove(self, source: UUri, sink: UUri | None, listener: UListener) -> bool:
        """Unregister; True if that was the filter's last listener. Raises NOT_FOUND."""
        present = self._listeners.get((source, sink), [])
        if listener not in present:
            raise UStatusError(UCode.NOT_FOUND, f"not registered on {describe(source, sink)}")
        present.remove(listener)
        self._count -= 1
        self._cache.clear()
        if present:
            return False
        del self._listeners[source, sink]
        return True

    def filters(self) -> list[Filter]:
        """Every filter that has a listener."""
        return list(self._listeners)

    def matching(self, attributes: Attributes) -> tuple[UListener, ...]:
        """The listeners for a message, each once. Remembered per `Attributes`."""
        found = self._cache.get(attributes)
        if found is None:
            unique: dict[UListener, None] = {}
            for (source, sink), listeners in self._listeners.items():
                if filter_matches(source, sink, attributes):
                    unique.update(dict.fromkeys(listeners))
            found = tuple(unique)
            if attributes.is_shared:
                if len(self._cache) >= _CACHE_SIZE:
                    self._cache.clear()
                self._cache[attributes] = found
        return found

    def deliver(self, batch: Sequence[Received]) -> None:
        """Hand a batch to whom it concerns, in order; what concerns nobody is released at once."""
        runs: dict[UListener, list[Received]] = {}
        for received in batch:
            listeners = self.matching(received.message.attributes)
            if not listeners:
                received.release()
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


def filter_matches(source: UUri, sink: UUri | None, attributes: Attributes) -> bool:
    """Whether a listener's filter matches a message. A filter without sink is for Publish messages only."""
    if not source.matches(attributes.source):
        return False
    if sink is None:
        return attributes.type is UMessageType.PUBLISH
    return attributes.sink is not None and sink.matches(attributes.sink)


def describe(source: UUri, sink: UUri | None) -> str:
    """A filter, for people."""
    return f"{source}" if sink is None else f"{source} → {sink}"


class PullBuffer(UListener):
    """Keeps what arrived for `receive`: bounded, oldest first; the oldest goes when it is full."""

    def __init__(self, now_ms: Callable[[], int], size: int = _PULL_BUFFER) -> None:
        self._now_ms = now_ms
        self._waiting: deque[Received] = deque()
        self._size = size

    def on_receive(self, received: Received) -> None:
        if len(self._waiting) >= self._size:
            self._waiting.popleft().release()
        self._waiting.append(received)

    def pull(self) -> UMessage:
        """The earliest message that is not expired. Raises NOT_FOUND."""
        now_ms = self._now_ms()
        while self._waiting:
            received = self._waiting.popleft()
            received.release()
            if not received.message.is_expired(now_ms):
                return received.message
        raise UStatusError(UCode.NOT_FOUND, "no message")
