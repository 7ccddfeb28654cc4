"""The service's entries and outgoing messages, as plain records: no rules, no I/O."""

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri

NEWEST, OLDEST = 4, 3
"""The versions of core.usubscription that the streamer speaks."""


class SubscriptionState(IntEnum):
    """The state of one subscription (004 §6); the numbers are those of SubscriptionStatus.State."""

    UNSUBSCRIBED = 0
    SUBSCRIBE_PENDING = 1
    SUBSCRIBED = 2
    UNSUBSCRIBE_PENDING = 3


class Cause(Enum):
    """The reason of a subscription's change."""

    STATE = "state"
    """The subscription's state has changed."""
    TERMS = "terms"
    """The subscriber has asked for another expiry or sample period."""
    LEFT = "left"
    """The subscription's state has changed because its subscriber has unsubscribed."""


class SubscribeAttributes(NamedTuple):
    """The request of a subscriber for a topic.

    ``expire_ms``: Unix milliseconds; None: never. ``details``: protobuf bytes that only the subscriber understands.
    """

    expire_ms: int | None = None
    sample_period_ms: int | None = None
    details: bytes = b""

    @property
    def terms(self) -> tuple[int | None, int | None]:
        """Return expiry and sample period: subscribers are notified of changes of these."""
        return self.expire_ms, self.sample_period_ms

    @property
    def period_ms(self) -> int:
        """Return the shortest time between two messages in ms; 0: every message."""
        return self.sample_period_ms or 0


@dataclass(slots=True)
class Subscription:
    """One subscriber of one topic. ``via``: the authority of the service that it called, in ``version``: this service
    notifies it of changes.
    """

    number: int
    topic: UUri
    subscriber: UUri
    via: str
    state: SubscriptionState
    attributes: SubscribeAttributes
    version: int = 3

    @property
    def has_left(self) -> bool:
        """Whether the subscriber has unsubscribed (False: the subscription has expired, or is in effect)."""
        return self.state is SubscriptionState.UNSUBSCRIBE_PENDING and self.attributes.expire_ms is None


class ListedSubscription(NamedTuple):
    """A subscription as administration lists it."""

    topic: UUri
    subscriber: UUri
    state: SubscriptionState
    expire_ms: int | None
    period_ms: int
    version: int


class Observer(NamedTuple):
    """A uEntity that registered for the changes of one topic (version 3), or of all (None; version 4)."""

    number: int
    topic: UUri | None
    uri: UUri
    via: str

    @property
    def version(self) -> int:
        return 4 if self.topic is None else 3


class Update(NamedTuple):
    """A notification of ``sink`` from the service at authority ``via``, in ``version``. None: published to all."""

    sink: UUri | None
    via: str
    topic: UUri
    subscriber: UUri
    state: SubscriptionState
    message: str
    attributes: SubscribeAttributes
    version: int = 3
    cause: Cause = Cause.STATE
    is_observed: bool = False
    """Whether the notification is for an observer; False: for the subscriber."""


class Command(NamedTuple):
    """A Subscribe or Unsubscribe for the service at the topic's authority in ``version``, with this id and TTL."""

    id: bytes
    topic: UUri
    subscribe: bool
    period_ms: int
    ttl_ms: int
    version: int = OLDEST


class CommandResponse(NamedTuple):
    """The response to a `Command`. ``state``: None if the response has none; ``created_ms``: by the sender's clock."""

    id: bytes
    code: UCode
    state: SubscriptionState | None
    message: str
    created_ms: int


class ReceivedUpdate(NamedTuple):
    """An Update of another service about our own subscription. ``created_ms``: by the sender's clock."""

    topic: UUri
    state: SubscriptionState
    message: str
    created_ms: int


@dataclass(slots=True)
class Change:
    """The result of one call: entries to write (None: to delete), messages to send, and the topics concerned."""

    is_flushed: bool = False
    """Every entry that was there before is deleted."""
    subscriptions: dict[int, Subscription | None] = field(default_factory=dict)
    observers: dict[int, Observer | None] = field(default_factory=dict)
    remotes: set[UUri] = field(default_factory=set)
    """Remote topics whose present state is to be written, or whose row is to be deleted if there is none."""
    updates: list[Update] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    topics: set[UUri] = field(default_factory=set)
    """Topics in which the interest may have changed."""
