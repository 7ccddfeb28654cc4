"""``streamer dead-letters``: over a real journal, with the daemon's side of it running or not."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.cli import dead_letters as dead_letters_command
from streamer.cli.main import main
from streamer.journal.entries import Batch, Letter
from streamer.logs import audit_log
from streamer.uprotocol.message import Options, UMessage, UMessageType, UPayloadFormat, publish, request
from streamer.uprotocol.protobuf import message_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id
from tests.unit.journal.harness import JournalHarness, execute, letters_in

HOUR_MS = 3_600_000
NOW_MS = time.time_ns() // 1_000_000
SPEED = UUri.parse("//veh1/A8000/2/8A50")
DOORS = UUri.parse("//veh1/A8001/2/8A51")
METHOD = UUri.parse("//cloud/B0/1/10")
CALLER = UUri.parse("//veh1/A8000/2/0")
TOKEN = "not-for-anybody"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

# The day before yesterday, an hour ago, a minute ago.
OLD = publish(NOW_MS - 48 * HOUR_MS, SPEED, b'{"speed": 7}', Options(payload_format=UPayloadFormat.JSON))
EXPIRED = publish(NOW_MS - HOUR_MS, DOORS, b"\x00\x01\xfe" * 10, Options(ttl=5000, traceparent=TRACE, token=TOKEN))
CALL = request(NOW_MS - 60_000, CALLER, METHOD, 2 * HOUR_MS, b"x" * 600, Options(token=TOKEN))


def letter_of(number: int, message: UMessage, code: UCode, age_ms: int, route: str) -> Letter:
    attributes = message.attributes
    sink = "" if attributes.sink is None else str(attributes.sink)
    body = message_to_proto(message).SerializeToString()
    kind, text = int(attributes.type), f"it\x1b[31m was {code.name}"
    when = NOW_MS - age_ms
    outcome = "dead_lettered"
    return Letter(
        number, message.id, route, "vehicle", "cloud", outcome, code, text, 3, when - 50, when, kind,
        str(attributes.source), sink, body,
    )  # fmt: skip


LETTERS = [
    letter_of(1, OLD, UCode.RESOURCE_EXHAUSTED, 48 * HOUR_MS, "vehicle-cloud"),
    letter_of(2, EXPIRED, UCode.DEADLINE_EXCEEDED, HOUR_MS, "vehicle-cloud"),
    letter_of(3, CALL, UCode.UNAVAILABLE, 60_000, "vehicle-phone"),
]
IDS = [format_id(letter.id) for letter in LETTERS]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    desk = JournalHarness(path).open()
    desk.write(Batch(letters=LETTERS))
    desk.close()
    return path


def _config(tmp_path: Path, journal: str) -> Path:
    path = tmp_path / "streamer.yaml"
    path.write_text(f"""\
authority: gateway.veh1
endpoints:
  vehicle: {{transport: memory, authorities: [veh1], options: {{bus: letters-vehicle}}}}
  cloud: {{transport: memory, authorities: ["*"], options: {{bus: letters-cloud}}}}
routes:
  - {{from: vehicle, to: cloud}}
journal: {journal}
""")
    return path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs an action at `NOW_MS`; its status, output and complaints."""
    monkeypatch.setattr(dead_letters_command, "_now_ms", lambda: NOW_MS)

    def call(*words: str, journal: str | None = None) -> tuple[int, str, str]:
        config = _config(tmp_path, f"{{path: {tmp_path / 'journal.db'}}}" if journal is None else journal)
        try:
            status = main(["dead-letters", words[0], "--config", str(config), *words[1:]])
        except SystemExit as exc:
            status = int(exc.code or 0)
        return status, *capsys.readouterr()

    return call


pytestmark = pytest.mark.usefixtures("journal")

# list


def test_letters_are_listed_oldest_first_with_a_total(run: Run) -> None:
    status, out, err = run("list")
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


def test_json_lines_have_the_same(run: Run) -> None:
    status, out, _ = run("list", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [line["id"] for line in lines] == IDS
    assert lines[2] | {"when": "", "first": ""} == {
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
def test_filters_combine(run: Run, words: list[str], expected: list[int]) -> None:
    status, out, err = run("list", "--json", *words)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [IDS[n] for n in expected]
    assert status == (0 if expected else 1)
    assert err == ""


def test_no_match_is_reported(run: Run) -> None:
    assert run("list", "--route", "nowhere") == (1, "", "no such dead letter\n")


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
def test_wrong_filters_are_explained(run: Run, words: list[str], expected: str) -> None:
    status, out, err = run("list", *words)
    assert (status, out) == (2, "")
    assert expected in err


# show


def test_everything_about_a_letter_is_shown_but_not_the_token(run: Run) -> None:
    status, out, _ = run("show", IDS[1])
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


def test_a_binary_payload_is_shown_in_hex(run: Run) -> None:
    _, out, _ = run("show", IDS[1])
    assert out.splitlines()[-2:] == [
        "  0000  00 01 fe 00 01 fe 00 01 fe 00 01 fe 00 01 fe 00  ................",
        "  0010  01 fe 00 01 fe 00 01 fe 00 01 fe 00 01 fe        ..............",
    ]


def test_a_payload_that_is_text_is_shown_as_text(run: Run) -> None:
    assert run("show", IDS[0])[1].splitlines()[-1] == '  {"speed": 7}'


def test_a_long_payload_is_shown_in_part(run: Run) -> None:
    lines = run("show", IDS[2])[1].splitlines()
    assert lines[-2:] == ["  " + "x" * 512, "  … 88 bytes more"]
    assert "payload         600 bytes" in lines


def test_a_letter_with_a_damaged_body_is_shown_as_far_as_it_goes(run: Run, journal: Path) -> None:
    execute(journal, "UPDATE letters SET body = x'00' WHERE number = 1")
    status, out, _ = run("show", IDS[0])
    assert status == 0
    assert out.splitlines()[-1] == "the message cannot be shown: its body was changed"


def test_an_unknown_letter_is_reported(run: Run) -> None:
    assert run("show", format_id(bytes(16)))[0] == 1


# purge


def test_purge_deletes_what_matches(run: Run, journal: Path) -> None:
    assert run("purge", "--older-than", "30m") == (0, "2 dead letters deleted\n", "")
    assert letters_in(journal) == [(3, "vehicle-phone")]
    assert run("purge", "--all") == (0, "1 dead letter deleted\n", "")
    assert run("purge", "--all") == (1, "", "no such dead letter\n")


def test_purge_of_everything_needs_all(run: Run, journal: Path) -> None:
    assert run("purge") == (2, "", "purge: expected a filter, or --all for all of them\n")
    assert len(letters_in(journal)) == 3


# redrive


def test_redrive_goes_out_at_the_next_start(run: Run, journal: Path) -> None:
    status, out, _ = run("redrive", "--route", "vehicle-phone")
    assert (status, out) == (0, "1 dead letter to be redriven when the daemon starts; it is not running\n")
    desk, redriven = _daemon(journal)
    desk.loop.run_until(lambda: bool(redriven))
    desk.close()
    assert redriven == [(LETTERS[2], None)]
    assert "; 1 to be redriven" in run("list")[1]  # the router deletes the letter, not the command


def test_redrive_goes_out_through_the_running_daemon(run: Run, journal: Path) -> None:
    desk, redriven = _daemon(journal)
    status, out, _ = run("redrive", "--ttl", "30s", "--all")
    assert (status, out) == (0, "3 dead letters to be redriven now, by the running daemon\n")
    desk.loop.run_until(lambda: len(redriven) == 3)
    assert redriven == [(letter, 30_000) for letter in LETTERS]
    desk.write(Batch(letters_done=[1, 2, 3]))
    desk.close()
    assert letters_in(journal) == []


def test_marking_twice_sends_once(run: Run, journal: Path) -> None:
    desk, redriven = _daemon(journal)
    run("redrive", "--id", IDS[2])
    desk.loop.run_until(lambda: bool(redriven))
    run("redrive", "--id", IDS[2], "--ttl", "1h")
    run("redrive", "--id", IDS[0])
    desk.loop.run_until(lambda: len(redriven) == 2)
    desk.close()
    assert redriven == [(LETTERS[2], None), (LETTERS[0], None)]


def test_what_has_expired_needs_a_ttl(run: Run, journal: Path) -> None:
    status, out, _ = run("redrive")
    assert status == 0
    assert out.splitlines() == [
        f"not redriven: {IDS[1]} {DOORS}: expired 59m ago, use --ttl",
        "2 dead letters to be redriven when the daemon starts; it is not running",
    ]
    assert run("redrive", "--id", IDS[1])[0] == 1
    assert run("redrive", "--id", IDS[1], "--ttl", "0")[0] == 0


def test_a_request_cannot_live_for_ever(run: Run) -> None:
    status, out, err = run("redrive", "--id", IDS[2], "--ttl", "0")
    assert (status, err) == (1, "nothing to redrive\n")
    assert out == f"not redriven: {IDS[2]} {CALLER}: a Request needs a --ttl above 0\n"


def test_a_damaged_letter_is_not_sent(run: Run, journal: Path) -> None:
    execute(journal, "UPDATE letters SET body = x'00' WHERE number = 1")
    status, out, _ = run("redrive", "--id", IDS[0])
    assert (status, out) == (1, f"not redriven: {IDS[0]} {SPEED}: its body was changed\n")


@pytest.mark.parametrize("ttl", ["5", "0s", "60d", "never"])
def test_a_wrong_ttl_is_explained(run: Run, ttl: str) -> None:
    status, _, err = run("redrive", "--ttl", ttl)
    assert status == 2
    assert f"--ttl: '{ttl}': expected" in err


def _daemon(journal: Path) -> tuple[JournalHarness, list[tuple[Letter, int | None]]]:
    redriven: list[tuple[Letter, int | None]] = []
    desk = JournalHarness(journal).open(lambda letters, ttls: redriven.extend(zip(letters, ttls, strict=True)))
    return desk, redriven


# journals that cannot be used


@pytest.mark.parametrize("action", ["list", "purge", "redrive"])
def test_without_a_journal_there_is_nothing_to_work_on(run: Run, action: str) -> None:
    status, out, err = run(action, journal="null")
    assert (status, out) == (78, "")
    assert err.endswith("streamer.yaml: journal: null: dead letters are kept in the journal only\n")


def test_a_bad_configuration_is_explained(run: Run) -> None:
    status, _, err = run("list", journal="{pth: x}")
    assert status == 78
    assert "journal.pth" in err


def test_a_missing_journal_is_reported(run: Run, journal: Path) -> None:
    journal.unlink()
    assert run("list") == (74, "", f"{journal}: no such file; the daemon creates it when it starts\n")
    assert not journal.exists()


def test_an_empty_journal_is_reported_and_left_alone(run: Run, journal: Path) -> None:
    journal.write_bytes(b"")
    assert run("list")[0] == 74
    assert journal.read_bytes() == b""


def test_garbage_is_reported_and_left_alone(run: Run, journal: Path) -> None:
    journal.write_bytes(b"garbage" * 1000)
    status, out, err = run("list")
    assert (status, out) == (74, "")
    assert err.startswith(f"{journal}: damaged (file is not a database)")
    assert journal.read_bytes() == b"garbage" * 1000


def test_letters_of_no_known_kind_are_listed(run: Run, journal: Path) -> None:
    execute(journal, "UPDATE letters SET code = 99, type = 9, source = 'nowhere', last_ms = -1 WHERE number = 1")
    status, out, _ = run("list")
    assert status == 0
    assert out.splitlines()[1].split()[1:5] == ["99", "vehicle-cloud", "9", "nowhere"]
    assert UMessageType.PUBLISH.name.capitalize() in out


HOSTILE = "\x1b]0;owned\x07\x9b31m\u202eevil\u2028\x7f\n"
"""What a terminal would obey: a new title, a colour by a C1 control, text from right to left, a line separator."""


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["show", IDS[0]], ["redrive", "--all"], ["purge", "--all"]])
def test_a_terminal_is_shown_nothing_that_it_would_obey(tmp_path: Path, run: Run, words: list[str]) -> None:
    options = Options(ttl=1000, token=HOSTILE, payload_format=UPayloadFormat.TEXT)
    message = publish(NOW_MS - HOUR_MS, SPEED, HOSTILE.encode(), options)
    letter = letter_of(1, message, UCode.UNAVAILABLE, 1000, HOSTILE)._replace(
        ingress=HOSTILE, target=HOSTILE, outcome=HOSTILE, text=HOSTILE, source=HOSTILE, sink=HOSTILE
    )
    desk = JournalHarness(tmp_path / "hostile.db").open()
    desk.write(Batch(letters=[letter]))
    desk.close()
    words = [format_id(message.id) if word == IDS[0] else word for word in words]
    _, out, err = run(*words, journal="{path: " + str(tmp_path / "hostile.db") + "}")
    printed = (out + err).replace("\n", "")
    assert printed
    assert printed.isprintable()


@pytest.mark.parametrize(("action", "event"), [("redrive", "redriven"), ("purge", "purged")])
def test_acts_are_in_the_audit_log_with_the_user(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, event: str
) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    log, config = tmp_path / "audit.log", _config(tmp_path, f"{{path: {journal}}}\nlog: {{audit: {tmp_path}/audit.log}}")
    try:
        assert main(["dead-letters", action, "--config", str(config), "--id", IDS[2]]) == 0
        (line,) = (json.loads(text) for text in log.read_text().splitlines())
    finally:
        audit_log(None)
    assert (line["event"], line["where"], line["letters"]) == (event, "command line", 1)
    assert line["who"].endswith(" for alice")


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_what_cannot_be_recorded_is_not_done(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    config = _config(tmp_path, f"{{path: {journal}}}\nlog: {{audit: {tmp_path}/nowhere/audit.log}}")
    assert main(["dead-letters", action, "--config", str(config), "--all"]) == 74
    assert "log.audit: " in capsys.readouterr().err
    assert main(["dead-letters", "list", "--config", str(config)]) == 0
    assert "3 dead letters" in capsys.readouterr().out
