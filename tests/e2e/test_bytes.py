"""Bytes on the wire, as the transports know them, against a proxy that sees every byte between them and their networks."""

from dataclasses import replace
from pathlib import Path

import pytest

from streamer.transports.base import ByteCounts
from streamer.uprotocol.message import publish
from tests.brokers import Mosquitto, TlsFiles
from tests.certificates import write_certificates
from tests.e2e.mqtt_messages import NOW_MS, TOPIC, message, numbered
from tests.e2e.topology import Topology
from tests.fault.proxy import BACK, FORWARD, ByteTap, Proxy
from tests.independent.message import Plain
from tests.mqtt_peer import Endpoint
from tests.ports import HOST
from tests.waiting import until
from tests.zenoh_peers import Outcomes, RawSubscriber, free_endpoint, parcels, raw_peer, running, until_heard, until_up


def of_client(tap: ByteTap) -> ByteCounts:
    """What whoever connected has sent and received."""
    return ByteCounts(tap.bytes[FORWARD], tap.bytes[BACK])


def has_seen(counted: ByteCounts | None, passed: ByteCounts) -> bool:
    """Whether a transport has counted what has passed. TCP sends again what is acknowledged late, and that counts, too."""
    return counted is not None and counted.sent >= passed.sent and counted.received == passed.received


@pytest.mark.mosquitto
async def test_mqtt_counts_every_byte_of_all_its_connections() -> None:
    with Mosquitto() as server:
        async with (
            Proxy(server.port, tap := ByteTap()) as proxy,
            Endpoint(f"mqtt://{HOST}:{proxy.port}", keep_alive_s=60).running() as car,
        ):
            await car.up()
            car.submit(numbered(500))
            await until(lambda: len(car.confirmed) == 500)
            await until(lambda: has_seen(car.transport.report().wire_bytes, of_client(tap)), "what the proxy has seen")
            proxy.reset()
            await until(lambda: not car.is_up)
            await car.up()
            car.submit([message("back")])
            await until(lambda: len(car.confirmed) == 501)
            await until(lambda: has_seen(car.transport.report().wire_bytes, of_client(tap)), "what the proxy has seen")
            assert of_client(tap).sent > 500 * 100


@pytest.mark.mosquitto
async def test_mqtt_counts_what_tls_makes_of_it(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key", require_certificate=False)
    with Mosquitto(tls=files) as server:
        async with Proxy(server.port, tap := ByteTap()) as proxy:
            tls = {"ca_file": tmp_path / "ca.pem"}
            async with Endpoint(f"mqtts://{HOST}:{proxy.port}", keep_alive_s=60, tls=tls).running() as car:
                await car.up()
                car.submit([publish(NOW_MS, TOPIC, bytes(10_000))])
                await until(lambda: len(car.confirmed) == 1)
                await until(lambda: has_seen(car.transport.report().wire_bytes, of_client(tap)), "what the proxy has seen")
                assert of_client(tap).received > 1000  # the certificate of the broker


async def test_before_the_first_connection_nothing_is_known() -> None:
    assert Endpoint("mqtt://127.0.0.1:9").transport.report().wire_bytes is None


async def test_zenoh_counts_what_its_links_carry_also_those_that_are_closed() -> None:
    endpoint = free_endpoint()
    async with running(mode="peer", listen=[endpoint]) as vehicle:
        assert vehicle.report().wire_bytes is None
        async with Proxy(int(endpoint.rpartition(":")[2]), tap := ByteTap()) as proxy:
            with raw_peer(connect=[f"tcp/{HOST}:{proxy.port}"]) as peer:
                subscriber = RawSubscriber(peer)
                await until_up(vehicle)
                await until_heard(vehicle, subscriber)
                outcomes, sent = Outcomes(), parcels(1000)
                vehicle.submit(sent, outcomes.done)
                await until(lambda: len(subscriber.poll()) == 1000)

                def is_what_passed() -> bool:
                    counted = vehicle.report().wire_bytes
                    passed = of_client(tap)
                    return has_seen(counted, ByteCounts(passed.received, passed.sent))

                await until(is_what_passed, "what the proxy has seen")
                puts = sum(parcel.wire_bytes for parcel in sent)
                samples = sum(len(each.payload) + len(each.attachment or b"") for each in subscriber.poll())
                assert puts == samples
                assert puts < of_client(tap).received
            await until(lambda: vehicle.state.value != "up")
            counted = vehicle.report().wire_bytes
            assert counted is not None
            assert counted.sent >= puts


@pytest.mark.mosquitto
async def test_the_daemon_shows_bytes_per_endpoint_and_route() -> None:
    topic = ("alpha", 0x100, 1, 0x8001)
    routes = [{"from": "first", "to": "second", "publish": ["//alpha/100/1/8001"]}, {"from": "second", "to": "first"}]
    async with Topology("mosquitto/in-vehicle", "zenoh", routes=routes) as topology:
        near, far = topology.networks
        await near.side.send([replace(Plain(1, topic), payload=b"x" * 64) for _ in range(50)])
        await until(lambda: len({each.id for each in far.side.arrived}) == 50)
        daemon = topology.daemon
        await daemon.until_total(50, "ustreamer_outcomes_total", route="first-second", outcome="delivered")

        def total(name: str, **labels: str) -> float:
            return daemon.total(f"ustreamer_{name}_bytes_total", **labels)

        for direction in ("received", "sent"):
            assert total("route_payload", route="first-second", direction=direction) == 50 * 64
            assert total("route_wire", route="first-second", direction=direction) > 50 * 64
        assert total("endpoint_payload", endpoint="first", direction="received") == 50 * 64
        assert total("endpoint_payload", endpoint="second", direction="sent") == 50 * 64
        of_packets = total("route_wire", route="first-second", direction="received")
        assert total("endpoint_wire", endpoint="first", direction="received") > of_packets
        assert total("endpoint_wire", endpoint="second", direction="sent") > 50 * 64
