"""What one of a pair can say of the pair."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

DIFFERENCES = ("clock", "client id", "place", "offers")
"""In what the two may differ, beyond their configurations."""


class PairView(NamedTuple):
    """The pair as one of the two sees it. ``why`` is the reason of its role, since ``since_ms`` (Unix time).

    ``problem``: why a take-over now would fail, or lose something: by the other one from an active one, or by a standby
    itself. Empty: it would not. ``refused``: numbers of strangers, frames and heartbeats.
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
    """What is not known of brokers, on standby."""
    lacks: int = 0
    """How many nodes and brokers the active one is connected to, and the standby is not, or could not be."""

    @property
    def notes(self) -> list[str]:
        """Return what an operator should know, although it does not keep the standby from taking over."""
        return [*self.differences.values(), *self.untried]
