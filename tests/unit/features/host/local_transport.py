"""The local transport as the services see it: keeps what they send."""

from collections.abc import Callable, Sequence

from streamer.transports.base import TransportContext
from streamer.transports.local import Handler, LocalTransport
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, EntityId


class RecordingLocalTransport(LocalTransport):
    """What is sent is safe at once, or with ``is_safe`` False when the test says so. ``handler`` is the last service's."""

    def __init__(self, authority: str, *entities: EntityId) -> None:
        super().__init__(TransportContext(LOCAL_ENDPOINT, authority), entities)
        self.handler: Handler | None = None
        self.said: list[UMessage] = []
        self.is_safe = True
        self.unsafe: list[Callable[[], None]] = []

    def serve(self, entity: EntityId, handler: Handler) -> None:
        super().serve(entity, handler)
        self.handler = handler

    def emit(self, messages: Sequence[UMessage], on_safe: Callable[[], None] = lambda: None) -> None:
        self.said += [message.check() for message in messages]
        if messages and not self.is_safe:
            self.unsafe.append(on_safe)
        else:
            on_safe()

    def make_safe(self) -> None:
        """Everything that was sent is safe, and what is sent from now on."""
        self.is_safe = True
        unsafe, self.unsafe = self.unsafe, []
        for on_safe in unsafe:
            on_safe()
