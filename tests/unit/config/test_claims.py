"""What a configuration gives to two: ports, paths, sessions at a broker; and hints of the same kind."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamer.config.claims import conflicts, written
from streamer.config.load import ConfigError, load, warnings
from streamer.config.models import Config
from streamer.transports.claims import Claim, tcp
from streamer.transports.mqtt5.options import Mqtt5Options


def zenoh(*listen: str, **options: Any) -> dict[str, Any]:
    return {"transport": "zenoh", "authorities": ["veh1"], "options": {"listen": list(listen), **options}}


def mqtt(broker: str = "mqtt://broker", **options: Any) -> dict[str, Any]:
    return {"transport": "mqtt5", "authorities": ["backend"], "options": {"broker": broker, **options}}


def mistakes(endpoints: dict[str, Any], **sections: Any) -> list[tuple[tuple[int | str, ...], str]]:
    raw = {"authority": "gw", "endpoints": endpoints, "routes": [], **sections}
    try:
        Config.model_validate(raw)
    except ValidationError as exc:
        return [(error["loc"], error["msg"]) for error in exc.errors()]
    return []


def listening(metrics: str | None, *zenohs: list[str]) -> list[tuple[tuple[int | str, ...], str]]:
    endpoints = {f"e{number}": zenoh(*listen) for number, listen in enumerate(zenohs)}
    return mistakes(endpoints, metrics=None if metrics is None else {"listen": metrics})


@pytest.mark.parametrize(
    ("metrics", "listen"),
    [
        ("127.0.0.1:7447", "tcp/127.0.0.1:7447"),
        ("0.0.0.0:7447", "tcp/127.0.0.1:7447"),
        ("127.0.0.1:7447", "tls/0.0.0.0:7447"),
        ("[::]:7447", "tcp/[::1]:7447"),
        ("localhost:7447", "tcp/127.0.0.1:7447"),
        ("[::1]:7447", "ws/LOCALHOST:7447"),
        ("gateway:7447", "ws/gateway:7447#so_rcvbuf=1"),
    ],
)
def test_a_port_for_two_is_a_mistake(metrics: str, listen: str) -> None:
    ((location, text),) = listening(metrics, [listen])
    assert location == ("endpoints", "e0", "options", "listen", 0)
    assert text.startswith("TCP port 7447 at ")
    assert "is taken by metrics.listen" in text


@pytest.mark.parametrize(
    ("metrics", "listen"),
    [
        ("127.0.0.1:7446", "tcp/127.0.0.1:7447"),
        ("127.0.0.1:7447", "tcp/127.0.0.2:7447"),
        ("127.0.0.1:7447", "tcp/[::1]:7447"),
        ("0.0.0.0:7447", "tcp/[::]:7447"),  # each on its own family, if the system is set so
        ("127.0.0.1:0", "tcp/127.0.0.1:0"),
        ("127.0.0.1:7447", "unixsock-stream//tmp/127.0.0.1:7447"),
        ("127.0.0.1:7447", "tcp/0.0.0.0:7447#iface=eth0"),
        ("gateway:7447", "tcp/other:7447"),
        (None, "tcp/127.0.0.1:9464"),
    ],
)
def test_a_port_for_each_is_none(metrics: str | None, listen: str) -> None:
    assert listening(metrics, [listen]) == []


def test_two_endpoints_and_one_endpoint_twice_are_found() -> None:
    ((location, text),) = listening(None, ["tcp/127.0.0.1:7447"], ["tcp/127.0.0.1:7448", "tls/0.0.0.0:7447"])
    assert location == ("endpoints", "e1", "options", "listen", 1)
    assert text == (
        "TCP port 7447 at 0.0.0.0 is taken by endpoints.e0.options.listen[0] (127.0.0.1) already; expected another"
    )
    ((location, text),) = listening(None, ["tcp/127.0.0.1:7447", "tcp/127.0.0.1:7447"])
    assert location == ("endpoints", "e0", "options", "listen", 1)


def test_a_client_does_not_listen() -> None:
    endpoints = {"e": zenoh("tcp/127.0.0.1:7447", mode="client", connect=["tcp/10.0.0.1:7447"])}
    assert mistakes(endpoints, metrics={"listen": "127.0.0.1:7447"}) == []


def test_settings_of_an_address_are_not_repeated() -> None:
    assert "word" not in str(listening(None, ["tls/[::1]:7447#x=word"], ["tls/[::1]:7447#x=word"]))


def test_a_file_for_two_is_a_mistake(tmp_path: Path) -> None:
    file = str(tmp_path / "a.db")
    found = mistakes({"e": zenoh()}, journal={"path": file}, log={"audit": str(tmp_path / "x" / ".." / "a.db")})
    assert [location for location, _ in found] == [("log", "audit")]
    assert all(text == f"the path {file} is taken by journal.path already; expected another" for _, text in found)


@pytest.mark.parametrize(
    ("name", "taken_by"),
    [("j-token", "control.http_token_file"), ("j.db-wal", "journal.path"), ("j.db.lock", "journal.path")],
)
def test_a_file_that_the_streamer_names_itself_is_taken_too(tmp_path: Path, name: str, taken_by: str) -> None:
    journal, file = {"path": str(tmp_path / "j.db")}, str(tmp_path / name)
    said = f"the path {file} is taken by {taken_by} already; expected another"
    assert mistakes({"e": zenoh()}, journal=journal, log={"audit": file}) == [(("log", "audit"), said)]
    if name == "j-token":
        others = {"control": {"http_token_file": file}}
        assert mistakes({"e": zenoh()}, journal=journal, log={"audit": file}, **others) != []
        assert mistakes({"e": zenoh()}, journal=journal, log={"audit": file}, metrics=None) == []


@pytest.mark.parametrize(("section", "key"), [("journal", "path"), ("log", "audit")])
def test_a_file_that_is_read_is_not_written(tmp_path: Path, section: str, key: str) -> None:
    file = str(tmp_path / "password")
    written = {section: {key: file}}
    endpoints = {name: mqtt(client_id=name, username="u", password_file=file) for name in "ab"}
    assert mistakes(endpoints) == []
    said = f"the path {file} is taken by {section}.{key} already; expected another"
    assert mistakes(endpoints, **written) == [(("endpoints", name, "options", "password_file"), said) for name in "ab"]


def test_the_token_file_is_not_written_by_another_part(tmp_path: Path) -> None:
    file = str(tmp_path / "journal.db")
    ((location, text),) = mistakes({"e": zenoh()}, journal={"path": file}, control={"http_token_file": file})
    assert location == ("control", "http_token_file")
    assert text == f"the path {file} is taken by journal.path already; expected another"


def test_a_transport_may_claim_a_file_that_an_option_names() -> None:
    key = ("endpoints", "a", "options", "state_file")
    claims = [written(key, Path("/x")), written(key, Path("/x"))._replace(is_shared=True)]
    assert list(conflicts(claims)) == []
    other = written(("endpoints", "b", "options", "state_file"), Path("/x"))
    assert [finding.location for finding in conflicts([*claims, other])] == [other.key]


def test_a_session_for_two_is_a_mistake() -> None:
    """Without an id of its own each has that of the authority: they would end each other's connection for ever."""
    ((location, text),) = mistakes({"a": mqtt(), "b": mqtt("mqtt://BROKER:1883/", topics="in-vehicle")})
    assert location == ("endpoints", "b", "options", "client_id")
    assert text.startswith("the client id 'gw' at broker:1883 is taken by endpoints.a.options.client_id")
    assert mistakes({"a": mqtt(client_id="x"), "b": mqtt(client_id="x")}) != []


@pytest.mark.parametrize("other", [mqtt(client_id="gw-2"), mqtt("mqtt://broker:1884"), mqtt("mqtt://elsewhere")])
def test_sessions_that_differ_are_none(other: dict[str, Any]) -> None:
    assert mistakes({"a": mqtt(), "b": other}) == []


def test_claims_without_hosts_exclude_each_other() -> None:
    assert Claim((), "x").excludes(Claim((), "x"))
    assert not Claim((), "x").excludes(Claim((), "y"))


def test_one_client_id_at_two_addresses_may_be_one_session() -> None:
    """Of a configuration it is no mistake; who can wait does."""
    here, there, other = (
        Mqtt5Options(broker=(broker,), client_id=client_id).claims("gw")[0]
        for broker, client_id in (("mqtt://a", "x"), ("mqtt://b", "x"), ("mqtt://b", "y"))
    )
    assert [here.may_exclude(there), here.excludes(there)] == [True, False]
    assert not here.may_exclude(other)


@pytest.mark.parametrize(("host", "may"), [("127.0.0.1", True), ("127.0.0.2", False)])
def test_a_port_at_another_address_is_another_port(host: str, may: bool) -> None:
    (one,), (another,) = tcp((), "127.0.0.1", 7447), tcp((), host, 7447)
    assert one.may_exclude(another) is may


def test_the_mistake_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "streamer.yaml"
    path.write_text(
        "authority: gw\n"
        "endpoints:\n"
        "  vehicle:\n"
        "    transport: zenoh\n"
        "    authorities: [veh1]\n"
        "    options:\n"
        "      listen:\n"
        "        - tcp/127.0.0.1:7447\n"
        "        - tcp/127.0.0.1:9464\n"
        "routes: []\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (9, "endpoints.vehicle.options.listen[1]")


# hints


def hints(endpoints: dict[str, Any], *routes: dict[str, Any]) -> list[str]:
    config = Config.model_validate({"authority": "gw", "endpoints": endpoints, "routes": list(routes), "metrics": None})
    return [text for text in warnings(config) if not text.startswith(("journal:", "permissions:", "routes:"))]


def memory(*authorities: str) -> dict[str, Any]:
    return {"transport": "memory", "authorities": list(authorities), "options": {"bus": "-".join(authorities)}}


def test_two_endpoints_for_everybody_are_told() -> None:
    (text,) = hints({"a": memory("*"), "b": memory("veh1"), "c": memory("veh2", "*")})
    assert text.startswith('endpoints a, c: each takes "*"')
    assert "a Notification, Request or Response to an authority that no endpoint names only over the first route" in text
    assert hints({"a": memory("*"), "b": memory("veh1")}) == []


def test_an_authority_that_lives_nowhere_is_told_with_the_nearest() -> None:
    endpoints = {"a": memory("veh1"), "b": memory("backend.cloud")}
    texts = hints(endpoints, {"from": "a", "to": "b", "publish_to": ["backend.cluod"]})
    assert "route a-b: publish_to: backend.cluod lives at no endpoint" in texts[-1]
    assert "did you mean 'backend.cloud'?" in texts[-1]
    assert len(hints(endpoints, {"from": "a", "to": "b", "publish_to": ["veh1"]})) == 1  # it lives elsewhere
    assert hints({"a": memory("veh1"), "b": memory("*")}, {"from": "a", "to": "b", "publish_to": ["x"]}) == []


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({}, False),
        ({"lease_ms": 12_000}, False),
        ({"lease_ms": 20_000}, True),
        ({"lease_ms": 20_000, "uncertain_s": 30}, False),
        ({"uncertain_s": 5}, True),
        ({"uncertain_s": 5, "lease_ms": 2000}, False),
        ({"uncertain_s": 0, "lease_ms": 60_000}, False),  # chosen: what Zenoh has taken is delivered
    ],
)
def test_a_lease_beyond_uncertain_s_is_told(options: dict[str, Any], is_told: bool) -> None:
    found = hints({"e": zenoh(**options)})
    assert [text.startswith("endpoints.e.options.uncertain_s: ") for text in found] == [True] * is_told


def test_the_lease_of_zenohs_own_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "zenoh.json5"
    file.write_text("{transport: {link: {tx: {lease: 60000}}}}")
    (text,) = hints({"e": zenoh(config_file=str(file))})
    assert "a lease of 60 s" in text
    assert hints({"e": zenoh(config_file=str(file), lease_ms=2000)}) == []
    file.write_text("{passwor")
    assert hints({"e": zenoh(config_file=str(file))}) == []  # the start says what is wrong with it


# an endpoint that several streamers divide


def shared() -> dict[str, Any]:
    return {"fleet": mqtt(share="fleet") | {"authorities": ["*"]}}


def test_a_name_that_no_share_can_have_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text(
        """\
authority: gw
endpoints:
  fleet:
    transport: mqtt5
    authorities: ["*"]
    options:
      broker: mqtt://broker
      share: fleet/1
routes: []
"""
    )
    with pytest.raises(ConfigError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (8, "endpoints.fleet.options.share")
    assert "without / + #" in problem.message


def test_what_a_share_means_for_the_order_is_told() -> None:
    texts = hints(shared() | {"inside": memory("cloud")})
    order, client_id = (text for text in texts if not text.startswith("endpoints.fleet.options.broker: "))
    assert order.startswith("endpoints.fleet.options.share: ")
    assert client_id.startswith("endpoints.fleet.options.client_id: ")
