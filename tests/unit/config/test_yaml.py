"""Reading YAML: plain values with their positions, environment variables as text, and nothing that could do harm."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from streamer.config.yaml import MAX_DEPTH, MAX_NODES, Document, Position, read
from tests.examples import characters


def data(text: str, **environ: str) -> Any:
    document = read(text, environ)
    assert document.mistakes == []
    return document.data


def mistakes(text: str, **environ: str) -> list[tuple[Position, str]]:
    return [(mistake.position, mistake.message) for mistake in read(text, environ).mistakes]


# values and positions


def test_mappings_lists_and_scalars_are_read_as_they_look() -> None:
    text = "a: 1\nb: [x, 1.5, true, null, 'yes']\nc: {d: 0x10}\n"
    assert data(text) == {"a": 1, "b": ["x", 1.5, True, None, "yes"], "c": {"d": 16}}


@pytest.mark.parametrize("text", ["'010'", '"1:30"', "0", "-0", "0x010", "0.5", "1_000", "00:30"])
def test_what_looks_like_an_unusual_number_and_is_none_is_read(text: str) -> None:
    assert data(f"a: {text}\n") == {"a": yaml.safe_load(text)}


@pytest.mark.parametrize("text", ["010", "-07", "0_7", "1:30", "12:34:56", "1:30.5", "${PORT}"])
def test_a_number_in_base_8_or_60_is_a_mistake(text: str) -> None:
    ((position, message),) = mistakes(f"a: {text}\n", PORT="017")
    assert position == (1, 4)
    assert message.endswith("expected a number without it, or quotes around text")


def test_an_empty_file_has_no_values() -> None:
    assert data("") is None


def test_every_value_and_key_has_its_position_and_what_is_missing_that_of_its_parent() -> None:
    document = read("a:\n  b: [x,\n      y]\n", {})
    assert document.position(("a", "b", 1)) == (3, 7)
    assert document.position(("a", "b")) == (2, 6)
    assert document.position(("a", "b"), of_key=True) == (2, 3)
    assert document.position(("a", "c")) == (1, 1)
    assert document.position(("nonsense",)) == (1, 1)


def test_merged_keys_are_there_unless_the_mapping_has_its_own() -> None:
    text = "base: &base {x: 1, y: 1}\nother: &other {y: 2, z: 2}\na: {<<: [*base, *other], x: 9}\n"
    assert data(text)["a"] == {"x": 9, "y": 1, "z": 2}


# environment variables


def test_variables_are_replaced_inside_values_and_never_change_the_structure() -> None:
    assert data("a: ${NAME}\nb: pre-${NAME}-post\n", NAME="x: [1]") == {"a": "x: [1]", "b": "pre-x: [1]-post"}


def test_a_plain_value_has_the_type_that_its_new_text_looks_like_and_a_quoted_one_is_text() -> None:
    assert data("a: ${N}\nb: '${N}'\nc: ${N}s\n", N="17") == {"a": 17, "b": "17", "c": "17s"}


def test_a_default_is_used_where_a_variable_is_unset_or_empty() -> None:
    assert data("- ${A:-1}\n- ${B:-2}\n- ${C:-3}\n- '${D:-}'\n", B="", C="4") == [1, 2, 4, ""]


def test_two_dollars_are_one() -> None:
    assert data("a: $${NAME}\nb: $5\n") == {"a": "${NAME}", "b": "$5"}


def test_values_with_variables_and_secrets_among_them_are_known() -> None:
    document = read("a: ${USER}\nb: ${MQTT_PASSWORD}\nc: ${X:-1}\n", {"USER": "me", "MQTT_PASSWORD": "hunter2"})
    assert document.variables == {("a",): ("USER",), ("b",): ("MQTT_PASSWORD",)}
    assert document.secrets == ["hunter2"]


def test_a_variable_that_is_not_set_is_a_mistake_where_it_stands() -> None:
    assert mistakes("a: 1\nb: ${NAME}\n") == [
        ((2, 4), "environment variable NAME is not set; expected it, or ${NAME:-default}")
    ]


@pytest.mark.parametrize("text", ["${", "${NAME", "${1}", "${A B}", "${A:B}"])
def test_a_reference_that_is_none_is_a_mistake(text: str) -> None:
    assert mistakes(f"a: '{text}'\n") == [((1, 4), "expected ${NAME} or ${NAME:-default}, and $${ for a plain ${")]


# what is refused


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("a: 1\na: 2\n", (2, 1), "duplicate key in lines 1 and 2; expected each key once"),
        ("1: a\n", (1, 1), "a key that is not text; expected text, in quotes if it looks like a number"),
        ("a: !!python/object:os.system x\n", (1, 4), "a YAML tag; expected plain text, numbers, lists and mappings only"),
        ("a: 1\n---\nb: 2\n", (2, 1), "a second document; expected one"),
        ("a:\n\tb: 1\n", (2, 1), "a tab; expected spaces for indentation"),
        ("a: *\n", (1, 5), "not valid YAML: a * begins an alias; expected quotes around text with a *"),
        ("a: *b\n", (1, 4), "not valid YAML: a * begins an alias; expected quotes around text with a *"),
        ("a: {b: ${X}}\n", (1, 9), "not valid YAML: expected quotes around ${...} inside { } and [ ]"),
        ("a: x\x00\n", (1, 5), "a control character; expected printable text"),
        ("a: {<<: 7}\n", (1, 9), "expected a mapping, or a list of mappings, behind <<"),
        ("a: [b\nc: 1\n", (2, 2), "not valid YAML: while parsing a flow sequence, expected ',' or ']', but got ':'"),
        ("a b  # c\nd: 1\n", (2, 1), "not valid YAML: expected '<document start>', but found '<block mapping start>'"),
        ("a:\n   b: c\n    d: e\n", (3, 6), "not valid YAML: mapping values are not allowed here"),
        ("password: [x\n", (2, 1), None),
    ],
)
def test_a_mistake_has_its_position_and_says_what_was_expected(
    text: str, position: tuple[int, int], message: str | None
) -> None:
    ((found, said),) = mistakes(text)
    assert found == position
    if message is not None:
        assert said == message


def test_a_line_that_may_hold_a_secret_is_not_repeated() -> None:
    ((_, said),) = mistakes("password: hunter2: x\n")
    assert said == "not valid YAML (the text is withheld)"


def test_what_can_be_read_beside_a_mistake_is_read() -> None:
    document = read("a: 1\na: 2\nb: !!set {x}\nc: 3\n", {})
    assert document.data == {"a": 1, "b": None, "c": 3}
    assert len(document.mistakes) == 2


def test_a_file_may_be_nested_so_deeply_and_no_deeper() -> None:
    assert mistakes("[" * MAX_DEPTH + "]" * MAX_DEPTH) == []
    ((_, said),) = mistakes("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2))
    assert said == f"nested too deeply; expected at most {MAX_DEPTH} levels"
    ((_, said),) = mistakes("[" * 100_000)
    assert said == f"nested too deeply; expected at most {MAX_DEPTH} levels"


def test_aliases_count_at_each_use() -> None:
    levels = [f"- &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 6)]
    text = "\n".join(["- &l0 [" + ", ".join("x" * 10) + "]", *levels])
    ((_, said),) = mistakes(text)
    assert said == f"too many values; expected at most {MAX_NODES}, aliases counted"


@pytest.mark.parametrize(
    "text", ["x: &a {<<: *a}", "x: &a {<<: [*a]}", "x: &a {y: *a}", "x: &a [*a]", "x: &a {y: {<<: *a}}"]
)
def test_what_contains_itself_is_a_mistake_where_it_begins(text: str) -> None:
    assert mistakes("b: 1\n" + text) == [((2, 4), "it contains itself, by an alias (*) or a merge key (<<)")]


def test_merge_keys_count_as_levels() -> None:
    text = "m0: &m0 {a: 1}\n" + "".join(f"m{n}: &m{n} {{<<: *m{n - 1}}}\n" for n in range(1, 1000))
    ((position, said),) = mistakes(text)
    assert said == f"nested too deeply; expected at most {MAX_DEPTH} levels"
    assert position > (1, 1)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"\\UFFFFFFFF"', "not valid YAML: an escape of no character, or a number that is too long"),
        ('"\\U00110000"', "not valid YAML: an escape of no character, or a number that is too long"),
        ('"\\uD800"', "text that UTF-8 cannot hold; expected whole characters"),
        ("${LATIN}", "text that UTF-8 cannot hold; expected whole characters"),
        ('!!int ""', "not what its form or tag promises; expected quotes around text"),
        ('!!float "-"', "not what its form or tag promises; expected quotes around text"),
        ("!!timestamp x", "not what its form or tag promises; expected quotes around text"),
        ("2001-99-99", "not what its form or tag promises; expected quotes around text"),
        ("2001-01-01 00:00:00 +99:99", "not what its form or tag promises; expected quotes around text"),
        ("9" * 5000, "not what its form or tag promises; expected quotes around text"),
        ("0x" + "f" * 5000, "a number of more than 64 bits; expected a smaller one"),
        ("!!binary x", "a YAML tag; expected plain text, numbers, lists and mappings only"),
        ("{<<: !!set {b: c}}", "expected a mapping, or a list of mappings, behind <<"),
        ("{? [b] : c}", "a key that is not text; expected text, in quotes if it looks like a number"),
        ("{? {b: c} : d}", "a key that is not text; expected text, in quotes if it looks like a number"),
        ('{"\\uD800": 1}', "text that UTF-8 cannot hold; expected whole characters"),
    ],
)
def test_what_cannot_be_made_a_value_is_a_mistake_in_its_line(value: str, said: str) -> None:
    ((position, found),) = mistakes(f"b: 1\na: {value}\n", LATIN="\udce4")
    assert (position.line, found) == (2, said)


def test_a_version_that_is_too_long_is_a_mistake() -> None:
    ((position, _),) = mistakes(f"%YAML {'9' * 5000}.1\n---\na: 1\n")
    assert position.line == 1


@given(
    st.text(st.sampled_from("ab: -,[]{}&*!'\"\n\t$#|>%?<0x\x00ü"), max_size=60),
    st.dictionaries(st.sampled_from(("A", "B")), st.text(characters, max_size=10)),
)
def test_whatever_the_text_it_is_read_or_its_mistakes_are_told(text: str, environ: dict[str, str]) -> None:
    document = read(text, environ)
    assert isinstance(document, Document)
    assert all(mistake.position >= (1, 1) and mistake.message for mistake in document.mistakes)
