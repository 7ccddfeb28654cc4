"""The configuration as it may be shown."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.config.load import load
from streamer.config.secrets import WITHHELD
from streamer.config.shown import DIGITS, cohort, fingerprint, shown
from streamer.features.every import FILE

ROOT = Path(__file__).parents[3]
FILES = [
    ROOT / "config" / "minimal.yaml",
    ROOT / "config" / "streamer.yaml",
    *sorted((ROOT / "config" / "roles").glob("*.yaml")),
]


def written(path: Path, data: Any) -> Path:
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


@pytest.mark.needs("otel", "pair", "traces", "usubscription", "utwin", "multicast")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_shown_is_a_file_that_means_the_same(file: Path, tmp_path: Path) -> None:
    config = load(file, kind=FILE)
    again = load(written(tmp_path / "shown.yaml", shown(config)), kind=FILE)
    assert shown(again) == shown(config)
    assert fingerprint(again) == fingerprint(config)


def configuration(tmp_path: Path, **changes: Any) -> Path:
    options = {"broker": "mqtts://broker:8883", "username": "gateway-veh1", "password_file": "/run/secrets/password"}
    data = {
        "authority": "gw",
        "endpoints": {
            "token": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": options},
        },
        "queue_policy": {"window": 10},
        "routes": [{"from": "token", "to": "cloud", "window": 5, "queue": {"messages": 7}}],
        "control": {"http_token_file": "/run/secrets/token"},
    }
    return written(tmp_path / "streamer.yaml", data | changes)


def test_defaults_are_there_and_routes_have_what_they_change(tmp_path: Path) -> None:
    data = shown(load(configuration(tmp_path)))
    (route,) = data["routes"]
    assert set(route) == {"from", "to", "name", "publish", "publish_to", "window", "queue"}
    assert (route["window"], route["queue"]["messages"]) == (5, 7)
    assert (data["queue_policy"]["window"], data["shutdown"]) == (10, {"drain_s": 20})


def test_users_are_withheld_and_files_with_secrets_are_only_named(tmp_path: Path) -> None:
    data = shown(load(configuration(tmp_path)))
    options = data["endpoints"]["cloud"]["options"]
    assert (options["username"], options["password_file"]) == (WITHHELD, "/run/secrets/password")
    assert data["control"]["http_token_file"] == "/run/secrets/token"
    assert data["endpoints"]["token"]["authorities"] == ["veh1"]


def test_settings_of_an_address_are_withheld(tmp_path: Path) -> None:
    zenoh = {"transport": "zenoh", "authorities": ["veh1"], "options": {"connect": ["tls/gw:7447#marker=SESAME"]}}
    cloud = {"transport": "memory", "authorities": ["*"]}
    data = shown(load(configuration(tmp_path, endpoints={"token": zenoh, "cloud": cloud})))
    assert data["endpoints"]["token"]["options"]["connect"] == [f"tls/gw:7447#{WITHHELD}"]


def test_outside_an_endpoint_s_options_a_text_is_no_address(tmp_path: Path) -> None:
    journal = tmp_path / "100%#1;a=b@home" / "journal.db"
    data = shown(load(configuration(tmp_path, journal={"path": str(journal)})))
    assert data["journal"]["path"] == str(journal)


def test_fingerprint_tells_meanings_apart_and_not_spellings(tmp_path: Path) -> None:
    first = load(configuration(tmp_path))
    spelled = load(configuration(tmp_path, queue_policy={"window": 10, "flow_window": 1000}))
    other = load(configuration(tmp_path, queue_policy={"window": 11}))
    assert fingerprint(first) == fingerprint(spelled) != fingerprint(other)
    assert len(fingerprint(first)) == DIGITS


def vehicle(tmp_path: Path, name: str, folder: str, own: str, **changes: Any) -> str:
    """The cohort of a vehicle's gateway, all of whose own values are made of these names."""
    (tmp_path / folder).mkdir(exist_ok=True)
    tls = {"ca_file": f"{tmp_path}/{folder}/ca.pem", "cert_file": f"/etc/{own}/cert.pem", "key_file": f"/etc/{own}/key.pem"}
    options = {
        "broker": "mqtts://broker:8883",
        "client_id": f"client-{name}",
        "username": f"user-{name}",
        "password_file": f"{tmp_path}/{folder}/password",
        "tls": tls,
    }
    data = {
        "authority": own,
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": [name, f"{name}-phone"]},
            "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": options},
        },
        "routes": [
            {"from": "vehicle", "to": "cloud", "publish": [f"//{name}/FFFFFFFF/FF/FFFF", f"//{own}/4/1/8001"]},
            {"from": "cloud", "to": "vehicle", "publish_to": [name]},
        ],
        "journal": {"path": f"{tmp_path}/{folder}/{own}.db"},
        "log": {"audit": f"{tmp_path}/{folder}/audit-{own}.log"},
        "control": {"http_token_file": f"{tmp_path}/{folder}/token"},
    }
    return cohort(load(written(tmp_path / folder / "streamer.yaml", data | changes)))


def test_a_cohort_has_all_vehicles_that_are_configured_alike(tmp_path: Path) -> None:
    alike = [("veh1", "a", "gateway.veh1"), ("wdb-4711", "b", "gw-of-4711"), ("w~1", "c", "x")]
    (found,) = {vehicle(tmp_path, *names) for names in alike}
    assert len(found) == DIGITS
    (tmp_path / "b" / "password").write_text("geheim")  # nor does what secret files contain
    assert vehicle(tmp_path, *alike[1]) == found
    prints = {fingerprint(load(tmp_path / folder / "streamer.yaml")) for _, folder, _ in alike}
    assert len(prints) == len(alike)  # while their files differ


@pytest.mark.parametrize(
    "change",
    [
        {"queue_policy": {"window": 77}},
        {"shutdown": {"drain_s": 21}},
        {"journal": None},
        {"routes": [{"from": "vehicle", "to": "cloud"}]},
        {"remember": {"ids": 1000}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_configuration_is_another_cohort(tmp_path: Path, change: dict[str, Any]) -> None:
    assert vehicle(tmp_path, "veh1", "a", "gw", **change) != vehicle(tmp_path, "veh1", "a", "gw")


def test_defaults_that_are_written_down_are_no_other_cohort(tmp_path: Path) -> None:
    """Nor are the defaults of keys that only a newer version has."""
    assert vehicle(tmp_path, "veh1", "a", "gw", shutdown={"drain_s": 20}) == vehicle(tmp_path, "veh1", "a", "gw")


def test_names_in_the_place_of_another_are_another_cohort(tmp_path: Path) -> None:
    """A route that is about the phone of a vehicle, not about the vehicle."""
    routes = [{"from": "cloud", "to": "vehicle", "publish_to": [name]} for name in ("veh1", "veh1-phone")]
    one, other = (vehicle(tmp_path, "veh1", "a", "gw", routes=[route]) for route in routes)
    assert one != other


@pytest.mark.needs("otel", "pair", "traces", "usubscription", "utwin", "multicast")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_example_has_a_cohort(file: Path) -> None:
    assert len(cohort(load(file, kind=FILE))) == DIGITS
