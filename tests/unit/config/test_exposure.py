"""What a configuration leaves open is said, and what it does not is not."""

from pathlib import Path
from typing import Any

import pytest

from streamer.config.exposure import exposures
from streamer.config.load import warnings
from streamer.config.models import Config


def config(options: dict[str, Any] | None = None, transport: str = "memory", **sections: Any) -> Config:
    endpoint = {"transport": transport, "authorities": ["veh1"], "options": options or {}}
    return Config.model_validate({"authority": "gw", "endpoints": {"e": endpoint}, "routes": [], **sections})


def mqtt(**options: Any) -> list[str]:
    return list(exposures(config({"broker": "mqtt://127.0.0.1"} | options, "mqtt5")))


def zenoh(**options: Any) -> list[str]:
    return list(exposures(config(options, "zenoh")))


def secret(tmp_path: Path, mode: int) -> str:
    file = tmp_path / "secret"
    file.write_text("hunter2-Zq9")
    file.chmod(mode)
    return str(file)


@pytest.mark.parametrize(
    "broker", ["mqtt://broker", "mqtt://192.0.2.1:1884", "mqtt://[2001:db8::1]", "mqtt://localhost.evil"]
)
def test_a_password_that_goes_unencrypted_is_told(tmp_path: Path, broker: str) -> None:
    (told,) = mqtt(broker=broker, username="me", password_file=secret(tmp_path, 0o600))
    assert told.startswith("endpoints.e.options.broker: the user name and the password go to ")
    (told,) = mqtt(broker=broker)
    assert told.startswith("endpoints.e.options.broker: messages, with the tokens in them, go to ")


@pytest.mark.parametrize(
    "broker", ["mqtt://127.0.0.1", "mqtt://127.9.9.9:1884", "mqtt://[::1]", "mqtt://LOCALHOST:7", "mqtts://broker.example"]
)
def test_a_broker_on_this_machine_or_behind_tls_is_fine(tmp_path: Path, broker: str) -> None:
    assert mqtt(broker=broker, username="me", password_file=secret(tmp_path, 0o600)) == []


@pytest.mark.parametrize(
    "listen", ["tcp/0.0.0.0:7447", "tcp/[::]:7447", "tcp/192.0.2.1:7447", "ws/gw:80", "tcp/eth0:7447?prio=1#iface=eth0"]
)
def test_zenoh_open_to_the_network_is_told(listen: str) -> None:
    (told,) = zenoh(listen=["tcp/127.0.0.1:7", listen])
    assert told.startswith(f"endpoints.e.options.listen: {listen.partition('?')[0]} is open to everybody who reaches it")


def test_zenoh_on_this_machine_or_behind_tls_is_fine_and_scouting_is_told() -> None:
    listen = ["tcp/127.0.0.1:7447", "tcp/[::1]:7447", "tcp/localhost:7448", "tls/0.0.0.0:7449", "unixsock-stream//tmp/s"]
    assert zenoh(listen=listen, connect=["tcp/192.0.2.1:7447"]) == []
    (told,) = zenoh(scouting=True)
    assert told.startswith("endpoints.e.options.scouting: true: everybody on the local network")
    (told,) = zenoh(gossip=True)
    assert told.startswith("endpoints.e.options.gossip: true: every node that is connected")


@pytest.mark.parametrize(
    ("mode", "who"),
    [
        (0o666, "others on this machine can change it"),
        (0o602, "others on this machine can change it"),
        (0o644, "others on this machine can read it"),
        (0o604, "others on this machine can read it"),
        (0o444, "others on this machine can read it"),
        (0o601, "others on this machine can read it"),
        (0o660, "its group can change it"),
    ],
)
def test_a_secret_that_others_can_get_at_is_told_without_being_read(tmp_path: Path, mode: int, who: str) -> None:
    file = secret(tmp_path, mode)
    (told,) = mqtt(password_file=file)
    assert told.startswith(f"endpoints.e.options.password_file: {file} has mode {mode:04o}, so {who}; ")
    assert "hunter2" not in told


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_secret_for_its_owner_and_group_is_fine(tmp_path: Path, mode: int) -> None:
    assert mqtt(password_file=secret(tmp_path, mode)) == []


def test_every_file_with_a_secret_is_looked_at_wherever_it_stands(tmp_path: Path) -> None:
    file = secret(tmp_path, 0o644)
    tls = {"cert_file": file, "key_file": file, "ca_file": file}
    (told,) = mqtt(broker="mqtts://broker", tls=tls)
    assert told.startswith("endpoints.e.options.tls.key_file: ")
    (told,) = exposures(config(control={"http_token_file": file}))
    assert told.startswith("control.http_token_file: ")


def test_a_file_that_is_not_there_yet_is_not_told(tmp_path: Path) -> None:
    assert mqtt(password_file=str(tmp_path / "nothing")) == []


@pytest.mark.parametrize(
    ("listen", "control", "expected"),
    [
        ("0.0.0.0:9464", {"http": "any"}, "the token goes there unencrypted"),
        ("gateway:9464", {"http": "any"}, "the token goes there unencrypted"),
        ("0.0.0.0:9464", {"http": "any", "http_token_file": "/nothing"}, "the token goes there unencrypted"),
        ("127.0.0.1:9464", {"http": "any"}, None),
        ("[::1]:9464", {"http": "any"}, None),
        ("0.0.0.0:9464", {"http": "loopback"}, None),
    ],
)
def test_control_from_anywhere_is_told(listen: str, control: dict[str, str], expected: str | None) -> None:
    told = list(exposures(config(metrics={"listen": listen}, control=control)))
    assert len(told) == (expected is not None)
    assert expected is None or expected in told[0]


def test_control_from_anywhere_over_tls_is_fine() -> None:
    metrics = {"listen": "0.0.0.0:9464", "tls": {"cert_file": "/nothing", "key_file": "/nothing"}}
    assert list(exposures(config(metrics=metrics, control={"http": "any"}))) == []


def test_what_is_open_is_among_the_hints_of_check() -> None:
    found = config({"scouting": True}, "zenoh")
    assert set(exposures(found)) < set(warnings(found))


def test_a_permission_for_authorities_that_somebody_invents_is_told() -> None:
    (told,) = exposures(config(control={"allow": ["//*/A/1/0"]}))
    assert told.startswith("control.allow: //*/A/1/0: open to every authority")
