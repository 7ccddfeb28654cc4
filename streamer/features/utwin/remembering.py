"""The step of an ingress that keeps the last value of each topic."""

from streamer.delivery.inbound.step import InboundStep
from streamer.features.utwin.last_values import LastValues
from streamer.uprotocol.message import UMessage, UMessageType


class Remembering(InboundStep):
    """Keeps each Publish that one ingress has accepted as the last one of its topic."""

    notes_accepted = True

    def __init__(self, values: LastValues) -> None:
        self._values = values

    def accepted(self, message: UMessage, now_ms: int, now_s: float) -> None:
        if message.attributes.type is UMessageType.PUBLISH:
            self._values.put(message, now_ms, now_s)
