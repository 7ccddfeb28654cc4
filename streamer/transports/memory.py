"""An in-process transport: for tests, and for uEntities that live in the streamer's own process.

All `MemoryTransport`s with the same bus name share one network: what one sends, every other one receives. Tests steer
it: take the link away, hold confirmations back, refuse messages.
"""

from collections import deque
from collections.abc import Callable, Sequence
from weakref import WeakSet

from pydantic import BaseModel, ConfigDict

from streamer.transports.base import (
    UNCONFIRMED,
    Done,
    LinkState,
    ListenerOptions,
    Parcel,
    Presence,
    Received,
    TransportContext,
)
from streamer.transports.errors import LinkLostError, SendError
from streamer.transports.listening import ListeningTransport
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri

_buses: dict[str, "WeakSet[MemoryTransport]"] = {}


class MemoryOptions(BaseModel):
    """Options of a ``memory`` endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bus: str = "default"
    window: int = 1000
    sink_authority: bool = False
    unconfirmed_s: float = 0
    listeners: ListenerOptions = ListenerOptions()


class MemoryReceived(Received):
    """Remembers its acknowledgement, for tests that ask."""

    source_keeps = True

    __slots__ = ("acknowledged",)

    def __init__(self, message: UMessage, redelivered: bool = False) -> None:
        super().__init__(message, redelivered)
        self.acknowledged = False

    def acknowledge(self) -> None:
        self.acknowledged = True


class MemoryTransport(ListeningTransport):
    """A network inside this process. ``refuse`` decides per message whether it is taken; ``held`` keeps confirmations."""

    kind = "memory"
    keeps_unacknowledged = True
    Options = MemoryOptions

    def __init__(self, context: TransportContext, options: MemoryOptions) -> None:
        super().__init__(context, options)
        self.bus = options.bus
        self.refuse: Callable[[UMessage], SendError | None] = lambda message: None
        self.hold = False
        self.sent: list[UMessage] = []
        self._unconfirmed: deque[tuple[Parcel, Done]] = deque()
        self._deaf: dict[tuple[UUri, UUri | None], Presence] = {}
        self._watched: dict[tuple[UUri, UUri | None], list[Callable[[Presence], None]]] = {}

    @property
    def unconfirmed_s(self) -> float:
        unconfirmed_s: float = self.options.unconfirmed_s
        return unconfirmed_s

    def watch_flow(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> Presence:
        self._watched.setdefault((source, sink), []).append(on_presence)
        return self._deaf.get((source, sink), Presence.PRESENT)

    def forget_flow(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> None:
        listening = self._watched.get((source, sink), [])
        if on_presence in listening:
            listening.remove(on_presence)

    def set_presence(self, source: UUri, sink: UUri | None, reach: Presence) -> None:
        """Have somebody or nobody listen to a flow from now on."""
        self._deaf[source, sink] = reach
        for on_presence in list(self._watched.get((source, sink), ())):
            on_presence(reach)

    @property
    def capacity(self) -> int:
        window: int = self.options.window
        return window

    @property
    def wants_sink_authority(self) -> bool:
        wanted: bool = self.options.sink_authority
        return wanted

    async def start(self) -> None:
        _buses.setdefault(self.bus, WeakSet()).add(self)
        self.set_state(LinkState.UP)

    async def stop(self) -> None:
        _buses.get(self.bus, WeakSet[MemoryTransport]()).discard(self)
        self.lose_link()

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        """Nothing to open: every message passes by."""

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        """Nothing to close."""

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        for parcel in parcels:
            if self.state is not LinkState.UP:
                done((parcel,), LinkLostError())
            elif self.hold or self._unconfirmed:  # nothing overtakes what is being let go just now
                self._unconfirmed.append((parcel, done))
            else:
                self._deliver(parcel, done)

    def _deliver(self, parcel: Parcel, done: Done) -> None:
        error = self.refuse(parcel.message)
        if error is None:
            self.sent.append(parcel.message)
            for peer in list(_buses.get(self.bus, ())):
                if peer is not self and peer.state is LinkState.UP:
                    peer.inject(MemoryReceived(parcel.message))
        done((parcel,), UNCONFIRMED if error is None and self.options.unconfirmed_s else error)

    def inject(self, *batch: Received) -> None:
        """Have these messages arrive here, as one read from the wire."""
        self.registry.deliver(batch)

    def lose_link(self) -> None:
        """Cut the link: what is unconfirmed comes back."""
        self.set_state(LinkState.DOWN)
        lost, self._unconfirmed = self._unconfirmed, deque()
        for parcel, done in lost:
            done((parcel,), LinkLostError())

    def restore_link(self) -> None:
        """Bring the link back."""
        self.set_state(LinkState.UP)

    def release_held(self, count: int | None = None) -> None:
        """Confirm what was held back, all of it or the first ``count``; holding ends if all."""
        if count is None:
            self.hold = False
            while self._unconfirmed:
                self._deliver(*self._unconfirmed.popleft())
        else:
            for _ in range(count):
                self._deliver(*self._unconfirmed.popleft())
