"""How the subcommands print and read: lengths of time, moments, tables, and nothing that a terminal would obey."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.journal.moments import as_moment, as_span
from streamer.tools.text import as_table, complain, lines_out, milliseconds, plain, reason_of


@pytest.mark.parametrize(
    ("text", "ms"), [("250ms", 250), ("30m", 1_800_000), ("1.5h", 5_400_000), ("7d", 604_800_000), ("1w", 604_800_000)]
)
def test_a_length_of_time_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert milliseconds(text) == ms


@pytest.mark.parametrize("text", ["", "30", "m", "-1m", "1.m", "1 m", "1M", "1h30m"])
def test_another_length_of_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number and a unit"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("ms", "span"),
    [
        *[(0, "0ms"), (1999, "1999ms"), (2000, "2s"), (119_999, "119s"), (7_140_000, "119m"), (172_800_000, "2d")],
        *[(-1, "-1ms"), (-10_800_000, "-3h")],
    ],
)
def test_a_length_of_time_is_printed_in_the_largest_unit_that_it_has_twice(ms: int, span: str) -> None:
    assert as_span(ms) == span


@given(st.integers(0, 10**12))
def test_what_is_printed_as_a_length_of_time_can_be_read_and_is_at_most_half_too_short(ms: int) -> None:
    assert ms / 1.5 <= milliseconds(as_span(ms)) <= ms


def test_a_moment_is_printed_in_utc_with_milliseconds() -> None:
    assert as_moment(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"


def test_a_moment_that_no_calendar_has_is_printed_as_it_is() -> None:
    assert as_moment((1 << 48) * 1000) == f"{(1 << 48) * 1000} ms"


def test_the_columns_of_a_table_are_aligned_and_lines_have_no_blanks_at_their_end() -> None:
    assert list(as_table([("A", "LONG", "C"), ("aaa", "b", ""), ("", "b", "c")])) == [
        "A    LONG  C",
        "aaa  b",
        "     b     c",
    ]


@given(st.text())
def test_text_without_what_a_terminal_would_obey_can_be_printed(text: str) -> None:
    assert plain(text).isprintable()
    assert plain(text) == text or not text.isprintable()


def test_an_escape_sequence_is_shown_and_not_sent() -> None:
    assert plain("\x1b[2Jgone\n") == "\N{REPLACEMENT CHARACTER}[2Jgone\N{REPLACEMENT CHARACTER}"


def test_a_complaint_goes_to_standard_error_and_output_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert complain("it is broken", 74) == 74
    lines_out(["one", "two"])
    assert capsys.readouterr() == ("one\ntwo\n", "it is broken\n")


def test_neither_output_nor_a_complaint_is_obeyed_by_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines_out(["\x1b[2Jone\ntwo"])
    complain("\x9b2Jthree\nfour", 1)
    assert capsys.readouterr() == ("�[2Jone�two\n", "�2Jthree�four\n")


@pytest.mark.parametrize(
    ("exc", "said"),
    [
        (PermissionError(13, "Permission denied", "/var/log/audit.log"), "/var/log/audit.log: Permission denied"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError("timed out"), "timed out"),
    ],
)
def test_what_the_operating_system_says_is_told_without_a_number(exc: OSError, said: str) -> None:
    assert reason_of(exc) == said
