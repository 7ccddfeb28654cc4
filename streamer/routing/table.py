"""The routing table: which authorities live behind which endpoint, and where routes lead. Immutable."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from streamer.config.models import Config, QueuePolicy
from streamer.routing.permissions import Permissions
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, EntityId

Entity = tuple[str, int, int]
"""Authority, ue_id and version of a uEntity."""

FlowKey = tuple[UUri, UUri | None]
"""Source and sink of the messages of a flow."""


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

    ``addressed`` names the endpoints on whose network a Publish needs a sink authority, ``connecting`` those whose networks
    connect devices. ``services`` are the streamer's own uEntities, ``inner`` the routes to and from them. ``multicast`` are
    the topics of multicast ids. Without ``permissions``, everything that the routes allow is permitted.
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
    def from_config(cls, config: Config, addressed: Iterable[str], entities: Iterable[EntityId] = ()) -> "RoutingTable":
        """Return the table of a configuration; ``entities`` are the services in this streamer."""
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
            frozenset(topic for _, section in config.feature_sections() for topic in section.multicast_topics),
            None if config.permissions is None else Permissions(config.permissions),
        )

    def homes(self, authority: str) -> tuple[str, ...]:
        """Return the endpoints behind which ``authority`` lives."""
        return homes_of(authority, self.authorities)

    def named(self, endpoint: str) -> frozenset[str] | None:
        """Return the authorities that an endpoint lists beside `*`; None if it does not list `*`, or does not exist."""
        listed = self.authorities.get(endpoint, ())
        return frozenset(listed) - {ANY_AUTHORITY} if ANY_AUTHORITY in listed else None

    def routes_from(self, endpoint: str) -> tuple[TableRoute, ...]:
        """Return the routes that begin at ``endpoint`` and lead out of the streamer."""
        routes = self.inner if endpoint == LOCAL_ENDPOINT else self.routes
        return tuple(route for route in routes if route.source == endpoint)

    def to_services(self, endpoint: str) -> TableRoute | None:
        """Return the route from ``endpoint`` to the streamer's services, or None."""
        return next((route for route in self.inner if (route.source, route.target) == (endpoint, LOCAL_ENDPOINT)), None)

    def all_from(self, endpoint: str) -> tuple[TableRoute, ...]:
        """Return the routes that begin at ``endpoint``, including the one to the streamer's services."""
        return tuple(route for route in (*self.routes, *self.inner) if route.source == endpoint)


def homes_of(authority: str, endpoints: Mapping[str, Container[str]]) -> tuple[str, ...]:
    """Return the endpoints behind which an authority lives: those that list it, else those that list `*`.

    ``endpoints`` has the authorities of each endpoint.
    """
    named = tuple(name for name, listed in endpoints.items() if authority in listed)
    return named or tuple(name for name, listed in endpoints.items() if ANY_AUTHORITY in listed)


def connecting(config: Config, addressed: Container[str]) -> frozenset[str]:
    """Return the endpoints whose networks connect devices: by default those where a Publish needs a sink authority."""
    return frozenset(
        name
        for name, endpoint in config.endpoints.items()
        if (name in addressed if endpoint.is_global is None else endpoint.is_global)
    )


def local_authorities(config: Config, addressed: Container[str]) -> tuple[str, ...]:
    """Return the authorities, except for the streamer's own, that its services are for."""
    for _, section in config.feature_sections():
        if section.local_authorities is not None:
            return tuple(section.local_authorities)
    far = connecting(config, addressed)
    inside = (endpoint.authorities for name, endpoint in config.endpoints.items() if name not in far)
    return tuple(dict.fromkeys(name for listed in inside for name in listed if name != ANY_AUTHORITY))


def _services(config: Config, entities: tuple[EntityId, ...], addressed: Container[str]) -> frozenset[Entity]:
    """Return the streamer's uEntities: at its own authority, and those of sections that are for the local ones, too."""
    found = {(config.authority, *entity) for entity in entities}
    served = {entity for _, section in config.feature_sections() for entity in section.local_entities}
    local = local_authorities(config, addressed)
    found |= {(authority, *entity) for authority in local for entity in served.intersection(entities)}
    return frozenset(found)


def _inner(config: Config) -> tuple[TableRoute, ...]:
    """Return the routes to and from the services.

    Requests beyond the bounds are rejected. What a service sends never blocks it: the oldest message is evicted.
    """

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
