"""The memory transport: a network inside the process, for tests.

All `MemoryTransport`s with the same bus name share one network: a message that one of them sends is received by all others.
Tests control it: they cut the link, withhold confirmations and refuse messages.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from weakref import WeakSet

from pydantic import ConfigDict

from streamer.transports.base import (
    UNCONFIRMED,
    Done,
    LinkState,
    Parcel,
    Presence,
    Received,
    Receivers,
    TransportContext,
    TransportOptions,
)
from streamer.transports.errors import LinkLostError, SendError
from streamer.transports.listening import ListeningTransport
from streamer.transports.results import ResultRuns
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri

_buses: dict[str, "WeakSet[MemoryTransport]"] = {}


class MemoryOptions(TransportOptions):
    """Options of a ``memory`` endpoint."""

    model_config = ConfigDict(strict=True)

    bus: str = "default"
    """The name of the network."""
    sink_authority: bool = False
    """Whether a Publish needs a sink authority."""
    unconfirmed_s: float = 0
    """How many seconds a message without a confirmation may turn out to be lost. 0: messages are confirmed."""

    @property
    def addresses_publishes(self) -> bool:
        return self.sink_authority


class MemoryReceived(Received):
    """Records its acknowledgement, for tests."""

    source_retransmits = True

    __slots__ = ("acknowledged",)

    def __init__(self, message: UMessage, redelivered: bool = False) -> None:
        super().__init__(message, redelivered)
        self.acknowledged = False

    def acknowledge(self) -> None:
        self.acknowledged = True


class MemoryReceivers(Receivers):
    """The presences of flows that `MemoryTransport.set_presence` has set. Of other flows, somebody is there."""

    def __init__(self) -> None:
        self._presences: dict[tuple[UUri, UUri | None], Presence] = {}
        self._watched: dict[tuple[UUri, UUri | None], list[Callable[[Presence], None]]] = {}

    def watch(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> Presence:
        self._watched.setdefault((source, sink), []).append(on_presence)
        return self._presences.get((source, sink), Presence.PRESENT)

    def forget(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> None:
        watching = self._watched.get((source, sink), [])
        if on_presence in watching:
            watching.remove(on_presence)

    def set(self, source: UUri, sink: UUri | None, presence: Presence) -> None:
        """Set and report the presence of a flow."""
        self._presences[source, sink] = presence
        for on_presence in list(self._watched.get((source, sink), ())):
            on_presence(presence)


class MemoryTransport(ListeningTransport):
    """``refuse`` decides which messages are refused. While ``is_withholding`` is set, no message is confirmed.

    ``sent`` are the messages that have left; ``arrived_s`` is the result of `arrived_until_s`; ``loss`` is what unconfirmed
    messages are told when the link is lost.
    """

    kind = "memory"
    source_retransmits = True
    receivers: MemoryReceivers
    Options = MemoryOptions

    def __init__(self, context: TransportContext, options: MemoryOptions) -> None:
        super().__init__(context, options)
        self.options: MemoryOptions = options
        self.bus = options.bus
        self.refuse: Callable[[UMessage], SendError | None] = lambda message: None
        self.is_withholding = False
        self.arrived_s = -math.inf
        self.loss = LinkLostError()
        self.sent: list[UMessage] = []
        self._unconfirmed: deque[tuple[Parcel, Done]] = deque()
        self.receivers = MemoryReceivers()

    @property
    def unconfirmed_s(self) -> float:
        return self.options.unconfirmed_s

    def arrived_until_s(self, now_s: float) -> float:
        return self.arrived_s

    def set_presence(self, source: UUri, sink: UUri | None, presence: Presence) -> None:
        """Set and report the presence of a flow."""
        self.receivers.set(source, sink, presence)

    @property
    def capacity(self) -> int:
        return self.options.window

    async def start(self) -> None:
        _buses.setdefault(self.bus, WeakSet()).add(self)
        self.set_state(LinkState.UP)

    async def stop(self) -> None:
        _buses.get(self.bus, WeakSet[MemoryTransport]()).discard(self)
        self.lose_link()

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        """Do nothing: every message on the bus arrives."""

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        """Do nothing."""

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        if self.state is not LinkState.UP:
            done(parcels, LinkLostError())
        elif self.is_withholding or self._unconfirmed:  # while withheld messages are delivered, none may overtake them
            self._unconfirmed.extend((parcel, done) for parcel in parcels)
        else:
            self._deliver((parcel, done) for parcel in parcels)

    def _deliver(self, parcels: Iterable[tuple[Parcel, Done]]) -> None:
        """Deliver messages to the other transports on the bus, then report each run of equal results in one call."""
        results = ResultRuns()
        leaving: list[UMessage] = []
        confirmation = UNCONFIRMED if self.options.unconfirmed_s else None
        for parcel, done in parcels:
            error = self.refuse(parcel.message)
            if error is None:
                leaving.append(parcel.message)
            results.add(done, parcel, error or confirmation)
        self.sent += leaving
        for peer in list(_buses.get(self.bus, ())):
            if leaving and peer is not self and peer.state is LinkState.UP:
                peer.inject(*map(MemoryReceived, leaving))
        results.report()

    def inject(self, *batch: Received) -> None:
        """Receive these messages here, as one read from the wire."""
        self.context.events.packets_received(len(batch))
        self.registry.deliver(batch)

    def lose_link(self) -> None:
        """Cut the link. Unconfirmed parcels are reported as lost in batches, as by a real network."""
        self.set_state(LinkState.DOWN)
        lost, self._unconfirmed = self._unconfirmed, deque()
        results = ResultRuns()
        for parcel, done in lost:
            results.add(done, parcel, self.loss)
        results.report()

    def restore_link(self) -> None:
        """Restore the link."""
        self.set_state(LinkState.UP)

    def release_withheld(self, count: int | None = None) -> None:
        """Deliver and confirm withheld messages: the first ``count``, or all of them, which ends the withholding."""
        if count is None:
            self.is_withholding = False
            while self._unconfirmed:
                self._deliver((self._unconfirmed.popleft(),))
        else:
            for _ in range(count):
                self._deliver((self._unconfirmed.popleft(),))
