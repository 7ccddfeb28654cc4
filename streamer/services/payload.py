"""Takes the payload of a message to one of our services, before it is parsed.

Parsing can make an object of every few bytes that a sender chooses. So the length of a payload is checked first.
"""

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode, UStatusError

MAX_BYTES = 4096
"""The longest payload that is parsed: twice what the largest Request needs, or a notification of one subscription."""


def payload_of(message: UMessage, max_bytes: int | None = MAX_BYTES) -> bytes:
    """Return the payload; b"" if absent. Raises `UStatusError` (INVALID_ARGUMENT) if it is longer (None: never)."""
    payload = message.payload or b""
    if max_bytes is not None and len(payload) > max_bytes:
        raise UStatusError(UCode.INVALID_ARGUMENT, f"payload: expected at most {max_bytes} bytes, found {len(payload)}")
    return payload
