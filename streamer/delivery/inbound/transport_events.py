"""Counts and logs the packets that a transport reports for its endpoint, and settles messages that are too large.

The law of this file: at any time, the packets that an endpoint has received = the messages that it handed over + malformed
packets + unwanted packets.
"""

from collections.abc import Callable, Sequence

from mypy_extensions import mypyc_attr

from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.outcomes.flow_log import FlowLog
from streamer.delivery.stats import EndpointStats
from streamer.transports.errors import MalformedPacketError, Unwanted
from streamer.transports.events import TransportEvents
from streamer.transports.received import Refused
from streamer.uprotocol.message import Attributes


@mypyc_attr(allow_interpreted_subclasses=True)
class CountingEvents(TransportEvents):
    """The events of the endpoint ``name``. ``ingress`` returns its ingress, or None if the endpoint was just removed."""

    def __init__(self, name: str, ingress: Callable[[str], Ingress | None], log: Callable[[], FlowLog]) -> None:
        self._name = name
        self._ingress = ingress
        self._log = log
        self._stats: EndpointStats | None = None  # the endpoint's account, which never changes

    def packets_received(self, number: int) -> None:
        stats = self._stats
        if stats is None:
            if (ingress := self._ingress(self._name)) is None:
                return
            stats = self._stats = ingress.stats
        stats.packets += number

    def packet_malformed(self, error: MalformedPacketError, number: int = 1) -> None:
        if (ingress := self._ingress(self._name)) is not None:
            ingress.stats.count_malformed(error.reason, number)
        self._log().malformed(self._name, error)

    def packets_unwanted(self, reason: Unwanted, number: int, attributes: Attributes | None = None) -> None:
        if (ingress := self._ingress(self._name)) is not None:
            ingress.stats.count_unwanted(reason, number)
        if reason not in (Unwanted.COPY, Unwanted.OTHER_TOPIC):  # the streamer's own subscriptions bring these
            self._log().unwanted(self._name, reason, number, attributes)

    def messages_refused(self, batch: Sequence[Refused]) -> None:
        if (ingress := self._ingress(self._name)) is None:
            super().messages_refused(batch)
        else:
            ingress.refuse(batch)

    def acknowledgements_awaited(self) -> None:
        if (ingress := self._ingress(self._name)) is not None:
            ingress.custody.expedite()

    def reconnected(self) -> None:
        if (ingress := self._ingress(self._name)) is not None:
            ingress.stats.reconnects += 1
