"""A message in plain Python types, and what of it both transports write."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

Uri = tuple[str, int, int, int]
"""Authority, ue_id, version, resource."""


def uuid7(ms: int | None = None) -> bytes:
    """A UUIDv7 as 16 bytes."""
    now = time.time_ns() // 1_000_000 if ms is None else ms
    random = bytearray(os.urandom(10))
    random[0] = 0x70 | random[0] & 0xF
    random[2] = 0x80 | random[2] & 0x3F
    return now.to_bytes(6, "big") + bytes(random)


@dataclass(frozen=True)
class Plain:
    """A message. None is absent; priority and payload_format 0 are unspecified."""

    type: int
    source: Uri
    sink: Uri | None = None
    payload: bytes = b""
    priority: int = 0
    ttl: int | None = None
    permission_level: int | None = None
    commstatus: int | None = None
    reqid: bytes | None = None
    token: str | None = None
    traceparent: str | None = None
    payload_format: int = 0
    id: bytes = field(default_factory=uuid7)

    @property
    def flow(self) -> tuple[Uri, Uri | None]:
        return self.source, self.sink

    def addressed_to(self, authority: str) -> "Plain":
        """As an off-vehicle broker carries a Publish."""
        return replace(self, sink=(authority, 0xFFFFFFFF, 0xFF, 0xFFFF))


def uri_text(uri: Uri) -> str:
    return f"//{uri[0]}/{uri[1]:X}/{uri[2]:X}/{uri[3]:X}"


def uri_of(text: str) -> Uri:
    authority, ue_id, version, resource = text.removeprefix("//").split("/")
    return authority, int(ue_id, 16), int(version, 16), int(resource, 16)


def id_text(value: bytes) -> str:
    digits = value.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def segments(uri: Uri) -> str:
    return f"{uri[0]}/{uri[1] & 0xFFFF:X}/{uri[1] >> 16:X}/{uri[2]:X}/{uri[3]:X}"


def inversions(arrived: Iterable[Plain], sent: Iterable[Plain]) -> int:
    """How often a first arrival came after a later message of its flow, by the order of sending."""
    position = {message.id: number for number, message in enumerate(sent)}
    last: dict[object, int] = {}
    seen: set[bytes] = set()
    found = 0
    for message in arrived:
        if message.id in seen or message.id not in position:
            continue
        seen.add(message.id)
        here = position[message.id]
        if here < last.get(message.flow, -1):
            found += 1
        last[message.flow] = max(here, last.get(message.flow, -1))
    return found
