"""The SDK for Rust on one side of the daemon, clients in Python that know only the wire on the other."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.e2e.roles import arrival, response
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.interop.networks import Between, between
from tests.interop.peers import Payload, Peer, RefusedError
from tests.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.mosquitto]

PAIRS = [("in-vehicle", "zenoh"), ("off-vehicle", "zenoh"), ("zenoh", "in-vehicle"), ("zenoh", "off-vehicle")]
"""The network of the SDK, and that of the client in Python."""
RUST, PYTHON = ("alpha", 0x1A34B, 1, 0), ("beta", 0x200CD, 1, 0)
METHOD, TOPIC = 0x7, 0x8A50
NOT_FOUND, UNAUTHENTICATED = 5, 16
PROTOBUF, TEXT = 2, 7


def of(uri: Uri, resource: int) -> Uri:
    return *uri[:3], resource


@pytest.fixture(params=PAIRS, ids="~".join)
async def crossing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Between]:
    first, second = request.param
    async with between(tmp_path, first, second) as running:
        yield running


async def both(crossing: Between) -> tuple[Peer, MqttSide | ZenohSide]:
    keys = {"in-vehicle": ["alpha/#"], "off-vehicle": ["+/beta"], "zenoh": []}[crossing.networks[1].kind]
    return await crossing.rust(0, RUST[1]), await crossing.python(1, *keys)


async def test_client_in_rust_and_service_in_python(crossing: Between) -> None:
    rust, python = await both(crossing)
    method = of(PYTHON, METHOD)
    await crossing.until_wanted(0, Plain(2, RUST, method))

    async def answer(number: int, **error: int) -> Plain:
        await until(lambda: len(python.arrived) > number, "the Request")
        asked = python.arrived[number]
        status = pb.UStatus(code=error["commstatus"], message="no such thing") if error else None  # type: ignore[arg-type]
        payload = status.SerializeToString() if status else b"answer to " + asked.payload
        said = response(asked, payload)
        said = Plain(**vars(said) | {"payload_format": PROTOBUF if status else TEXT, **error})
        await crossing.until_wanted(1, said)
        await python.send([said])
        return asked

    asking = asyncio.create_task(rust.invoke(method, Payload(b"question", TEXT), ttl=20_500, priority=6))
    asked = await answer(0)
    assert (asked.type, asked.source, asked.sink, asked.payload) == (2, RUST, method, b"question")
    assert (asked.ttl, asked.priority, asked.payload_format) == (20_500, 6, TEXT)
    assert await asking == Payload(b"answer to question", TEXT)
    for number, code in enumerate((NOT_FOUND, UNAUTHENTICATED), 1):
        asking = asyncio.create_task(rust.invoke(method, Payload(b"question", TEXT), ttl=20_500))
        await answer(number, commstatus=code)
        with pytest.raises(RefusedError) as refused:
            await asking
        assert refused.value.code == code
    crossing.daemon.check_books()


async def test_client_in_python_and_service_in_rust(crossing: Between) -> None:
    rust, python = await both(crossing)
    asked = Plain(2, PYTHON, of(RUST, METHOD), b"question", 5, 20_500, token="a token", payload_format=TEXT)
    await rust.call("serve", name="echo", resource=METHOD)
    await crossing.until_wanted(1, asked)
    await python.send([asked])
    (heard,) = await rust.hears("echo")
    assert heard == asked
    await until(lambda: bool(python.arrived), "the Response")
    (answer,) = python.arrived
    assert (answer.type, answer.source, answer.sink, answer.reqid) == (3, asked.sink, asked.source, asked.id)
    assert (answer.payload, answer.payload_format, answer.commstatus or 0) == (b"question", TEXT, 0)


async def test_failure_of_a_service_in_rust_is_a_commstatus(crossing: Between) -> None:
    rust, python = await both(crossing)
    asked = Plain(2, PYTHON, of(RUST, METHOD), b"question", 5, 20_500, payload_format=TEXT)
    await rust.call("serve", name="failing", resource=METHOD, fail=NOT_FOUND)
    await crossing.until_wanted(1, asked)
    await python.send([asked])
    await until(lambda: bool(python.arrived), "the Response")
    (answer,) = python.arrived
    assert (answer.type, answer.reqid, answer.commstatus) == (3, asked.id, NOT_FOUND)
    assert pb.UStatus.FromString(answer.payload).code == NOT_FOUND


async def test_notifications_cross_both_ways(crossing: Between) -> None:
    rust, python = await both(crossing)
    down = Plain(4, of(PYTHON, TOPIC), RUST, b"to Rust", 3, 60_500, payload_format=TEXT)
    await rust.call("start_listening", name="news", topic=down.source)
    await crossing.until_wanted(1, down)
    await python.send([down])
    assert await rust.hears("news") == [down]
    up = Plain(4, of(RUST, TOPIC), PYTHON, b"to Python", 3, 60_500, payload_format=TEXT)
    await crossing.until_wanted(0, up)
    await rust.send(up)
    assert await arrival(python, up) == up


@pytest.mark.parametrize("crossing", [pair for pair in PAIRS if pair[0] != "off-vehicle"], ids="~".join, indirect=True)
async def test_publishes_cross_both_ways(crossing: Between) -> None:
    """Off-vehicle they have a sink, which the streamer puts on and takes off."""
    rust, python = await both(crossing)
    down, up = (Plain(1, of(uri, TOPIC), None, b"news", 3, 60_500, payload_format=TEXT) for uri in (PYTHON, RUST))
    addressed = crossing.networks[1].kind == "off-vehicle"
    await rust.call("listen", name="topic", source=down.source)
    await crossing.until_wanted(1, down)
    await python.send([down.addressed_to("alpha") if addressed else down])
    assert await rust.hears("topic") == [down]
    await crossing.until_wanted(0, up)
    await rust.send(up)
    assert await arrival(python, up) == (up.addressed_to("beta") if addressed else up)
