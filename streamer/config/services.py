"""The sections of the configuration for the streamer's own services."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from streamer.config.types import (
    MIB,
    BroadcastName,
    Count,
    Entity,
    EntityPattern,
    FilePath,
    PartitionName,
    Pattern,
    Section,
    SingleAuthority,
    Size,
    Topic,
    TopicResource,
    at_least_one,
    expected,
)
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at
from streamer.uprotocol.well_known import USUBSCRIPTIONS

MOST_EVERY_S = 14 * 86_400
"""A status expires after three times its interval, and a TTL has 32 bits of milliseconds: less than 50 days."""


def _usubscription(service: UUri) -> UUri:
    if service not in [entity.at(service.authority) for entity in USUBSCRIPTIONS]:
        raise expected("a uSubscription service of version 3 or 4, such as //veh1/0/3/0")
    return service


class ExternalUsubscriptionConfig(Section):
    """A uSubscription service elsewhere, which is followed instead of running one here."""

    service: Annotated[Entity, AfterValidator(_usubscription)]
    """The service, such as //veh1/0/3/0. It is asked in the version that this names."""
    topics: list[Topic] = []
    """Topics whose subscribers are followed."""
    subscribers: list[Entity] = []
    """Subscribers whose topics are followed."""
    refresh_s: ClassVar[float] = 60
    """How often everything is fetched again, in addition to the notifications of changes."""


class SubscribePermission(Section):
    """The uEntities that may subscribe to topics that no route publishes to them."""

    from_: EntityPattern = Field(alias="from")
    """A pattern of uEntities (resource 0)."""
    topics: Annotated[list[Pattern], Field(min_length=1)]
    """Patterns of the topics that they may subscribe to."""


class UsubscriptionConfig(Section):
    """The uSubscription service."""

    local: list[SingleAuthority] | None = None
    """The authorities, besides its own, for which the streamer is the uSubscription service: their topics are local. None:
    those that are listed at endpoints whose network does not connect devices."""
    initial: bool | list[Pattern] = False
    """Whether a new subscriber gets the last message of its topic, or for which topics (patterns). Needs `utwin`."""
    remote_timeout_s: ClassVar[float] = 300
    """How long a Subscribe or Unsubscribe to another device waits for the answer before it is sent again."""
    page: ClassVar[int] = 1000
    """The most entries in one answer to a FetchSubscribers or FetchSubscriptions that names an offset."""
    max_answer_bytes: Size = MIB
    """The largest answer, with or without an offset. The rest is left to the next page; in version 4, which has no pages,
    the Request is refused."""
    subscribe: list[SubscribePermission] | None = None
    """The topics to which uEntities elsewhere may subscribe, beside those that routes publish to their authority. None: all,
    for those at authorities that this configuration names; nothing for others."""
    fetch: list[EntityPattern] | None = None
    """Patterns of the uEntities (resource 0) that may list the subscriptions of others. None: those at local authorities."""
    reset: list[EntityPattern] | None = None
    """Whose Reset is carried out, as `fetch`. One from another device deletes only its own authority's entries."""
    max_subscriptions: Count = 100_000
    """Subscriptions in total. A Subscribe beyond this bound, or one of the following, is refused with RESOURCE_EXHAUSTED."""
    max_subscriptions_per_authority: ClassVar[int] = 10_000
    """The lowest bound for the subscriptions of all uEntities at one authority."""
    max_subscriptions_per_subscriber: ClassVar[int] = 1000
    """Subscriptions of one uEntity; not for uSubscription services, which subscribe for their whole device."""
    max_authorities_per_topic: ClassVar[int] = 64
    """Authorities with subscribers of one topic, beside those that the configuration names: on an off-vehicle broker each
    gets a copy of a Publish."""
    max_observers: ClassVar[int] = 10_000
    """Observers, that is uEntities that are notified of changes of subscriptions, in total."""
    max_observers_per_authority: ClassVar[int] = 1000
    """Observers at one authority."""
    max_observers_per_topic: ClassVar[int] = 64
    """Observers of one topic."""
    remote_version: Literal[3, 4] = 4
    """The version in which the uSubscription services of other devices are asked."""
    external: ExternalUsubscriptionConfig | None = None
    """A uSubscription service elsewhere that the streamer follows instead of running one. None: the service runs here."""

    @property
    def initial_topics(self) -> list[UUri]:
        """Return patterns of the topics whose last message a new subscriber gets."""
        if isinstance(self.initial, bool):
            return [everything_at(ANY_AUTHORITY)] if self.initial else []
        return self.initial


class ControlConfig(Section):
    """The uEntities and programs that may pause and resume topics over uProtocol, and change everything else over HTTP."""

    allow: list[EntityPattern] = []
    """Patterns of uEntities (resource 0) that may pause and resume over uProtocol. Empty: nobody."""
    max_rules: ClassVar[int] = 100
    """Pause rules that one uEntity may have added."""
    http: Literal["loopback", "any"] = "loopback"
    """From where changes over HTTP are accepted: this machine, or anywhere. Both need the token or a certificate."""
    http_token_file: FilePath | None = None
    """A file with that token. None: the streamer creates one beside the journal (``journal.db``: ``journal-token``)."""


class MulticastConfig(Section):
    """A broadcast of a provider, and the topic of each of its partitions."""

    provider: Entity
    """The uEntity that publishes the broadcast."""
    broadcast: BroadcastName
    """The broadcast's name in the provider's interface."""
    partitions: Annotated[dict[PartitionName, TopicResource], AfterValidator(at_least_one)]
    """Maps each partition (empty: none) to the resource of its topic at the provider."""


class StatusConfig(Section):
    """The status that the streamer publishes on ``//AUTHORITY/4/1/8002``."""

    every_s: Annotated[float, Field(ge=1, le=MOST_EVERY_S)] = 60
    """The interval. A change of health is published at once, at most ten times in it. A status expires after three."""
