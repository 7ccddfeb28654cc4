"""What can go wrong between us and another uEntity.

UStatusError                 a uTransport operation failed, with its code (uP-L1)
└── SendError                a message was not delivered
    ├── LinkLostError        nobody heard it: wait for the link, no attempt is used up
    ├── RefusedError         the other side said no for now: counts as an attempt, then again
    └── PermanentError       the other side will never take it: a dead letter at once
MalformedPacketError         something arrived that is no uProtocol message
ConfigurationError           options that cannot work, found before anything was started
"""

from enum import StrEnum

from streamer.uprotocol.status import UCode, UStatusError


class SendError(UStatusError):
    """A message was not delivered; the subclass says what to do about it."""


class LinkLostError(SendError):
    """The link went away before the confirmation came."""

    def __init__(self, message: str = "the link is down") -> None:
        super().__init__(UCode.UNAVAILABLE, message)


class RefusedError(SendError):
    """The destination refused the message this time."""


class PermanentError(SendError):
    """The destination refuses the message for good."""


class Malformed(StrEnum):
    """Why a packet is no uProtocol message: the label of the counter."""

    PACKET = "packet"
    MARKER = "marker"
    VERSION = "version"
    ID = "id"
    URI = "uri"
    CODE = "code"
    NUMBER = "number"
    ATTACHMENT = "attachment"
    SIZE = "size"


class MalformedPacketError(ValueError):
    """A packet is no uProtocol message: ``reason`` for counters, the text for the log."""

    def __init__(self, reason: Malformed, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class ConfigurationError(ValueError):
    """Options that no start can succeed with; ``key`` names the option below ``options``."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
