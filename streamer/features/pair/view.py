"""The pair as one of its streamers sees it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

DIFFERENCES = ("clock", "client id", "place", "offers")
"""The kinds of differences between the two streamers, beyond their configurations."""


class PairView(NamedTuple):
    """The pair as one streamer sees it. ``why`` is the reason of its role, since ``since_ms`` (Unix time).

    ``problem``: why a take-over by the present standby would fail, or lose something. Empty: it would not. ``refused``:
    numbers of strangers, frames and heartbeats.
    """

    is_active: bool
    why: str
    since_ms: int
    epoch: int
    takeovers: int
    is_linked: bool
    link_problem: str
    other_version: str
    is_alike: bool
    is_protected: bool
    problem: str
    waiting_bytes: int
    overheard: int
    refused: Mapping[str, int]
    differences: Mapping[str, str] = {}
    """How the two differ, beyond their configurations, in what a take-over would show: texts by `DIFFERENCES`."""
    untried: Sequence[str] = ()
    """A text for each broker of which the standby knows only that it accepts connections."""
    lacks: int = 0
    """How many nodes and brokers the active streamer is connected to, and the standby is not, or could not be."""

    @property
    def notes(self) -> list[str]:
        """Return texts that an operator should know of, although the standby can take over."""
        return [*self.differences.values(), *self.untried]
