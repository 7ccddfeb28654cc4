"""Cloud gateway: many vehicles to one cloud broker, all under TLS, each with its own queue and its own back-pressure.

The daemon runs on ``config/roles/cloud-gateway.yaml`` itself, between four mosquitto brokers that want certificates. The
uEntities are `aiomqtt` clients.
"""

import os
import signal
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aiomqtt
import pytest
from google.protobuf.message import Message

from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from tests.brokers import Mosquitto, TlsFiles
from tests.certificates import write_certificates
from tests.e2e.roles import Role, arrival, ask_and_answer, at_streamer, call, request
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.usubscription_client import SUBSCRIBED, Refused, UsubscriptionClient, proto_uri
from tests.waiting import until

pytestmark = pytest.mark.mosquitto

VEHICLES = ("veh1", "veh2", "veh3")
BACKEND = ("backend", 0x100, 1, 0)
QUEUE = 500  # as in the file
STOP, START = 1, 2
RESOURCE_EXHAUSTED = 8

Answer = TypeVar("Answer", bound=Message)


def telemetry(vehicle: str, resource: int = 0x8001) -> Uri:
    return vehicle, 0xA8000, 2, resource


@dataclass
class Fleet:
    gateway: Role
    brokers: dict[str, Mosquitto]
    cars: dict[str, MqttSide]
    backend: MqttSide

    def telemetry(self, vehicle: str) -> list[Plain]:
        return [each for each in list(self.backend.arrived) if each.type == 1 and each.source[0] == vehicle]

    async def control(self, method: int, vehicle: str) -> None:
        """Stop or start everything that a vehicle publishes and tells."""
        kinds = {
            STOP: (pb.StopDispatchRequest, pb.StopDispatchResponse),
            START: (pb.StartDispatchRequest, pb.StartDispatchResponse),
        }
        asked, answer = kinds[method]
        rule = pb.DispatchRule(topic=proto_uri((vehicle, 0xFFFFFFFF, 0xFF, 0xFFFF)))
        said = await call(self.backend, at_streamer(BACKEND, "cloud-gateway", method, asked(rule=rule)), answer)
        assert not isinstance(said, Refused), said


def published(vehicle: str, count: int) -> list[Plain]:
    return [Plain(1, telemetry(vehicle), payload=b"%s %d" % (vehicle.encode(), number)) for number in range(count)]


def gateway_in(directory: Path, brokers: Mapping[str, Mosquitto]) -> Role:
    """A gateway with the certificates in a directory."""
    return Role(
        directory,
        "cloud-gateway",
        CA_FILE=directory / "ca.pem",
        CERT_FILE=directory / "client.pem",
        KEY_FILE=directory / "client.key",
        **{f"{name.upper()}_BROKER": broker.url for name, broker in brokers.items()},
    )


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    write_certificates(tmp_path)
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key")
    tls = aiomqtt.TLSParameters(
        ca_certs=str(tmp_path / "ca.pem"),
        certfile=str(tmp_path / "client.pem"),
        keyfile=str(tmp_path / "client.key"),
        cert_reqs=ssl.CERT_REQUIRED,
    )
    async with AsyncExitStack() as stack:
        brokers = {name: stack.enter_context(Mosquitto(tls=files)) for name in (*VEHICLES, "cloud")}
        cars = {
            name: await stack.enter_async_context(
                MqttSide(brokers[name].port, "in-vehicle", [f"+/+/+/+/+/{name}/#"], tls=tls)
            )
            for name in VEHICLES
        }
        backend = await stack.enter_async_context(MqttSide(brokers["cloud"].port, "off-vehicle", ["+/backend"], tls=tls))
        gateway = await stack.enter_async_context(gateway_in(tmp_path, brokers))
        yield Fleet(gateway, brokers, cars, backend)


async def test_every_vehicle_s_telemetry_reaches_the_backend_and_rpc_goes_down_and_back(fleet: Fleet) -> None:
    assert all(broker.url.startswith("mqtts://") for broker in fleet.brokers.values())
    for name, car in fleet.cars.items():
        sent = published(name, 20)
        await car.send(sent)
        await until(lambda name=name: len(fleet.telemetry(name)) == 20, within_s=30, what=f"telemetry of {name}")  # type: ignore[misc]
        assert fleet.telemetry(name) == [each.addressed_to("backend") for each in sent]
        await ask_and_answer(fleet.backend, car, request(BACKEND, (name, 0xB, 1, 7), b"lock the doors"))
    fleet.gateway.check_books()


async def test_other_topics_go_up_while_the_backend_subscribes(fleet: Fleet) -> None:
    topic, fence = ("veh1", 0xB, 1, 0x8001), telemetry("veh1")
    client = UsubscriptionClient(fleet.backend, BACKEND, "veh1")
    await fleet.cars["veh1"].send([Plain(1, topic, payload=b"before"), Plain(1, fence, payload=b"fence")])
    await until(lambda: len(fleet.telemetry("veh1")) == 1, within_s=30, what="the fence")
    assert fleet.telemetry("veh1")[0].payload == b"fence"
    assert await client.subscribe(topic) == SUBSCRIBED

    async def is_forwarded() -> bool:
        """The gateway subscribes at the vehicle's broker after it has answered."""
        await fleet.cars["veh1"].send([Plain(1, topic, payload=b"during")])
        try:
            await until(lambda: b"during" in client.payloads(topic), within_s=0.3)
        except AssertionError:
            return False
        return True

    for _ in range(100):
        if await is_forwarded():
            break
    assert set(client.payloads(topic)) == {b"during"}


async def test_a_vehicle_that_sends_too_much_waits_and_the_others_go_on(fleet: Fleet) -> None:
    """The cloud's broker does nothing for a while."""
    much, some = published("veh1", 2000), {name: published(name, 100) for name in ("veh2", "veh3")}
    os.kill(fleet.brokers["cloud"].pid, signal.SIGSTOP)
    try:
        await fleet.cars["veh1"].send(much)
        # Its queue is full. What comes beyond that is not acknowledged, so its broker keeps it, and soon sends no more.
        await fleet.gateway.until_total(QUEUE, "ustreamer_queue_messages", route="veh1-cloud")
        for name, sent in some.items():
            await fleet.cars[name].send(sent)
            await fleet.gateway.until_total(len(sent), "ustreamer_accepted_messages_total", route=f"{name}-cloud")
        assert fleet.gateway.total("ustreamer_received_messages_total", endpoint="veh1") < len(much)
        assert fleet.gateway.total("ustreamer_accepted_messages_total", route="veh1-cloud") == QUEUE
    finally:
        os.kill(fleet.brokers["cloud"].pid, signal.SIGCONT)
    for name, sent in {"veh1": much, **some}.items():
        await until(lambda name=name, sent=sent: len(fleet.telemetry(name)) == len(sent), within_s=60, what=f"all of {name}")  # type: ignore[misc]
        assert fleet.telemetry(name) == [each.addressed_to("backend") for each in sent]
    fleet.gateway.check_books()


async def test_a_paused_vehicle_holds_up_nothing_and_goes_on_in_order(fleet: Fleet) -> None:
    """What waits for a start takes at most half of the queue; the vehicle's other traffic has the rest."""
    await fleet.control(STOP, "veh1")
    sent = published("veh1", QUEUE)
    await fleet.cars["veh1"].send(sent)
    await fleet.gateway.until_total(QUEUE // 2, "ustreamer_outcomes_total", outcome="rejected", code="RESOURCE_EXHAUSTED")
    assert fleet.gateway.total("ustreamer_queue_messages", route="veh1-cloud") == QUEUE // 2
    asked = request(BACKEND, ("veh1", 0xB, 1, 7), b"still there?")
    await fleet.backend.send([asked])
    assert await arrival(fleet.cars["veh1"], asked) == asked
    await fleet.cars["veh2"].send(published("veh2", 20))
    await until(lambda: len(fleet.telemetry("veh2")) == 20, within_s=30, what="telemetry of veh2")
    assert fleet.telemetry("veh1") == []

    await fleet.control(START, "veh1")
    await until(lambda: len(fleet.telemetry("veh1")) == QUEUE // 2, within_s=30, what="all that waited")
    assert fleet.telemetry("veh1") == [each.addressed_to("backend") for each in sent[: QUEUE // 2]]
    fleet.gateway.check_books()


async def test_an_absent_vehicle_holds_up_no_other_and_too_many_requests_to_it_are_answered(fleet: Fleet) -> None:
    fleet.brokers["veh3"].stop()
    await fleet.gateway.until_down("veh3")
    asked = [request(BACKEND, ("veh3", 0xB, 1, 7), b"%d" % number, ttl=120_000) for number in range(QUEUE + 200)]
    await fleet.backend.send(asked)

    def refused() -> set[bytes | None]:
        answers = [each for each in list(fleet.backend.arrived) if each.type == 3]
        assert {each.commstatus for each in answers} <= {RESOURCE_EXHAUSTED}
        return {each.reqid for each in answers}

    await until(lambda: len(refused()) == 200, within_s=60, what="answers to what did not fit")
    assert refused() == {each.id for each in asked[QUEUE:]}
    other = [request(BACKEND, ("veh2", 0xB, 1, 7), b"%d" % number) for number in range(QUEUE)]
    await fleet.backend.send(other)
    await until(lambda: len(fleet.cars["veh2"].arrived) == QUEUE, within_s=60, what="all that is for veh2")
    assert fleet.cars["veh2"].arrived == other
    fleet.brokers["veh3"].start()
    await fleet.gateway.until_total(QUEUE, "ustreamer_outcomes_total", route="cloud-veh3", outcome="delivered")


async def test_a_vehicle_cannot_speak_in_another_s_name(fleet: Fleet) -> None:
    forged = Plain(4, telemetry("veh1"), BACKEND, b"forged")
    own = Plain(4, telemetry("veh2"), BACKEND, b"own")
    await fleet.cars["veh2"].send([forged, Plain(1, telemetry("veh1"), payload=b"forged"), own])
    await arrival(fleet.backend, own)
    await fleet.gateway.until_total(1, "ustreamer_outcomes_total", outcome="rejected", code="UNAUTHENTICATED")
    assert [each.payload for each in fleet.backend.arrived] == [b"own"]


async def test_without_a_trusted_certificate_there_is_no_link(fleet: Fleet, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_certificates(other)
    stranger = gateway_in(other, fleet.brokers)
    stranger.start()
    try:
        text = "the certificate of the other end is not accepted"
        await until(lambda: stranger.log.count(text) >= len(fleet.brokers), within_s=30, what="refusals")
        for name in fleet.brokers:
            assert list(stranger.samples("ustreamer_endpoint_up", endpoint=name).values()) == [0]
    finally:
        await stranger.__aexit__()
