"""The outcomes of messages, and which are failures: one vocabulary for metric labels, dead letters and traces."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri

_LONGEST_TEXT = 500
_NOT_ALLOWED = "not allowed"


class Outcome(StrEnum):
    """How a message ended. Every received message has exactly one outcome per route."""

    DELIVERED = "delivered"  # confirmed by the destination or by evidence, or unconfirmed for long without a sign of loss
    EXPIRED = "expired"  # its TTL passed before it was sent
    REJECTED = "rejected"  # it was never accepted: invalid, not allowed, too large, too fast, or no room
    DEAD_LETTERED = "dead_lettered"  # accepted, but refused, not listened to in time, without an endpoint, or evicted
    DUPLICATE = "duplicate"  # its id was seen before
    LOCAL = "local"  # its sink lives where it came from: it has arrived already
    UNWANTED = "unwanted"  # a Publish that no route forwards
    UNHEARD = "unheard"  # a Publish that a route forwards and nobody on the far network listens to
    SAMPLED_OUT = "sampled_out"  # a Publish that comes more often than the sample period of its subscribers
    UNCONFIRMED = "unconfirmed"  # it was sent while somebody listened, and ended before anything confirmed that it arrived
    SUPERSEDED = "superseded"  # a Publish of which only the latest is wanted, and a newer one came before it was sent

    @property
    def is_failure(self) -> bool:
        """Whether the message should have been delivered and was not. Failures are reported; other outcomes are counted."""
        return self in FAILURES


FAILURES = frozenset((Outcome.EXPIRED, Outcome.REJECTED, Outcome.DEAD_LETTERED))


class Failure(NamedTuple):
    """Why a message was not delivered: its outcome, the code for programs, the text for people.

    ``is_audited``: permissions are the reason, and it is in the audit log. ``payload_bytes``: the length of the payload, if
    only a part of the message is known.
    """

    outcome: Outcome
    code: UCode
    text: str
    is_audited: bool = False
    payload_bytes: int | None = None

    @property
    def is_reported(self) -> bool:
        """Whether a dead letter and, for a Request, an error Response report it."""
        return self.outcome.is_failure


class Where(NamedTuple):
    """Where a message failed: the route, the target endpoint, and the sink that the message, or its copy, had there."""

    route: str = ""
    endpoint: str = ""
    sink: UUri | None = None


NOWHERE = Where()
"""For a message that was on no route."""


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A message that could not be delivered, with all that the streamer knows about it. Times in Unix milliseconds.

    ``is_withheld``: reports have neither payload nor reason, because the message was not allowed, or did not come from where
    its source lives. So a report reveals nothing, and is hardly larger than its cause. ``sink``: see `Where`.
    """

    message: UMessage
    failure: Failure
    first_ms: int
    last_ms: int
    route: str = ""
    endpoint: str = ""
    attempts: int = 0
    is_withheld: bool = False
    sink: UUri | None = None

    @property
    def was_accepted(self) -> bool:
        """Whether the message was accepted on a route, the opposite of `Letter.is_rejected`. Anybody can send others."""
        outcome = self.failure.outcome
        return outcome is Outcome.DEAD_LETTERED or (outcome is Outcome.EXPIRED and bool(self.route))

    @property
    def public_reason(self) -> str:
        """The reason that reports give."""
        return _NOT_ALLOWED if self.is_withheld else self.failure.text[:_LONGEST_TEXT]
