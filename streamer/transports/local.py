"""The local transport: the endpoint inside the streamer, `core`, on which its own services live.

For the router it is an endpoint like any other: messages to and from the services are queued, journaled, counted and traced,
expire, and are answered with an error, like all messages. A message counts as delivered once the service has handled it, and
the messages that it sends in return are safe with the router.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from streamer.transports.base import Done, LinkState, Parcel, Received, Report, TransportContext, TransportOptions
from streamer.transports.errors import LinkLostError, PermanentError
from streamer.transports.listening import ListeningTransport
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import EntityId

_WINDOW_MESSAGES = 1000

logger = logging.getLogger("ustreamer.core")

Handler = Callable[[UMessage, Callable[[], None]], None]
"""Handles a message that is addressed to a service, and calls the given function when that is done. Must not block."""


class LocalOptions(TransportOptions):
    """The local transport has no options."""


class LocalMessage(Received):
    """A message of a service; ``on_safe`` is called once it is delivered, on disk, or its failure is accounted for."""

    __slots__ = ("_on_safe",)

    def __init__(self, message: UMessage, on_safe: Callable[[], None]) -> None:
        super().__init__(message)
        self._on_safe = on_safe

    def acknowledge(self) -> None:
        self._on_safe()


class LocalTransport(ListeningTransport):
    """Delivers messages to the services, and receives the messages that they send."""

    kind = "core"
    Options = LocalOptions

    def __init__(self, context: TransportContext, entities: Iterable[EntityId]) -> None:
        """``entities``: all services. Each registers with `serve` before the start."""
        super().__init__(context, LocalOptions())
        self.entities = frozenset(entities)
        self._handlers: dict[EntityId, Handler] = {}
        self._open: dict[int, tuple[Parcel, Done]] = {}
        self._number = 0
        self._down_reason = ""

    @property
    def capacity(self) -> int:
        return _WINDOW_MESSAGES

    def serve(self, entity: EntityId, handler: Handler) -> None:
        """Register the handler of messages to a uEntity, whatever their authority."""
        if entity not in self.entities:
            raise AssertionError(f"{entity} is not one of the services that the router knows")
        self._handlers[entity] = handler

    def emit(self, messages: Sequence[UMessage], on_safe: Callable[[], None] = lambda: None) -> None:
        """Send valid messages, in order; ``on_safe`` is called once, when all of them are safe."""
        left = len(messages)

        def one_is_safe() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                on_safe()

        if messages:
            self.context.events.packets_received(len(messages))
            self.registry.deliver([LocalMessage(message, one_is_safe) for message in messages])
        else:
            on_safe()

    def stay_down(self, problem: str) -> None:
        """Stay down after the start, until `come_up`, because the services cannot work yet. ``problem`` says why."""
        self._down_reason = problem

    def come_up(self) -> None:
        """Come up after the start: the services are ready."""
        self._down_reason = ""
        self.set_state(LinkState.UP)

    def report(self) -> Report:
        return Report([self._down_reason] if self._down_reason else [])

    async def start(self) -> None:
        if not self._down_reason:
            self.set_state(LinkState.UP)

    async def stop(self) -> None:
        self.set_state(LinkState.DOWN)
        lost, self._open = self._open, {}
        for parcel, done in lost.values():
            done((parcel,), LinkLostError())

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        """Do nothing: all messages of services are received."""

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        """Do nothing."""

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        for parcel in parcels:
            sink = parcel.message.attributes.sink
            handler = None if sink is None else self._handlers.get(EntityId(sink.ue_id, sink.version))
            if handler is None:
                done((parcel,), PermanentError(UCode.UNAVAILABLE, f"this streamer has no uEntity {sink}"))
                continue
            self._number += 1
            number = self._number
            self._open[number] = (parcel, done)
            try:
                handler(parcel.message, lambda number=number: self._finished(number))  # type: ignore[misc]
            except Exception as exc:  # a fault of a service must not cost the daemon its life
                logger.exception("service_failed sink=%s", sink)
                if self._open.pop(number, None) is not None:
                    done((parcel,), PermanentError(UCode.INTERNAL, f"the service failed: {type(exc).__name__}"))

    def _finished(self, number: int) -> None:
        parcel, done = self._open.pop(number, (None, None))
        if parcel is not None and done is not None:
            done((parcel,), None)
