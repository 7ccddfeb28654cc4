"""The payload of a message to one of our services, before it is parsed.

Its sender chooses how it is made: a few bytes of protobuf can become an object each. So a payload is measured first.
"""

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode, UStatusError

MAX_BYTES = 4096
"""The longest payload that is parsed: twice what the largest Request needs, or what is told of one subscription."""


def payload_of(message: UMessage, max_bytes: int | None = MAX_BYTES) -> bytes:
    """The payload; an absent one is empty. Raises `UStatusError` (INVALID_ARGUMENT) if it is longer (None: never)."""
    payload = message.payload or b""
    if max_bytes is not None and len(payload) > max_bytes:
        raise UStatusError(UCode.INVALID_ARGUMENT, f"payload: expected at most {max_bytes} bytes, found {len(payload)}")
    return payload
