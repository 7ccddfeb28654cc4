"""The sections of the configuration that are about the streamer's own services."""

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
    """Where subscriptions and what is paused are kept."""

    path: FilePath | None = None
    """A SQLite file; None: ``state.db`` beside the journal, and memory if there is no journal."""


class ExternalUsubscriptionConfig(Section):
    """A uSubscription service elsewhere, which is followed instead of running one."""

    service: Entity
    """Such as //veh1/0/3/0."""
    topics: list[Topic] = []
    """Topics whose subscribers are asked for, and kept track of."""
    subscribers: list[Entity] = []
    """Subscribers whose topics are asked for."""
    refresh_s: Annotated[float, Field(gt=0)] = 60
    """How often everything is asked for again, beside the notifications of changes."""


class UsubscriptionConfig(Section):
    """The uSubscription service."""

    local: list[SingleAuthority] | None = None
    """Authorities, beside our own, for whose uEntities we are the uSubscription service: topics there are local. None: those
    that endpoints name which do not connect devices."""
    remote_timeout_s: Annotated[float, Field(ge=300)] = 300
    """How long a Subscribe or Unsubscribe waits for another device's answer before it is sent again."""
    page: Count = 1000
    """Entries in one answer to FetchSubscribers or FetchSubscriptions."""
    max_subscriptions: Count = 100_000
    max_observers: Count = 10_000
    external: ExternalUsubscriptionConfig | None = None


class ControlConfig(Section):
    """Who may stop and start the dispatching of topics."""

    allow: list[EntityPattern] | None = None
    """Patterns of uEntities, resource 0; None: every uEntity at an authority of ``usubscription.local``."""
    http: Literal["loopback", "any"] = "loopback"
    """Who may over the HTTP port: programs on this machine, or whoever reaches the port."""


class MulticastConfig(Section):
    """A broadcast of a provider, and the topic of each partition that it can be fired for."""

    provider: Entity
    broadcast: BroadcastName
    partitions: Annotated[dict[PartitionName, TopicResource], AfterValidator(at_least_one)]
    """Partition, empty for none, to the resource of its topic at the provider."""
