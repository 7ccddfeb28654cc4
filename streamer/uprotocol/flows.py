"""The flows that one endpoint receives, each as one object. Pure.

A flow is an `Attributes` without carried ones. What the parts of an endpoint find out about it is written into its slots, so
that nothing is looked up for its next message. The law of this file:

- Slots are used only while the flow belongs to the `Flows` of the endpoint (``flow.flows``): the same attributes at another
  endpoint are another object.
- Here is the one bound on what peers can make an endpoint remember by varying attributes. The slots of a flow that was
  dropped are empty, also while lanes or a backlog still have messages of it.
"""

from collections.abc import Iterable
from dataclasses import replace

from streamer.uprotocol.cache import BySource
from streamer.uprotocol.message import Attributes
from streamer.uprotocol.uri import UUri


def _source_of(flow: Attributes) -> UUri:
    return flow.source


class Flows(BySource[Attributes, Attributes]):
    """Maps equal attributes to one object, whose slots may be used. ``forgotten``: how many had to go for others."""

    def __init__(self) -> None:
        super().__init__(_source_of)
        self.forgotten = 0

    def of(self, attributes: Attributes) -> Attributes:
        """Return the flow of a message with these attributes."""
        shared = attributes.shared
        if shared.flows is self:
            return shared
        try:
            return self[shared]
        except KeyError:
            flow = shared if shared.flows is None else replace(shared)
            flow.flows = self
            self.remember(flow, flow)
            return flow

    def known(self) -> list[Attributes]:
        """Return all flows that are remembered."""
        return [*self, *self._old]

    def changed(self, source: UUri | None = None) -> None:
        """Empty the slots of the flows from ``source`` after a change that affects them.

        With a wildcard, or without a source: of all flows.
        """
        for flow in self.known() if source is None or source.has_wildcard else self._keys.get(source, ()):
            flow.listeners = flow.resolved = flow.canonical = None

    def _dropped(self, keys: Iterable[Attributes]) -> None:
        super()._dropped(keys)
        for flow in keys:
            self.forgotten += 1
            flow.flows = flow.listeners = flow.resolved = flow.canonical = None
