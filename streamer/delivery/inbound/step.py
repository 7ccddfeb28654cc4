"""The steps that each batch passes in an ingress before its messages are decided on."""

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from mypy_extensions import mypyc_attr

from streamer.delivery.stats import EndpointStats
from streamer.transports.received import Received, Refused
from streamer.uprotocol.message import UMessage


@mypyc_attr(allow_interpreted_subclasses=True)
class InboundStep:
    """Takes or changes messages that have arrived. A method not overridden changes nothing; none may wait or fail.

    `accepted` is called only if ``notes_accepted``.
    """

    notes_accepted: ClassVar[bool] = False

    def take(self, batch: Sequence[Received]) -> Sequence[Received]:
        """Return the messages of a batch that go on. Those that do not are the step's to acknowledge or release."""
        return batch

    def refuse(self, batch: Sequence[Refused]) -> Sequence[Refused]:
        """Return those of the messages that a transport cannot hand over that the ingress has to settle."""
        return batch

    def accepted(self, message: UMessage, now_ms: int, now_s: float) -> None:
        """Note that a message is about to enter the queues of its routes, for the first time in this process."""


class Inlet(NamedTuple):
    """The ingress for which a step works: the endpoint's name and its counters."""

    endpoint: str
    stats: EndpointStats


MakeStep = Callable[[Inlet], InboundStep | None]
"""Makes the step of one ingress; None: that one needs none."""
