"""Describes dead letters as JSON objects, for the command line and the administration API.

They never contain access tokens.
"""

from typing import Any

from streamer.journal.letters import LetterSummary
from streamer.journal.moments import as_moment
from streamer.uprotocol.message import UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uuid import created_ms, format_id

PREVIEW_BYTES = 4096
"""The most bytes of a payload that are shown."""


def summary_json(letter: LetterSummary, now_ms: int) -> dict[str, Any]:
    """Describe a letter without its message."""
    return {
        "number": letter.number,
        "id": format_id(letter.id),
        "when": as_moment(letter.last_ms),
        "age_s": (now_ms - letter.last_ms) / 1000,
        "reason": code_name(letter.code),
        "text": letter.text,
        "outcome": letter.outcome,
        "route": letter.route,
        "ingress": letter.ingress,
        "egress": letter.target,
        "attempts": letter.attempts,
        "first": as_moment(letter.first_ms),
        "type": _type_name(letter.type),
        "source": letter.source,
        "sink": letter.sink or None,
        "size": letter.size,
        "redrive": None if letter.redrive_ms is None else as_moment(letter.redrive_ms),
        "redrive_ttl_ms": letter.redrive_ttl_ms,
    }


def content_json(letter: LetterSummary, message: UMessage, now_ms: int) -> dict[str, Any]:
    """Describe the message of a letter."""
    attributes = message.attributes
    deadline_ms = message.expires_ms(now_ms, (now_ms - letter.first_ms) / 1000)
    return {
        "created": as_moment(created_ms(message.id)),
        "ttl_ms": attributes.ttl,
        "deadline": None if deadline_ms is None else as_moment(deadline_ms),
        "priority": attributes.priority.name if attributes.priority else f"{UPriority.CS1.name} (unspecified)",
        "permission_level": attributes.permission_level,
        "commstatus": None if attributes.commstatus is None else attributes.commstatus.name,
        "reqid": None if attributes.reqid is None else format_id(attributes.reqid),
        "traceparent": attributes.traceparent,
        "token": None if attributes.token is None else "present, not shown",
        "payload_format": UPayloadFormat(attributes.payload_format).name,
        "payload_bytes": None if message.payload is None else len(message.payload),
        "payload": None if message.payload is None else payload(message.payload),
    }


def payload(data: bytes, most_bytes: int = PREVIEW_BYTES) -> dict[str, Any]:
    """Describe the beginning of a payload: as text if it is UTF-8, otherwise in hexadecimal."""
    head = data[:most_bytes]
    left_out_bytes = len(data) - len(head)
    text = head.decode(errors="ignore")
    lost = len(head) - len(text.encode())
    if (not lost or (left_out_bytes and lost < 4)) and all(char.isprintable() or char in "\r\n\t" for char in text):
        return {"text": text, "left_out_bytes": left_out_bytes + lost}
    return {"hex": head.hex(), "left_out_bytes": left_out_bytes}


def code_name(code: int) -> str:
    return UCode(code).name if code in UCode._value2member_map_ else str(code)


def _type_name(kind: int) -> str:
    return UMessageType(kind).name.lower() if kind in UMessageType._value2member_map_ else str(kind)
