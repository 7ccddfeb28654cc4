"""What a transport tells a test."""

from collections import Counter
from collections.abc import Callable, Sequence

from streamer.transports.base import LinkState, Refused, TransportEvents
from streamer.transports.errors import MalformedPacketError, Unwanted
from streamer.uprotocol.message import Attributes


class StateEvents(TransportEvents):
    """Passes every state of the link to a function."""

    def __init__(self, changed: Callable[[LinkState], None]) -> None:
        self._changed = changed

    def state_changed(self, state: LinkState, reason: str = "") -> None:
        self._changed(state)


class EventLog(TransportEvents):
    """Writes down everything."""

    def __init__(self) -> None:
        self.states: list[LinkState] = []
        self.malformed: list[MalformedPacketError] = []
        self.packets = 0
        self.unwanted: Counter[Unwanted] = Counter()
        self.turned_away: list[Refused] = []
        self.reconnects = 0
        self.awaited = 0
        self.nodes: list[bool] = []

    def state_changed(self, state: LinkState, reason: str = "") -> None:
        self.states.append(state)

    def packet_malformed(self, error: MalformedPacketError, number: int = 1) -> None:
        self.malformed += [error] * number

    def packets_received(self, number: int) -> None:
        self.packets += number

    def packets_unwanted(self, reason: Unwanted, number: int, attributes: Attributes | None = None) -> None:
        self.unwanted[reason] += number

    def messages_refused(self, batch: Sequence[Refused]) -> None:
        self.turned_away += batch
        super().messages_refused(batch)

    def without_listener(self) -> int:
        """The packets of which no listener has heard."""
        return len(self.malformed) + self.unwanted.total() + len(self.turned_away)

    def acknowledgements_awaited(self) -> None:
        self.awaited += 1

    def reconnected(self) -> None:
        self.reconnects += 1

    def node_changed(self, is_there: bool) -> None:
        self.nodes.append(is_there)
