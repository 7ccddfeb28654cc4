"""``streamer dead-letters list`` and ``show``, over a real journal, and over what is none."""

import json
from pathlib import Path

import pytest

from streamer.journal.entries import Batch
from streamer.uprotocol.message import Options, UMessageType, UPayloadFormat, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uuid import format_id
from tests.unit.journal.harness import JournalHarness, execute
from tests.unit.tools.commands import Run, answering, response, status_of
from tests.unit.tools.letters import (
    CALLER,
    DOORS,
    HOUR_MS,
    IDS,
    LETTERS,
    METHOD,
    NOW_MS,
    SPEED,
    TOKEN,
    TRACE,
    config_with,
    letter_of,
)

# list


@pytest.fixture
def from_the_future(journal: Path) -> None:
    """Letters 4 and 5: our clock was 1023 weeks ahead, or two days."""
    desk = JournalHarness(journal).open()
    ahead = [
        letter_of(4 + n, publish(NOW_MS, SPEED), UCode.UNAVAILABLE, -hours * HOUR_MS, "up")
        for n, hours in enumerate((1023 * 168, 48))
    ]
    desk.write(Batch(letters=ahead))
    desk.close()


@pytest.mark.usefixtures("from_the_future")
@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), [1, 2, 3, 4, 5]),
        (("--older-than", "30m"), [1, 2, 4, 5]),
        (("--older-than", "9w"), [4, 5]),
        (("--newer-than", "2h"), [2, 3]),
    ],
)
def test_letters_from_the_future_count_as_older_than_all_others(
    dead_letters: Run, words: tuple[str, ...], numbers: list[int]
) -> None:
    _, out, _ = dead_letters("list", "--json", *words)
    assert [json.loads(line)["number"] for line in out.splitlines()] == numbers


@pytest.mark.usefixtures("from_the_future")
def test_the_age_of_a_letter_from_the_future_is_unknown(dead_letters: Run) -> None:
    _, out, _ = dead_letters("list")
    assert [line.split()[7] for line in out.splitlines()[1:6]] == ["2d", "60m", "60s", "unknown", "unknown"]


def test_a_letter_of_an_id_from_the_future_has_the_deadline_that_it_had(dead_letters: Run, journal: Path) -> None:
    message = publish(NOW_MS + 1024 * 168 * HOUR_MS, SPEED, b"x", Options(ttl=5000))
    desk = JournalHarness(journal).open()
    desk.write(Batch(letters=[letter_of(4, message, UCode.UNAVAILABLE, 2 * HOUR_MS, "up")]))
    desk.close()
    _, out, _ = dead_letters("show", format_id(message.id))
    assert "5000 ms, expired 119m ago" in out


def test_letters_are_listed_oldest_first_with_a_total(dead_letters: Run) -> None:
    status, out, err = dead_letters("list")
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0].split() == ["WHEN", "REASON", "ROUTE", "TYPE", "SOURCE", "SINK", "ID", "AGE", "SIZE"]
    assert [line.split()[1:7] for line in lines[1:4]] == [
        ["RESOURCE_EXHAUSTED", "vehicle-cloud", "Publish", str(SPEED), "-", IDS[0]],
        ["DEADLINE_EXCEEDED", "vehicle-cloud", "Publish", str(DOORS), "-", IDS[1]],
        ["UNAVAILABLE", "vehicle-phone", "Request", str(CALLER), str(METHOD), IDS[2]],
    ]
    assert [line.split()[7] for line in lines[1:4]] == ["2d", "60m", "60s"]
    assert lines[4] == f"3 dead letters, {sum(len(letter.body) for letter in LETTERS)} bytes"


@pytest.mark.parametrize(("words", "expected"), [([], [2, 1, 0]), (["--route", "vehicle-cloud"], [1, 0])])
def test_the_newest_come_first_if_asked(dead_letters: Run, words: list[str], expected: list[int]) -> None:
    _, out, _ = dead_letters("list", "--json", "--newest", *words)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [IDS[each] for each in expected]


def test_json_lines_have_the_same(dead_letters: Run) -> None:
    status, out, _ = dead_letters("list", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [line["id"] for line in lines] == IDS
    assert lines[2] | {"when": "", "first": ""} == {
        "number": 3,
        "redrive_ttl_ms": None,
        "id": IDS[2],
        "when": "",
        "age_s": 60.0,
        "reason": "UNAVAILABLE",
        "text": LETTERS[2].text,
        "outcome": "dead_lettered",
        "route": "vehicle-phone",
        "ingress": "vehicle",
        "egress": "cloud",
        "attempts": 3,
        "first": "",
        "type": "request",
        "source": str(CALLER),
        "sink": str(METHOD),
        "size": len(LETTERS[2].body),
        "redrive": None,
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--route", "vehicle-cloud"], [0, 1]),
        (["--reason", "deadline_exceeded"], [1]),
        (["--reason", "Resource-Exhausted"], [0]),
        (["--source", "//veh1/A8000/2/FFFF"], [0, 2]),
        (["--source", "//*/FFFFFFFF/FF/8A51"], [1]),
        (["--source", "up://*/FFFFFFFF/FF/8A51"], [1]),
        (["--sink", "UP://*/FFFFFFFF/FF/FFFF"], [2]),
        (["--sink", "//*/FFFFFFFF/FF/FFFF"], [2]),
        (["--older-than", "30m"], [0, 1]),
        (["--older-than", "1.5d"], [0]),
        (["--newer-than", "2h"], [1, 2]),
        (["--newer-than", "2h", "--older-than", "30m"], [1]),
        (["--id", IDS[2]], [2]),
        (["--id", IDS[2].upper()], [2]),
        (["--route", "vehicle-cloud", "--source", "//veh1/A8000/2/FFFF"], [0]),
        (["--route", "vehicle-phone", "--reason", "INTERNAL"], []),
    ],
)
def test_filters_combine(dead_letters: Run, words: list[str], expected: list[int]) -> None:
    status, out, err = dead_letters("list", "--json", *words)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [IDS[n] for n in expected]
    assert status == (0 if expected else 1)
    assert err == ""


def test_a_length_of_time_may_reach_beyond_all_calendars(dead_letters: Run) -> None:
    status, out, _ = dead_letters("list", "--json", "--newer-than", "999999999999999999w")
    assert (status, len(out.splitlines())) == (0, len(IDS))
    assert dead_letters("list", "--older-than", "999999999999999999w") == (1, "", "found no dead letter\n")


def test_no_match_is_reported(dead_letters: Run) -> None:
    assert dead_letters("list", "--route", "nowhere") == (1, "", "found no dead letter\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--reason", "UNAVAILABEL"], "--reason: 'UNAVAILABEL': expected one of CANCELLED, UNKNOWN,"),
        (["--reason", "UNAVAILABEL"], "did you mean 'UNAVAILABLE'?"),
        (["--reason", "OK"], "--reason: 'OK': expected one of"),
        (["--older-than", "2"], "--older-than: '2': expected a number and a unit (ms, s, m, h, d, w), such as 30m, 2h, 7d"),
        (["--newer-than", "-2h"], "--newer-than: expected one argument"),
        (["--source", "veh1"], "--source: 'veh1': expected up://authority/ue_id/version/resource"),
        (["--sink", "//a/b"], "--sink: '//a/b': expected exactly three path segments"),
        (["--id", "7"], "--id: '7': expected the id of a message (a UUID)"),
    ],
)
def test_wrong_filters_are_explained(dead_letters: Run, words: list[str], expected: str) -> None:
    status, out, err = dead_letters("list", *words)
    assert (status, out) == (2, "")
    assert expected in err


# show


def test_everything_about_a_letter_is_shown_but_not_the_token(dead_letters: Run) -> None:
    status, out, _ = dead_letters("show", IDS[1])
    assert status == 0
    found = dict(line.split(None, 1) for line in out.splitlines() if not line.startswith("  "))
    assert found["id"] == IDS[1]
    assert found["source"] == str(DOORS)
    assert found["sink"] == "-"
    assert found["reason"] == "DEADLINE_EXCEEDED: it\ufffd[31m was DEADLINE_EXCEEDED"  # no colours from strangers
    assert found["attempts"] == "3"
    assert found["endpoints"] == "from vehicle to cloud"
    assert found["ttl"] == "5000 ms, expired 59m ago"
    assert found["priority"] == "CS1 (unspecified)"
    assert found["traceparent"] == TRACE
    assert found["token"] == "present, not shown"
    assert TOKEN not in out


def test_a_binary_payload_is_shown_in_hex(dead_letters: Run) -> None:
    _, out, _ = dead_letters("show", IDS[1])
    assert out.splitlines()[-2:] == [
        "  0000  00 01 fe 00 01 fe 00 01 fe 00 01 fe 00 01 fe 00  ................",
        "  0010  01 fe 00 01 fe 00 01 fe 00 01 fe 00 01 fe        ..............",
    ]


def test_a_payload_that_is_text_is_shown_as_text(dead_letters: Run) -> None:
    assert dead_letters("show", IDS[0])[1].splitlines()[-1] == '  {"speed": 7}'


def test_a_long_payload_is_shown_in_part(dead_letters: Run) -> None:
    lines = dead_letters("show", IDS[2])[1].splitlines()
    assert lines[-2:] == ["  " + "x" * 512, "  … 88 bytes more"]
    assert "payload         600 bytes" in lines


def test_a_letter_with_a_damaged_body_is_shown_as_far_as_it_goes(dead_letters: Run, journal: Path) -> None:
    execute(journal, "UPDATE letters SET body = x'00' WHERE number = 1")
    status, out, _ = dead_letters("show", IDS[0])
    assert status == 0
    assert out.splitlines()[-1] == "the message cannot be shown: its body was changed"


def test_an_unknown_letter_is_reported(dead_letters: Run) -> None:
    assert dead_letters("show", format_id(bytes(16)))[0] == 1


# journals that cannot be used


def test_without_a_journal_there_is_nothing_to_work_on(dead_letters: Run) -> None:
    status, out, err = dead_letters("list", journal="null")
    assert (status, out) == (78, "")
    assert err.endswith("streamer.yaml: journal: null: dead letters are kept in the journal only\n")


def test_a_bad_configuration_is_explained(dead_letters: Run) -> None:
    status, _, err = dead_letters("list", journal="{pth: x}")
    assert status == 78
    assert "journal.pth" in err


def test_a_missing_journal_is_reported(dead_letters: Run, journal: Path) -> None:
    journal.unlink()
    assert dead_letters("list") == (74, "", f"{journal}: no such file; the daemon creates it when it starts\n")
    assert not journal.exists()


def test_an_empty_journal_is_reported_and_left_alone(dead_letters: Run, journal: Path) -> None:
    journal.write_bytes(b"")
    assert dead_letters("list")[0] == 74
    assert journal.read_bytes() == b""


def test_garbage_is_reported_and_left_alone(dead_letters: Run, journal: Path) -> None:
    journal.write_bytes(b"garbage" * 1000)
    status, out, err = dead_letters("list")
    assert (status, out) == (74, "")
    assert err.startswith(f"{journal}: damaged (file is not a database)")
    assert journal.read_bytes() == b"garbage" * 1000


def test_letters_of_no_known_kind_are_listed(dead_letters: Run, journal: Path) -> None:
    execute(journal, "UPDATE letters SET code = 99, type = 9, source = 'nowhere', last_ms = -1 WHERE number = 1")
    status, out, _ = dead_letters("list")
    assert status == 0
    assert out.splitlines()[1].split()[1:5] == ["99", "vehicle-cloud", "9", "nowhere"]
    assert UMessageType.PUBLISH.name.capitalize() in out


HOSTILE = "\x1b]0;owned\x07\x9b31m\u202eevil\u2028\x7f\n"
"""What a terminal would obey: a new title, a colour by a C1 control, text from right to left, a line separator."""


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["show", IDS[0]]])
def test_a_terminal_is_shown_nothing_that_it_would_obey(tmp_path: Path, dead_letters: Run, words: list[str]) -> None:
    options = Options(ttl=1000, token=HOSTILE, payload_format=UPayloadFormat.TEXT)
    message = publish(NOW_MS - HOUR_MS, SPEED, HOSTILE.encode(), options)
    letter = letter_of(1, message, UCode.UNAVAILABLE, 1000, HOSTILE)._replace(
        ingress=HOSTILE, target=HOSTILE, outcome=HOSTILE, text=HOSTILE, source=HOSTILE, sink=HOSTILE
    )
    desk = JournalHarness(tmp_path / "hostile.db").open()
    desk.write(Batch(letters=[letter]))
    desk.close()
    words = [format_id(message.id) if word == IDS[0] else word for word in words]
    _, out, err = dead_letters(*words, journal="{path: " + str(tmp_path / "hostile.db") + "}")
    printed = (out + err).replace("\n", "")
    assert printed
    assert printed.isprintable()


# whom it asks


@pytest.mark.parametrize("lock", ["free", "of somebody else"])
def test_a_lock_that_cannot_be_looked_at_may_be_that_of_a_daemon(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], lock: str
) -> None:
    """Which is asked then, and knows other letters than the file. Where nobody answers, the file is read."""
    if lock != "free":
        locked = journal.with_name(f"{journal.name}.lock")
        locked.unlink(missing_ok=True)
        locked.symlink_to(locked)  # opening it fails, as it does without the rights, but for root as well
    answers = [response("200 OK", '{"name": "gw"}'), response("200 OK", '{"dead_letters": [], "next": null}')]
    path = config_with(tmp_path, f"{{path: {journal}}}")
    with answering(*answers if lock != "free" else ()) as (port, asked):
        path.write_text(path.read_text().replace("metrics: null", f'metrics: {{listen: "127.0.0.1:{port}"}}'))
        status = status_of("dead-letters", "list", "--json", "--config", str(path))
    out, _ = capsys.readouterr()
    assert (status, len(out.splitlines()), len(asked)) == ((0, 3, 0) if lock == "free" else (1, 0, 2))
    assert status_of("dead-letters", "list", "--json", "--config", str(path)) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
