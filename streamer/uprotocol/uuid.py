"""UUIDv7, the id of every message (uProtocol basics, `uuid.adoc`; RFC 9562 section 5.7).

An id is represented by its 16 bytes in network order, which are cheapest to compare, store and write.
"""

import binascii
import os

DAY_MS = 86_400_000
"""An id that is further ahead than that comes from a wrong clock, or is a lie."""


class UuidError(ValueError):
    """The text or the bytes are not a UUIDv7; the message says what was expected."""


def new_id(now_ms: int) -> bytes:
    """Build an id created at ``now_ms`` (Unix milliseconds, 48 bits)."""
    random = os.urandom(10)
    return now_ms.to_bytes(6, "big") + bytes((0x70 | random[0] & 0x0F, random[1], 0x80 | random[2] & 0x3F)) + random[3:]


def parse_id(text: str) -> bytes:
    """Read the hyphenated text form of a UUIDv7. Raises `UuidError`."""
    if len(text) == 36 and text[8:24:5] == "----":
        try:
            uuid = binascii.unhexlify(text.replace("-", ""))
        except ValueError:  # other characters, or an odd number of digits
            uuid = b""
        if len(uuid) == 16:  # neither more hyphens
            return uuid if uuid[6] & 0xF0 == 0x70 and uuid[8] & 0xC0 == 0x80 else check_id(uuid)
    raise UuidError(f"{text[:64]!r}: expected a hyphenated UUID")


def format_id(uuid: bytes) -> str:
    """Return the hyphenated text form in lower case."""
    digits = uuid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def check_id(uuid: bytes) -> bytes:
    """Return ``uuid`` if it is a UUID of version 7 and variant 10. Raises `UuidError`."""
    if len(uuid) != 16:
        raise UuidError(f"{len(uuid)} bytes: expected 16")
    if uuid[6] >> 4 != 7:
        raise UuidError(f"{format_id(uuid)}: expected version 7, found {uuid[6] >> 4}")
    if uuid[8] >> 6 != 0b10:
        raise UuidError(f"{format_id(uuid)}: expected variant 10, found {uuid[8] >> 6:02b}")
    return uuid


def created_ms(uuid: bytes) -> int:
    """Return when a message was created, in Unix milliseconds."""
    return int.from_bytes(uuid[:6], "big")


def made_ms(uuid: bytes, now_ms: int) -> int:
    """Return `created_ms`, or ``now_ms`` for an id that is more than a day ahead, which a wrong clock or a lie explains."""
    created = created_ms(uuid)
    return created if created <= now_ms + DAY_MS else now_ms


def waited_s(uuid: bytes, entered_ms: int, now_ms: int) -> float:
    """Return for how long a message has waited that entered in an earlier process; 0 if its id is as good a clock."""
    return max(0, now_ms - entered_ms) / 1000 if created_ms(uuid) > now_ms + DAY_MS else 0.0


def age_s(uuid: bytes, now_ms: int) -> float:
    """Return the age of a message in seconds: at least 0, at most a day. Other values come from wrong clocks."""
    age_ms = now_ms - int.from_bytes(uuid[:6], "big")
    if age_ms <= 0:
        return 0.0
    return (age_ms if age_ms < DAY_MS else DAY_MS) / 1000
