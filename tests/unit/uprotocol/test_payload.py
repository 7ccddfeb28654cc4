"""Payloads as JSON, text or hexadecimal."""

import json
from typing import Any

import pytest

from streamer.uprotocol.payload import payload_as


@pytest.mark.parametrize(
    ("payload", "form", "shown"),
    [
        (b'{"speed": 12.5}', "json", {"json": {"speed": 12.5}}),
        (b"[" * 100_000, "json", {"text": "[" * 100_000}),
        (b'{"speed": NaN}', "json", {"text": '{"speed": NaN}'}),
        (b'"\\ud800"', "json", {"json": "\ud800"}),
        (b"9" * 5000, "json", {"text": "9" * 5000}),
        (b"plain", "json", {"text": "plain"}),
        (b"\xff\x00", "json", {"hex": "ff00"}),
        (b"\xff\x1b[2J", "text", {"text": "\N{REPLACEMENT CHARACTER}\x1b[2J"}),
        (b"\x00\xff", "hex", {"hex": "00ff"}),
        (b"", "hex", {"hex": ""}),
    ],
)
def test_a_payload_is_shown_in_the_form_that_was_asked_for_or_one_that_fits(
    payload: bytes, form: str, shown: dict[str, Any]
) -> None:
    assert payload_as(payload, form) == shown
    assert json.dumps(shown).isascii()


def test_json_that_was_cut_is_text() -> None:
    assert payload_as(b"[1, 2]", "json", is_cut=True) == {"text": "[1, 2]"}


@pytest.mark.parametrize("payload", [b"1e999", b'{"a": [-1e999]}', b"1" * 400 + b".0"])
def test_a_number_that_json_cannot_say_again_is_text(payload: bytes) -> None:
    assert payload_as(payload, "json") == {"text": payload.decode()}
