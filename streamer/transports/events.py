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
    """The events that a transport reports to the streamer, on the event loop. This base class ignores them.

    Every packet is counted twice: when it arrives (`packets_received`), and by its result: a listener got the message, or
    `packet_malformed`, `packets_unwanted` or `messages_refused` is called.
    """

    def state_changed(self, state: LinkState, reason: str = "") -> None:
        """The link has another state. ``reason``: why it is not up, as it may be logged; empty if unknown."""

    def packets_received(self, number: int) -> None:
        """``number`` packets have arrived that should be messages."""

    def packet_malformed(self, error: MalformedPacketError, number: int = 1) -> None:
        """``number`` packets were not uProtocol messages, all for the same reason."""

    def packets_unwanted(self, reason: Unwanted, number: int, attributes: Attributes | None = None) -> None:
        """``number`` valid packets go to no listener. ``attributes``: of one of them, if they are known."""

    def messages_refused(self, batch: Sequence[Refused]) -> None:
        """These messages cannot go to a listener. The callee releases each one once its failure is accounted for."""
        for refused in batch:
            refused.received.release()

    def acknowledgements_awaited(self) -> None:
        """The network sends nothing more, or soon will not, until something is acknowledged. May be called repeatedly."""

    def reconnected(self) -> None:
        """There is a new connection after the first."""

    def node_changed(self, is_there: bool) -> None:
        """A node of the network was lost without a farewell (False), or came and all its subscriptions are known (True)."""
