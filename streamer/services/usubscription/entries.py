"""What the service knows and says, as plain records: no rules, no I/O."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri


class Standing(IntEnum):
    """How one subscriber stands to one topic (004 §6); the numbers are those of SubscriptionStatus.State."""

    UNSUBSCRIBED = 0
    SUBSCRIBE_PENDING = 1
    SUBSCRIBED = 2
    UNSUBSCRIBE_PENDING = 3


class Wish(NamedTuple):
    """SubscribeAttributes. ``expire_ms``: Unix milliseconds, None: never. ``details``: protobuf, the subscriber's own."""

    expire_ms: int | None = None
    sample_period_ms: int | None = None
    details: bytes = b""

    @property
    def period_ms(self) -> int:
        """At most one message in so long; 0: every message."""
        return self.sample_period_ms or 0


@dataclass(slots=True)
class Subscription:
    """One subscriber's relation to one topic. ``via``: the authority that it asked, where its Updates come from."""

    number: int
    topic: UUri
    subscriber: UUri
    via: str
    standing: Standing
    wish: Wish


class Observer(NamedTuple):
    """A uEntity that registered for the changes of one topic."""

    number: int
    topic: UUri
    uri: UUri
    via: str


class Update(NamedTuple):
    """A change to be told: to ``sink``, from the service at authority ``via``."""

    sink: UUri
    via: str
    topic: UUri
    subscriber: UUri
    standing: Standing
    message: str
    wish: Wish


class Order(NamedTuple):
    """A Subscribe or Unsubscribe to be sent to the service at the topic's authority, with this id and TTL."""

    id: bytes
    topic: UUri
    subscribe: bool
    period_ms: int
    ttl_ms: int


class Reply(NamedTuple):
    """What came back for an `Order`. ``standing``: None if it does not say; ``created_ms`` by the sender's clock."""

    id: bytes
    code: UCode
    standing: Standing | None
    message: str
    created_ms: int


class Told(NamedTuple):
    """An Update of another service about ourselves. ``created_ms`` by the sender's clock."""

    topic: UUri
    standing: Standing
    message: str
    created_ms: int


@dataclass(slots=True)
class Change:
    """What one call changed: entries to write (None: to delete), what to send, and topics whose askers may have changed."""

    is_flushed: bool = False
    """Everything that was there before is gone."""
    subscriptions: dict[int, Subscription | None] = field(default_factory=dict)
    observers: dict[int, Observer | None] = field(default_factory=dict)
    remotes: set[UUri] = field(default_factory=set)
    """Remote topics to write as they are now, or to delete if they are not there any more."""
    updates: list[Update] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    topics: set[UUri] = field(default_factory=set)
