"""The router's interface for the services: all that they use of it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import FlowKey
from streamer.uprotocol.uri import UUri


class RouterForServices(Protocol):
    """Keeps the interest and the pause rules that the services restore and change, and acts on them."""

    @property
    def pause_rules(self) -> PauseRules: ...

    def set_interest(self, topic: UUri, interested: Mapping[str, int], owner: str) -> None:
        """As far as ``owner`` knows, these authorities are interested in ``topic`` from the next turn of the event loop on.

        Each has its sample period in ms (0: every message). Empty: nobody is.
        """

    def apply_pause_rules(self) -> None:
        """`pause_rules` have changed."""

    def paused_flows(self) -> Iterable[tuple[FlowKey, int]]:
        """Every paused flow that has a lane, with the number of messages that wait in it."""
