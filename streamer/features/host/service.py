"""One of the streamer's own services, as the host calls it."""

from collections.abc import Mapping

from streamer.features.host.rpc import Method


class Service:
    """A service that has built itself on the local endpoint. A service overrides what it has."""

    def methods(self) -> Mapping[int, Method]:
        """Return the methods that the service adds to core.ustreamer, by resource id."""
        return {}

    def restore(self) -> None:
        """Read the service's state from its tables. Raises `StateError`."""

    async def run(self) -> None:
        """Do the service's work until cancelled, or return if there is none."""

    def close(self) -> None:
        """End the service: the journal is about to be closed."""
