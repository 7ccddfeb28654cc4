"""uTransport: what a transport plugin offers (uP-L1 specification) and what it is given.

A transport moves `UMessage`s between the wire and its listeners. It owns connections, the mapping onto the wire and
the confirmation of single messages. It must not route, queue beyond its own window, or retry what was refused.

To add a transport: subclass `UTransport`, implement the abstract methods, and name the class under the entry point
group ``ustreamer.transports`` of your package. Nothing in this package has to change.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from streamer.transports.errors import MalformedPacketError, SendError
from streamer.uprotocol.message import InvalidMessageError, UMessage
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import LAST_METHOD, UUri

ENTRY_POINTS = "ustreamer.transports"

_MAX_COPIES = 16


class LinkState(Enum):
    """How far an endpoint can be used."""

    DOWN = "down"  # not connected: nothing arrives, nothing can be sent
    ALONE = "alone"  # ready, but nobody is on the other side yet: what is sent now would be lost
    UP = "up"  # messages flow


class Presence(Enum):
    """Whether anybody would hear what is sent on a flow now."""

    UNKNOWN = "unknown"  # the transport is about to find out
    ABSENT = "nobody"
    PRESENT = "somebody"


class Unconfirmed(Enum):
    """What `Done` says of messages that have left, and may be lost nevertheless."""

    UNCONFIRMED = "unconfirmed"


UNCONFIRMED = Unconfirmed.UNCONFIRMED


class Received:
    """A message from the wire, to be acknowledged by every listener that got it.

    ``redelivered`` is the transport's own mark (MQTT: DUP). ``holders`` counts who still has to `release` it; the
    source hears of it when the last one did.
    """

    source_keeps: ClassVar[bool] = False
    """Whether the source keeps the message, and delivers it again, until it is acknowledged."""

    __slots__ = ("_copies", "holders", "is_kept", "message", "redelivered")

    def __init__(self, message: UMessage, redelivered: bool = False) -> None:
        self.message = message
        self.redelivered = redelivered
        self.holders = 1
        self.is_kept = False
        self._copies: list[Received] | None = None

    def attach(self, copy: "Received") -> None:
        """Let a second copy of the same message share the fate of this one: it is released with it.

        Beyond a few, the oldest copy is released: whoever sends that many must not fill our memory, and after a reconnect
        only the latest copy's receipt counts. A copy that comes when this one has been released is released at once.
        """
        if self.holders <= 0:
            copy.release()
            return
        if self._copies is None:
            self._copies = []
        if self.is_kept:
            copy.release()
            return
        self._copies.append(copy)
        if len(self._copies) > _MAX_COPIES:
            self._copies.pop(0).release()

    def release(self) -> None:
        """One holder is done with the message: it is delivered, kept on disk, or accounted for otherwise."""
        self.holders -= 1
        if self.holders == 0 and not self.is_kept:
            self._tell_source()

    def keep(self) -> None:
        """The message is in the streamer's own custody: the source need not wait for the last holder."""
        if not self.is_kept and self.holders > 0:
            self.is_kept = True
            self._tell_source()

    def _tell_source(self) -> None:
        self.acknowledge()
        if self._copies is not None:
            for copy in self._copies:
                copy.release()
            self._copies = None

    def acknowledge(self) -> None:
        """Tell the source. Transports without acknowledgement leave this as it is."""


class UListener:
    """Receives messages pushed by a transport (uP-L1 UListener). Runs on the event loop and must not block."""

    def on_receive(self, received: Received) -> None:
        """Take one message; call ``received.release()`` once it is safe."""
        raise NotImplementedError

    def on_receive_batch(self, batch: Sequence[Received]) -> None:
        """Take what one read from the wire brought, in order. The way to be fast; the default takes them singly."""
        for received in batch:
            self.on_receive(received)


class Parcel(Protocol):
    """What `UTransport.submit` takes: any object that has a message. The transport hands the same object back."""

    @property
    def message(self) -> UMessage: ...


SendResult = SendError | Unconfirmed | None
"""What became of a submitted parcel: None if it is confirmed, or why it is not.

`UNCONFIRMED`: the network has them and will not confirm. They count as delivered `UTransport.unconfirmed_s` later, unless
the flow's `Presence` becomes `ABSENT` before, or a node is lost (`TransportContext.on_node`).
"""

Done = Callable[[Sequence[Any], SendResult], None]
"""Tells the result of submitted parcels, in the order in which they were confirmed. Parcels of one call share it."""


@dataclass
class TransportContext:
    """What a transport is told about its surroundings.

    ``authority`` is our own. ``on_state`` hears of every change of the link's state; ``on_malformed`` of every packet
    that was no uProtocol message; ``on_reconnect`` of every new connection after the first; ``on_node`` of every node of
    the network that went away without a farewell (False) or came and is known with all that it listens to (True).
    ``serves`` are the authorities, without wildcard, that are reached through us from this endpoint.
    """

    name: str
    authority: str
    on_state: Callable[[LinkState], None] = lambda state: None
    on_malformed: Callable[[MalformedPacketError], None] = lambda error: None
    on_reconnect: Callable[[], None] = lambda: None
    on_node: Callable[[bool], None] = lambda is_there: None
    serves: tuple[str, ...] = ()
    now_ms: Callable[[], int] = field(default=lambda: 0)


class ListenerOptions(BaseModel):
    """Limits on listeners (uP-L1: declared by the transport, RESOURCE_EXHAUSTED beyond)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_listeners: int = 200_000  # beyond uSubscription's own bound on subscriptions
    max_listeners_per_filter: int = 100


class UTransport(ABC):
    """One connection to one network of uEntities.

    Errors of all operations are `UStatusError`s. `authenticate` comes first; without it every other operation fails
    with UNAUTHENTICATED.
    """

    kind: ClassVar[str]
    """Name of the transport, as in the entry point."""

    keeps_unacknowledged: ClassVar[bool] = False
    """Whether what is not acknowledged is delivered again when we come back."""

    Options: ClassVar[type[BaseModel]]
    """Model of the endpoint's ``options`` in the configuration file."""

    def __init__(self, context: TransportContext, options: Any) -> None:
        self.context = context
        self.options = options
        self.state = LinkState.DOWN
        self._authenticated = False

    @property
    def capacity(self) -> int:
        """How many messages may be unconfirmed at the same time."""
        return 1000

    @property
    def wants_sink_authority(self) -> bool:
        """Whether a Publish needs a sink authority to be addressed here (an off-vehicle MQTT broker)."""
        return False

    @property
    def unconfirmed_s(self) -> float:
        """For how many seconds a message of which `Done` said `UNCONFIRMED` may still turn out to be lost."""
        return 0.0

    def watch_flow(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> Presence:
        """Whether anybody listens to messages from ``source`` to ``sink``; ``on_presence`` is called with every change.

        A transport that cannot know says `PRESENT`.
        """
        return Presence.PRESENT

    def forget_flow(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> None:
        """The opposite of `watch_flow`. Unknown ones are ignored."""

    def problems(self) -> list[str]:
        """What keeps the endpoint from working although its link is up, a sentence each."""
        return []

    @abstractmethod
    async def start(self) -> None:
        """Begin to connect and return. Connecting goes on in the background for as long as it takes."""

    @abstractmethod
    async def stop(self) -> None:
        """Send what has to be sent (acknowledgements, a farewell), then close. Idempotent."""

    async def authenticate(self, entity: UUri) -> None:
        """Confirm that ``entity`` may use this transport (uP-L1 authenticate).

        The transport's identity is that of our own authority; a uEntity of another one gets UNAUTHENTICATED. Idempotent.
        """
        if entity.authority != self.context.authority:
            raise UStatusError(
                UCode.UNAUTHENTICATED,
                f"{entity} does not belong to {self.context.authority!r}, the identity of {self.context.name}",
            )
        self._authenticated = True

    def require_authenticated(self) -> None:
        """Raise UNAUTHENTICATED if nobody called `authenticate` with success."""
        if not self._authenticated:
            raise UStatusError(UCode.UNAUTHENTICATED, f"{self.context.name}: authenticate() comes first")

    def send(self, message: UMessage) -> Awaitable[None]:
        """Send one message (uP-L1 send). Can be called many times without waiting.

        The awaitable completes when the transport's own confirmation came. Raises INVALID_ARGUMENT for an invalid
        message at once, a `SendError` through the awaitable otherwise.
        """
        self.require_authenticated()
        try:
            message.check()
        except InvalidMessageError as exc:
            raise UStatusError(UCode.INVALID_ARGUMENT, str(exc)) from exc
        parcel = _Single(message, asyncio.get_running_loop().create_future())
        self.submit((parcel,), _complete)
        return parcel.future

    @abstractmethod
    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        """Send valid messages, in order, without waiting; ``done`` is called once for each of them.

        What the link loses comes back as `LinkLostError`, in the order in which it was submitted. ``done`` may be
        called before `submit` returns.
        """

    @abstractmethod
    async def receive(self, source_filter: UUri, sink_filter: UUri | None = None) -> UMessage:
        """Pull the earliest message that matches and is not expired (uP-L1 receive).

        The first call for a filter opens it. Raises NOT_FOUND if nothing is there, UNIMPLEMENTED if a transport
        cannot pull.
        """

    @abstractmethod
    async def register_listener(self, source_filter: UUri, sink_filter: UUri | None, listener: UListener) -> None:
        """Have ``listener`` called for matching messages (uP-L1 registerListener). Idempotent.

        Raises INVALID_ARGUMENT for a filter outside the specification's table, RESOURCE_EXHAUSTED beyond the limits.
        """

    @abstractmethod
    async def unregister_listener(self, source_filter: UUri, sink_filter: UUri | None, listener: UListener) -> None:
        """The opposite; nothing is delivered afterwards. Raises NOT_FOUND for what was not registered."""

    def pause_receiving(self) -> None:
        """Stop handing over messages, because the router has no room. Only where the wire has no window of its own."""

    def resume_receiving(self) -> None:
        """Go on after `pause_receiving`."""

    def set_state(self, state: LinkState) -> None:
        """For transports: record and report a change of the link."""
        if state is not self.state:
            self.state = state
            self.context.on_state(state)


class _Single:
    """One message of `send`, with whom to tell."""

    __slots__ = ("future", "message")

    def __init__(self, message: UMessage, future: "asyncio.Future[None]") -> None:
        self.message = message
        self.future = future


def _complete(parcels: Sequence[_Single], error: SendResult) -> None:
    for parcel in parcels:
        if parcel.future.done():  # the caller gave up waiting
            continue
        if error is None or error is UNCONFIRMED:
            parcel.future.set_result(None)
        else:
            parcel.future.set_exception(error)


def check_filter(source: UUri, sink: UUri | None) -> None:
    """Raise INVALID_ARGUMENT if no listener may be registered for this pair (uP-L1, table of resource ids)."""
    try:
        source.check()
        if sink is not None:
            sink.check()
    except ValueError as exc:
        raise UStatusError(UCode.INVALID_ARGUMENT, str(exc)) from exc
    any_source = source.resource == 0xFFFF
    source_is_method = 1 <= source.resource <= LAST_METHOD
    if sink is None:
        allowed = source.is_topic or any_source
    elif sink.resource == 0:
        allowed = source.is_topic or source_is_method or any_source
    elif sink.is_method:
        allowed = source.resource == 0
    else:
        allowed = any_source and sink.resource == 0xFFFF
    if not allowed:
        raise UStatusError(
            UCode.INVALID_ARGUMENT,
            f"no listener for source resource {source.resource:X} with "
            + ("no sink" if sink is None else f"sink resource {sink.resource:X}"),
        )


def available_transports() -> list[str]:
    """Names of all installed transports."""
    return sorted(entry.name for entry in entry_points(group=ENTRY_POINTS))


@cache
def load_transport(kind: str) -> type[UTransport]:
    """The transport class of that name. Raises LookupError if none is installed."""
    for entry in entry_points(group=ENTRY_POINTS, name=kind):
        loaded: type[UTransport] = entry.load()
        return loaded
    raise LookupError(f"no transport {kind!r}; installed: {', '.join(available_transports())}")
