"""What the service knows and sends, as plain records: no rules, no I/O."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri


class SubscriptionState(IntEnum):
    """The state of one subscription (004 §6); the numbers are those of SubscriptionStatus.State."""

    UNSUBSCRIBED = 0
    SUBSCRIBE_PENDING = 1
    SUBSCRIBED = 2
    UNSUBSCRIBE_PENDING = 3


class SubscribeAttributes(NamedTuple):
    """What a subscriber asks for beside the topic.

    ``expire_ms``: Unix milliseconds, None: never. ``details``: protobuf, the subscriber's own.
    """

    expire_ms: int | None = None
    sample_period_ms: int | None = None
    details: bytes = b""

    @property
    def period_ms(self) -> int:
        """The shortest time between two messages; 0: every message."""
        return self.sample_period_ms or 0


@dataclass(slots=True)
class Subscription:
    """One subscriber of one topic. ``via``: the authority whose service it called, which sends its Updates."""

    number: int
    topic: UUri
    subscriber: UUri
    via: str
    state: SubscriptionState
    attributes: SubscribeAttributes


class Observer(NamedTuple):
    """A uEntity that registered for the changes of one topic."""

    number: int
    topic: UUri
    uri: UUri
    via: str


class Update(NamedTuple):
    """A change that a subscriber or an observer is told: ``sink``, by the service at authority ``via``."""

    sink: UUri
    via: str
    topic: UUri
    subscriber: UUri
    state: SubscriptionState
    message: str
    attributes: SubscribeAttributes


class Command(NamedTuple):
    """A Subscribe or Unsubscribe to be sent to the service at the topic's authority, with this id and TTL."""

    id: bytes
    topic: UUri
    subscribe: bool
    period_ms: int
    ttl_ms: int


class CommandResponse(NamedTuple):
    """The response to a `Command`. ``state``: None if it has none; ``created_ms`` by the sender's clock."""

    id: bytes
    code: UCode
    state: SubscriptionState | None
    message: str
    created_ms: int


class ReceivedUpdate(NamedTuple):
    """An Update of another service about our own subscription. ``created_ms`` by the sender's clock."""

    topic: UUri
    state: SubscriptionState
    message: str
    created_ms: int


@dataclass(slots=True)
class Change:
    """What one call changed: entries to write (None: to delete), messages to send, and the topics concerned."""

    is_flushed: bool = False
    """Every entry that was there before is deleted."""
    subscriptions: dict[int, Subscription | None] = field(default_factory=dict)
    observers: dict[int, Observer | None] = field(default_factory=dict)
    remotes: set[UUri] = field(default_factory=set)
    """Remote topics to write as they are now, or to delete if they are no longer known."""
    updates: list[Update] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    topics: set[UUri] = field(default_factory=set)
    """Topics in which the interest may have changed."""
