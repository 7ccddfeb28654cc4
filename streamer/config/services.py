"""The sections of the configuration for the streamer's own services."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from streamer.config.types import (
    BroadcastName,
    Count,
    Entity,
    EntityPattern,
    FilePath,
    PartitionName,
    Section,
    SingleAuthority,
    Topic,
    TopicResource,
    at_least_one,
)


class StateConfig(Section):
    """Where subscriptions and pause rules are kept."""

    path: FilePath | None = None
    """A SQLite file. None: beside the journal (``journal.db``: ``journal-state.db``), or memory if there is no journal."""


class ExternalUsubscriptionConfig(Section):
    """A uSubscription service elsewhere, which is followed instead of running one here."""

    service: Entity
    """Such as //veh1/0/3/0."""
    topics: list[Topic] = []
    """Topics whose subscribers are followed."""
    subscribers: list[Entity] = []
    """Subscribers whose topics are followed."""
    refresh_s: Annotated[float, Field(gt=0)] = 60
    """How often everything is fetched again, in addition to the notifications of changes."""


class UsubscriptionConfig(Section):
    """The uSubscription service."""

    local: list[SingleAuthority] | None = None
    """The authorities, besides the streamer's own, whose uSubscription service this is: their topics are local. None: those
    that are listed at endpoints whose network does not connect devices."""
    remote_timeout_s: Annotated[float, Field(ge=300)] = 300
    """How long a Subscribe or Unsubscribe to another device waits for the answer before it is sent again."""
    page: Count = 1000
    """The most entries in one answer to FetchSubscribers or FetchSubscriptions."""
    max_subscriptions: Count = 100_000
    max_observers: Count = 10_000
    external: ExternalUsubscriptionConfig | None = None


class ControlConfig(Section):
    """Who may pause and resume topics."""

    allow: list[EntityPattern] | None = None
    """Patterns of uEntities (resource 0). None: every uEntity at an authority of ``usubscription.local``."""
    http: Literal["loopback", "any"] = "loopback"
    """Who may do it over HTTP: programs on this machine, or everybody who reaches the port."""
    http_token_file: FilePath | None = None
    """A file with a token that they have to send, wherever they are. None: no token is asked for."""


class MulticastConfig(Section):
    """A broadcast of a provider, and the topic of each of its partitions."""

    provider: Entity
    broadcast: BroadcastName
    partitions: Annotated[dict[PartitionName, TopicResource], AfterValidator(at_least_one)]
    """Maps each partition (empty: none) to the resource of its topic at the provider."""
