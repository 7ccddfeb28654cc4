"""The reasons for which an ingress does not accept a message. Pure."""

from enum import Enum

from streamer.rate import ByKey, Pace
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Refused
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode


class Admission(Enum):
    """What became of the message of a dead letter that was to be sent again, if it can be sent."""

    TAKEN = "taken"
    LATER = "later"  # there is no room, or it is not known yet where it goes


EXPIRED = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL had passed when it arrived")
EXPIRED_SINCE = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL has passed; a redrive can give it another one")
NOT_COPIED = Failure(Outcome.UNWANTED, UCode.OK, "no copy goes now to whom it was for")
EXPIRED_OUTSIDE = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL passed before its queue had room")
TOO_FAST = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "its source sends more than the rule that permits it allows")
FULL = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "the egress queue is full")
OVER_QUOTA = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "its source authority has used up its quota of the queue")
STOPPING = Failure(Outcome.REJECTED, UCode.UNAVAILABLE, "it came when the streamer had stopped taking messages")
PAUSED = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "it is paused, and the room for paused messages is full")
EVICTED = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "evicted from a full egress queue")


def invalid(problems: list[str] | tuple[str, ...]) -> Failure:
    """The message breaks rules of its type."""
    return Failure(Outcome.REJECTED, UCode.INVALID_ARGUMENT, f"invalid attributes: {'; '.join(problems)}")


def by_transport(refused: Refused, decided: Failure | None) -> Failure:
    """The transport could not hand it over. What was ``decided`` about its addresses comes first, as for other messages.

    Whether a message of which only a part is known is valid cannot be said. That it was not allowed may come of what is
    missing, such as its token.
    """
    if decided is None or decided.code is UCode.INVALID_ARGUMENT:
        decided = Failure(Outcome.REJECTED, refused.code, refused.text)
    elif refused.payload_bytes is not None:
        decided = decided._replace(text=f"{decided.text}; {refused.text}")
    return decided._replace(payload_bytes=refused.payload_bytes)


def keeps_pace(paces: ByKey[Pace], message: UMessage, now_s: float) -> bool:
    """Whether a message keeps the pace of its source authority; if so it counts."""
    pace = paces.of(message.attributes.source.authority, now_s)
    if pace.ready_in(now_s):
        return False
    pace.spend(1, message.size)
    return True
