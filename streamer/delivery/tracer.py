"""The interface through which the router reports outcomes to the writers of traces and spans. It must not wait or fail."""

from collections.abc import Sequence
from typing import Protocol

from streamer.delivery.lane import Delivery, Lane
from streamer.routing.outcome import Failure
from streamer.uprotocol.message import UMessage


class Tracer(Protocol):
    """Takes one record per delivery outcome."""

    def delivered(self, deliveries: Sequence[Delivery], now_s: float) -> None:
        """Record deliveries that the destination has confirmed."""
        ...

    def failed(self, delivery: Delivery, failure: Failure, now_s: float) -> None:
        """Record a delivery that has failed."""
        ...

    def turned_away(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """Record a message that never became a delivery. ``names``: of route, ingress and egress; empty for none."""
        ...

    def unconfirmed(self, delivery: Delivery, now_s: float) -> bytes:
        """Pack the record of a delivery that was sent and is unconfirmed. Keep it until `confirmed` or `lost`."""
        ...

    def confirmed(self, lane: Lane, packed: bytes | bytearray, now_s: float) -> None:
        """Record as delivered the messages of a lane whose records `unconfirmed` has packed."""
        ...

    def lost(self, lane: Lane, packed: bytes | bytearray, count: int, failure: Failure, now_s: float, now_ms: int) -> None:
        """Record the failure of ``count`` sent messages of a lane. `unconfirmed` has packed the records of some, or none."""
        ...
