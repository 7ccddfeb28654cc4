"""The outcomes of messages, and which are failures: one vocabulary for metric labels, dead letters and traces."""

from enum import StrEnum
from typing import NamedTuple

from streamer.uprotocol.status import UCode


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
