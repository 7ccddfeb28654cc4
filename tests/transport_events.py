"""What a transport tells a test."""

from collections.abc import Callable

from streamer.transports.base import LinkState, TransportEvents
from streamer.transports.errors import MalformedPacketError


class StateEvents(TransportEvents):
    """Passes every state of the link to a function."""

    def __init__(self, changed: Callable[[LinkState], None]) -> None:
        self._changed = changed

    def state_changed(self, state: LinkState) -> None:
        self._changed(state)


class EventLog(TransportEvents):
    """Writes down everything."""

    def __init__(self) -> None:
        self.states: list[LinkState] = []
        self.malformed: list[MalformedPacketError] = []
        self.reconnects = 0
        self.nodes: list[bool] = []

    def state_changed(self, state: LinkState) -> None:
        self.states.append(state)

    def packet_malformed(self, error: MalformedPacketError) -> None:
        self.malformed.append(error)

    def reconnected(self) -> None:
        self.reconnects += 1

    def node_changed(self, is_there: bool) -> None:
        self.nodes.append(is_there)
