"""Messages with every kind of end at a whole daemon, for the tests of its API. No tests."""

import asyncio
import json
from typing import Any

from streamer.uprotocol.message import Options, UMessage, UPayloadFormat, notification, publish, request
from streamer.uprotocol.uuid import format_id
from tests.flow.harness import CLOUD_APP, SPEED
from tests.unit.features.api.daemon import Asked, DaemonHarness

DOORS = SPEED._replace(ue_id=0xA8001)
CALLER = SPEED._replace(resource=0)
METHOD = CLOUD_APP._replace(resource=9)
SECRET = "hunter2hunter2"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def now_ms(served: DaemonHarness) -> int:
    return served.daemon.router.clock.wall_ms()


def speed(served: DaemonHarness, payload: bytes = b"fast", **options: Any) -> UMessage:
    return publish(now_ms(served), SPEED, payload, Options(**options))


async def play(served: DaemonHarness) -> list[str]:
    """Something of everything: delivered, waiting, refused, dead, paused. The ids of the dead letters, oldest first."""
    served.arrive("vehicle", speed(served))
    served.transport("cloud").lose_link()
    served.arrive("vehicle", *(speed(served) for _ in range(3)))
    served.arrive("vehicle", notification(now_ms(served), SPEED, CLOUD_APP, b"x"))
    assert (await served.ask("/api/v1/pause", {"topic": "//veh1/B/1/FFFF", "sink": None})).status in (200, 404)  # no feature
    late_ms = now_ms(served) - 10_000
    dead = [
        publish(late_ms, DOORS, b'{"a": 1}', Options(ttl=5, payload_format=UPayloadFormat.JSON, token=SECRET)),
        request(late_ms, CALLER, METHOD, 5, b"\xff\x00", Options(token=SECRET)),
        publish(late_ms, DOORS._replace(ue_id=1), b"", Options(ttl=5, traceparent=TRACE)),
    ]
    served.arrive("vehicle", *dead)
    await until_letters(served, len(dead))
    return [format_id(message.id) for message in dead]


async def until_letters(served: DaemonHarness, number: int) -> None:
    async with asyncio.timeout(15):
        while (await served.ask("/api/v1/dead-letters", limit=1)).json["total"] != number:
            await asyncio.sleep(0.01)


class Document:
    """The description that the daemon serves."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def check(self, method: str, path: str, asked: Asked) -> Any:
        """Whether an answer is as the document says; its JSON."""
        responses = self.data["paths"][path][method]["responses"]
        response = responses.get(str(asked.status), responses["default"])
        if reference := response.get("$ref"):
            response = self.data["components"]["responses"][reference.rpartition("/")[2]]
        kind = asked.headers["Content-Type"].partition(";")[0]
        schema = response["content"][kind]["schema"]
        data = json.loads(asked.text)
        from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # noqa: PLC0415  # loads for two seconds

        # What a schema refers to is found in the document that it stands in.
        checker = Draft202012Validator(
            {**schema, "components": self.data["components"]}, format_checker=Draft202012Validator.FORMAT_CHECKER
        )
        assert [f"{error.json_path}: {error.message}" for error in checker.iter_errors(data)] == []
        return data


async def document_of(served: DaemonHarness) -> Document:
    return Document((await served.ask("/api/v1/openapi.json")).json)
