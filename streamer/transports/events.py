"""`TransportEvents`: how a transport reports packets and events to the streamer; a part of the interface in `base`.

It is a file of its own because it may be compiled: every read from the wire calls it. Classes that are not compiled may
still derive from these.
"""

from collections.abc import Sequence
from enum import Enum

from mypy_extensions import mypyc_attr

from streamer.transports.errors import MalformedPacketError, Unwanted
from streamer.transports.received import Refused
from streamer.uprotocol.message import Attributes


class LinkState(Enum):
    """Whether an endpoint can be used."""

    DOWN = "down"  # not connected: nothing arrives, and nothing can be sent
    ALONE = "alone"  # ready, but nobody is on the other side: a message that is sent now would be lost
    UP = "up"  # messages flow


@mypyc_attr(allow_interpreted_subclasses=True)
class TransportEvents:
    """What a transport tells the streamer about its network, on the event loop. Here every event is ignored.

    Of every packet that arrives it says so (`packets_received`), and what became of it: a listener got the message, or
    `packet_malformed`, `packets_unwanted` or `messages_refused` was called.
    """

    def state_changed(self, state: LinkState) -> None:
        """The link has another state."""

    def packets_received(self, number: int) -> None:
        """So many packets have arrived that should be messages."""

    def packet_malformed(self, error: MalformedPacketError) -> None:
        """A packet was not a uProtocol message."""

    def packets_unwanted(self, reason: Unwanted, number: int, attributes: Attributes | None = None) -> None:
        """Nobody gets so many packets, with which nothing is wrong. ``attributes``: of one of them, if they are known."""

    def messages_refused(self, batch: Sequence[Refused]) -> None:
        """No listener gets these messages. Whoever is told releases each one once its failure is accounted for."""
        for refused in batch:
            refused.received.release()

    def acknowledgements_awaited(self) -> None:
        """The network sends nothing more, or will soon, until something is acknowledged. May be told again and again."""

    def reconnected(self) -> None:
        """There is a new connection after the first."""

    def node_changed(self, is_there: bool) -> None:
        """A node of the network was lost without a farewell (False), or came and all its subscriptions are known (True)."""
