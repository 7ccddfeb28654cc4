"""The section `pair` of the configuration, and what follows from it for the rest of the program."""

from pathlib import Path
from typing import Any

import pytest

from streamer.config.load import ConfigError, load, warnings
from streamer.config.models import Config
from streamer.config.reload import beyond_reload
from streamer.config.shown import shown
from streamer.features.every import FILE
from streamer.features.pair import mirror, shadows
from streamer.features.pair.config import PairConfig, pair_fingerprint
from streamer.features.pair.link import MOST_WAITING_BYTES
from streamer.transports.certificates import CertificateFile, CertificateRole
from tests.configurations import config_of

PATTERNS = {"publish": ["//*/FFFFFFFF/FF/FFFF"]}


def config(pair: dict[str, Any] | None, **sections: Any) -> Config:
    endpoints = {
        "vehicle": {"transport": "zenoh", "authorities": ["veh1"]},
        "cloud": {"transport": "memory", "authorities": ["cloud"]},
    }
    file: dict[str, Any] = config_of(endpoints, [], journal={"path": "/j.db"}, metrics=None)
    return FILE.model_validate({**file, "pair": pair, **sections})


def paired(**changes: Any) -> dict[str, Any]:
    return {"listen": "127.0.0.1:2", "key_file": "/k", **changes}


TLS = {"ca_file": "/a", "cert_file": "/c", "key_file": "/t"}


def test_a_section_that_cannot_be_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(ConfigError) as caught:
        load(Path("wrong.yaml"), {}, kind=FILE)
    assert f"{caught.value}\n" == Path("wrong.expected").read_text()


def test_a_pair_needs_a_journal() -> None:
    with pytest.raises(ValueError, match="expected a section `journal` as well: it is what the other"):
        config(paired(), journal=None)


@pytest.mark.parametrize(
    ("before", "after", "keys"),
    [
        (paired(), None, ["pair"]),
        (paired(), paired(listen="127.0.0.1:3"), ["pair.listen"]),
        (paired(), paired(listen=None, connect="gw2:2"), ["pair.listen", "pair.connect"]),
        (paired(), paired(key_file="/l"), ["pair.key_file"]),
        (paired(), paired(tls=TLS), ["pair.tls"]),
        (paired(), paired(safe="either", wait_s=9, prefer_s=None), ["pair.safe", "pair.wait_s", "pair.prefer_s"]),
        (paired(), paired(safe="both"), []),
    ],
)
def test_each_change_needs_a_restart(before: dict[str, Any], after: dict[str, Any] | None, keys: list[str]) -> None:
    expected = [f"{key}: changed; restart to use it" for key in keys]
    assert beyond_reload(config(before), config(after)) == expected
    assert beyond_reload(config(after), config(before)) == expected


def said(tmp_path: Path, **options: Any) -> list[str]:
    key = tmp_path / "key"
    key.write_text("hunter2-Zq9")
    key.chmod(options.pop("mode", 0o600))
    return warnings(config({"key_file": str(key), **options}))


@pytest.mark.parametrize(
    ("key", "address"),
    [("listen", "0.0.0.0:7448"), ("listen", "[::]:7448"), ("connect", "192.0.2.1:7448"), ("connect", "other.example:7448")],
)
def test_a_link_that_can_be_read_is_told(tmp_path: Path, key: str, address: str) -> None:
    expected = f"pair.{key}: {address}: messages, with the tokens in them, can be read on the way"
    assert any(each.startswith(expected) for each in said(tmp_path, **{key: address}))
    assert "can be read on the way" not in str(said(tmp_path, **{key: address}, tls=TLS))


@pytest.mark.parametrize("address", ["127.0.0.1:7448", "[::1]:7448", "localhost:7448"])
def test_a_link_on_this_machine_is_fine_but_its_key_is_for_no_others(tmp_path: Path, address: str) -> None:
    assert "pair" not in str(said(tmp_path, connect=address))
    (told,) = (each for each in said(tmp_path, connect=address, mode=0o644) if "pair" in each)
    assert told.startswith("pair.key_file: ")
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("pair", "vehicle", "route", "is_told"),
    [
        (paired(), "*", PATTERNS, True),
        (paired(), "*", {}, False),
        (paired(), "veh1", PATTERNS, False),
        (None, "*", PATTERNS, False),
    ],
)
def test_where_the_standby_cannot_listen_the_endpoint_is_named(
    pair: dict[str, Any] | None, vehicle: str, route: dict[str, Any], is_told: bool
) -> None:
    endpoints = {
        "vehicle": {"transport": "zenoh", "authorities": [vehicle]},
        "cloud": {"transport": "memory", "authorities": ["cloud"]},
    }
    hints = warnings(config(pair, endpoints=endpoints, routes=[{"from": "vehicle", "to": "cloud", **route}]))
    expected = 'endpoints.vehicle.authorities: with "*" the standby of the pair would be taken for the receiver'
    assert [each.startswith(expected) for each in hints].count(True) == is_told


def test_the_certificates_of_the_link_are_in_use() -> None:
    for where, role in (("listen", CertificateRole.SERVER), ("connect", CertificateRole.CLIENT)):
        assert dict(config({where: "gw2:7448", "key_file": "/key", "tls": TLS}).certificates()) == {
            "pair.tls.ca_file": CertificateFile(CertificateRole.AUTHORITIES, Path("/a")),
            "pair.tls.cert_file": CertificateFile(role, Path("/c")),
        }


def test_the_files_with_secrets_are_only_named() -> None:
    pair = {"connect": "gw2:7448", "key_file": "/run/secrets/pair.key", "tls": TLS}
    assert shown(config(pair))["pair"] == {**pair, "listen": None, "safe": "both", "wait_s": 10, "prefer_s": 30}


def test_the_bound_on_memory_is_that_of_link_replica_and_shadows() -> None:
    needed = MOST_WAITING_BYTES + mirror._MOST_UNSENT_BYTES + shadows._MAX_BYTES + 100 * shadows._MAX_SETTLED
    assert PairConfig(**paired()).memory_bytes == needed


def test_two_that_do_the_same_have_one_fingerprint() -> None:
    """Whatever they say of defaults, of their files and of how they reach their networks."""
    second = {"remember": {"seconds": config(None).remember.seconds}, "journal": {"path": "/elsewhere/journal.db"}}
    other = {"endpoints": {"vehicle": {"transport": "zenoh", "authorities": ["another"]}}}
    one, two, three = (pair_fingerprint(config(None, **changes)) for changes in ({}, second, other))
    assert one == two != three
