"""The part of the router that the services use, as a protocol."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import FlowKey
from streamer.uprotocol.uri import UUri


class RouterForServices(Protocol):
    """Keeps the interest and the pause rules that the services restore and change, and acts on them."""

    @property
    def pause_rules(self) -> PauseRules: ...

    def set_interest(self, topic: UUri, interested: Mapping[str, int], owner: str, is_new: bool = False) -> None:
        """Set the authorities interested in ``topic`` by ``owner``, from the next iteration of the event loop on.

        ``interested``: authority → sample period in ms (0: every message). ``is_new``: subscribers have come or gone, and
        those who have come may get the last value.
        """

    def apply_pause_rules(self) -> None:
        """Apply `pause_rules` to all lanes after a change of them."""

    def paused_flows(self) -> Iterable[tuple[FlowKey, int]]:
        """Yield every paused flow that has a lane, with the number of messages that wait in it."""
