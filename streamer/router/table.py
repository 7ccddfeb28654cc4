"""The routing table: which authorities live behind which endpoint, and which routes lead where. Immutable."""

from collections.abc import Iterable
from dataclasses import dataclass

from streamer.config import Config, Dispatch
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri


@dataclass(frozen=True, slots=True)
class TableRoute:
    """One route. ``publish_to`` are the authorities that a Publish is addressed to where the far network wants one."""

    name: str
    source: str
    target: str
    publish: tuple[UUri, ...]
    publish_to: tuple[str, ...]
    dispatch: Dispatch


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Endpoints' authorities in the order of the configuration, and the routes.

    ``addressed`` names the endpoints on whose network a Publish needs a sink authority.
    """

    authority: str
    authorities: dict[str, tuple[str, ...]]
    routes: tuple[TableRoute, ...]
    addressed: frozenset[str]

    @classmethod
    def from_config(cls, config: Config, addressed: Iterable[str]) -> "RoutingTable":
        """The table that a configuration describes."""
        authorities = {name: tuple(endpoint.authorities) for name, endpoint in config.endpoints.items()}
        routes = tuple(
            TableRoute(
                name=route.name or f"{route.from_}-{route.to}",
                source=route.from_,
                target=route.to,
                publish=tuple(route.publish),
                publish_to=tuple(authorities[route.to] if route.publish_to is None else route.publish_to),
                dispatch=route.dispatch,
            )
            for route in config.routes
        )
        return cls(config.authority, authorities, routes, frozenset(addressed))

    def homes(self, authority: str) -> tuple[str, ...]:
        """The endpoints behind which ``authority`` lives: those that name it, else those that take everyone."""
        named = tuple(name for name, listed in self.authorities.items() if authority in listed)
        return named or tuple(name for name, listed in self.authorities.items() if ANY_AUTHORITY in listed)

    def routes_from(self, endpoint: str) -> tuple[TableRoute, ...]:
        """The routes that begin at ``endpoint``."""
        return tuple(route for route in self.routes if route.source == endpoint)
