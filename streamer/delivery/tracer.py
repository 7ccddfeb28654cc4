"""The interface through which the router reports outcomes to the writers of traces and spans. It must not wait or fail."""

from collections.abc import Sequence
from typing import Protocol

from streamer.delivery.lane import Delivery, Lane
from streamer.routing.outcome import Failure
from streamer.uprotocol.message import UMessage


class Tracer(Protocol):
    """Takes one record per delivery outcome."""

    def delivered(self, deliveries: Sequence[Delivery], now_s: float) -> None:
        """The destination has confirmed these deliveries."""
        ...

    def failed(self, delivery: Delivery, failure: Failure, now_s: float) -> None:
        """A delivery has failed for good."""
        ...

    def turned_away(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """A message never became a delivery. ``names``: of route, ingress and egress; empty for none."""
        ...

    def unconfirmed(self, delivery: Delivery, now_s: float) -> bytes:
        """Pack the record of a delivery that was sent and is unconfirmed. It is kept until `confirmed`."""
        ...

    def confirmed(self, lane: Lane, packed: bytes | bytearray, now_s: float) -> None:
        """The messages of a lane whose records `unconfirmed` has packed count as delivered."""
        ...

    def lost(self, lane: Lane, packed: bytes | bytearray, count: int, failure: Failure, now_s: float, now_ms: int) -> None:
        """``count`` messages of a lane cannot be read any more. `unconfirmed` has packed the records of some, or of none."""
        ...
