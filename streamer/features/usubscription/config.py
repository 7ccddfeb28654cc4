"""The section `usubscription` of the configuration."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from streamer.config.checks import Finding, part
from streamer.config.exposure import open_to_all
from streamer.config.models import Config, RouteConfig
from streamer.config.types import MIB, Count, Entity, EntityPattern, Pattern, Section, SingleAuthority, Size, Topic, expected
from streamer.features.host.access import MAX_AUTHORITIES_PER_TOPIC, AccessRules, SubscribeRule, SubscriptionSection
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at
from streamer.uprotocol.well_known import USUBSCRIPTIONS, EntityId

_NOTIFICATION_BYTES = 128 * MIB


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


class UsubscriptionConfig(SubscriptionSection):
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
    max_authorities_per_topic: ClassVar[int] = MAX_AUTHORITIES_PER_TOPIC
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

    @classmethod
    def field(cls) -> tuple[Any, Any]:
        return cls | None, cls()

    @classmethod
    def fixed_keys(cls) -> tuple[str, ...]:
        return ("external",)  # it decides what the tables contain

    @property
    def memory_bytes(self) -> int:
        return _NOTIFICATION_BYTES if self.external is None else 0

    @property
    def local_authorities(self) -> Sequence[str] | None:
        return self.local

    @property
    def local_entities(self) -> Sequence[EntityId]:
        return USUBSCRIPTIONS if self.external is None else ()

    @property
    def access_rules(self) -> AccessRules:
        subscribe = None
        if self.subscribe is not None:
            subscribe = tuple(SubscribeRule(each.from_, tuple(each.topics)) for each in self.subscribe)
        fetch, reset = (None if patterns is None else tuple(patterns) for patterns in (self.fetch, self.reset))
        return subscribe, fetch, reset

    @classmethod
    def mistakes(cls, raw: Any) -> Iterator[Finding]:
        if part(part(raw, "usubscription"), "initial") and part(raw, "utwin") is None:
            yield Finding(("usubscription", "initial"), "expected a section `utwin` as well: it keeps the last messages")

    def hints(self, config: Config) -> Iterator[str]:
        yield from open_to_all("usubscription.subscribe", (each.from_ for each in self.subscribe or ()))
        yield from open_to_all("usubscription.fetch", self.fetch or ())
        yield from open_to_all("usubscription.reset", self.reset or ())
        if config.divided and self.external is None and self.local != []:
            yield (
                f"usubscription.local: a Request to the service of a local authority that comes in through "
                f"{' or '.join(config.divided)} reaches any one of the streamers, and each keeps subscriptions of its own; "
                "use usubscription.external, or local: []"
            )
        for route in config.routes:
            if self._forwards_nothing(config, route):
                yield (
                    f"route {route.name}: it publishes nothing, and usubscription.subscribe permits nobody behind "
                    f"{route.to!r} to subscribe: no Publish goes over it; set one of them, or usubscription.local if they "
                    "are on this device"
                )

    def _forwards_nothing(self, config: Config, route: RouteConfig) -> bool:
        """Return whether no Publish can go over a route, because no authority at its end may subscribe."""
        if route.publish or self.external is not None or self.subscribe:
            return False
        far = config.endpoints[route.to]
        if self.subscribe is None and (far.authorities != [ANY_AUTHORITY] or route.publish_to):
            return False
        if self.local is None:
            is_far = route.to in config.addressed if far.is_global is None else far.is_global
            return is_far or far.authorities == [ANY_AUTHORITY]
        return not set(far.authorities) & {*self.local, config.authority}
