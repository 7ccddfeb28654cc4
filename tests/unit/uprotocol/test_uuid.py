"""UUIDv7: built, read, written, refused (`uuid.adoc`)."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.uprotocol.uuid import UuidError, age_s, check_id, created_ms, format_id, made_ms, new_id, parse_id
from tests.examples import characters
from tests.unit.uprotocol.strategies import START_MS, ids


@given(st.integers(0, (1 << 48) - 1))
def test_a_new_id_is_a_uuid_of_version_7_with_its_creation_time(now_ms: int) -> None:
    made = new_id(now_ms)
    assert check_id(made) == made
    assert created_ms(made) == now_ms
    independent = uuid.UUID(bytes=made)
    assert (independent.version, independent.variant) == (7, uuid.RFC_4122)


def test_ids_of_one_millisecond_differ() -> None:
    assert len({new_id(START_MS) for _ in range(1000)}) == 1000


@given(ids)
def test_format_then_parse_is_the_identity(made: bytes) -> None:
    assert format_id(made) == str(uuid.UUID(bytes=made))
    assert parse_id(format_id(made)) == made
    assert parse_id(format_id(made).upper()) == made


@given(st.binary(min_size=16, max_size=16))
def test_only_version_7_and_variant_10_pass(raw: bytes) -> None:
    independent = uuid.UUID(bytes=raw)
    if independent.version == 7 and independent.variant == uuid.RFC_4122:
        assert check_id(raw) == raw
    else:
        with pytest.raises(UuidError, match="expected"):
            check_id(raw)


@given(st.binary(max_size=40).filter(lambda raw: len(raw) != 16))
def test_other_lengths_are_refused(raw: bytes) -> None:
    with pytest.raises(UuidError, match="expected 16"):
        check_id(raw)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "018b",
        "018bcfe5687f7000800000000000000",
        "018bcfe5687f70008000000000000000",
        "{018bcfe5-687f-7000-8000-000000000000}",
        "urn:uuid:018bcfe5-687f-7000-8000-000000000000",
        "018bcfe5-687f-7000-8000-000000000000\n",
        "018bcfe5-687f-7000-8000-00000000000g",
        "018bcfe5-687f-7000-8000-0000000000 0",
        "018bcfe5-687f-7000-8000-0000000000-0",
        "018bcfe5687f-7000-8000-000000000000-",
        "018bcfe5-687f-7000-8000-00000000000\u0660",
        "018bcfe5-687f-4000-8000-000000000000",
        "018bcfe5-687f-7000-c000-000000000000",
        "018bcfe5-687f-7000-0000-000000000000",
        "\u0661" * 36,
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(UuidError, match="expected"):
        parse_id(text)


@given(st.text(characters, max_size=50) | st.text("0123456789abcdef-", min_size=30, max_size=40))
def test_no_text_raises_anything_but_a_uuid_error(text: str) -> None:
    try:
        read = parse_id(text)
    except UuidError:
        return
    assert format_id(read) == text.lower()


@pytest.mark.parametrize(
    ("made_ms", "seconds"),
    [
        (START_MS, 0.0),
        (START_MS - 1500, 1.5),
        (START_MS + 1, 0.0),
        (253_402_300_799_000, 0.0),
        (START_MS - 86_400_000, 86_400.0),
        (START_MS - 86_400_001, 86_400.0),
        (0, 86_400.0),
    ],
)
def test_age_is_that_of_a_clock_that_can_be_right(made_ms: int, seconds: float) -> None:
    assert age_s(new_id(made_ms), START_MS) == seconds


def test_id_of_more_than_a_day_from_the_future_is_taken_as_made_now() -> None:
    day_ms = 86_400_000
    assert made_ms(new_id(START_MS + day_ms), START_MS) == START_MS + day_ms
    assert made_ms(new_id(START_MS + day_ms + 1), START_MS) == START_MS
    assert made_ms(new_id(0), START_MS) == 0
