"""A flow whose messages were seen, or are expected: what decides about them, and how many there are. Pure.

`streamer diff`, `test --record` and a careful `reload` judge flows. They are read out of traces, or from a running daemon.
"""

from typing import Any, NamedTuple

from streamer.uprotocol.message import UMessageType, UPriority
from streamer.uprotocol.uri import UUri

TYPES = {kind.name.lower(): kind for kind in UMessageType if kind}


class Flow(NamedTuple):
    """Messages that are decided alike, as they arrived.

    ``sink`` is that of the sender: None for a Publish to which only a route has given an authority. ``ingress`` is the
    endpoint that they come in through; empty: where their source lives. ``priority`` is the class that the sender claims,
    before any permission lowers it. ``identity`` is the proven one; empty: none is proven; None: not known. ``went_to`` are
    the endpoints that some of the messages were queued for: somebody there may have subscribed.
    """

    kind: UMessageType
    source: UUri
    sink: UUri | None
    ingress: str = ""
    identity: str | None = None
    priority: UPriority = UPriority.UNSPECIFIED
    permission_level: int | None = None
    has_ttl: bool | None = None
    went_to: tuple[str, ...] = ()
    messages_per_day: float = 0.0

    @property
    def claimed(self) -> UPriority:
        """Return the class that the sender claims; if none is known, the lowest one that the type allows by default."""
        is_call = self.kind in (UMessageType.REQUEST, UMessageType.RESPONSE)
        return self.priority or (UPriority.CS4 if is_call else UPriority.CS1)

    def as_json(self) -> dict[str, Any]:
        """Return the flow in types of JSON."""
        return {
            "type": self.kind.name.lower(),
            "source": str(self.source),
            "sink": None if self.sink is None else str(self.sink),
            "ingress": self.ingress,
            "identity": self.identity,
            "priority": self.claimed.name,
            "permission_level": self.permission_level,
            "has_ttl": self.has_ttl,
            "went_to": list(self.went_to),
            "messages_per_day": self.messages_per_day,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Flow":
        """Return the flow that `as_json` has described. Raises LookupError, TypeError or ValueError."""
        sink, level, has_ttl = data["sink"], data["permission_level"], data["has_ttl"]
        return cls(
            TYPES[data["type"]],
            UUri.parse(data["source"]),
            None if sink is None else UUri.parse(sink),
            str(data["ingress"]),
            None if data["identity"] is None else str(data["identity"]),
            UPriority[data["priority"]],
            None if level is None else int(level),
            None if has_ttl is None else bool(has_ttl),
            tuple(map(str, data["went_to"])),
            float(data["messages_per_day"]),
        )


class Week(NamedTuple):
    """The flows of a period that files have records of.

    ``flows`` are the most frequent ones; ``more_flows`` (at least so many) and ``more_messages`` are beyond those.
    ``days``: the time between the first of the records and now, by which messages per day are averaged, at least an hour.
    ``files``: how many were read; ``left_out``: how many could not be. ``records`` counts the records that were read.
    """

    flows: list[Flow]
    days: float
    records: int
    files: int
    left_out: int
    more_flows: int
    more_messages: int
