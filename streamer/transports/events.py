"""`TransportEvents`: how a transport reports packets and events to the streamer; a part of the interface in `base`.

A file of its own, which may be compiled, because it is called for every read from the wire. Classes that are not compiled
may still derive from these.
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
    ALONE = "alone"  # ready, but no other node is there: a message that is sent now would be lost
    UP = "up"  # messages flow


@mypyc_attr(allow_interpreted_subclasses=True)
class TransportEvents:
    """The events that a transport reports to the streamer, on the event loop. This base class ignores them.

    Every packet is counted twice: when it arrives (`packets_received`), and by its result: a listener gets the message, or
    the transport calls `packet_malformed`, `packets_unwanted` or `messages_refused`.
    """

    def state_changed(self, state: LinkState, reason: str = "") -> None:
        """Report a new state of the link. ``reason``: why it is not up, as it may be logged; empty if unknown."""

    def packets_received(self, number: int) -> None:
        """Count ``number`` received packets that should be messages."""

    def packet_malformed(self, error: MalformedPacketError, number: int = 1) -> None:
        """Count ``number`` packets that were not uProtocol messages, for the reason in ``error``."""

    def packets_unwanted(self, reason: Unwanted, number: int, attributes: Attributes | None = None) -> None:
        """Count ``number`` valid packets that go to no listener. ``attributes``: of one of them, if known."""

    def messages_refused(self, batch: Sequence[Refused]) -> None:
        """Report messages that cannot go to a listener. The callee releases each once its failure is accounted for."""
        for refused in batch:
            refused.received.release()

    def acknowledgements_awaited(self) -> None:
        """Report that the network stops sending, now or soon, until messages are acknowledged. May be repeated."""

    def reconnected(self) -> None:
        """Count a connection after the first."""

    def node_changed(self, is_there: bool) -> None:
        """Report that a node was lost without a farewell (False), or that all subscriptions of a new node are known."""
