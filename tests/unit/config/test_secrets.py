"""Secrets stay out of the configuration file and out of every message."""

from pathlib import Path
from typing import Any

import pytest

from streamer.config.load import ConfigError, load_text
from streamer.config.secrets import (
    WITHHELD,
    dotted,
    is_plain_key,
    is_secret_line,
    is_secret_location,
    is_secret_name,
    redacted,
    without_secrets,
)


@pytest.mark.parametrize(
    "key", ["password", "passwd", "token", "tokens", "api_key", "secret-key", "private_key", "PASSPHRASE"]
)
def test_a_secret_in_the_options_is_removed_and_refused(key: str) -> None:
    data = {"endpoints": {"cloud": {"options": {key: "hunter2", "keep_alive_s": 7}}}}
    cleaned, mistakes, secrets = without_secrets(data)
    assert cleaned == {"endpoints": {"cloud": {"options": {"keep_alive_s": 7}}}}
    assert [finding.location for finding in mistakes] == [("endpoints", "cloud", "options", key)]
    assert f"expected {key}_file" in mistakes[0].message
    assert secrets == ["hunter2"]


def test_a_secret_elsewhere_is_sent_to_the_options() -> None:
    _, (mistake,), _ = without_secrets({"journal": {"password": "hunter2"}})
    assert "in an endpoint's options" in mistake.message


@pytest.mark.parametrize(
    "data", [{"password_file": "/etc/p"}, {"key_file": "k"}, {"password": None}, {"endpoints": {"token": {}}}]
)
def test_files_with_secrets_empty_values_and_names_of_endpoints_are_no_secrets(data: dict[str, Any]) -> None:
    assert without_secrets(data) == (data, [], [])


def test_every_text_inside_a_secret_is_one() -> None:
    _, _, secrets = without_secrets({"credentials": {"user": ["a1", {"deep": 7}]}})
    assert secrets == ["user", "a1", "deep", "7"]


def test_credentials_in_a_url_are_removed_and_refused() -> None:
    cleaned, (mistake,), secrets = without_secrets({"broker": ["mqtt://me:hunter2@host:1883"]})
    assert cleaned == {"broker": ["mqtt://host:1883"]}
    assert mistake.location == ("broker", 0)
    assert secrets == ["me:hunter2", "hunter2"]


def test_every_secret_is_replaced_the_longest_first_and_short_ones_not_at_all() -> None:
    assert redacted("hunter22 hunter2 me", ["me", "hunter2", "hunter22"]) == f"{WITHHELD} {WITHHELD} me"


@pytest.mark.parametrize(
    "options",
    [
        "{broker: mqtt://127.0.0.1:1, password:hunter22}",
        "{broker: mqtt://127.0.0.1:1, passwordhunter22: x}",
        "{broker: mqtt://127.0.0.1:1, tls: {key_password:hunter22}}",
        "{broker:mqtt://me:hunter22@127.0.0.1:1}",
        "{broker: 'mqtt://me:hunter22%40127.0.0.1:1'}",
        "{broker: 'mqtt://me:hunter22'}",
        "{broker: 'mqtt://[::1]:hunter22'}",
        "password=hunter22",
        "{tls: 'key_password hunter22'}",
        "{password hunter22: x}",
        "\n      password:\n        !hunter22!x y",
        "\n      password:\n        &hunter22\n        &hunter22 x",
        "\n      password:\n        *hunter22",
        "\n      password:\n        !hunter22\n",
    ],
)
def test_no_message_repeats_a_secret_that_a_slip_of_the_pen_has_put_elsewhere(options: str) -> None:
    text = f"""
authority: gw
endpoints:
  a:
    transport: mqtt5
    authorities: [a]
    options: {options}
  b: {{transport: memory, authorities: [b]}}
routes: [{{from: a, to: b}}]
"""
    with pytest.raises(ConfigError) as caught:
        load_text(text, Path("streamer.yaml"), {})
    assert "hunter22" not in str(caught.value)
    assert "streamer.yaml:" in str(caught.value)


def test_a_key_without_a_space_behind_its_colon_is_explained() -> None:
    text = "authority: gw\nendpoints: {}\nroutes: []\ncontrol: {http_token:hunter22}\n"
    with pytest.raises(ConfigError) as caught:
        load_text(text, Path("streamer.yaml"), {})
    (problem,) = [each for each in caught.value.problems if each.line == 4]
    assert problem.key == "control.(withheld)"
    assert problem.message.endswith("; is there a space behind the colon?")


@pytest.mark.parametrize("key", ["the cloud", "front/right", "//veh1/A8000/2/8001", "doors.*", "", "api-key", "http_token"])
def test_a_key_that_holds_no_value_is_shown(key: str) -> None:
    assert is_plain_key(key)
    assert dotted(("routes", 0, key)) == f"routes[0].{key}"


def test_what_the_parser_quotes_of_its_own_is_shown() -> None:
    with pytest.raises(ConfigError, match=r"expected the node content, but found ','"):
        load_text("authority: ,\n", Path("streamer.yaml"), {})


def test_names_locations_and_lines_that_may_hold_a_secret_are_known() -> None:
    assert is_secret_name("MQTT_PASSWORD")
    assert not is_secret_name("window")
    assert not is_secret_name(7)
    assert is_secret_location(("endpoints", "cloud", "options", "token"))
    assert not is_secret_location(("endpoints", "token", "options", "window"))
    assert is_secret_line("  passwd: [")
    assert is_secret_line("broker: mqtt://a:b@host")
    assert not is_secret_line("broker: mqtt://host")
