"""Mistakes as sentences: what was expected, what was found, and where in the file."""

from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from streamer.config.messages import described, is_about_key, place, sentence, valid_keys
from streamer.config.models import Config
from streamer.config.secrets import WITHHELD


def raw(**changes: Any) -> dict[str, Any]:
    return {
        "authority": "gateway",
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": {"broker": "mqtt://host", "client_id": "c"}},
        },
        "routes": [{"from": "vehicle", "to": "cloud"}],
    } | changes


def mistake(data: dict[str, Any]) -> ErrorDetails:
    """The one mistake in a file."""
    with pytest.raises(ValidationError) as caught:
        Config.model_validate(data)
    (error,) = caught.value.errors(include_url=False)
    return error


def said(data: dict[str, Any], found: Any = "there") -> tuple[tuple[str | int, ...], str]:
    error = mistake(data)
    return place(error), sentence(error, data, found if isinstance(found, str) else described(found))


@pytest.mark.parametrize(
    ("change", "location", "text"),
    [
        ({"queue_policy": {"window": "7"}}, ("queue_policy", "window"), "expected a whole number, found there"),
        ({"queue_policy": {"window": 0}}, ("queue_policy", "window"), "expected at least 1, found there"),
        ({"queue_policy": {"absent_s": 0.0}}, ("queue_policy", "absent_s"), "expected more than 0, found there"),
        ({"log": {"level": "dbug"}}, ("log", "level"), "expected 'debug', 'info', 'warning' or 'error', found there"),
        ({"authority": 7}, ("authority",), "expected text, found there; put it in quotes"),
        ({"journal": False}, ("journal",), "expected null or a mapping with the keys path, max_bytes, memory, found there"),
        ({"control": []}, ("control",), "expected a mapping with the keys allow, http, http_token_file, found there"),
        (
            {"routes": [{"from": "vehicle", "to": "cloud", "rate": 7}]},
            ("routes", 0, "rate"),
            "expected null or a mapping with the keys messages, bytes, found there",
        ),
        ({"endpoints": []}, ("endpoints",), "expected a mapping of keys, found there"),
        ({"routes": {}}, ("routes",), "expected a list, found there"),
        ({"journal": {}}, ("journal", "path"), "expected this key, which is required; found none"),
    ],
)
def test_a_value_that_is_wrong_is_told_with_what_was_expected(
    change: dict[str, Any], location: tuple[str | int, ...], text: str
) -> None:
    place_found, sentence_found = said(raw(**change))
    assert place_found == location
    assert sentence_found.startswith(text)


def test_a_misspelt_choice_is_told_with_the_nearest_one_unless_it_is_withheld() -> None:
    data = raw(log={"level": "dbug"})
    assert said(data)[1].endswith("; did you mean 'debug'?")
    assert said(data, WITHHELD)[1].endswith(f"found {WITHHELD}")


def test_an_unknown_key_is_told_with_those_that_are_known() -> None:
    location, text = said(raw(log={"levl": "debug"}))
    assert location == ("log", "levl")
    assert text == "unknown key; expected one of level, format, repeat_s, audit; did you mean 'level'?"
    assert is_about_key(mistake(raw(log={"levl": "debug"})))


def test_a_mapping_that_lacks_a_choice_is_not_what_was_found() -> None:
    _, text = said(raw(queue_policy={"rate": {}}), {})
    assert text == "expected messages, bytes or both: how many per second"


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"queue_policy": {"on_full": "reject"}}, "did you mean 'queue.on_full'?"),
        ({"queue": {}}, "did you mean 'queue_policy.queue' or 'dead_letter.queue'?"),
        ({"routes": [{"from": "vehicle", "to": "cloud", "attempts": 3}]}, "did you mean 'retry.attempts'?"),
        ({"log": {"formt": "json"}}, "did you mean 'format'?"),
    ],
)
def test_a_key_of_a_section_below_is_told_with_that_section(change: dict[str, Any], hint: str) -> None:
    assert said(raw(**change))[1].endswith(f"; {hint}")


def test_an_option_of_a_section_below_is_told_with_that_section() -> None:
    endpoints = raw()["endpoints"]
    endpoints["cloud"]["options"]["ca_file"] = "/etc/ca.pem"
    assert said(raw(endpoints=endpoints))[1].endswith("; did you mean 'tls.ca_file'?")


def test_a_key_of_an_earlier_version_is_told_with_its_name_of_today() -> None:
    assert said(raw(dispatch={}))[1].endswith("; it is called 'queue_policy' now")


def test_a_key_of_a_routes_queue_policy_is_in_the_route_itself() -> None:
    data = raw(routes=[{"from": "vehicle", "to": "cloud", "window": 0}])
    assert said(data)[0] == ("routes", 0, "window")


def test_a_wrong_name_of_an_endpoint_is_a_wrong_key() -> None:
    endpoints = raw()["endpoints"] | {"a b": {"transport": "memory", "authorities": ["x"]}}
    error = mistake(raw(endpoints=endpoints))
    assert place(error) == ("endpoints", "a b")
    assert is_about_key(error)


def test_a_mistake_of_a_transport_is_told_at_the_key_that_it_names() -> None:
    endpoints = raw()["endpoints"]
    endpoints["cloud"]["options"]["broker"] = "http://host"
    location, text = said(raw(endpoints=endpoints))
    assert location == ("endpoints", "cloud", "options", "broker")
    assert text.startswith("expected")


def test_a_mistake_between_two_options_is_told_at_the_key_that_its_text_names() -> None:
    endpoints = raw()["endpoints"]
    endpoints["cloud"]["options"] |= {"username": "me", "username_file": "/etc/me"}
    location, text = said(raw(endpoints=endpoints), {})
    assert location == ("endpoints", "cloud", "options", "username_file")
    assert text == "expected either username or username_file"


@pytest.mark.parametrize(
    ("location", "some"),
    [
        ((), {"authority", "endpoints", "routes", "queue_policy"}),
        (("routes", 0), {"from", "to", "publish", "window", "queue"}),
        (("routes", 0, "queue"), {"messages", "bytes", "on_full"}),
        (("endpoints", "cloud"), {"transport", "authorities", "options", "global"}),
        (("endpoints", "cloud", "options"), {"broker", "client_id", "tls"}),
        (("endpoints", "cloud", "options", "tls"), {"ca_file"}),
    ],
)
def test_the_keys_of_every_mapping_are_known(location: tuple[str | int, ...], some: set[str]) -> None:
    known = valid_keys(location, raw())
    assert some <= set(known)
    assert len(known) == len(set(known))


@pytest.mark.parametrize("location", [("authority",), ("nonsense",), ("endpoints", "nobody", "options")])
def test_where_there_is_no_mapping_no_key_is_valid(location: tuple[str | int, ...]) -> None:
    assert valid_keys(location, raw()) == []


def test_a_route_has_the_keys_of_the_queue_policy_and_not_the_section() -> None:
    assert "queue_policy" not in valid_keys(("routes", 0), raw())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        (7, "7"),
        ("it's", '"it\'s"'),
        ("x" * 61, repr("x" * 57 + "...")),
        ({}, "a mapping"),
        ([1], "a list"),
        ([], "an empty list"),
        (b"", "a bytes"),
    ],
)
def test_what_was_found_is_described_in_a_few_words(value: Any, text: str) -> None:
    assert described(value) == text
