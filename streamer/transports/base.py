"""uTransport: the interface of transport plugins (uP-L1 specification), and what the streamer provides to them.

A transport moves `UMessage`s between the wire and its listeners. It owns the connection, the mapping onto the wire and the
confirmation of single messages. It must not route, queue beyond its own window, or retry what was refused.

To add a transport, derive a class from `ListeningTransport` in `listening`, which has the receiving half, or from
`UTransport`; implement the abstract methods, and name the class in the entry point group ``ustreamer.transports`` of your
package. Nothing in this package has to change: whatever the streamer needs to know about a network, it asks the class
(`UTransport`) or its options (`TransportOptions`). All else can be imported from here; the parts that are called for every
message are in `received` and `events`, which may be compiled.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, Protocol

from pydantic import ConfigDict, Field

from streamer.clock import SystemClock
from streamer.described import Described
from streamer.transports.claims import Claim
from streamer.transports.errors import SendError
from streamer.transports.events import LinkState as LinkState  # noqa: PLC0414  # a part of the interface
from streamer.transports.events import TransportEvents as TransportEvents  # noqa: PLC0414
from streamer.transports.probe import Probe
from streamer.transports.received import Received as Received  # noqa: PLC0414
from streamer.transports.received import Refused as Refused  # noqa: PLC0414
from streamer.transports.received import UListener as UListener  # noqa: PLC0414
from streamer.uprotocol.message import InvalidMessageError, UMessage
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

ENTRY_POINTS = "ustreamer.transports"

_WALL_MS = SystemClock().wall_ms


class Presence(Enum):
    """Whether anybody on the network listens to a flow."""

    UNKNOWN = "unknown"  # the transport is finding out
    ABSENT = "nobody"
    PRESENT = "somebody"
    INTERRUPTED = "interrupted"  # somebody may have been away for a moment; what holds now is told right after


class Unconfirmed(Enum):
    """The result of messages that were sent on a network that never confirms; see `SendResult`."""

    UNCONFIRMED = "unconfirmed"


UNCONFIRMED = Unconfirmed.UNCONFIRMED


class Parcel(Protocol):
    """An object with a message, as `UTransport.submit` takes it. `Done` gets the same object back."""

    @property
    def message(self) -> UMessage: ...


SendResult = SendError | Unconfirmed | None
"""The result of a submitted parcel: None if it is confirmed, else why it is not.

`UNCONFIRMED` means that the network has taken the message and will never confirm it. It counts as delivered after
`UTransport.unconfirmed_s`, unless the flow's `Presence` becomes `ABSENT` or `INTERRUPTED`, or a node is lost
(`TransportEvents.node_changed`), before that.
"""

Done = Callable[[Sequence[Any], SendResult], None]
"""Reports the result of submitted parcels, in the order in which they were confirmed. The parcels of one call share it."""


@dataclass(frozen=True)
class TransportContext:
    """The streamer, as a transport knows it.

    ``name`` is the endpoint's, ``authority`` the streamer's own. ``serves`` are the authorities, without the wildcard, that
    this network reaches through the streamer. ``now_ms`` is the wall clock.
    """

    name: str
    authority: str
    serves: tuple[str, ...] = ()
    events: TransportEvents = field(default_factory=TransportEvents)
    now_ms: Callable[[], int] = _WALL_MS


LONGEST_S = 30 * 86_400
"""The longest time that an option may have. In milliseconds it fits into a TTL (32 bits), and any library takes it."""

LARGEST_FACTOR = 1000.0
"""The largest factor by which a wait may grow: its powers are still finite (`streamer.backoff`)."""


class ListenerOptions(Described):
    """Limits on listeners (uP-L1: the transport declares them, and answers RESOURCE_EXHAUSTED beyond)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    max_listeners: int = 200_000  # more than uSubscription's own bound on subscriptions
    """Listeners inside the streamer, in total."""
    max_listeners_per_filter: int = 100
    """Listeners on one filter."""


class TransportOptions(Described):
    """The base of every transport's ``Options``: the ``options`` of an endpoint in the configuration file.

    Its fields are the keys; its properties tell the streamer about the network before there is a connection. The text below
    a field is its description in ``streamer schema``. Validation errors do not show values, which may be passwords.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @property
    def addresses_publishes(self) -> bool:
        """Whether a Publish needs a sink authority on this network, as on an off-vehicle MQTT broker."""
        return False

    @property
    def proves_identity(self) -> bool:
        """Whether messages may come with an identity that the network proves (`Provenance.identity`)."""
        return False

    @property
    def longest_unconfirmed_s(self) -> float:
        """The seconds that a sent message takes room in the journal, on a network that confirms nothing; else 0."""
        return 0.0

    @property
    def is_divided(self) -> bool:
        """Whether several streamers share this endpoint's messages: each message goes to one of them, perhaps another."""
        return False

    def exposures(self) -> Sequence[str]:
        """What these options leave open to attackers on the network, for ``streamer check``: ``KEY: sentence`` each."""
        return ()

    def hints(self) -> Sequence[str]:
        """Options that are allowed, but may not be intended: ``KEY: sentence`` each."""
        return ()

    def claims(self, authority: str) -> Sequence[Claim]:
        """Resources that no other endpoint may use: ports to listen on, a session. ``authority`` is the streamer's own."""
        return ()


class WireOptions(TransportOptions):
    """The base of the ``Options`` of a transport to which strangers may send: bounds the memory that a message can take.

    The attributes of one message may take ``max_header_bytes`` on the wire, its token ``max_token_bytes`` of that. A packet
    beyond either is refused before it is decoded (`Malformed.HEADER`).
    """

    max_header_bytes: int = Field(default=8192, ge=1024, le=1024 * 1024)
    """The largest size of a message's attributes on the wire."""
    max_token_bytes: int = Field(default=1024, ge=0, le=65_535)
    """The largest size of the token among a message's attributes."""


class UTransport(ABC):
    """One connection to one network of uEntities.

    Operations of uProtocol raise `UStatusError`s. `authenticate` comes first; without it `send`, `receive`,
    `register_listener` and `unregister_listener` raise UNAUTHENTICATED. What the router calls does not check it.
    """

    kind: ClassVar[str]
    """The transport's name, the same as in the entry point."""

    source_retransmits: bool = False
    """Whether the network delivers an unacknowledged message again when the streamer comes back."""

    confirms_in_order: bool = False
    """Whether the network handles one message after another and confirms each: messages in flight delay later ones."""

    Options: ClassVar[type[TransportOptions]]
    """The model of the endpoint's ``options`` in the configuration file."""

    def __init__(self, context: TransportContext, options: TransportOptions) -> None:
        self.context = context
        self.options = options
        self.state = LinkState.DOWN
        self._authenticated = False

    @property
    def capacity(self) -> int:
        """How many messages may be in flight at a time: submitted, without a result yet."""
        return 1000

    @property
    def unconfirmed_s(self) -> float:
        """For how many seconds a message with the result `UNCONFIRMED` may still turn out to be lost."""
        return 0.0

    def arrived_until_s(self, now_s: float) -> float:
        """The moment before which everything that was sent has arrived, by what the network itself says.

        On the monotonic clock, like ``now_s``. For messages with the result `UNCONFIRMED`; a network that says nothing
        answers minus infinity, the default: then only `unconfirmed_s` counts.
        """
        return -math.inf

    def awaits_acknowledgements(self, now_s: float) -> bool:
        """Whether the network may have stopped sending until something is acknowledged.

        Asked when messages begin to wait for the journal, and every 50 ms from then on. While the answer is False they may
        wait longer, unless `TransportEvents.acknowledgements_awaited` is called. ``now_s`` is on the monotonic clock. The
        default: True, if the network `source_retransmits` messages.
        """
        return self.source_retransmits

    @classmethod
    def filter_texts(cls, source: UUri, sink: UUri | None, authority: str) -> Mapping[str, str]:
        """The subscription, as text, with which a uEntity at ``authority`` receives what matches these filters.

        A network may have several forms, each with a name. The answers of core.ustreamer contain the texts whose names
        are fields there. Empty, the default: nothing to tell.
        """
        return {}

    @classmethod
    def probes(cls, options: Any, held: Collection[str]) -> Iterable[Probe]:
        """The tests of these options for ``streamer check --probe``. ``held``: texts in those of a running streamer."""
        return ()

    def watch_flow(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> Presence:
        """Whether anybody listens to messages from ``source`` to ``sink``; ``on_presence`` is called at every change.

        A transport that cannot know says `PRESENT`.
        """
        return Presence.PRESENT

    def forget_flow(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> None:
        """The opposite of `watch_flow`. A flow that is not watched is ignored."""

    def problems(self) -> list[str]:
        """What keeps the endpoint from working, other than a lost link, one sentence each."""
        return []

    def figures(self) -> Mapping[str, float]:
        """What the transport measures of itself for the metrics, by name: a few names, the same every time."""
        return {}

    def prepare(self) -> None:
        """Read what the options name, such as files, without connecting. By default there is nothing to read.

        Raises `ConfigurationError` for options that cannot work at all.
        """

    @abstractmethod
    async def start(self) -> None:
        """Begin to connect, and return. Connecting goes on in the background for as long as it takes.

        Raises `ConfigurationError` as `prepare` does.
        """

    def set_served(self, authorities: Sequence[str]) -> None:
        """From now on the network reaches these authorities through the streamer (`TransportContext.serves`)."""
        self.context = replace(self.context, serves=tuple(authorities))

    async def stop_receiving(self) -> None:
        """The streamer is about to end: unsubscribe, and deliver everything that has arrived. Sending goes on. Idempotent.

        For networks that lose messages while nobody receives (`source_retransmits` is False). It takes a few seconds at
        most, and delivers also after `pause_receiving`: the caller takes everything. By default, receiving goes on until
        `stop`.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Send what has to be sent (acknowledgements, a farewell), then close. Idempotent."""

    async def end_session(self, successor: "UTransport") -> None:
        """A reload has put ``successor`` in the place of this transport, which was stopped, and its successor started.

        For networks that keep messages for an absent receiver: unless the successor goes on with what they keep, come back
        for a few seconds, deliver it, and have them keep nothing more. By default there is nothing to do.
        """

    async def authenticate(self, entity: UUri) -> None:
        """Confirm that ``entity`` may use this transport (uP-L1 authenticate). Idempotent.

        The transport has the identity of the streamer's authority. Raises UNAUTHENTICATED for a uEntity of another one.
        """
        if entity.authority != self.context.authority:
            raise UStatusError(
                UCode.UNAUTHENTICATED,
                f"{entity} does not belong to {self.context.authority!r}, the identity of {self.context.name}",
            )
        self._authenticated = True

    def require_authenticated(self) -> None:
        """Raise UNAUTHENTICATED unless `authenticate` has succeeded."""
        if not self._authenticated:
            raise UStatusError(UCode.UNAUTHENTICATED, f"{self.context.name}: authenticate() comes first")

    def send(self, message: UMessage) -> Awaitable[None]:
        """Send one message (uP-L1 send). May be called many times without waiting.

        The awaitable completes with the transport's own confirmation, or raises a `SendError`. An invalid message raises
        INVALID_ARGUMENT at once.
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
        """Send valid messages, in order, without waiting. ``done`` is called once for each of them.

        Parcels that are lost with the link get `LinkLostError`, in the order in which they were submitted. ``done`` may be
        called before `submit` returns.
        """

    @abstractmethod
    async def receive(self, source_filter: UUri, sink_filter: UUri | None = None) -> UMessage:
        """Pull the earliest message that matches and is not expired (uP-L1 receive).

        The first call for a filter opens it. Raises NOT_FOUND if there is no message, UNIMPLEMENTED if the transport
        cannot pull.
        """

    @abstractmethod
    async def register_listener(self, source_filter: UUri, sink_filter: UUri | None, listener: UListener) -> None:
        """Have ``listener`` called for matching messages (uP-L1 registerListener). Idempotent.

        Raises INVALID_ARGUMENT for a filter outside the specification's table, RESOURCE_EXHAUSTED beyond the limits.
        """

    @abstractmethod
    async def unregister_listener(self, source_filter: UUri, sink_filter: UUri | None, listener: UListener) -> None:
        """The opposite of `register_listener`; nothing is delivered afterwards.

        Raises INVALID_ARGUMENT for a filter outside the specification's table, NOT_FOUND for a listener that was not
        registered.
        """

    def pause_receiving(self) -> None:
        """Deliver nothing for a while, because the router has no room. For networks without a window of their own."""

    def resume_receiving(self) -> None:
        """Go on after `pause_receiving`."""

    def set_state(self, state: LinkState) -> None:
        """For transports: set the link's state, and report a change to the streamer."""
        if state is not self.state:
            self.state = state
            self.context.events.state_changed(state)


class _Single:
    """One message of `send`, and what its caller awaits."""

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
