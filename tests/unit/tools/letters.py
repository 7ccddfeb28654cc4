"""A journal with three dead letters. No tests."""

import time
from pathlib import Path

from streamer.journal.entries import Letter
from streamer.uprotocol.message import Options, UMessage, UPayloadFormat, publish, request
from streamer.uprotocol.protobuf import message_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id

HOUR_MS = 3_600_000
NOW_MS = time.time_ns() // 1_000_000
SPEED = UUri.parse("//veh1/A8000/2/8A50")
DOORS = UUri.parse("//veh1/A8001/2/8A51")
METHOD = UUri.parse("//cloud/B0/1/10")
CALLER = UUri.parse("//veh1/A8000/2/0")
TOKEN = "not-for-anybody"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

# The day before yesterday, an hour ago, a minute ago.
OLD = publish(NOW_MS - 48 * HOUR_MS, SPEED, b'{"speed": 7}', Options(payload_format=UPayloadFormat.JSON))
EXPIRED = publish(NOW_MS - HOUR_MS, DOORS, b"\x00\x01\xfe" * 10, Options(ttl=5000, traceparent=TRACE, token=TOKEN))
CALL = request(NOW_MS - 60_000, CALLER, METHOD, 2 * HOUR_MS, b"x" * 600, Options(token=TOKEN))


def letter_of(number: int, message: UMessage, code: UCode, age_ms: int, route: str) -> Letter:
    attributes = message.attributes
    sink = "" if attributes.sink is None else str(attributes.sink)
    body = message_to_proto(message).SerializeToString()
    kind, text = int(attributes.type), f"it\x1b[31m was {code.name}"
    when = NOW_MS - age_ms
    outcome = "dead_lettered"
    return Letter(
        number, message.id, route, "vehicle", "cloud", outcome, code, text, 3, when - 50, when, kind,
        str(attributes.source), sink, body,
    )  # fmt: skip


LETTERS = [
    letter_of(1, OLD, UCode.RESOURCE_EXHAUSTED, 48 * HOUR_MS, "vehicle-cloud"),
    letter_of(2, EXPIRED, UCode.DEADLINE_EXCEEDED, HOUR_MS, "vehicle-cloud"),
    letter_of(3, CALL, UCode.UNAVAILABLE, 60_000, "vehicle-phone"),
]
IDS = [format_id(letter.id) for letter in LETTERS]


def config_with(tmp_path: Path, journal: str) -> Path:
    path = tmp_path / "streamer.yaml"
    path.write_text(f"""\
authority: gateway.veh1
endpoints:
  vehicle: {{transport: memory, authorities: [veh1], options: {{bus: letters-vehicle}}}}
  cloud: {{transport: memory, authorities: ["*"], options: {{bus: letters-cloud}}}}
routes:
  - {{from: vehicle, to: cloud}}
metrics: null
journal: {journal}
""")
    return path
