"""Options of the Zenoh transport, and the configuration of Zenoh that they result in."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamer.transports.errors import ConfigurationError
from streamer.transports.zenoh.options import (
    ReceiptOptions,
    ZenohOptions,
    endpoints_of,
    session_config,
    wait_before_close_s,
    without_settings,
)
from streamer.transports.zenoh.receipt_proofs import ReceiptKey, Streamer

LEASE = "transport/link/tx/lease"


def lease_of(options: ZenohOptions) -> int:
    lease: int = json.loads(session_config(options).get_json(LEASE))
    return lease


def keep_alive_of(options: ZenohOptions) -> int:
    number: int = json.loads(session_config(options).get_json("transport/link/tx/keep_alive"))
    return number


def test_link_that_is_closed_is_written_to_for_a_quarter_of_a_second_at_most(tmp_path: Path) -> None:
    """Zenoh tries for a lease divided by ``keep_alive``."""
    assert keep_alive_of(ZenohOptions()) == 40  # of 10 s
    assert keep_alive_of(ZenohOptions(lease_ms=2001)) == 9
    assert keep_alive_of(ZenohOptions(lease_ms=500)) == 4
    file = tmp_path / "zenoh.json5"
    file.write_text("{transport: {link: {tx: {lease: 4000}}}}")
    assert keep_alive_of(ZenohOptions(config_file=file)) == 16
    file.write_text("{transport: {link: {tx: {lease: 4000, keep_alive: 8}}}}")
    assert keep_alive_of(ZenohOptions(config_file=file)) == 8


@pytest.mark.parametrize(
    ("options", "seconds"),
    [({}, 1.0), ({"mode": "client", "connect": ["tcp/127.0.0.1:1"]}, 5.0), ({"wait_before_close_ms": 250}, 0.25)],
)
def test_stalled_receiver_blocks_for_a_second_unless_a_router_is_in_between(options: dict[str, Any], seconds: float) -> None:
    assert wait_before_close_s(session_config(ZenohOptions(**options))) == seconds


def test_config_file_has_the_last_word_on_what_is_not_given(tmp_path: Path) -> None:
    file = tmp_path / "zenoh.json5"
    file.write_text("{transport: {link: {tx: {lease: 4000, queue: {congestion_control: {block: {wait_before_close: 7}}}}}}}")
    assert lease_of(ZenohOptions(config_file=file)) == 4000
    assert lease_of(ZenohOptions(config_file=file, lease_ms=3000)) == 3000
    assert wait_before_close_s(session_config(ZenohOptions(config_file=file))) == 7e-6
    given = ZenohOptions(config_file=file, wait_before_close_ms=100)
    assert wait_before_close_s(session_config(given)) == 0.1


def test_lease_is_zenohs_unless_given() -> None:
    assert lease_of(ZenohOptions()) == 10_000
    assert lease_of(ZenohOptions(lease_ms=2000)) == 2000


@pytest.mark.parametrize("wrong", [{"window": "5"}, {"scouting": "yes"}, {"lease_ms": 2000.5}, {"uncertain_s": -1}])
def test_nothing_is_guessed(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ZenohOptions(**wrong)


SEARCHES = {"scouting": "scouting/multicast/enabled", "gossip": "scouting/gossip/enabled"}


@pytest.mark.parametrize(("option", "key"), SEARCHES.items(), ids=SEARCHES)
def test_nobody_is_searched_for_unless_somebody_says_so(tmp_path: Path, option: str, key: str) -> None:
    def is_on(**options: Any) -> bool:
        found = json.loads(session_config(ZenohOptions(**options)).get_json(key))
        assert isinstance(found, bool)  # what is not said would be on
        return found

    assert not is_on()
    assert is_on(**{option: True})
    silent, says = tmp_path / "silent.json5", tmp_path / "says.json5"
    silent.write_text("{}")
    says.write_text("{scouting: {multicast: {enabled: true}, gossip: {enabled: true}}}")
    assert not is_on(config_file=silent)
    assert is_on(config_file=silent, **{option: True})
    assert is_on(config_file=says)
    assert not is_on(config_file=says, **{option: False})


def test_path_may_be_text() -> None:
    assert ZenohOptions.model_validate({"config_file": "/x"}).config_file == Path("/x")


def test_endpoint_that_zenoh_refuses_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        session_config(ZenohOptions(connect=["tcp/a:1#secret?x"]))
    assert "secret" not in str(caught.value)
    assert caught.value.key == "connect"


@pytest.mark.parametrize("option", ["listen", "connect"])
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("tcp/10.0.0.1", "expected tcp/host:port, for instance tcp/192.168.0.2:7447"),
        ("tls/router.local#iface=eth0", "expected tls/host:port"),
        ("tcp/10.0.0.1/7447", "expected tcp/host:port"),
        ("tcp/[::1]", "expected tcp/host:port"),
        ("ws/10.0.0.1:65536", "expected ws/host:port"),
        ("tpc/10.0.0.1:7447", "not a reliable protocol; expected one of tcp, tls, ws,"),
        ("wss/10.0.0.1:7447", "not a reliable protocol"),
        ("tcp://10.0.0.1:7447", "expected protocol/address"),
    ],
)
def test_an_endpoint_that_zenoh_could_never_open_is_refused_at_its_place(option: str, wrong: str, told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ZenohOptions.model_validate({option: ["tcp/127.0.0.1:7447", wrong]})
    (error,) = caught.value.errors()
    assert error["loc"] == (option, 1)
    assert told in error["msg"]
    assert wrong not in error["msg"]


@pytest.mark.parametrize(
    "endpoint",
    ["tcp/127.0.0.1:0", "tcp/[::]:7447#iface=eth0", "tls/router.local:7447?rel=1#so_rcvbuf=1", "unixsock-stream//run/z"],
)
def test_an_endpoint_that_zenoh_opens_is_accepted(endpoint: str) -> None:
    assert ZenohOptions(listen=[endpoint]).listen == [endpoint]


def test_a_streamer_that_is_no_authority_is_refused_at_its_place() -> None:
    with pytest.raises(ValidationError) as caught:
        ReceiptOptions.model_validate({"key_file": "/k", "streamers": ["gw2", "*"]})
    (error,) = caught.value.errors()
    assert error["loc"] == ("streamers", 1)


@pytest.mark.parametrize("content", [None, "{transport: {shared_memory: {enabled: true}}}"])
def test_shared_memory_is_off_whatever_a_file_says(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "zenoh.json5"
    file.write_text(content or "{}")
    config = session_config(ZenohOptions(config_file=file if content else None))
    assert json.loads(config.get_json("transport/shared_memory/enabled")) is False


SECRET = "VE9QU0VDUkVU"


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.json5", f'{{\n connect: {{ endpoints: ["tls/h:7#connect_private_key_base64={SECRET}"]', ", line 2, column 25"),
        ("b.json5", f"{{mode: '{SECRET}'}}", ", line 1, column 8"),
        ("c.json5", f"{{transport: {{link: {{tls: {{'{SECRET}': 5}}}}}}}}", ", line 1, column 27"),
        ("d.yaml", f"{SECRET}\n", ", line 1, column 1"),
        ("e.json", f'{{"transport": {{"auth": {{"usrpwd": {{"password": {SECRET}', ", line 1, column 48"),
        ("f.toml", f"password = '{SECRET}'", ""),
        ("g.json5", f'{{connect: {{endpoints: ["{SECRET}"]}}}}', ", line 1, column 24"),
    ],
)
def test_what_zenoh_cannot_read_is_not_repeated(tmp_path: Path, name: str, content: str, place: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        session_config(ZenohOptions(config_file=file))
    assert SECRET not in str(caught.value)
    assert caught.value.key == "config_file"
    assert str(caught.value) == f"{file}{place}: expected a configuration that Zenoh accepts (the text is withheld)"
    assert caught.value.__cause__ is None  # a traceback would repeat it
    assert caught.value.__suppress_context__


def test_config_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"zenoh\.json5: No such file or directory"):
        session_config(ZenohOptions(config_file=tmp_path / "zenoh.json5"))


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Unable to connect to any of [Single(tls/h:7#connect_private_key_base64=c2Vj)]. Timeout!", "[Single(tls/h:7"),
        ("Can not listen on tcp/h:7?token=a b c: Address already in use", "tcp/h:7"),
        ("Invalid address tcp/me:c2Vj@h:7 here", "Invalid address tcp/"),
    ],
)
def test_what_zenoh_says_about_an_endpoint_ends_before_its_settings(said: str, kept: str) -> None:
    shown = without_settings(Exception(said))
    assert kept in shown
    assert shown.endswith("(the rest is withheld)")
    assert "c2Vj" not in shown
    assert "a b c" not in shown


def test_what_zenoh_says_otherwise_is_kept() -> None:
    text = "Can not create a new TCP listener bound to tcp/127.0.0.1:7447: [127.0.0.1:7447: Address already in use]"
    assert without_settings(Exception(text)) == text


def test_where_in_zenohs_source_it_was_said_is_left_out() -> None:
    said = "No listener: [refused at /a/b/cc83980/io/tcp.rs:61.] at /a/b/cc83980/io/net-tcp/src/unicast.rs:414."
    assert without_settings(Exception(said)) == "No listener: [refused]"


def test_key_for_receipts_is_read_without_the_end_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"k" * 16 + b"\r\n")
    hello = ReceiptOptions(key_file=file, streamers=["gateway"]).key().hello(Streamer("gateway", "1"))
    assert ReceiptKey(b"k" * 16).read_hello(hello) == Streamer("gateway", "1")


@pytest.mark.parametrize("content", [None, b"", b"secret", b"fifteen bytes!!\n"])
def test_key_for_receipts_that_is_missing_or_short_is_refused_and_not_shown(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        ReceiptOptions(key_file=file, streamers=["gateway"]).key()
    assert caught.value.key == "receipts.key_file"
    assert str(file) in str(caught.value)
    assert not content or content.decode().strip() not in str(caught.value)


@pytest.mark.parametrize("streamers", [[], ["*"], ["a/b"], ["Gateway"], None])
def test_streamers_that_are_believed_have_to_be_named(streamers: Any) -> None:
    with pytest.raises(ValidationError):
        ZenohOptions.model_validate({"receipts": {"key_file": "/x", "streamers": streamers}})


@pytest.mark.parametrize("option", ["config_file", "receipts"])
def test_options_are_others_once_a_file_that_they_name_has_another_content(tmp_path: Path, option: str) -> None:
    file = tmp_path / "file"
    given: Any = file if option == "config_file" else {"key_file": file, "streamers": ["gateway"]}
    missing = ZenohOptions.model_validate({option: given})
    file.write_text("{}" + "k" * 20)
    before, same = (ZenohOptions.model_validate({option: given}) for _ in range(2))
    file.write_text("{}" + "o" * 20)
    after = ZenohOptions.model_validate({option: given})
    assert before == same
    assert missing != before != after
    assert "kkk" not in repr(before)


@pytest.mark.parametrize(
    "given",
    [
        {"config_file": "{transport: {link: {tls: {root_ca_certificate: 'PEM'}}}}"},
        {"config_file": "{transport: {link: {tls: {listen_private_key: 'PEM'}}}}"},
        {"config_file": "{transport: {auth: {usrpwd: {dictionary_file: 'PEM'}}}}"},
        {"config_file": "{connect: {endpoints: ['tls/h:7#root_ca_certificate_file=PEM']}}"},
        {"listen": ["tls/127.0.0.1:7447#listen_certificate_file=/nothing;listen_private_key_file=PEM"]},
    ],
    ids=["ca", "key", "passwords", "endpoint in the file", "endpoint"],
)
def test_options_differ_once_a_file_that_zenoh_reads_itself_has_changed(tmp_path: Path, given: dict[str, Any]) -> None:
    pem = tmp_path / "some.pem"
    pem.write_text("before")
    named: dict[str, Any] = {}
    if "config_file" in given:
        (tmp_path / "zenoh.json5").write_text(given["config_file"].replace("PEM", str(pem)))
        named["config_file"] = str(tmp_path / "zenoh.json5")
    else:
        named["listen"] = [each.replace("PEM", str(pem)) for each in given["listen"]]
    before = ZenohOptions.model_validate(named)
    assert ZenohOptions.model_validate(named) == before
    pem.write_text("after")
    assert ZenohOptions.model_validate(named) != before


@pytest.mark.parametrize(
    ("given", "mode", "connect"),
    [
        ({"listen": ["tcp/127.0.0.1:7447"]}, "peer", ["tcp/127.0.0.1:7447"]),
        ({"listen": ["tcp/0.0.0.0:7447", "tls/[::]:8#a=b"]}, "peer", ["tcp/127.0.0.1:7447", "tls/[::1]:8#a=b"]),
        ({"listen": ["tcp/10.0.0.1:7447"], "connect": ["tcp/ecu:1"]}, "peer", ["tcp/10.0.0.1:7447", "tcp/ecu:1"]),
        ({"mode": "router", "listen": ["tcp/[::]:7447"]}, "peer", ["tcp/[::1]:7447"]),
        ({"mode": "client", "connect": ["tcp/router:7447"]}, "client", ["tcp/router:7447"]),
        ({"config_file": "{mode: 'router', listen: {endpoints: ['tcp/0.0.0.0:9']}}"}, "peer", ["tcp/127.0.0.1:9"]),
    ],
    ids=["listens", "on all addresses", "listens and connects", "router", "client", "its own file"],
)
def test_a_program_beside_the_streamer_connects_to_it_and_listens_nowhere(
    tmp_path: Path, given: dict[str, Any], mode: str, connect: list[str]
) -> None:
    if "config_file" in given:
        (tmp_path / "zenoh.json5").write_text(given["config_file"])
        given = {"config_file": str(tmp_path / "zenoh.json5")}
    theirs = ZenohOptions.model_validate(given).beside("client7")
    assert (theirs.mode, theirs.listen, theirs.connect) == (mode, [], connect)
    config = session_config(theirs)
    assert (theirs.effective_mode(config), endpoints_of(config, "listen", mode)) == (mode, [])
    assert endpoints_of(config, "connect", mode) == connect


def test_a_program_beside_the_streamer_writes_no_receipts(tmp_path: Path) -> None:
    receipts = {"key_file": str(tmp_path / "key"), "streamers": ["far"]}
    assert ZenohOptions.model_validate({"connect": ["tcp/h:1"], "receipts": receipts}).beside("client7").receipts is None


def test_a_peer_at_several_nodes_is_told_what_two_linked_routers_do() -> None:
    """It gets everything twice, and nothing said so."""
    both = ["tls/a:7447#root_ca_certificate_file=/secret", "tcp/b:7447"]
    (hint,) = ZenohOptions.model_validate({"mode": "peer", "connect": both}).hints()
    assert hint.startswith("connect: tls/a:7447, tcp/b:7447: if these are Zenoh routers that are linked with each other")
    assert "secret" not in hint
    assert ZenohOptions.model_validate({"mode": "client", "connect": both}).hints() == ()
    assert ZenohOptions.model_validate({"mode": "peer", "connect": both[:1]}).hints() == ()
