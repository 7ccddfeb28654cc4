"""The files of deploy/container at work: mosquitto, Zenoh and the streamer as they are shipped, with only places changed.

Honest uEntities reach each other. Whoever has a certificate or a password of their own, but not those of the name they use,
is refused by the network already.
"""

import json
import os
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
import yaml
import zenoh

from tests.brokers import BrokerProcess
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide, mqtt_properties, mqtt_topic
from tests.independent.zenoh import ZenohSide, attachment_of, zenoh_key
from tests.ports import HOST, free_port
from tests.process import ROOT, StreamerProcess
from tests.programs import require
from tests.waiting import until

pytestmark = pytest.mark.mosquitto

CONTAINER = ROOT / "deploy/container"
VEH1, BACKEND = ("veh1", 0xA8000, 2, 0), ("backend", 0xC0, 1, 0)
SPEED = ("veh1", 0xA8000, 2, 0x8A50)
FOR_VEH1 = "up/*/*/*/*/*/veh1/*/*/*/*"
REFUSED = 135
"""Not authorized, in MQTT 5."""


class Shipped(BrokerProcess):
    """Mosquitto with deploy/container/mosquitto.conf and mosquitto.acl."""

    def __init__(self, secrets: Path) -> None:
        self._program = require("mosquitto")
        super().__init__()
        self._secrets = secrets

    def command(self) -> list[str]:
        passwords = self.directory / "passwords"
        passwords.touch(mode=0o600)
        passwords.write_bytes((self._secrets / "passwords").read_bytes() + b"evil:evil-password\n")
        subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
        (self.directory / "mosquitto.acl").write_bytes((CONTAINER / "mosquitto.acl").read_bytes())
        text = (CONTAINER / "mosquitto.conf").read_text()
        for shipped, here in (
            ("listener 8883", f"listener {self.port} {HOST}" + ("\nuser root" if os.geteuid() == 0 else "")),
            ("/run/secrets/", f"{self._secrets}/"),
            ("/tmp/passwords", str(passwords)),
            ("/mosquitto/config/", f"{self.directory}/"),
            ("/mosquitto/data/", f"{self.directory}/"),
        ):
            assert shipped in text
            text = text.replace(shipped, here)
        config = self.directory / "mosquitto.conf"
        config.write_text(text)
        return [self._program, "-c", str(config)]


class Place:
    """Everything that compose.yaml starts, on this machine."""

    def __init__(self, directory: Path, secrets: Path, broker: Shipped) -> None:
        self.secrets = secrets
        self.broker = broker
        self.zenoh_port = free_port()
        self._ca = ssl.create_default_context(cafile=secrets / "ca.pem")
        zenoh_file = directory / "zenoh.json5"
        zenoh_file.write_text((CONTAINER / "zenoh.json5").read_text().replace("/run/secrets/", f"{secrets}/"))
        text = (CONTAINER / "streamer.yaml").read_text()
        for shipped, here in (
            ("tls/0.0.0.0:7447", f"tls/{HOST}:{self.zenoh_port}"),
            ("/etc/ustreamer/zenoh.json5", str(zenoh_file)),
            ("broker:8883", f"{HOST}:{broker.port}"),
            ("/run/secrets/", f"{secrets}/"),
            ("/var/lib/streamer/", f"{directory}/"),
        ):
            assert shipped in text
            text = text.replace(shipped, here)
        config = yaml.safe_load(text)
        self.streamer = StreamerProcess(directory, {})
        config["metrics"]["listen"] = f"{HOST}:{self.streamer.admin}"
        config["shutdown"] = {"drain_s": 0}
        self.streamer.write(config)

    def mqtt(self, user: str, password: str, *topics: str) -> MqttSide:
        tls = aiomqtt.TLSParameters(ca_certs=str(self.secrets / "ca.pem"))
        return MqttSide(self.broker.port, "off-vehicle", topics, client_id=user, tls=tls, user=(user, password))

    def backend(self) -> MqttSide:
        return self.mqtt("backend", (self.secrets / "backend-password").read_text().strip(), "+/backend")

    def vehicle(self, certificate: str | None, *keys: str) -> ZenohSide:
        settings: dict[str, object] = {
            "mode": "client",
            "connect/timeout_ms": 2000,
            "transport/link/tls/root_ca_certificate": str(self.secrets / "ca.pem"),
        }
        if certificate is not None:
            settings["transport/link/tls/enable_mtls"] = True
            settings["transport/link/tls/connect_certificate"] = str(self.secrets / f"{certificate}.pem")
            settings["transport/link/tls/connect_private_key"] = str(self.secrets / f"{certificate}.key")
        return ZenohSide(connect=[f"tls/{HOST}:{self.zenoh_port}"], keys=keys, settings=settings)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What make-secrets.sh makes, with one more uEntity; the keys are ours."""
    folder = tmp_path_factory.mktemp("hardened") / "secrets"
    owner = f"{os.getuid()}:{os.getgid()}"
    environ = os.environ | {"STREAMER_USER": owner, "BROKER_USER": owner, "CLIENT_USER": owner}
    for more in ((), ("evil",)):
        subprocess.run([str(CONTAINER / "make-secrets.sh"), str(folder), *more], env=environ, check=True)
    return folder


@pytest.fixture
async def place(tmp_path: Path, secrets: Path) -> AsyncIterator[Place]:
    with Shipped(secrets) as broker:
        place = Place(tmp_path, secrets, broker)
        place.streamer.start()
        try:
            await until(lambda: place.streamer.get("/readyz")[0] == 200, within_s=30, what="a streamer that is ready")
            yield place
        finally:
            await place.streamer.__aexit__()


async def crosses(place: Place, vehicle: ZenohSide, backend: MqttSide) -> None:
    """A Publish and a Notification go up, and a Notification comes down."""
    up = [Plain(1, SPEED, None, b"40"), Plain(4, SPEED, BACKEND, b"41")]
    down = Plain(4, (*BACKEND[:3], 0x9000), VEH1, b"42")
    await vehicle.send(up)
    await until(lambda: len(backend.arrived) >= 2, within_s=30, what="what the vehicle sends")
    assert sorted(each.payload for each in backend.arrived) == [b"40", b"41"]
    await backend.send([down])
    await until(lambda: bool(vehicle.arrived), within_s=30, what="what the backend sends")
    assert [each.payload for each in vehicle.arrived] == [b"42"]


def acknowledgements(side: MqttSide) -> list[int]:
    """The reason codes of the PUBACKs that a client gets from now on."""
    codes: list[int] = []
    paho = side.client._client
    handle: Any = paho.on_publish

    def note(client: Any, userdata: Any, mid: int, code: Any, properties: Any) -> None:
        codes.append(code.value)
        handle(client, userdata, mid, code, properties)

    paho.on_publish = note
    return codes


async def test_honest_uentities_reach_each_other(place: Place) -> None:
    async with place.vehicle("veh1", FOR_VEH1) as vehicle, place.backend() as backend:
        await place.streamer.until_up()
        await crosses(place, vehicle, backend)


async def test_a_foreign_topic_is_refused_by_the_broker_and_nobody_overhears_anything(place: Place) -> None:
    async with (
        place.vehicle("veh1", FOR_VEH1) as vehicle,
        place.backend() as backend,
        place.mqtt("evil", "evil-password", "#", "+/veh1", "+/backend", "+/evil") as evil,
    ):
        await place.streamer.until_up()
        forged = Plain(4, (*BACKEND[:3], 0x9000), VEH1, b"forged")
        codes = acknowledgements(evil)
        await evil.client.publish(
            mqtt_topic(forged, "off-vehicle"), forged.payload, qos=1, properties=mqtt_properties(forged)
        )
        assert codes == [REFUSED]
        await crosses(place, vehicle, backend)
        own = Plain(4, ("evil", 1, 1, 0x9000), ("evil", 1, 1, 0), b"to myself")
        await evil.send([own])
        await until(lambda: bool(evil.arrived), what="its own message")
        assert {each.payload for each in evil.arrived} == {b"to myself"}  # by two of its filters


@pytest.mark.parametrize("user", ["backend", "gateway-veh1"])
async def test_nobody_takes_a_session_over_by_its_client_id(place: Place, user: str) -> None:
    async with place.backend() as backend, place.vehicle("veh1", FOR_VEH1) as vehicle:
        await place.streamer.until_up()
        thief = MqttSide(
            place.broker.port, "off-vehicle", [], client_id=user, user=("evil", "evil-password"),
            tls=aiomqtt.TLSParameters(ca_certs=str(place.secrets / "ca.pem")),
        )  # fmt: skip
        async with thief:
            await crosses(place, vehicle, backend)
            assert thief.arrived == []
    assert place.streamer.total("ustreamer_reconnects_total", endpoint="cloud") == 0


async def test_without_a_password_nobody_gets_in(secrets: Path) -> None:
    tls = aiomqtt.TLSParameters(ca_certs=str(secrets / "ca.pem"))
    with Shipped(secrets) as broker:
        for user in (("backend", "wrong"), ("nobody", "evil-password"), None):
            with pytest.raises(aiomqtt.MqttCodeError):
                async with MqttSide(broker.port, "off-vehicle", [], tls=tls, user=user):
                    pass


async def test_without_a_certificate_nobody_gets_in(place: Place) -> None:
    with pytest.raises(zenoh.ZError):
        async with place.vehicle(None):
            pass


async def test_another_certificate_neither_speaks_for_a_vehicle_nor_hears_it(place: Place) -> None:
    async with (
        place.vehicle("veh1", FOR_VEH1) as vehicle,
        place.backend() as backend,
        place.vehicle("evil", "up/**", FOR_VEH1) as evil,
    ):
        await place.streamer.until_up()
        for forged in (Plain(4, SPEED, BACKEND, b"forged"), Plain(1, SPEED, None, b"forged")):
            evil.session.put(zenoh_key(forged), forged.payload, attachment=attachment_of(forged))
        await crosses(place, vehicle, backend)
        assert evil.arrived == []
    assert place.streamer.total("ustreamer_accepted_messages_total", ingress="vehicle", egress="cloud") == 2


async def test_a_vehicle_does_not_speak_for_the_backend(place: Place) -> None:
    """Neither on a key of its own, which Zenoh lets through, nor on another."""
    async with place.vehicle("veh1", FOR_VEH1) as vehicle, place.backend() as backend:
        await place.streamer.until_up()
        forged = Plain(4, (*BACKEND[:3], 0x9000), VEH1, b"forged")
        mine = Plain(4, SPEED, BACKEND, b"")
        vehicle.put_raw(zenoh_key(forged), b"forged", attachment_of(forged))
        vehicle.put_raw(zenoh_key(mine), b"forged", attachment_of(forged))
        await crosses(place, vehicle, backend)
    assert re.search(r'"?malformed_packet"?', place.streamer.log)
    assert json.loads(place.streamer.get("/readyz")[1])["ready"] is True
