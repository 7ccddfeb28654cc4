"""Options of an mqtt5 endpoint: defaults, bounds, and secrets that stay secret."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamer.backoff import RECONNECT_STEPS, wait_s
from streamer.transports.base import TransportContext
from streamer.transports.errors import ConfigurationError
from streamer.transports.mqtt5.options import Mqtt5Options, ReconnectOptions
from streamer.transports.mqtt5.transport import Mqtt5Transport
from tests.certificates import write_certificates


def options(**given: Any) -> Mqtt5Options:
    return Mqtt5Options.model_validate({"broker": "mqtt://127.0.0.1", **given})


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        ("mqtt://h", ("h", 1883, False)),
        ("mqtts://h", ("h", 8883, True)),
        ("mqtt://h:77/", ("h", 77, False)),
        ("mqtts://[::1]:99", ("::1", 99, True)),
    ],
)
def test_broker_url(broker: str, expected: tuple[str, int, bool]) -> None:
    read = options(broker=broker)
    (found,) = read.brokers
    assert (found.host, found.port, found.uses_tls) == expected


def test_a_list_of_brokers_and_a_list_of_one() -> None:
    several = options(broker=["mqtt://a", "mqtts://b:99"])
    assert [broker.where for broker in several.brokers] == ["a:1883", "b:99"]
    assert several.uses_tls
    assert several.model_dump(mode="json")["broker"] == ["mqtt://a", "mqtts://b:99"]
    assert options(broker=["mqtt://a"]) == options(broker="mqtt://a")
    assert options(broker=["mqtt://a"]).model_dump()["broker"] == "mqtt://a"  # as before there were lists


@pytest.mark.parametrize(
    "broker",
    [[], ["mqtt://a", "http://b"], ["mqtt://a", "mqtts://a:1883"], [f"mqtt://h{number}" for number in range(9)], [7], 7],
)
def test_other_lists_of_brokers_are_refused(broker: object) -> None:
    with pytest.raises(ValidationError) as caught:
        options(broker=broker)
    assert {error["loc"][0] for error in caught.value.errors()} == {"broker"}


def test_what_two_brokers_mean_for_order_and_duplicates_is_told() -> None:
    assert not options().hints()
    told = " ".join(options(broker=["mqtt://a", "mqtt://b"]).hints())
    assert "order" in told
    assert "duplicates" in told
    assert "wait there" in told


def test_a_client_id_is_claimed_and_an_unencrypted_broker_told_for_each_of_the_list() -> None:
    several = options(broker=["mqtt://a", "mqtts://b", "mqtt://c", "mqtt://localhost"])
    assert [claim.thing for claim in several.claims("gw")] == [
        "the client id 'gw' at a:1883",
        "the client id 'gw' at b:8883",
        "the client id 'gw' at c:1883",
        "the client id 'gw' at localhost:1883",
    ]
    assert [text.split(" go to ")[1].split()[0] for text in several.exposures()] == ["a", "c"]


@pytest.mark.parametrize(
    "proxy",
    ["10.0.0.1:3128", "https://p:3128", "socks5://p:1080", "http://p", "http://p:0", "http://p:99999", "http://p:1/x", ""],
)
def test_other_proxies_are_refused(proxy: str) -> None:
    reason = "expected http://host:port" + ": no TLS with the proxy itself" * proxy.startswith("https")
    with pytest.raises(ValidationError, match=reason):
        options(proxy=proxy)


def test_user_info_in_the_url_of_a_proxy_is_refused_without_repeating_it() -> None:
    with pytest.raises(ValidationError, match="proxy_credentials_file") as caught:
        options(proxy="http://me:hush@p:3128")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "content", ["", "me", ":hush", "me:hush\nus:word", "me:" + 5000 * "x"], ids=["", "one word", "no user", "two", "long"]
)
def test_other_credentials_of_a_proxy_are_refused_without_repeating_them(content: str, tmp_path: Path) -> None:
    path = tmp_path / "proxy"
    path.write_text(content)
    given = options(proxy="http://p:3128", proxy_credentials_file=path)
    with pytest.raises(ConfigurationError, match="expected USER:PASSWORD") as caught:
        given.proxy_credentials()
    assert caught.value.key == "proxy_credentials_file"
    assert "hush" not in str(caught.value)
    with pytest.raises(ConfigurationError):
        Mqtt5Transport(TransportContext("cloud", "gateway"), given).prepare()


def test_credentials_of_a_proxy_are_read_without_their_last_newline_and_their_way_is_told(tmp_path: Path) -> None:
    path = tmp_path / "proxy"
    path.write_text("me:hush:with:colons\n")
    given = options(proxy="http://p:3128", proxy_credentials_file=path)
    assert given.proxy_credentials() == b"me:hush:with:colons"
    assert given.exposures() == ["proxy: the password for the proxy goes to p unencrypted"]
    assert not options(proxy="http://127.0.0.1:3128", proxy_credentials_file=path).exposures()
    assert not options(proxy="http://p:3128").exposures()


@pytest.mark.parametrize("name", ["ca.pem", "client.pem", "client.key", "password", "user"])
def test_options_differ_once_the_content_of_one_of_their_files_does(tmp_path: Path, name: str) -> None:
    write_certificates(tmp_path)
    (tmp_path / "password").write_text("one")
    (tmp_path / "user").write_text("somebody")
    files = {"ca_file": tmp_path / "ca.pem", "cert_file": tmp_path / "client.pem", "key_file": tmp_path / "client.key"}
    given = {"username_file": tmp_path / "user", "password_file": tmp_path / "password", "tls": files}
    before = options(broker="mqtts://127.0.0.1", **given)
    (tmp_path / name).touch()
    assert options(broker="mqtts://127.0.0.1", **given) == before
    (tmp_path / name).write_text("another")
    assert options(broker="mqtts://127.0.0.1", **given) != before


@pytest.mark.parametrize(("topics", "expected"), [("off-vehicle", True), ("in-vehicle", False)])
def test_only_off_vehicle_topics_need_an_address_for_a_publish(topics: str, expected: bool) -> None:
    assert options(topics=topics).addresses_publishes is expected


def test_an_identity_is_proven_if_the_broker_passes_it_on() -> None:
    assert not options().proves_identity
    assert options(identity_property="client").proves_identity


@pytest.mark.parametrize("broker", ["h:1883", "tcp://h", "mqtt://", "mqtt://h:99999", "mqtt://h:0", "mqtt://h/path", ""])
def test_other_urls_are_refused(broker: str) -> None:
    with pytest.raises(ValidationError, match="expected"):
        options(broker=broker)


def test_user_info_in_the_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(ValidationError) as caught:
        options(broker="mqtt://me:hush@h")
    assert "password_file" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"keep_alive_s": 0},
        {"receive_maximum": 0},
        {"colour": "red"},
        {"username": "a", "username_file": "b"},
        {"tls": {"ca_file": "ca.pem"}},
        {"broker": "mqtts://h", "tls": {"key_file": "key.pem"}},
        {"alpn": "mqtt"},
        {"broker": "mqtts://h", "alpn": ""},
        {"broker": "mqtts://h", "alpn": "m\u00fcll"},
        {"proxy_credentials_file": "proxy"},
    ],
)
def test_options_that_cannot_work_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        options(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"session_expiry_s": False},
        {"keep_alive_s": True},
        {"receive_maximum": "500"},
        {"clean_start": "off"},
        {"ack_timeout_s": True},
        {"reconnect": {"initial_ms": True}},
    ],
)
def test_nothing_is_guessed(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        options(**given)


def test_a_whole_number_of_seconds_and_a_path_as_text_are_what_they_say() -> None:
    given = options(ack_timeout_s=5, password_file="/run/password")
    assert (given.ack_timeout_s, given.password_file) == (5.0, Path("/run/password"))


@pytest.mark.parametrize(
    ("key", "most"), [("receive_maximum", 65_535), ("keep_alive_s", 65_535), ("session_expiry_s", 2**32 - 1)]
)
def test_the_largest_value_is_used_as_it_is(key: str, most: int) -> None:
    context = TransportContext("cloud", "gateway")
    transport = Mqtt5Transport(context, options(**{key: most}))
    assert getattr(transport.options, key) == most
    with pytest.raises(ValidationError, match=f"less than or equal to {most}"):
        options(**{key: most + 1})


def test_reconnect_ladder_is_that_of_the_specification() -> None:
    ladder = ReconnectOptions()
    assert [wait_s(ladder, failures, 0.5, RECONNECT_STEPS) for failures in range(1, 8)] == [0.5, 1, 2, 4, 10, 10, 10]
    assert wait_s(ladder, 1, 0.0, RECONNECT_STEPS) == pytest.approx(0.4)
    assert wait_s(ladder, 1, 1.0, RECONNECT_STEPS) == pytest.approx(0.6)


def test_credentials_come_from_files_without_their_last_newline(tmp_path: Path) -> None:
    (tmp_path / "user").write_text("me\n")
    (tmp_path / "word").write_bytes(b" hush \r\n")
    read = options(username_file=tmp_path / "user", password_file=tmp_path / "word")
    assert read.credentials() == ("me", b" hush ")
    (tmp_path / "word").write_bytes(b"rotated")
    assert read.credentials() == ("me", b"rotated")
    assert "hush" not in repr(read)


def test_missing_file_names_its_option(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ConfigurationError) as caught:
        options(password_file=missing).credentials()
    assert caught.value.key == "password_file"
    with pytest.raises(ConfigurationError) as caught:
        options(broker="mqtts://h", tls={"ca_file": missing}).tls_context()
    assert caught.value.key == "tls.ca_file"


@pytest.mark.parametrize("key", ["username", "username_file", "password_file"])
def test_credential_that_mqtt_cannot_carry_names_its_option_and_not_its_content(tmp_path: Path, key: str) -> None:
    def credentials(text: str) -> tuple[str | None, bytes | None]:
        (tmp_path / "file").write_text(text)
        return options(**{key: text if key == "username" else tmp_path / "file"}).credentials()

    longest = "é" * 32_767 + "h"
    assert credentials(longest) == ((None, longest.encode()) if key == "password_file" else (longest, None))
    with pytest.raises(ConfigurationError, match="65536 bytes") as caught:
        credentials(longest + "h")
    assert caught.value.key == key
    assert "é" not in str(caught.value)


def test_broken_certificate_names_its_option_and_not_its_content(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("hush")
    with pytest.raises(ConfigurationError) as caught:
        options(broker="mqtts://h", tls={"ca_file": broken}).tls_context()
    assert caught.value.key == "tls.ca_file"
    with pytest.raises(ConfigurationError) as caught:
        options(broker="mqtts://h", tls={"cert_file": broken, "key_file": broken}).tls_context()
    assert caught.value.key == "tls.key_file"
    assert "hush" not in str(caught.value)


def test_a_certificate_without_its_key_is_told_what_is_missing(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        options(broker="mqtts://h", tls={"cert_file": tmp_path / "client.pem"}).tls_context()
    assert caught.value.key == "tls.cert_file"
    assert "without tls.key_file has to hold its key, too" in str(caught.value)


@pytest.mark.parametrize("name", ["fleet", "a b", "über", "$queue", "x" * 128])
def test_a_share_has_a_name(name: str) -> None:
    read = options(share=name)
    assert (read.share, read.is_divided) == (name, True)
    assert not options().is_divided


@pytest.mark.parametrize("name", ["", "a/b", "+", "a#", "a\nb", "a\0b", "\ud800", "\u00a0", "x" * 129, 7])
def test_no_name_for_a_share(name: object) -> None:
    with pytest.raises(ValidationError):
        options(share=name)


@pytest.mark.parametrize("key", ["client_id", "username", "identity_property", "broker", "proxy"])
@pytest.mark.parametrize("text", ["\0", "\n", "\x1b[2J", "\x85", "\u202e"], ids=ascii)
def test_a_text_of_the_protocol_has_no_control_characters(key: str, text: str) -> None:
    good = {"broker": "mqtt://h", "proxy": "http://h:1"}.get(key, "gateway")
    assert options(**{key: good})
    with pytest.raises(ValidationError) as caught:
        options(**{key: good + text})
    (error,) = caught.value.errors()
    assert error["loc"] == (key,)
    assert "expected printable characters" in error["msg"]


def test_a_user_name_from_a_file_has_no_control_characters_either(tmp_path: Path) -> None:
    file = tmp_path / "user"
    file.write_text("gateway\0\n")
    with pytest.raises(ConfigurationError, match="expected printable characters") as caught:
        options(username_file=file).credentials()
    assert caught.value.key == "username_file"


def test_a_share_is_told_what_becomes_of_the_order_and_what_has_to_differ() -> None:
    order, client_id = options(share="fleet").hints()
    assert order.startswith("share: ")
    assert "hash_topic" in order
    assert client_id.startswith("client_id: each of these streamers needs one of its own, and an authority of its own")
    assert not options().hints()


@pytest.mark.parametrize(("key", "value"), [("clean_start", True), ("session_expiry_s", 0)])
def test_a_session_that_ends_with_the_link_is_told_only_with_a_share(key: str, value: object) -> None:
    (*_, told) = options(share="fleet", **{key: value}).hints()
    assert told.startswith(f"{key}: ")
    assert options(**{key: value}).hints() == []


def test_a_program_beside_the_streamer_has_a_session_of_its_own() -> None:
    ours = options(client_id="gw", share="all", username="joe", password_file=Path("/p"), topics="in-vehicle")
    theirs = ours.beside("client7")
    assert (theirs.client_id, theirs.share, theirs.is_session_persistent) == ("client7", None, False)
    own = {"client_id": "client7", "share": None, "clean_start": True, "session_expiry_s": 0, "will": None}
    assert theirs.model_dump() == ours.model_dump() | own
    assert theirs.claims("gw")[0] != ours.claims("gw")[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, False), ({"username": "joe"}, True), ({"password_file": Path("/p")}, True)],
    ids=["anonymous", "user", "password"],
)
def test_only_a_program_with_credentials_may_be_given_the_streamers_session(given: dict[str, Any], expected: bool) -> None:
    assert options(**given).of_streamer is None
    found = options(**given).beside("client7").of_streamer
    assert (found is not None) is expected
    assert found is None or (found.session_expiry_s, found.clean_start) == (30 * 86_400, False)
