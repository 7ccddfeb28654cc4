"""Access to the streamer's own services. Pure; an `Access` is immutable, and a reload makes a new one.

The law of this file:
- An authority is local if this streamer is its uSubscription service (`usubscription.local`). Its uEntities may subscribe to
  every topic, list subscriptions, and reset.
- A uEntity elsewhere may subscribe to a topic only if `usubscription.subscribe` permits it, or if a route publishes it to
  that authority anyway. Without that list, every uEntity whose authority the configuration names may, and no other.
- Only uEntities that `control.allow` names may pause and resume over uProtocol.
- A uEntity may always list and end its own subscriptions. That is not checked here.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from streamer.config.models import Config, FeatureSection
from streamer.routing.outcome import Failure
from streamer.routing.permissions import Permissions
from streamer.routing.table import RoutingTable, local_authorities
from streamer.uprotocol.message import Attributes
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION_4


class SubscribeRule(NamedTuple):
    """A pattern of uEntities, and patterns of the topics that they may subscribe to."""

    subscriber: UUri
    topics: tuple[UUri, ...]


AccessRules = tuple[tuple[SubscribeRule, ...] | None, tuple[UUri, ...] | None, tuple[UUri, ...] | None]
"""`Access.subscribe`, `Access.fetch` and `Access.reset`."""


class SubscriptionSection(FeatureSection):
    """The section of the feature that has the subscriptions, as other features read it."""

    @property
    def access_rules(self) -> AccessRules:
        """Return who may subscribe, list what others have subscribed to, and reset it."""
        return (), None, None

    @property
    def initial_topics(self) -> list[UUri]:
        """Return patterns of the topics whose last message a new subscriber gets."""
        return []


MAX_AUTHORITIES_PER_TOPIC = 64
"""Most authorities that the configuration does not name and that receive one topic: on a broker each gets a copy."""


class Caller(NamedTuple):
    """The caller of a service, and the endpoint or address from which its request came, for the audit log."""

    who: str
    where: str


def _nowhere(authority: str) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Access:
    """``local`` includes the streamer's own ``authority``. ``published``: authority → the patterns of topics that routes
    publish to it; its keys are all authorities that the configuration names.

    ``subscribe`` None: every authority that the configuration names may subscribe to everything. ``fetch`` and ``reset``:
    patterns of uEntities; None: those at local authorities.
    """

    authority: str
    local: frozenset[str]
    published: Mapping[str, tuple[UUri, ...]] = field(default_factory=dict)
    subscribe: tuple[SubscribeRule, ...] | None = ()
    fetch: tuple[UUri, ...] | None = None
    reset: tuple[UUri, ...] | None = None
    control: tuple[UUri, ...] = ()
    homes: Callable[[str], tuple[str, ...]] = _nowhere
    """Returns the endpoints behind which an authority is reached."""
    permissions: Permissions | None = None

    @classmethod
    def from_config(cls, config: Config) -> "Access":
        """Return what a configuration permits."""
        table = RoutingTable.from_config(config, config.addressed)
        section = config.section(SubscriptionSection)
        rules: AccessRules = ((), None, None) if section is None else section.access_rules
        return cls(
            config.authority,
            frozenset({config.authority, *local_authorities(config, config.addressed)}),
            _published(table),
            *rules,
            tuple(config.control.allow),
            table.homes,
            table.permissions,
        )

    def is_named(self, authority: str) -> bool:
        """Whether the configuration names this authority: it is not one that a uEntity has invented."""
        return authority in self.local or authority in self.published

    def is_known(self, uri: UUri) -> bool:
        """Whether the configuration names this uEntity or its authority anywhere."""
        return self.is_named(uri.authority) or any(rule.subscriber.matches(uri) for rule in self.subscribe or ())

    def may_subscribe(self, subscriber: UUri, topic: UUri) -> bool:
        """Whether this uEntity may have this topic forwarded, and may be notified of its other subscribers.

        The topic on which a service publishes changes needs `may_fetch`, too: it shows others' subscriptions.
        """
        if self.is_about_subscriptions(topic):
            return self.may_fetch(subscriber)
        if subscriber.authority in self.local:
            return True
        if any(pattern.matches(topic) for pattern in self.published.get(subscriber.authority, ())):
            return True
        if self.subscribe is None:
            return self.is_named(subscriber.authority)
        rules = (rule for rule in self.subscribe if rule.subscriber.matches(subscriber))
        return any(pattern.matches(topic) for rule in rules for pattern in rule.topics)

    def may_be_published(self, attributes: Attributes) -> bool:
        """Whether the section ``permissions`` lets a Publish that was accepted before in today."""
        if self.permissions is None:
            return True
        kind, source, identity = attributes.type, attributes.source, attributes.provenance.identity
        verdicts = (self.permissions.judge(kind, source, None, home, identity) for home in self.homes(source.authority))
        return any(not isinstance(verdict, Failure) for verdict in verdicts)

    def permission_group(self, subscriber: UUri) -> Hashable:
        """Return a key that is equal for uEntities that `may_subscribe` to the same topics."""
        rules = tuple(number for number, rule in enumerate(self.subscribe or ()) if rule.subscriber.matches(subscriber))
        return subscriber.authority, rules, self.may_fetch(subscriber)

    def is_about_subscriptions(self, topic: UUri) -> bool:
        """Whether a topic, or pattern, includes the one on which our uSubscription service publishes all changes."""
        return topic.authority in self.local and topic.matches(USUBSCRIPTION_4.at(topic.authority, CHANGES))

    def may_observe(self, observer: UUri, topic: UUri | None) -> bool:
        """Whether this uEntity may be notified of the changes of a topic's subscriptions, or (None) of all topics'."""
        return self.may_fetch(observer) if topic is None else self.may_subscribe(observer, topic)

    def may_resolve(self, caller: UUri, topic: UUri) -> bool:
        """Whether this uEntity may resolve a multicast id to this topic: to receive the topic, or to publish its own."""
        return caller.authority == topic.authority or self.may_subscribe(caller, topic)

    def may_fetch(self, caller: UUri) -> bool:
        """Whether this uEntity may list what others have subscribed to."""
        return self._is_listed(caller, self.fetch)

    def may_reset(self, caller: UUri) -> bool:
        """Whether this uEntity may reset all subscriptions."""
        return self._is_listed(caller, self.reset)

    def may_control(self, caller: UUri) -> bool:
        """Whether this uEntity may pause and resume flows."""
        return self._is_listed(caller, self.control)

    def caller(self, uri: UUri) -> Caller:
        """Return a uEntity as a caller, for the audit log. The ingress has checked the endpoint of its authority."""
        return Caller(str(uri), ",".join(self.homes(uri.authority)) or "nowhere")

    def _is_listed(self, caller: UUri, patterns: tuple[UUri, ...] | None) -> bool:
        if patterns is None:
            return caller.authority in self.local
        entity = caller._replace(resource=0)
        return any(pattern.matches(entity) for pattern in patterns)


def _published(table: RoutingTable) -> dict[str, tuple[UUri, ...]]:
    """Return every authority that the table names, with the topics that routes publish to it."""
    found: dict[str, tuple[UUri, ...]] = {
        name: () for listed in table.authorities.values() for name in listed if name != ANY_AUTHORITY
    }
    for route in table.routes:
        receivers = route.publish_to if route.target in table.addressed else table.authorities[route.target]
        for authority in receivers:
            if authority != ANY_AUTHORITY and route.target in table.homes(authority):
                found[authority] = (*found.get(authority, ()), *route.publish)
    return found
