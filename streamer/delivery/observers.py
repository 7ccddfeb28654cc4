"""The interface through which delivery reports every outcome: to traces, spans, taps, and readers of events."""

from collections.abc import Sequence

from mypy_extensions import mypyc_attr

from streamer.delivery.lanes.lane import Delivery, Lane
from streamer.routing.outcome import FailedMessage, Failure
from streamer.uprotocol.message import UMessage


@mypyc_attr(allow_interpreted_subclasses=True)
class OutcomeObserver:
    """Observes the outcomes of messages. A method that is not overridden does nothing; none may wait or fail.

    ``now_s`` is the time of the monotonic clock, ``now_ms`` that of the wall clock.
    """

    def delivered(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int) -> None:
        """Observe deliveries that the destination has confirmed."""

    def failed(self, delivery: Delivery, failure: Failure, now_s: float, now_ms: int) -> None:
        """Observe a delivery that has failed."""

    def never_queued(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """Observe a message that never became a delivery. ``names``: of route, ingress and egress; empty for none."""

    def sent(self, delivery: Delivery, now_s: float, now_ms: int) -> bytes:
        """Observe a delivery that was sent to a network that does not confirm it.

        Return the packed record that `confirmed` or `never_confirmed` needs. At most one observer may return any bytes.
        """
        return b""

    def confirmed(self, lane: Lane, records: bytes | bytearray, count: int, now_s: float) -> None:
        """Observe that ``count`` sent messages of a lane are delivered; ``records`` are those that `sent` has returned."""

    def never_confirmed(
        self, lane: Lane, records: bytes | bytearray, count: int, failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """Observe that ``count`` sent messages of a lane ended without a confirmation. ``records``: of some, or none."""

    def dead_lettered(self, failed: FailedMessage, number: int | None) -> None:
        """Observe a new dead letter. ``number``: its number in the journal."""
