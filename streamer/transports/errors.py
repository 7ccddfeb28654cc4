"""The errors of transports.

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
    """The link was lost before the confirmation came."""

    def __init__(self, message: str = "the link is down") -> None:
        super().__init__(UCode.UNAVAILABLE, message)


class MayHaveArrivedError(LinkLostError):
    """A link was lost while the message was sent, or after that and before its confirmation.

    If the message expires before it can be sent again, its outcome is unconfirmed, not failed.
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
    """Why no listener gets a valid packet: the label of the counter."""

    NO_LISTENER = "no_listener"  # no filter of a listener matches
    COPY = "copy"  # the same message came through another one of our subscriptions
    OTHER_TOPIC = "other_topic"  # the packet came through a wide subscription, and its topic is not open
    EXCESS = "excess"  # the broker exceeds our receive maximum by more than we accept; it redelivers the message
    STOPPED = "stopped"  # the packet came after the end of receiving
    OVERHEARD = "overheard"  # this is the standby of a pair, and takes it only if it takes over


class MalformedPacketError(ValueError):
    """The packet is not a uProtocol message. ``reason`` is for counters, the text for the log."""

    def __init__(self, reason: Malformed, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


def wrong_address(source: object, sink: object, where: str) -> MalformedPacketError:
    """Return the error for a message whose addresses do not match the topic or key ``where`` it came."""
    text = f"on {where[:300]!r}, source {source}" + ("" if sink is None else f", sink {sink}")
    return MalformedPacketError(Malformed.ADDRESS, text)


def check_token(token: str, max_bytes: int) -> None:
    """Raise `MalformedPacketError` for a token that is too long. The error does not contain the token."""
    size = len(token) if token.isascii() else len(token.encode(errors="surrogatepass"))
    if size > max_bytes:
        raise MalformedPacketError(Malformed.HEADER, f"a token of {size} bytes, more than max_token_bytes {max_bytes}")


class ConfigurationError(ValueError):
    """The options cannot work. ``key`` names the wrong one below ``options``."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
