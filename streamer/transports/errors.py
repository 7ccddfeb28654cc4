"""What can go wrong in a transport.

UStatusError                 a uTransport operation failed, with its code (uP-L1)
└── SendError                a message was not delivered
    ├── LinkLostError        the link was lost: wait for it; this uses up no attempt
    │   └── MayHaveArrivedError  it was lost while the message was sent
    ├── RefusedError         the destination refused for now: try again; this uses up an attempt
    └── PermanentError       the destination will never accept it: a dead letter at once
MalformedPacketError         a packet was not a uProtocol message
ConfigurationError           options that cannot work, found before anything was started
"""

from enum import StrEnum

from streamer.uprotocol.status import UCode, UStatusError


class SendError(UStatusError):
    """A message was not delivered. The subclass says what to do about it."""


class LinkLostError(SendError):
    """The link went away before the confirmation came."""

    def __init__(self, message: str = "the link is down") -> None:
        super().__init__(UCode.UNAVAILABLE, message)


class MayHaveArrivedError(LinkLostError):
    """The link, or one of several, went away while the message was sent, or after that and before its confirmation.

    If its time runs out before it can be sent again, it is not reported as failed.
    """


class RefusedError(SendError):
    """The destination refused the message for now."""


class PermanentError(SendError):
    """The destination will never accept the message."""


class Malformed(StrEnum):
    """Why a packet is not a uProtocol message: the label of the counter."""

    PACKET = "packet"
    KIND = "kind"
    MARKER = "marker"
    VERSION = "version"
    ID = "id"
    URI = "uri"
    CODE = "code"
    NUMBER = "number"
    ATTACHMENT = "attachment"
    SIZE = "size"
    RECEIPT = "receipt"
    HEADER = "header"
    ADDRESS = "address"
    IDENTITY = "identity"


TOO_LARGE = (Malformed.SIZE, Malformed.HEADER)
"""The reasons for which a packet is refused before all of it is read."""


class Unwanted(StrEnum):
    """Why no listener gets a packet that nothing is wrong with: the label of the counter."""

    NO_LISTENER = "no_listener"  # it matches no filter for which somebody has registered
    COPY = "copy"  # the same message came through another one of our subscriptions
    OTHER_TOPIC = "other_topic"  # it came through a subscription that is for many topics, and is on none of them
    EXCESS = "excess"  # beyond what we accept from a broker that exceeds our receive maximum; it sends it again
    STOPPED = "stopped"  # nothing more was taken when it came


class MalformedPacketError(ValueError):
    """A packet is not a uProtocol message. ``reason`` is for counters, the text for the log."""

    def __init__(self, reason: Malformed, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


def wrong_address(source: object, sink: object, where: str) -> MalformedPacketError:
    """The error for a message that is not where its source and sink lead to; ``where`` is the topic, key or the like."""
    text = f"on {where[:300]!r}, source {source}" + ("" if sink is None else f", sink {sink}")
    return MalformedPacketError(Malformed.ADDRESS, text)


def check_token(token: str, max_bytes: int) -> None:
    """Raise `MalformedPacketError` for a token that is too long. Its text is not repeated."""
    size = len(token) if token.isascii() else len(token.encode(errors="surrogatepass"))
    if size > max_bytes:
        raise MalformedPacketError(Malformed.HEADER, f"a token of {size} bytes, more than max_token_bytes {max_bytes}")


class ConfigurationError(ValueError):
    """Options that cannot work. ``key`` names the one below ``options``."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
