"""Dead letters and RPC error responses reach independent clients, on MQTT and on Zenoh."""

from dataclasses import replace
from typing import Any

import pytest

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from tests.e2e.topology import Topology
from tests.independent.message import Plain, uuid7
from tests.independent.zenoh import from_attributes
from tests.waiting import until

DEAD_LETTERS = ("gw", 4, 1, 0x8001)
HOUR_MS = 3_600_000


def failing_requests(here: str, there: str) -> dict[int, Plain]:
    """A Request for each code that a sender can cause from outside, by code."""
    app, method = (here, 0x10, 1, 0), (there, 0x20, 1, 5)
    sound: dict[str, Any] = {"type": 2, "priority": 5, "ttl": 60_000, "token": "t", "payload": b"ask", "payload_format": 6}
    now = int.from_bytes(uuid7()[:6], "big")
    return {
        3: Plain(source=app, sink=method, **{**sound, "priority": 1}),  # INVALID_ARGUMENT: below CS4
        16: Plain(source=("elsewhere", 0x10, 1, 0), sink=method, **sound),  # UNAUTHENTICATED: nobody of ours
        4: Plain(source=app, sink=method, id=uuid7(now - HOUR_MS), **sound),  # DEADLINE_EXCEEDED
        14: Plain(source=app, sink=("gw", 0x99, 1, 5), **sound),  # UNAVAILABLE: we have no such uEntity
    }


async def check_reports(topology: Topology, direction: int, asked: dict[int, Plain]) -> None:
    """Each Request, listed by the code that it fails with, is answered and published as a dead letter where it came from."""
    network = topology.networks[direction]
    await network.side.send(asked.values())
    await until(lambda: len(network.side.arrived) == 2 * len(asked), what="two messages per Request")
    answers = {m.commstatus: m for m in network.side.arrived if m.type == 3}
    letters: dict[int, ustreamer.DeadLetter] = {}
    for message in network.side.arrived:
        if message.source == DEAD_LETTERS:
            letter = ustreamer.DeadLetter.FromString(message.payload)
            letters[letter.status.code] = letter
            assert message.type == 1
            assert message.payload_format == 2
    assert answers.keys() == letters.keys() == asked.keys()
    for code, request in asked.items():
        answer, letter = answers[code], letters[code]
        assert (answer.source, answer.sink) == (request.sink, request.source)
        assert answer.reqid == request.id
        assert answer.ttl == request.ttl
        assert pb.UStatus.FromString(answer.payload).code == code
        told = from_attributes(letter.message.attributes, letter.message.payload)
        assert told == replace(request, token=None, payload=told.payload)
        assert told.payload == (b"" if code in (7, 16) else request.payload)
        assert letter.streamer == "gw"
    assert topology.networks[1 - direction].side.arrived == []
    topology.daemon.check_books()


@pytest.mark.parametrize("direction", [0, 1], ids=["on-mqtt", "on-zenoh"])
async def test_failed_request_is_answered_and_published_as_dead_letter(direction: int) -> None:
    async with Topology("mqtt/off-vehicle", "zenoh") as topology:
        here, there = ("alpha", "beta") if direction == 0 else ("beta", "alpha")
        await check_reports(topology, direction, failing_requests(here, there))


@pytest.mark.parametrize("direction", [0, 1], ids=["on-mqtt", "on-zenoh"])
async def test_request_that_no_route_allows_is_answered(direction: int) -> None:
    async with Topology("mqtt/off-vehicle", "zenoh", routes=[]) as topology:
        here, there = ("alpha", "beta") if direction == 0 else ("beta", "alpha")
        denied = Plain(2, (here, 0x10, 1, 0), (there, 0x20, 1, 5), priority=5, ttl=60_000)
        await check_reports(topology, direction, {7: denied})
