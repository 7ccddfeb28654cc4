"""The types of the configuration's values: what each accepts, and what it says to everything else."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from streamer.config import types
from streamer.config.models import Config
from streamer.uprotocol.uri import UUri

URI = UUri("veh1", 0xA8000, 2, 0x8A50)


def accepted(kind: Any, value: Any) -> Any:
    return TypeAdapter(kind).validate_python(value)


def complaint(kind: Any, value: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        accepted(kind, value)
    (error,) = caught.value.errors()
    return error["msg"]


@pytest.mark.parametrize(
    ("value", "size"),
    [(7, 7), ("7", 7), ("64MiB", 64 << 20), ("1 GiB", 1 << 30), ("10MB", 10**7), ("1.5KiB", 1536), ("2kB", 2000)],
)
def test_a_size_is_a_number_of_bytes_or_a_number_with_a_unit(value: Any, size: int) -> None:
    assert accepted(types.Size, value) == size


@pytest.mark.parametrize("value", ["64 mib", "MiB", "-1", "1e3", True, 1.5, None, [1]])
def test_another_size_is_refused_with_examples(value: Any) -> None:
    assert complaint(types.Size, value).startswith("expected a size: a number of bytes, or text such as 64MiB")


@pytest.mark.parametrize("value", [0, -5, "0MiB", "0.2B"])
def test_a_size_is_at_least_one_byte(value: Any) -> None:
    assert complaint(types.Size, value) == "expected a size of at least 1 byte"


def test_an_authority_may_be_everyone_and_a_single_one_may_not() -> None:
    assert accepted(types.Authority, "*") == "*"
    assert accepted(types.SingleAuthority, "veh1.example") == "veh1.example"
    assert complaint(types.SingleAuthority, "*").startswith("expected one authority, no wildcard")
    assert complaint(types.Authority, "VEH1").startswith("expected an authority")


def test_an_authority_in_brackets_is_an_ipv6_address() -> None:
    assert accepted(types.SingleAuthority, "[2001:db8:7aa::8]") == "[2001:db8:7aa::8]"
    for text in ("[2001:db87aa::8]", "[2001:DB8::8]", "2001:db8::8"):
        assert complaint(types.SingleAuthority, text).startswith("expected one authority")


@pytest.mark.parametrize("value", ["//veh1/A8000/2/8A50", URI, "//*/FFFFFFFF/FF/FFFF"])
def test_a_pattern_is_a_topic_with_or_without_wildcards(value: Any) -> None:
    assert str(accepted(types.Pattern, value)) == str(value)


def test_an_address_may_have_its_scheme() -> None:
    assert str(accepted(types.Pattern, "up://veh1/A8000/2/FFFF")) == "//veh1/A8000/2/FFFF"
    assert str(accepted(types.Entity, "UP://veh1/A/1/0")) == "//veh1/A/1/0"
    assert complaint(types.Pattern, "up:/A8000/2/8A50").startswith("expected a pattern of topics")


@pytest.mark.parametrize("value", ["/A8000/2/8A50", "nonsense", 7, None, UUri("", 1, 1, 0x8000)])
def test_another_pattern_is_refused_with_an_example(value: Any) -> None:
    assert "a pattern of topics such as //veh1/FFFFFFFF/FF/FFFF" in complaint(types.Pattern, value)


def test_a_pattern_of_methods_is_refused() -> None:
    assert complaint(types.Pattern, "//veh1/A/1/7").startswith("expected a topic, resource 8000 to FFFE")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (types.Topic, "//veh1/A/1/8000", ("//veh1/A/1/0", "//veh1/FFFFFFFF/1/8000", "/A/1/8000", 7)),
        (types.Entity, "//veh1/A/1/0", ("//veh1/A/1/8000", "//veh1/A/FF/0", "//*/A/1/0", None)),
        (types.EntityPattern, "//*/FFFFFFFF/FF/0", ("//veh1/A/1/8000", "/A/1/0")),
    ],
)
def test_addresses_are_of_their_kind(kind: Any, good: str, bad: tuple[Any, ...]) -> None:
    assert str(accepted(kind, good)) == good
    for value in bad:
        assert complaint(kind, value).startswith("expected a ")


def test_names_are_of_letters_digits_and_three_marks() -> None:
    assert accepted(types.Name, "Cloud_1.a-b") == "Cloud_1.a-b"
    for name in ("", "-a", "a b", "ä", "a/b"):
        assert complaint(types.Name, name) == "expected a name of letters, digits and _ . -"


def test_a_section_is_frozen_knows_its_keys_and_converts_nothing() -> None:
    class Window(types.Section):
        messages: types.Count = 7

    assert Window().messages == 7
    for raw in ({"messages": "7"}, {"messages": 7.0}, {"message": 7}, {"messages": 0}):
        with pytest.raises(ValidationError):
            Window.model_validate(raw)
    with pytest.raises(ValidationError):
        Window().messages = 8


@pytest.mark.parametrize("value", ["/var/lib/streamer/", "logs/", "/"])
def test_a_file_is_no_folder(value: str) -> None:
    assert complaint(types.FilePath, value) == "expected the path of a file, not of a folder: without / at its end"
    assert accepted(types.FolderPath, value) == Path(value)


@pytest.mark.parametrize(
    "sections", [{"journal": {"path": "/j/"}}, {"log": {"audit": "/a/"}}, {"control": {"http_token_file": "/t/"}}]
)
def test_no_section_takes_a_folder_for_a_file(sections: dict[str, Any]) -> None:
    raw = {"authority": "gw", "endpoints": {"e": {"transport": "memory", "authorities": ["veh1"]}}, "routes": []}
    with pytest.raises(ValidationError, match="the path of a file, not of a folder"):
        Config.model_validate(raw | sections)
