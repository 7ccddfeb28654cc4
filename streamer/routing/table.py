"""The routing table: which authorities live behind which endpoint, and which routes lead where. Immutable."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from streamer.config.models import Config, QueuePolicy
from streamer.routing.permissions import Permissions
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USUBSCRIPTIONS, EntityId

Entity = tuple[str, int, int]
"""Authority, ue_id and version of a uEntity."""

FlowKey = tuple[UUri, UUri | None]
"""Source and sink, which the messages of a flow have in common."""


@dataclass(frozen=True, slots=True)
class TableRoute:
    """One route. ``publish_to`` are the authorities that a Publish is addressed to where the far network needs one."""

    name: str
    source: str
    target: str
    publish: tuple[UUri, ...]
    publish_to: tuple[str, ...]
    policy: QueuePolicy


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Endpoints' authorities in the order of the configuration, and the routes.

    ``addressed`` names the endpoints on whose network a Publish needs a sink authority, ``connecting`` those that connect
    devices. ``services`` are our own uEntities, ``inner`` the ways to and from them. ``multicast`` are the topics of
    multicast ids. Without ``permissions``, what the routes allow is permitted.
    """

    authority: str
    authorities: dict[str, tuple[str, ...]]
    routes: tuple[TableRoute, ...]
    addressed: frozenset[str]
    connecting: frozenset[str] = frozenset()
    services: frozenset[Entity] = frozenset()
    inner: tuple[TableRoute, ...] = ()
    multicast: frozenset[UUri] = frozenset()
    permissions: Permissions | None = None

    @classmethod
    def from_config(
        cls,
        config: Config,
        addressed: Iterable[str],
        entities: Iterable[EntityId] = (),
        multicast: Iterable[UUri] = (),
    ) -> "RoutingTable":
        """The table that a configuration describes; ``entities`` are the services in this streamer."""
        authorities = {name: tuple(endpoint.authorities) for name, endpoint in config.endpoints.items()}
        addressed = frozenset(addressed)
        routes = tuple(
            TableRoute(
                name=route.name or f"{route.from_}-{route.to}",
                source=route.from_,
                target=route.to,
                publish=tuple(route.publish),
                publish_to=tuple(authorities[route.to] if route.publish_to is None else route.publish_to),
                policy=route.queue_policy,
            )
            for route in config.routes
        )
        entities = tuple(entities)
        return cls(
            config.authority,
            authorities,
            routes,
            addressed,
            connecting(config, addressed),
            _services(config, entities, addressed),
            _inner(config) if entities else (),
            frozenset(multicast),
            None if config.permissions is None else Permissions(config.permissions),
        )

    def homes(self, authority: str) -> tuple[str, ...]:
        """The endpoints behind which ``authority`` lives."""
        return homes_of(authority, self.authorities)

    def named(self, endpoint: str) -> frozenset[str] | None:
        """The authorities that an endpoint lists by name; None if nobody else lives there, or it is not ours any more."""
        listed = self.authorities.get(endpoint, ())
        return frozenset(listed) - {ANY_AUTHORITY} if ANY_AUTHORITY in listed else None

    def routes_from(self, endpoint: str) -> tuple[TableRoute, ...]:
        """The routes that begin at ``endpoint`` and lead out of the streamer."""
        routes = self.inner if endpoint == LOCAL_ENDPOINT else self.routes
        return tuple(route for route in routes if route.source == endpoint)

    def to_services(self, endpoint: str) -> TableRoute | None:
        """The way from ``endpoint`` to our own services."""
        return next((route for route in self.inner if (route.source, route.target) == (endpoint, LOCAL_ENDPOINT)), None)

    def all_from(self, endpoint: str) -> tuple[TableRoute, ...]:
        """The routes that begin at ``endpoint``, the one to our services included."""
        return tuple(route for route in (*self.routes, *self.inner) if route.source == endpoint)


def homes_of(authority: str, endpoints: Mapping[str, Container[str]]) -> tuple[str, ...]:
    """The endpoints behind which an authority lives: those that name it, else those that take everyone.

    ``endpoints``: the authorities of each.
    """
    named = tuple(name for name, listed in endpoints.items() if authority in listed)
    return named or tuple(name for name, listed in endpoints.items() if ANY_AUTHORITY in listed)


def connecting(config: Config, addressed: Container[str]) -> frozenset[str]:
    """The endpoints whose networks connect devices: those that say so, and else those where a Publish needs an address."""
    return frozenset(
        name
        for name, endpoint in config.endpoints.items()
        if (name in addressed if endpoint.is_global is None else endpoint.is_global)
    )


def local_authorities(config: Config, addressed: Container[str]) -> tuple[str, ...]:
    """The authorities, beside our own, whose uSubscription service we are."""
    options = config.usubscription
    if options is not None and options.local is not None:
        return tuple(options.local)
    far = connecting(config, addressed)
    inside = (endpoint.authorities for name, endpoint in config.endpoints.items() if name not in far)
    return tuple(dict.fromkeys(name for listed in inside for name in listed if name != ANY_AUTHORITY))


def _services(config: Config, entities: tuple[EntityId, ...], addressed: Container[str]) -> frozenset[Entity]:
    """Our own uEntities: at our authority, and uSubscription at the local authorities."""
    found = {(config.authority, *entity) for entity in entities}
    options = config.usubscription
    if options is not None and options.external is None:
        served = [entity for entity in USUBSCRIPTIONS if entity in entities]
        found |= {(authority, *entity) for authority in local_authorities(config, addressed) for entity in served}
    return frozenset(found)


def _inner(config: Config) -> tuple[TableRoute, ...]:
    """Requests beyond the bounds of a service are rejected; what a service sends never blocks it: the oldest is evicted."""

    def policy(on_full: str) -> QueuePolicy:
        queue = config.queue_policy.queue.model_copy(update={"on_full": on_full})
        return config.queue_policy.model_copy(update={"queue": queue, "rate": None, "rate_per_authority": None})

    to, back = policy("reject"), policy("evict")
    return tuple(
        route
        for name in config.endpoints
        for route in (
            TableRoute(f"{name}/{LOCAL_ENDPOINT}", name, LOCAL_ENDPOINT, (), (), to),
            TableRoute(f"{LOCAL_ENDPOINT}/{name}", LOCAL_ENDPOINT, name, (), (), back),
        )
    )
