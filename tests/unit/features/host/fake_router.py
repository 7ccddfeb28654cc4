"""The router as the services see it: keeps what they tell it."""

from collections.abc import Mapping

from streamer.routing.pause_rules import PauseRule, PauseRules
from streamer.routing.table import FlowKey
from streamer.uprotocol.uri import UUri


class FakeRouter:
    """``interest``: topic → authority → period in ms. ``news``: the topics that subscribers came to or left.

    ``applied``: the pause rules at each time they were applied.
    """

    def __init__(self) -> None:
        self.pause_rules = PauseRules()
        self.interest: dict[UUri, dict[str, int]] = {}
        self.interest_changes = 0
        self.news: list[UUri] = []
        self.applied: list[tuple[PauseRule, ...]] = []
        self.flows: list[tuple[FlowKey, int]] = []

    def set_interest(self, topic: UUri, interested: Mapping[str, int], owner: str, is_new: bool = False) -> None:
        self.interest_changes += 1
        if is_new:
            self.news.append(topic)
        if interested:
            self.interest[topic] = dict(interested)
        else:
            self.interest.pop(topic, None)

    def apply_pause_rules(self) -> None:
        self.applied.append(self.pause_rules.rules)

    def paused_flows(self) -> list[tuple[FlowKey, int]]:
        return self.flows
