"""Configurations of the tests as the file has them, before they are checked."""

from collections.abc import Mapping, Sequence
from typing import Any


def endpoint_of(transport: str, *authorities: str, **options: Any) -> dict[str, Any]:
    """Describe an endpoint; without options it has no such section."""
    return {"transport": transport, "authorities": list(authorities)} | ({"options": options} if options else {})


def config_of(
    endpoints: Mapping[str, Any], routes: Sequence[dict[str, Any]] | None = None, authority: str = "gw", **sections: Any
) -> dict[str, Any]:
    """Describe a streamer of these endpoints. Without ``routes`` there is one from each endpoint to each other."""
    ways = [{"from": here, "to": there} for here in endpoints for there in endpoints if here != there]
    return {"authority": authority, "endpoints": endpoints, "routes": ways if routes is None else list(routes)} | sections
