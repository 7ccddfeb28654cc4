"""The failures of messages that an ingress does not accept. Pure."""

from enum import Enum

from streamer.rate import ByKey, Pace
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Refused
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode


class Admission(Enum):
    """The result of sending the message of a dead letter again."""

    TAKEN = "taken"
    LATER = "later"  # there is no room, or it is not known yet where it goes


EXPIRED_SINCE = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL has passed; a redrive can give it another one")
NOT_COPIED = Failure(Outcome.UNWANTED, UCode.OK, "no route delivers a copy to the original addressee")
EXPIRED_OUTSIDE = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL passed before its queue had room")
TOO_FAST = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "its source sends more than the rule that permits it allows")
FULL = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "the egress queue is full")
OVER_QUOTA = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "its source authority has used up its quota of the queue")
STOPPING = Failure(Outcome.REJECTED, UCode.UNAVAILABLE, "it came when the streamer had stopped taking messages")
PAUSED = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "it is paused, and the room for paused messages is full")
EVICTED = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "evicted from a full egress queue")


def expired_by(late_ms: int, is_redelivered: bool) -> Failure:
    """Return the failure of a message that arrived after its TTL. A clock that is wrong is told by how late it was."""
    text = f"its TTL had passed {late_ms / 1000:.3f} s before it arrived"
    if is_redelivered:
        text = f"{text} again; it may have been delivered before"
    return Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, text)


def invalid(problems: list[str] | tuple[str, ...]) -> Failure:
    """Return the failure of a message that breaks rules of its type."""
    return Failure(Outcome.REJECTED, UCode.INVALID_ARGUMENT, f"invalid attributes: {'; '.join(problems)}")


def by_transport(refused: Refused, decided: Failure | None) -> Failure:
    """Return the failure of a message that its transport could not hand over.

    What was ``decided`` about its addresses comes first, as for other messages, except that it is invalid: if only a part of
    the message is known, that may be due to what is missing. For the same reason the text then has both causes.
    """
    if decided is None or decided.code is UCode.INVALID_ARGUMENT:
        decided = Failure(Outcome.REJECTED, refused.code, refused.text)
    elif refused.payload_bytes is not None:
        decided = decided._replace(text=f"{decided.text}; {refused.text}")
    return decided._replace(payload_bytes=refused.payload_bytes)


def keeps_pace(paces: ByKey[Pace], message: UMessage, now_s: float) -> bool:
    """Whether a message is within the rate of its source authority; if so, count it."""
    pace = paces.of(message.attributes.source.authority, now_s)
    if pace.ready_in(now_s):
        return False
    pace.spend(1, message.size)
    return True
