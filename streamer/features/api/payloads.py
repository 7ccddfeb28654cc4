"""How the pages show payloads: not at all, by their length, or with their beginning in one of three forms."""

from typing import Any

from streamer.uprotocol.message import Attributes, UPayloadFormat
from streamer.uprotocol.payload import payload_as

PAYLOADS = ("none", "length", "hex", "json", "text")

PAYLOAD_BYTES = 2048
"""The longest beginning of a payload that is shown."""


def payload_fields(form: str, attributes: Attributes, size: int | None, beginning: bytes | None) -> dict[str, Any]:
    """Return what is shown of a payload of ``size`` bytes in one of the forms of `PAYLOADS`: its ``beginning``, if any."""
    shown: dict[str, Any] = {}
    if form != "none":
        shown["bytes"] = size
        shown["payload_format"] = UPayloadFormat(attributes.payload_format).name.lower()
    if beginning is not None:
        cut = (size or 0) - len(beginning)
        shown["payload"] = payload_as(beginning, form, is_cut=cut > 0)
        shown["cut_bytes"] = cut
    return shown
