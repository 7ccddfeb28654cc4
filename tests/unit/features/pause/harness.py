"""The pause service with a disk that can fail, and a caller."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from google.protobuf.message import Message

from streamer.clock import Clock
from streamer.config.metrics import ControlConfig
from streamer.features.host.access import Access, Caller
from streamer.features.host.rpc import RpcService
from streamer.features.host.state import StateError, Statement
from streamer.features.pause.service import PauseService
from streamer.routing.pause_rules import PauseRule
from streamer.uprotocol.message import Options, UMessage, UPayloadFormat, request
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USTREAMER
from tests.clock import FakeClock
from tests.hosted import StateOn
from tests.unit.features.host.fake_router import FakeRouter
from tests.unit.features.host.local_transport import RecordingLocalTransport
from tests.unit.features.host.patterns import entities_at


class FailingState(StateOn):
    """``gate`` is waited for before anything is written."""

    def __init__(self, path: Path | None, tables: Mapping[str, str]) -> None:
        super().__init__(path, tables)
        self.fails = False
        self.gate: asyncio.Event | None = None

    async def write(self, statements: Sequence[Statement], most_s: float | None = None) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise StateError("the disk is full")
        await super().write(statements)


GATEWAY = "gw1"
NOW_MS = 1_700_000_000_000
CALLER = UUri("veh1", 0xA8000, 2, 0)
STRANGER = UUri("cloud", 0xA8000, 2, 0)
SPEED, DOORS = UUri("veh1", 0xA8000, 2, 0x8A50), UUri("veh1", 0xA8000, 2, 0x8A51)
CLOUD_APP = UUri("cloud", 0xC0, 1, 0)


ACCESS = Access(GATEWAY, frozenset({GATEWAY, "veh1"}), control=(entities_at("veh1"),))
"""The uEntities of the vehicle may pause."""

BY = Caller("//veh1/A8000/2/0", "vehicle")


class PauseHarness:
    """The service, from one start to its end."""

    def __init__(
        self,
        path: Path | None = None,
        options: ControlConfig | None = None,
        access: Access = ACCESS,
        clock: Clock | None = None,
    ) -> None:
        self.core = RecordingLocalTransport(GATEWAY, USTREAMER)
        self.state = FailingState(path, PauseService.TABLES)
        self.router = FakeRouter()
        self.service = PauseService(self.state, self.router, options or ControlConfig(), access, clock or FakeClock())
        self.rpc = RpcService(self.core, USTREAMER, self.service.methods())
        self.state.open()
        self.service.restore()

    async def ask(
        self,
        method: int,
        payload: Message | bytes | None,
        caller: UUri = CALLER,
        form: UPayloadFormat = UPayloadFormat.PROTOBUF,
    ) -> UMessage:
        """The Response to a Request, which counts as done exactly once."""
        if isinstance(payload, Message):
            payload = payload.SerializeToString()
        options = Options(payload_format=UPayloadFormat.UNSPECIFIED if payload is None else form)
        message = request(NOW_MS, caller, UUri(GATEWAY, 4, 1, method), 5000, payload, options)
        done: asyncio.Queue[None] = asyncio.Queue()
        self.rpc.take(message, lambda: done.put_nowait(None))
        await asyncio.wait_for(done.get(), 10)
        assert done.empty()
        (answer,) = [said for said in self.core.said if said.attributes.reqid == message.id]
        answer.check()
        assert (answer.attributes.source, answer.attributes.sink) == (message.attributes.sink, caller)
        return answer


def rule_of(source: UUri, sink: UUri | None = None) -> ustreamer.DispatchRule:
    return ustreamer.DispatchRule(topic=uri_to_proto(source), sink=None if sink is None else uri_to_proto(sink))


def pause_request(source: UUri, sink: UUri | None = None) -> Message:
    return ustreamer.StopDispatchRequest(rule=rule_of(source, sink))


def resume_request(source: UUri, sink: UUri | None = None) -> Message:
    return ustreamer.StartDispatchRequest(rule=rule_of(source, sink))


def failure(answer: UMessage, code: UCode) -> str:
    """The text of a failure with this code."""
    assert answer.attributes.commstatus is code
    assert answer.attributes.payload_format is UPayloadFormat.PROTOBUF
    status = pb.UStatus.FromString(answer.payload or b"")
    assert status.code == int(code)
    return status.message


def on_disk(path: Path) -> list[PauseRule]:
    """The rules in the file, as another program reads them."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT source, sink FROM dispatch_stops ORDER BY number").fetchall()
    return [PauseRule.parse(source, sink or None) for source, sink in rows]
