"""uTransport: the interface of transport plugins (uP-L1 specification), and what the streamer provides to them.

A transport moves `UMessage`s between the wire and its listeners. It owns the connection, the mapping onto the wire and the
confirmation of single messages. It must not route, queue beyond its own window, or retry what was refused.

To add a transport, derive a class from `ListeningTransport` in `listening`, which has the receiving half, or from
`UTransport`; implement the abstract methods, and name the class in the entry point group ``ustreamer.transports`` of your
package. Nothing in this package has to change: the streamer gets all properties of a network from the class (`UTransport`)
or its options (`TransportOptions`). Everything else can be imported from here; the parts that are called for every message
are in `received` and `events`, which may be compiled.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict

from streamer.clock import SystemClock
from streamer.plugins import Settings
from streamer.transports.certificates import CertificateFile as CertificateFile  # noqa: PLC0414
from streamer.transports.certificates import CertificateRole as CertificateRole  # noqa: PLC0414
from streamer.transports.claims import Claim
from streamer.transports.errors import SendError
from streamer.transports.events import LinkState as LinkState  # noqa: PLC0414  # a part of the interface
from streamer.transports.events import TransportEvents as TransportEvents  # noqa: PLC0414
from streamer.transports.link_error import LinkError as LinkError  # noqa: PLC0414
from streamer.transports.link_error import LinkFailure as LinkFailure  # noqa: PLC0414
from streamer.transports.link_error import LinkStatus as LinkStatus  # noqa: PLC0414
from streamer.transports.own_nodes import OwnNodes
from streamer.transports.probe import Probe
from streamer.transports.received import Received as Received  # noqa: PLC0414
from streamer.transports.received import Refused as Refused  # noqa: PLC0414
from streamer.transports.received import UListener as UListener  # noqa: PLC0414
from streamer.transports.shared_network import SharedNetwork as SharedNetwork  # noqa: PLC0414
from streamer.transports.tcp_info import NO_BYTES as NO_BYTES  # noqa: PLC0414
from streamer.transports.tcp_info import ByteCounts as ByteCounts  # noqa: PLC0414
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import InvalidMessageError, UMessage
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri

ENTRY_POINTS = "ustreamer.transports"

_CLOCK = SystemClock()
_WALL_MS = _CLOCK.wall_ms


class Presence(Enum):
    """Whether anybody on the network listens to a flow."""

    UNKNOWN = "unknown"  # the transport is finding out
    ABSENT = "nobody"
    PRESENT = "somebody"
    INTERRUPTED = "interrupted"  # a receiver may have been away for a moment; the current presence is reported right after


class Unconfirmed(Enum):
    """The result of messages that were sent on a network that never confirms; see `SendResult`."""

    UNCONFIRMED = "unconfirmed"


UNCONFIRMED = Unconfirmed.UNCONFIRMED


class Parcel(Protocol):
    """An object with a message, as `UTransport.submit` takes it. `Done` gets the same object back.

    Whenever a transport sends the message, it adds the bytes of its packet to ``wire_bytes``, if it knows them. ``since_s``:
    when the message arrived at the streamer, on the monotonic clock (`UMessage.expires_ms`).
    """

    wire_bytes: int

    @property
    def message(self) -> UMessage: ...
    @property
    def since_s(self) -> float: ...


class MessageParcel:
    """A message on its own, as a `Parcel`."""

    __slots__ = ("message", "since_s", "wire_bytes")

    def __init__(self, message: UMessage) -> None:
        self.message = message
        self.since_s = _CLOCK.monotonic_s()
        self.wire_bytes = 0


SendResult = SendError | Unconfirmed | None
"""The result of a submitted parcel: None if it is confirmed, else the reason.

`UNCONFIRMED` means that the network has taken the message and will never confirm it. It counts as delivered after
`UTransport.unconfirmed_s`, unless the flow's `Presence` becomes `ABSENT` or `INTERRUPTED`, or a node is lost
(`TransportEvents.node_changed`), before that.
"""

Done = Callable[[Sequence[Any], SendResult], None]
"""Gets the result of submitted parcels in the order of their confirmation. All parcels of a call have that result."""


@dataclass(frozen=True)
class TransportContext:
    """The parts of its streamer that a transport knows.

    ``name`` is the endpoint's, ``authority`` the streamer's own. ``serves`` are the authorities, without the wildcard, that
    this network reaches through the streamer. ``now_ms`` is the wall clock. ``flows`` are those that this endpoint receives.
    ``own_nodes`` recognises the nodes of this streamer, and of the other one of its pair.
    """

    name: str
    authority: str
    serves: tuple[str, ...] = ()
    events: TransportEvents = field(default_factory=TransportEvents)
    now_ms: Callable[[], int] = _WALL_MS
    flows: Flows = field(default_factory=Flows)
    own_nodes: OwnNodes = field(default_factory=OwnNodes)


LONGEST_S = 30 * 86_400
"""The longest time in an option. In milliseconds it fits into a TTL (32 bits), and all libraries accept it."""


BACKLOG_BYTES = 16 * 1024 * 1024
"""The bound on received messages that are in no queue yet, before a transport is paused (`delivery.inbound.receiving`)."""


class ListenerOptions(BaseModel):
    """Limits on listeners. Beyond them, the transport raises RESOURCE_EXHAUSTED (uP-L1)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    max_listeners: int = 200_000  # more than uSubscription's own bound on subscriptions
    """Listeners inside the streamer, in total."""
    max_listeners_per_filter: int = 100
    """Listeners on one filter."""


class TransportOptions(Settings):
    """The base of every transport's ``Options``: the ``options`` of an endpoint in the configuration file.

    Its fields are the keys; its properties tell the streamer about the network before there is a connection. The text below
    a field is its description in ``streamer schema``. Validation errors do not show values, which may be passwords.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)

    listeners: ClassVar[ListenerOptions] = ListenerOptions()
    """Limits on listeners."""
    window: ClassVar[int] = 50_000
    """Messages that may be sent and not confirmed, whatever ``queue_policy.window`` says."""

    @classmethod
    def replaced(cls) -> Mapping[str, tuple[Any, str]]:
        return {"window": (1000, "queue_policy.window")}

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
        """For how many seconds a sent message stays in the journal on a network that confirms nothing; else 0."""
        return 0.0

    def receive_bytes(self, message_bytes: int) -> int:
        """Return the most memory that received messages take until it is decided where they go, if they have that size."""
        return BACKLOG_BYTES

    @property
    def is_divided(self) -> bool:
        """Whether several streamers share this endpoint's messages, so that each message goes to only one of them."""
        return False

    @property
    def is_shared(self) -> bool:
        """Whether the transport has a `SharedNetwork`, on which every subscription counts as a receiver."""
        return False

    def exposures(self) -> Sequence[str]:
        """Return what these options leave open to attackers on the network, for ``streamer check``: ``KEY: sentence``."""
        return ()

    def hints(self) -> Sequence[str]:
        """Return options that are allowed, but may not be intended: ``KEY: sentence``."""
        return ()

    def claims(self, authority: str) -> Sequence[Claim]:
        """Return resources that no other endpoint may use, such as ports. ``authority`` is the streamer's own."""
        return ()

    def beside(self, name: str) -> Self:
        """Return the options with which another program joins the network, beside the streamer with these options.

        For ``streamer send``, ``listen`` and ``ping``, which must not take over the streamer's session, ports or messages.
        ``name``: a unique one for the program, of letters and digits. The default is the same options. Raises
        `ConfigurationError`.
        """
        return self


class WireOptions(TransportOptions):
    """The base of the ``Options`` of a transport to which untrusted programs may send: bounds the memory of a message.

    The attributes of one message may take ``max_header_bytes`` on the wire, its token ``max_token_bytes`` of that. A packet
    beyond either is refused before it is decoded (`Malformed.HEADER`).
    """

    max_header_bytes: ClassVar[int] = 8192
    """The largest size of a message's attributes on the wire."""
    max_token_bytes: ClassVar[int] = 1024
    """The largest size of the token among a message's attributes."""


class Report(NamedTuple):
    """Everything that a transport reports about itself, without anything secret.

    ``problems``: of the endpoint, other than a lost link, one sentence each. ``addresses``: those to which the transport
    connects; ``connected_to``: those to which it is connected now, in the same form, as far as it knows. ``figures``: its
    own measurements for the metrics, the same few names in every report. ``wire_bytes``: sent and received on the network
    so far; None if the transport does not know. ``certificates``: the files in use, which are not read for the report.
    """

    problems: Sequence[str] = ()
    addresses: Sequence[str] = ()
    connected_to: Sequence[str] = ()
    figures: Mapping[str, float] = MappingProxyType({})
    wire_bytes: ByteCounts | None = None
    certificates: Sequence[CertificateFile] = ()


class Receivers:
    """Watches whether anybody receives a flow. This class is for networks that do not tell: it reports `PRESENT`."""

    def watch(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> Presence:
        """Return whether anybody listens to messages from ``source`` to ``sink``, and report changes to ``on_presence``."""
        return Presence.PRESENT

    def forget(self, source: UUri, sink: UUri | None, on_presence: Callable[[Presence], None]) -> None:
        """Stop reporting changes of a flow's presence to ``on_presence``. A flow that is not watched is ignored."""


class Tools:
    """The part of a kind of transport that commands and services use without a connection."""

    def filter_texts(self, source: UUri, sink: UUri | None, authority: str) -> Mapping[str, str]:
        """Return the subscription, as text, with which a uEntity at ``authority`` receives messages that match the filters.

        A network may have several forms, each with a name. The answers of core.ustreamer contain the texts whose names
        are fields there. The default is empty.
        """
        return {}

    def probes(self, options: Any, held: Collection[str]) -> Iterable[Probe]:
        """Return tests of these options for ``streamer check --probe``. ``held``: texts in a running streamer's options."""
        return ()


class UTransport(ABC):
    """One connection to one network of uEntities.

    Operations of uProtocol raise `UStatusError`s. Before `authenticate`, `send`, `receive`, `register_listener` and
    `unregister_listener` raise UNAUTHENTICATED. The methods that the router calls do not check that.
    """

    kind: ClassVar[str]
    """The transport's name, the same as in the entry point."""

    source_retransmits: bool = False
    """Whether the network redelivers unacknowledged messages when the streamer comes back."""

    shared: SharedNetwork | None = None
    """Set if a second streamer, connected with the same options, gets every message as well, and disturbs nobody."""

    confirms_in_order: bool = False
    """Whether the network handles one message after another and confirms each: messages in flight delay later ones."""

    Options: ClassVar[type[TransportOptions]]
    """The model of the endpoint's ``options`` in the configuration file."""

    tools: ClassVar[Tools] = Tools()

    receivers: Receivers = Receivers()

    def __init__(self, context: TransportContext, options: TransportOptions) -> None:
        self.context = context
        self.options = options
        self.state = LinkState.DOWN
        self.since_ms = context.now_ms()
        self.first_error: LinkError | None = None
        self.last_error: LinkError | None = None
        self.errors: dict[LinkFailure, int] = {}
        self.next_attempt_ms: int | None = None
        self._authenticated = False

    @property
    def capacity(self) -> int:
        """How many messages may be in flight at a time: submitted, without a result yet."""
        return 1000

    @property
    def unconfirmed_s(self) -> float:
        """For how many seconds a message with the result `UNCONFIRMED` may still turn out to be lost."""
        return 0.0

    @property
    def stall_s(self) -> float:
        """After how many seconds with messages in flight and without any result the streamer builds the transport anew.

        For libraries that may hang. The default is infinity: the transport ends a connection without progress itself.
        """
        return math.inf

    def arrived_until_s(self, now_s: float) -> float:
        """Return the time before which all sent messages have arrived, by evidence from the network.

        On the monotonic clock, like ``now_s``. For messages with the result `UNCONFIRMED`. The default is minus infinity:
        there is no evidence, and only `unconfirmed_s` counts.
        """
        return -math.inf

    def awaits_acknowledgements(self, now_s: float) -> bool:
        """Return whether the network may have stopped sending until messages are acknowledged.

        Called when messages begin to wait for the journal, and every 50 ms from then on. While the answer is False, they
        may wait longer, unless `TransportEvents.acknowledgements_awaited` is called. ``now_s`` is on the monotonic clock.
        The default is `source_retransmits`.
        """
        return self.source_retransmits

    def report(self) -> Report:
        """Return everything that the transport reports about itself now. The default is nothing."""
        return Report()

    @property
    def link(self) -> LinkStatus:
        """The state of the link, and what is known of why it is not up."""
        report = self.report()
        ends = report.addresses, report.connected_to
        return LinkStatus(self.state, self.since_ms, *ends, self.first_error, self.last_error, self.next_attempt_ms)

    def prepare(self) -> None:
        """Read the files that the options name, without connecting. By default there are none.

        Raises `ConfigurationError` for options that cannot work at all.
        """

    @abstractmethod
    async def start(self) -> None:
        """Begin to connect, and return. The transport goes on connecting in the background, for as long as it takes.

        Raises `ConfigurationError` as `prepare` does.
        """

    async def can_connect(self) -> bool | None:
        """Return whether the other end of the network accepts connections; None if that is not known.

        For a transport that was not started; joins nothing. The default is to know only that it is connected.
        """
        return True if self.state is LinkState.UP else None

    def set_served(self, authorities: Sequence[str]) -> None:
        """Set the authorities that the network reaches through the streamer (`TransportContext.serves`)."""
        self.context = replace(self.context, serves=tuple(authorities))

    async def stop_receiving(self) -> None:
        """Unsubscribe, and deliver all messages that have arrived, because the streamer is about to end. Idempotent.

        Sending continues. For networks that lose messages without a receiver (`source_retransmits` is False). Takes a few
        seconds at most, and delivers also after `set_receiving` (False): the caller takes everything. By default, receiving
        continues until `stop`.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Send the last acknowledgements and a farewell, then close. Idempotent."""

    async def end_session(self, successor: "UTransport") -> None:
        """End the network's session after a reload: this transport was stopped, and ``successor`` started.

        For networks that keep messages for an absent receiver. Unless the successor resumes the session, connect for a few
        seconds, deliver the kept messages, and end the session. By default there is nothing to do.
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
        """Send valid messages, in order, without waiting. Every parcel is reported to ``done`` once.

        Parcels that are lost with the link get `LinkLostError`, in the order in which they were submitted. ``done`` may be
        called before `submit` returns.
        """

    @abstractmethod
    async def receive(self, source_filter: UUri, sink_filter: UUri | None = None) -> UMessage:
        """Return the earliest message that matches and is not expired (uP-L1 receive).

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

    def set_receiving(self, is_receiving: bool) -> None:
        """Deliver nothing for a while, because the router has no room, or go on. For networks without a window of their own.

        By default, messages are delivered all the time.
        """

    def set_state(self, state: LinkState, reason: str = "") -> None:
        """For transports: set the link's state, and report a change to the streamer.

        ``reason``: why it is not up, without anything secret. It goes into the traces.
        """
        if state is not self.state:
            if LinkState.UP in (state, self.state):
                self.since_ms = self.context.now_ms()
            if state is LinkState.UP:
                self.first_error = None
            self.state = state
            self.next_attempt_ms = None
            self.context.events.state_changed(state, reason)

    def link_failed(self, reason: LinkFailure, text: str, address: str = "") -> LinkError:
        """For transports: record and return why the link could not be opened, or has ended; before `set_state` changes.

        ``text`` and ``address`` contain nothing secret.
        """
        error = self.last_error = LinkError(reason, text, address, self.context.now_ms())
        self.first_error = self.first_error or error
        self.errors[reason] = self.errors.get(reason, 0) + 1
        return error

    def retry_in(self, wait_s: float) -> None:
        """For transports: record when the next attempt to open the link will be made."""
        self.next_attempt_ms = self.context.now_ms() + round(wait_s * 1000)


class _Single(MessageParcel):
    """One message of `send`, and what its caller awaits."""

    __slots__ = ("future",)

    def __init__(self, message: UMessage, future: "asyncio.Future[None]") -> None:
        super().__init__(message)
        self.future = future


def _complete(parcels: Sequence[_Single], error: SendResult) -> None:
    for parcel in parcels:
        if parcel.future.done():  # the caller gave up waiting
            continue
        if error is None or error is UNCONFIRMED:
            parcel.future.set_result(None)
        else:
            parcel.future.set_exception(error)
