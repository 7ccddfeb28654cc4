"""Where log lines go, and how often: repeats are counted, the last word about a state is always written."""

import io
import json
import logging
import sys

import pytest

from streamer.logs.audit import NAME
from streamer.logs.lines import MAX_TEXT, HumanFormatter, JsonFormatter, shortened
from streamer.logs.output import CHANGES, KINDS, LineHandler


class Output:
    """A handler with a clock that the test sets, and what it has written."""

    def __init__(self, repeat_s: float = 10) -> None:
        self.now_s = 0.0
        self.stream = io.StringIO()
        self.handler = LineHandler(HumanFormatter(), repeat_s, lambda: self.now_s)
        self.handler.setStream(self.stream)

    def log(self, message: str, *args: object, level: int = logging.INFO, name: str = "ustreamer.x", **more: object) -> None:
        made = logging.LogRecord(name, level, __file__, 1, message, args, None)
        made.__dict__.update(more)
        self.handler.handle(made)

    def state(self, value: str, subject: str = "cloud") -> None:
        self.log("endpoint_state endpoint=%s state=%s", subject, value, state=(f"endpoint {subject}", value))

    def at(self, now_s: float) -> None:
        """The tick of the daemon at that time."""
        self.now_s = now_s
        self.handler.write_left_out()

    def lines(self) -> list[str]:
        """What was written since the last call, without time, level and part."""
        text = self.stream.getvalue()
        self.stream.seek(0)
        self.stream.truncate()
        return [line.split(maxsplit=3)[-1] for line in text.splitlines() if not line.startswith("  |")]


# repeats


def test_same_kind_of_line_is_written_once_in_its_time_and_then_the_last_one_with_the_number_of_the_others() -> None:
    out = Output()
    for second in range(9):
        out.at(second)
        out.log("lost endpoint=%s after=%d", "cloud", second)
    assert out.lines() == ["lost endpoint=cloud after=0"]
    out.at(9.99)
    assert out.lines() == []
    out.at(10)
    assert out.lines() == ["lost endpoint=cloud after=8 left_out=7"]
    out.at(20)
    out.log("lost endpoint=%s after=%d", "cloud", 20)
    assert out.lines() == ["lost endpoint=cloud after=20"]


def test_a_line_that_repeats_for_long_is_written_once_in_its_time() -> None:
    out = Output()
    for tenth in range(1000):
        out.at(tenth / 10)
        out.log("lost endpoint=%s", "cloud")
    assert len(out.lines()) == 10


def test_one_line_that_was_left_out_has_no_number() -> None:
    out = Output()
    out.log("lost endpoint=%s after=%d", "cloud", 1)
    out.log("lost endpoint=%s after=%d", "cloud", 2)
    out.at(10)
    assert out.lines() == ["lost endpoint=cloud after=1", "lost endpoint=cloud after=2"]


def test_a_line_that_was_left_out_has_the_time_of_its_event() -> None:
    out = Output()
    out.log("lost endpoint=%s", "cloud")
    made = logging.LogRecord("ustreamer.x", logging.INFO, __file__, 1, "lost endpoint=%s", ("cloud",), None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    out.handler.handle(made)
    out.handler.setFormatter(JsonFormatter())
    out.at(10)
    assert json.loads(out.stream.getvalue().splitlines()[-1])["ts"] == "2023-11-14T22:13:20.250Z"


def test_another_event_endpoint_or_logger_is_another_kind() -> None:
    out = Output()
    out.log("lost endpoint=%s", "cloud")
    out.log("lost endpoint=%s", "vehicle")
    out.log("found endpoint=%s", "cloud")
    out.log("lost endpoint=%s", "cloud", name="ustreamer.y")
    assert len(out.lines()) == 4
    out.log("lost endpoint=%s", "cloud")
    assert out.lines() == []


@pytest.mark.parametrize(
    "exempt",
    [{"level": logging.CRITICAL}, {"name": NAME}, {"left_out": 0}],
    ids=["critical", "audit-log", "limited-elsewhere"],
)
def test_lines_that_are_never_left_out(exempt: dict[str, object]) -> None:
    out = Output()
    for _ in range(3):
        out.log("paused who=%s", "http", **exempt)  # type: ignore[arg-type]
    assert len(out.lines()) == 3


def test_limit_of_zero_lets_everything_pass() -> None:
    out = Output(repeat_s=0)
    for _ in range(5):
        out.log("same")
        out.state("down")
    assert len(out.lines()) == 10


# states


def test_the_last_word_of_a_pair_is_written_at_once() -> None:
    out = Output()
    out.state("up")
    out.state("down")
    out.state("up")
    out.state("down")
    assert [line.rpartition("=")[2] for line in out.lines()] == ["up", "down", "up", "down"]
    out.at(10)
    assert out.lines() == []


def test_words_of_different_events_are_a_pair_if_they_are_about_the_same_subject() -> None:
    out = Output()
    for _ in range(3):
        out.log("link_down endpoint=%s", "cloud", state=("link cloud", "down"))
        out.log("connected endpoint=%s", "cloud", state=("link cloud", "up"))
    assert [line.split(" ")[0] for line in out.lines()] == ["link_down", "connected"] * 3


def test_a_state_that_is_only_repeated_is_a_repeat() -> None:
    out = Output()
    for attempt in range(5):
        out.log("link_down endpoint=%s attempt=%d", "cloud", attempt, state=("link cloud", "down"))
    assert out.lines() == ["link_down endpoint=cloud attempt=0"]
    out.log("connected endpoint=%s", "cloud", state=("link cloud", "up"))
    assert out.lines() == ["connected endpoint=cloud left_out=4"]
    out.at(10)
    assert out.lines() == []  # "down" after "up" would be a lie


def test_a_state_is_known_to_be_repeated_after_its_time_as_well() -> None:
    out = Output()
    out.state("down")
    out.at(30)
    out.state("down")
    out.state("down")
    assert len(out.lines()) == 2
    out.state("up")
    assert out.lines() == ["endpoint_state endpoint=cloud state=up left_out=1"]


@pytest.mark.parametrize("last", ["up", "down"])
def test_flapping_is_bounded_and_its_last_word_comes_without_another_event(last: str) -> None:
    out = Output()
    flaps = ["down" if last == "up" else "up", last] * 500
    for number, value in enumerate(flaps):
        out.at(number / 100)
        out.state(value)
    assert len(out.lines()) == CHANGES
    out.at(10)
    assert out.lines() == [f"endpoint_state endpoint=cloud state={last} left_out={1000 - CHANGES - 1}"]
    out.at(20)
    assert out.lines() == []


def test_flapping_of_one_subject_hides_no_other() -> None:
    out = Output()
    for _ in range(100):
        out.state("up")
        out.state("down")
    out.lines()
    out.state("down", "vehicle")
    assert out.lines() == ["endpoint_state endpoint=vehicle state=down"]


def test_after_every_line_and_at_the_end_the_last_one_about_a_subject_is_true() -> None:
    """A link that flaps in any pattern: once the time is over, what was written last is what happened last."""
    out = Output()
    now_s, truth = 0.0, ""
    for number in range(3000):
        now_s += (0.003, 0.9, 4.1)[number * number % 3]
        out.at(now_s)
        truth = ("up", "down", "down", "opening")[number * 7 % 11 % 4]
        out.state(truth)
        if number % 50 == 0:
            out.at(now_s + 10)
            written = out.lines()
            assert not written or written[-1].split("state=")[1].split(" ")[0] == truth
            now_s += 10
    assert truth


# the end


def test_what_was_left_out_is_written_at_the_end_of_the_process() -> None:
    out = Output()
    for number in range(3):
        out.log("lost endpoint=%s n=%d", "cloud", number)
    for _ in range(CHANGES):
        out.state("up")
        out.state("down")
    out.lines()
    out.handler.close()
    assert out.lines() == [
        "lost endpoint=cloud n=2 left_out=1",
        f"endpoint_state endpoint=cloud state=down left_out={CHANGES - 1}",
    ]


# bounds


def test_beyond_so_many_kinds_lines_are_counted_together_and_none_is_forgotten() -> None:
    out = Output()
    for number in range(5 * KINDS):
        out.log("lost endpoint=%s", str(number))
    assert len(out.lines()) == KINDS
    out.at(10)
    written = out.lines()
    assert len(written) <= KINDS + 1
    left_out = sum(int(line.partition("left_out=")[2] or 0) for line in written)
    assert KINDS + len(written) + left_out == 5 * KINDS


def test_invented_kinds_hide_no_state() -> None:
    out = Output()
    for number in range(2 * KINDS):
        out.log("lost endpoint=%s", str(number))
    out.lines()
    out.state("down")
    assert out.lines() == ["endpoint_state endpoint=cloud state=down"]


class Large:
    """An argument that holds much, and says much."""

    def __init__(self) -> None:
        self.payload = bytearray(1_000_000)

    def __str__(self) -> str:
        return "x" * 1_000_000


def test_what_waits_to_be_written_is_bounded_in_bytes() -> None:
    out = Output()
    large = Large()
    before = sys.getrefcount(large)
    for name in ("a", "b"):
        for _ in range(3):
            out.log("lost endpoint=%s what=%s", name * 100_000, large)
            out.log("y" * 100_000 + name)
            out.log("bad %(text)s", {"text": "z" * 100_000})
    assert sys.getrefcount(large) == before
    out.lines()
    out.at(10)
    written = out.lines()
    assert len(written) == 4  # of one kind are "bad" lines, and lines whose first 500 characters are the same
    assert max(map(len, written)) < 2000


@pytest.mark.parametrize("repeat_s", [0, 10], ids=["each line is written", "a line that was left out"])
@pytest.mark.parametrize("formatter", [HumanFormatter(), JsonFormatter()], ids=["human", "json"])
@pytest.mark.parametrize(
    ("message", "args"),
    [
        ("refused source=%s reason=%s", ("//veh1/1/1/0", "x" * 10**6)),
        ("refused source=%s reason=%r", ("//veh1/1/1/0", ValueError("\0" * 10**6))),
        ("refused source=%s", ("x" * 10**6,)),
        ("refused %(why)s", ({"why": "x" * 10**6},)),
        ("x" * 10**6, ()),
        ("x" * 10**6 + " of %s", ("cloud",)),
    ],
)
def test_no_line_is_long_whatever_it_is_made_of(
    message: str, args: tuple[object, ...], formatter: logging.Formatter, repeat_s: float
) -> None:
    out = Output(repeat_s)
    out.handler.setFormatter(formatter)
    for _ in range(2):
        out.log(message, *args, level=logging.WARNING, name=NAME if repeat_s == 0 else "ustreamer.x")
    out.at(10)
    lines = out.stream.getvalue().splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) < 8 * MAX_TEXT  # a control character takes up to six


def deep(calls: int) -> None:
    if calls:
        return deeper(calls)
    raise ValueError("x" * 10**6 + "\n" * 10**4 + "the end")


def deeper(calls: int) -> None:
    deep(calls - 1)


@pytest.mark.parametrize("formatter", [HumanFormatter(), JsonFormatter()], ids=["human", "json"])
def test_no_traceback_is_long_and_its_ends_are_kept(formatter: logging.Formatter) -> None:
    out = Output()
    out.handler.setFormatter(formatter)
    try:
        deep(200)
    except ValueError:
        out.log("failed endpoint=%s", "cloud", exc_info=sys.exc_info())
    text = out.stream.getvalue()
    assert "Traceback (most recent call last)" in text
    assert "the end" in text
    assert len(text) < 50 * MAX_TEXT


def test_a_line_that_is_not_long_is_not_touched() -> None:
    made = logging.LogRecord("ustreamer.x", logging.INFO, __file__, 1, "told of=%s n=%d", ("x" * MAX_TEXT, 1), None)
    assert shortened(made) is made


def test_an_exception_that_was_left_out_keeps_no_frames_alive() -> None:
    out = Output()
    for _ in range(2):
        try:
            raise ZeroDivisionError("boom")
        except ZeroDivisionError:
            out.log("failed endpoint=%s", "cloud", exc_info=sys.exc_info())
    assert "ZeroDivisionError" in out.stream.getvalue()
    out.lines()
    out.at(10)
    assert out.lines() == ["failed endpoint=cloud"]


@pytest.mark.parametrize("text", ["x\n12:00:00.000 INFO fake", "x\x1b[2K", "100%", "%s%n%(a)s", "x\ud800"])
def test_hostile_text_is_only_text_when_it_is_written_later(text: str) -> None:
    out = Output()
    for _ in range(2):
        out.log("malformed endpoint=%s detail=%s", "cloud", ValueError(text))
    (first,) = out.lines()
    out.at(10)
    assert out.lines() == [first]
    assert first.isprintable()


def test_values_keep_their_types_when_they_are_written_later() -> None:
    out = Output()
    out.handler.setFormatter(JsonFormatter())
    for _ in range(2):
        out.log("lost endpoint=%s after_s=%.1f n=%d up=%s why=%r", "cloud", 2.345, 3, True, "x")
    out.at(10)
    first, second = map(json.loads, out.stream.getvalue().splitlines())
    assert {**first, "ts": ""} == {**second, "ts": ""}
    assert (second["after_s"], second["n"], second["up"], second["why"]) == (2.3, 3, True, "'x'")


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_argument_that_cannot_be_shown_does_not_reach_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    for _ in range(2):
        out.log("lost endpoint=%s what=%s", "cloud", Unprintable())
    assert capsys.readouterr().err.count("--- Logging error ---") == 2
