"""The services in a process that is to be killed: the real `ServiceHost` on a real file, and a core that speaks JSON lines.

The first process is a fork server: for each line that says ``start`` it forks a child, which takes over both pipes until
it dies, so that a start costs milliseconds. Where a kill can make a difference are crossings (each SQL statement, each
message sent, each change of interest, each message done with); a child can be told to kill itself at the n-th of them.
"""

import asyncio
import base64
import json
import os
import signal
import sqlite3
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from streamer.config.models import Config
from streamer.features.every import FILE
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import FlowKey
from streamer.transports.base import MessageParcel, Received, TransportContext, UListener
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.protobuf import message_from_proto, message_to_proto
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT
from tests.clock import FakeClock
from tests.constants import with_constants
from tests.fault.services_model import LOCAL, OWN, PAGE
from tests.hosted import HostOn, served

PROVIDER = "//dev1/A8000/2/0"
BROADCAST = "doors"
PARTITIONS = {"front": 0x8001, "front/left": 0x8002, "rear": 0x8003}

EVERYBODY = "//*/FFFFFFFF/FF/0"

_EVERYTHING = UUri("*", 0xFFFF_FFFF, 0xFF, 0xFFFF)

_connect = sqlite3.connect


def to_text(message: UMessage) -> str:
    return base64.b64encode(message_to_proto(message).SerializeToString()).decode()


def from_text(text: str) -> UMessage:
    return message_from_proto(v1.UMessage.FromString(base64.b64decode(text)))


def tell(**frame: Any) -> None:
    """One line, in one write: a kill leaves all of it or nothing."""
    os.write(1, json.dumps(frame).encode() + b"\n")


class KillCountdown:
    """``left``: how many crossings are left to live; None: no end is set."""

    def __init__(self, left: int | None) -> None:
        self.left = left

    def crossed(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


class RouterStub(UListener):
    """The router's place: takes what services say and want; what is said is safe when the driver says so."""

    def __init__(self, countdown: KillCountdown) -> None:
        self.pause_rules = PauseRules()
        self._countdown = countdown
        self._number = 0
        self._said: dict[int, Received] = {}

    def on_receive(self, received: Received) -> None:
        self._number += 1
        self._said[self._number] = received
        self._countdown.crossed()
        tell(said=self._number, message=to_text(received.message))
        self._countdown.crossed()

    def safe(self, number: int) -> None:
        self._said.pop(number).release()

    def set_interest(self, topic: UUri, interested: Mapping[str, int], owner: str, is_new: bool = False) -> None:
        self._countdown.crossed()
        tell(want=str(topic), interested=dict(interested), owner=owner)

    def apply_pause_rules(self) -> None:
        self._countdown.crossed()

    def paused_flows(self) -> Iterable[tuple[FlowKey, int]]:
        return ()


class Parcel(MessageParcel):
    """A message for a service."""

    def __init__(self, number: int, message: UMessage) -> None:
        super().__init__(message)
        self.number = number


class ServicesChild:
    """One child, from its start to its end."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        self._countdown = KillCountdown(start["crossings"])
        sqlite3.connect = partial(_traced, self._countdown)  # type: ignore[assignment]  # counts statements, is one otherwise
        self._clock = FakeClock(start["now_ms"])
        config = _config()
        self._core = LocalTransport(TransportContext(LOCAL_ENDPOINT, OWN, now_ms=self._clock.wall_ms), served(config))
        self._router = RouterStub(self._countdown)
        path = None if start["path"] is None else Path(start["path"])
        self._host = HostOn(path, config, self._core, self._router, self._clock)
        self._left = b""

    async def run(self) -> None:
        tell(pid=os.getpid())
        self._host.start()
        await self._core.authenticate(UUri(OWN, 0, 0, 0))
        await self._core.register_listener(_EVERYTHING, _EVERYTHING, self._router)
        await self._core.start()
        tell(ready=[str(rule) for rule in self._router.pause_rules.rules])
        os.set_blocking(0, False)
        asyncio.get_running_loop().add_reader(0, self._read)
        await self._host.run()

    def _read(self) -> None:
        data = os.read(0, 65536)
        if not data:
            os._exit(0)
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, frame: Mapping[str, Any]) -> None:
        if "safe" in frame:
            self._router.safe(frame["safe"])
        elif "crossings" in frame:
            self._countdown.left = frame["crossings"]
        else:
            self._clock.advance(frame["now_ms"] - self._clock.ms)
            self._core.submit([Parcel(frame["take"], from_text(frame["message"]))], self._done)

    def _done(self, parcels: Iterable[Parcel], error: object) -> None:
        for parcel in parcels:
            self._countdown.crossed()
            tell(done=parcel.number, error=None if error is None else str(error))


def _traced(countdown: KillCountdown, *arguments: Any, **options: Any) -> sqlite3.Connection:
    connection: sqlite3.Connection = _connect(*arguments, **options)
    connection.set_trace_callback(lambda sql: countdown.crossed())
    return connection


def _config() -> Config:
    return FILE.model_validate(
        {
            "authority": OWN,
            "endpoints": {"network": {"transport": "memory", "authorities": ["*"]}},
            "routes": [],
            "usubscription": with_constants(
                UsubscriptionConfig,
                local=sorted(LOCAL),
                page=PAGE,
                subscribe=[{"from": EVERYBODY, "topics": ["//*/FFFFFFFF/FF/FFFF"]}],
                fetch=[EVERYBODY],
            ),
            "control": {"allow": [EVERYBODY]},
            "multicast": [{"provider": PROVIDER, "broadcast": BROADCAST, "partitions": PARTITIONS}],
        }
    )


def _next_start(left: bytes) -> Mapping[str, Any] | None:
    """The next line that says ``start``; lines that the last child has not read are skipped. None if there is none."""
    os.set_blocking(0, True)
    while True:
        *lines, left = left.split(b"\n")
        for line in lines:
            if line.startswith(b'{"start"'):
                found: Mapping[str, Any] = json.loads(line)["start"]
                return found
        data = os.read(0, 65536)
        if not data:
            return None
        left += data


def fork_server() -> None:
    """One child after the other. The dead one is reaped only when the next is asked for: its number stays its own."""
    pid = 0
    while (start := _next_start(b"")) is not None:
        if pid:
            os.waitpid(pid, 0)
        pid = os.fork()
        if not pid:
            asyncio.run(ServicesChild(start).run())
            os._exit(1)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        os.write(1, b"\n")
        tell(ended=ended.si_status)


if __name__ == "__main__":
    fork_server()
