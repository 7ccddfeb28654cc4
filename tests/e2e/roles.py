"""The daemon on a file of ``config/roles`` as it is shipped, with its places set by environment variables."""

from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.process import ROOT, StreamerProcess
from tests.usubscription_client import Answer, Refused
from tests.waiting import until

ROLES = ROOT / "config" / "roles"
TTL_MS = 30_001
"""No whole number of seconds: those travel as the expiry alone, which a broker that is slow counts down."""


class Role(StreamerProcess):
    """``streamer run --config config/roles/NAME.yaml``, with a short uncertain time; what it keeps is in ``directory``."""

    def __init__(self, directory: Path, name: str, **environ: str | Path) -> None:
        given = {key: str(value) for key, value in environ.items()}
        super().__init__(directory, {}, {"STATE_DIR": str(directory), "UNCERTAIN_S": "1"} | given)
        self.path = ROLES / f"{name}.yaml"
        self._environ |= {"METRICS_LISTEN": f"127.0.0.1:{self.admin}"}

    def write(self, config: dict[str, Any]) -> None:
        """The file is the one that is shipped."""


def request(source: Uri, method: Uri, payload: bytes = b"", ttl: int = TTL_MS, payload_format: int = 0) -> Plain:
    return Plain(2, source, method, payload, priority=5, ttl=ttl, payload_format=payload_format)


def response(asked: Plain, payload: bytes = b"") -> Plain:
    assert asked.sink is not None
    return Plain(3, asked.sink, asked.source, payload, priority=asked.priority, ttl=asked.ttl, reqid=asked.id)


async def arrival(side: MqttSide | ZenohSide, message: Plain, within_s: float = 30) -> Plain:
    """The message, once it has arrived there; it has arrived once."""

    def found() -> list[Plain]:
        return [each for each in list(side.arrived) if each.id == message.id]

    await until(lambda: bool(found()), within_s=within_s, what=f"arrival of {message}")
    assert len(found()) == 1
    return found()[0]


async def ask_and_answer(client: MqttSide | ZenohSide, server: MqttSide | ZenohSide, asked: Plain) -> None:
    """A Request gets there unaltered, and so does its Response."""
    await client.send([asked])
    assert await arrival(server, asked) == asked
    answer = response(asked, b"answer to " + asked.payload)
    await server.send([answer])
    assert await arrival(client, answer) == answer


async def call(side: MqttSide | ZenohSide, asked: Plain, answer: type[Answer]) -> Answer | Refused:
    """Send a Request to a service of the streamer, and read what it answers."""

    def answers() -> list[Plain]:
        return [each for each in list(side.arrived) if each.type == 3 and each.reqid == asked.id]

    await side.send([asked])
    await until(lambda: bool(answers()), within_s=30, what=f"an answer to {asked}")
    found = answers()[0]
    if not found.commstatus:
        return answer.FromString(found.payload)
    status = v1.UStatus.FromString(found.payload)
    assert status.code == found.commstatus
    return Refused(found.commstatus, status.message)


def at_streamer(source: Uri, streamer: str, method: int, message: Message) -> Plain:
    """A Request to core.ustreamer."""
    return request(source, (streamer, 4, 1, method), message.SerializeToString(), payload_format=2)
