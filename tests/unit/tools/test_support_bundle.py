"""``streamer support-bundle``: what is in the archive, with a daemon and without one, and that no secret is."""

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.config.secrets import without_given
from streamer.journal.entries import Batch, Letter
from streamer.tools import support_bundle
from streamer.uprotocol.message import Options, publish
from streamer.uprotocol.protobuf import message_to_proto
from streamer.uprotocol.status import UCode
from tests.flow.harness import SPEED
from tests.ports import free_port
from tests.unit.features.api.daemon import running
from tests.unit.journal.harness import JournalHarness
from tests.unit.tools.commands import GOOD, answering, response, status_of, unpacked
from tests.unit.tools.letters import LETTERS, NOW_MS, letter_of

CANARIES = {
    name: f"canary-{name}-x7Qp"
    for name in ("password", "user", "token", "made", "header", "environment", "payload", "letter", "logged", "bearer")
}


def assert_no_canary(files: dict[str, str]) -> None:
    found = [(name, file) for file, text in files.items() for name, canary in CANARIES.items() if canary in text]
    assert found == []


def journal_with_canaries(path: Path) -> None:
    options = Options(token=CANARIES["letter"])
    message = publish(NOW_MS, SPEED, CANARIES["payload"].encode(), options)
    assert CANARIES["payload"].encode() in message_to_proto(message).SerializeToString()
    letters: list[Letter] = [letter_of(9, message, UCode.UNAVAILABLE, 1000, "vehicle-cloud"), *LETTERS]
    desk = JournalHarness(path).open()
    desk.write(Batch(letters=letters))
    desk.close()


@pytest.fixture
def secretive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with a secret wherever one can stand, and a log that has them all."""
    for name, canary in CANARIES.items():
        (tmp_path / name).write_text(f"{canary}\n")
    (tmp_path / "header").write_text(f"Authorization: Basic {CANARIES['header']}\nX-Key: {CANARIES['header']}2\n")
    (tmp_path / "journal-token").write_text(CANARIES["made"])
    (tmp_path / "journal-token").chmod(0o600)
    monkeypatch.setenv("USTREAMER_CANARY", CANARIES["environment"])
    monkeypatch.setenv("USTREAMER_USER", CANARIES["user"])
    journal_with_canaries(tmp_path / "journal.db")
    path = tmp_path / "streamer.yaml"
    path.write_text(f"""\
authority: gateway.veh1
endpoints:
  cloud:
    transport: mqtt5
    authorities: ["*"]
    options:
      broker: mqtt://127.0.0.1:{free_port()}
      username: ${{USTREAMER_USER}}
      password_file: {tmp_path}/password
      client_id: gw
  vehicle: {{transport: memory, authorities: [veh1], options: {{bus: bundle}}}}
routes: [{{from: vehicle, to: cloud}}]
metrics: {{listen: "127.0.0.1:{free_port()}"}}
otel: {{endpoint: "http://127.0.0.1:{free_port()}", headers_file: {tmp_path}/header}}
journal: {{path: {tmp_path}/journal.db}}
""")
    log = [f"password {CANARIES['password']}", f"made {CANARIES['made']}", f"header {CANARIES['header']}2"]
    log += [f"connecting mqtts://someone:{CANARIES['logged']}@broker:8883", f"Authorization: Bearer {CANARIES['bearer']}"]
    (tmp_path / "log").write_text("\n".join([*log, "last line"]))
    return path


@pytest.mark.needs("judge")
def test_no_secret_is_in_it_wherever_one_stands(secretive: Path, tmp_path: Path) -> None:
    output = tmp_path / "bundle.tar.gz"
    words = ("--config", str(secretive), "--log-file", str(tmp_path / "log"), "--output", str(output))
    assert status_of("support-bundle", *words) == 0
    files = unpacked(output)
    assert_no_canary(files)
    assert_no_canary({"names": " ".join(files), "raw": output.read_bytes().decode(errors="replace")})
    assert files["log.txt"].endswith("\nlast line")
    assert files["log.txt"].count("(withheld)") == 5
    assert f"password_file: {tmp_path}/password" in files["config.yaml"]
    assert json.loads(files["versions.json"])["packages"]["mqtt5"]
    journal = json.loads(files["journal.json"])
    assert journal["entries"]["letters"] == 4
    assert {(each["reason"], each["number"]) for each in journal["dead_letters"] if each["route"] == "vehicle-cloud"} == {
        ("UNAVAILABLE", 1), ("RESOURCE_EXHAUSTED", 1), ("DEADLINE_EXCEEDED", 1)
    }  # fmt: skip


@pytest.mark.needs("judge")
def test_with_the_daemon_down_it_says_so_once_and_has_the_rest(
    secretive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "b.tar.gz"
    words = ("--config", str(secretive), "--log-file", str(tmp_path / "none"), "--output", str(output), "--json")
    assert status_of("support-bundle", *words) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["missing"]) == {"daemon", "log.txt"}
    assert "no streamer answers there" in said["missing"]["daemon"]
    assert said["missing"]["log.txt"] == f"{tmp_path}/none: No such file or directory"
    files = unpacked(output)
    assert sorted(files) == said["files"]
    assert set(files) == {"config.yaml", "config-hints.txt", "versions.json", "journal.json", "contents.json"}
    assert json.loads(files["contents.json"])["missing"] == said["missing"]


@pytest.mark.needs("judge", "pair", "pause")
async def test_of_a_daemon_that_runs_it_has_state_metrics_and_configuration(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a line")
    async with running(tmp_path) as served:
        message = publish(NOW_MS, SPEED, CANARIES["payload"].encode(), Options(token=CANARIES["token"]))
        served.arrive("vehicle", message)
        output = tmp_path / "b.tar.gz"
        words = ("--config", str(served.file), "--log-file", str(tmp_path / "log"), "--output", str(output))
        assert await asyncio.to_thread(status_of, "support-bundle", *words) == 0
        token = served.token_file.read_text().strip()
    files = unpacked(output)
    assert json.loads(files["contents.json"])["missing"] == {}
    assert "pair.json" not in files  # it works alone
    pages = support_bundle._PAGES.keys() - {"pair.json"}
    assert {*pages, "config.yaml", "journal.json", "log.txt", "versions.json"} <= set(files)
    assert json.loads(files["status.json"])["name"] == "ustreamer"
    assert {each["name"] for each in json.loads(files["endpoints.json"])["endpoints"]} >= {"vehicle", "cloud"}
    assert "ustreamer_build_info" in files["metrics.txt"]
    assert_no_canary(files)
    assert token not in "".join(files.values())


def test_only_its_owner_may_read_it_and_nothing_is_replaced(good: str, tmp_path: Path) -> None:
    output = tmp_path / "b.tar.gz"
    words = ("support-bundle", "--config", good, "--log-file", good, "--output", str(output))
    before = os.umask(0)
    try:
        assert status_of(*words) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    first = output.read_bytes()
    assert status_of(*words) == 2
    assert output.read_bytes() == first
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert status_of(*words[:-1], str(tmp_path / "link")) == 2
    assert not (tmp_path / "target").exists()


def test_a_configuration_that_is_wrong_is_told_and_shows_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace("metrics: null", f"password: {CANARIES['password']}\nmetrics: null"))
    output = tmp_path / "b.tar.gz"
    assert status_of("support-bundle", "--config", str(path), "--log-file", __file__, "--output", str(output)) == 0
    assert "secrets withheld as far as the configuration names them, for it is wrong." in capsys.readouterr().out
    files = unpacked(output)
    assert "a secret does not belong here" in files["config-problems.txt"]
    assert_no_canary({name: text for name, text in files.items() if name != "log.txt"})


@pytest.mark.parametrize("mistake", ["bogus: 1", "a: [", "b: {"])
def test_the_log_beside_a_configuration_that_is_wrong_shows_none_of_its_secrets(mistake: str, tmp_path: Path) -> None:
    secret, log, config = tmp_path / "password", tmp_path / "log", tmp_path / "streamer.yaml"
    secret.write_text(CANARIES["password"])
    log.write_text(f"no: {CANARIES['password']}\nProxy-Authorization: Basic {CANARIES['header']}\n")
    config.write_text(f"endpoints: {{cloud: {{options: {{password_file: {secret}}}}}}}\n{mistake}\n")
    output = tmp_path / "bundle.tar.gz"
    assert status_of("support-bundle", "--config", str(config), "--log-file", str(log), "--output", str(output)) == 0
    files = unpacked(output)
    assert "config.yaml" not in files
    assert files["log.txt"].startswith("no: (withheld)")
    assert_no_canary(files)


LOOKS_SECRET = [
    f'password={CANARIES["password"]}', f'"api_key": "{CANARIES["token"]}"', f"Secret: {CANARIES['logged']} and more",
]  # fmt: skip


@pytest.mark.parametrize("words", [("--config", "MISSING"), ()], ids=["that is not there", "that nobody names"])
def test_with_a_configuration_that_is_not_there_it_says_so_and_promises_nothing(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("USTREAMER_CONFIG", raising=False)
    monkeypatch.setattr("streamer.main.DEFAULT_CONFIG", tmp_path / "default.yaml")
    missing = tmp_path / "missing.yaml"
    (tmp_path / "log").write_text("\n".join([*LOOKS_SECRET, "password_file: /etc/ustreamer/password"]))
    for number, extra in enumerate(((), ("--json",))):
        named = [word.replace("MISSING", str(missing)) for word in words]
        more = ("--log-file", str(tmp_path / "log"), "--output", str(tmp_path / f"{number}.tar.gz"), *extra)
        assert status_of("support-bundle", *named, *more) == 0
        out, err = capsys.readouterr()
        assert err == ""
        if extra:
            said = json.loads(out)
            assert said["secrets"] == "unknown"
            assert {"config.yaml"} <= said["missing"].keys()
        else:
            assert "no secrets" not in out
            assert "only what looks like a secret is withheld, for the configuration is not known. Look at it" in out
            told = f"{missing}: there is no such file\n" if words else "no --config, and no default file"
            assert f"not in it: config.yaml: {told}" in out
        files = unpacked(tmp_path / f"{number}.tar.gz")
        assert "config-problems.txt" not in files
        assert_no_canary(files)
        assert files["log.txt"].endswith("\npassword_file: /etc/ustreamer/password")


def test_the_answers_of_a_daemon_elsewhere_are_promised_no_more_than_what_looks_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(*[response("200 OK", "{}")] * len(support_bundle._PAGES)) as (port, _):
        assert status_of("support-bundle", "--url", f"http://127.0.0.1:{port}", "--output", str(tmp_path / "b.tar.gz")) == 0
    out = capsys.readouterr().out
    assert "only what looks like a secret is withheld" in out
    assert "not in it" not in out


def test_a_configuration_that_this_user_may_not_read_is_no_wrong_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--config", str(tmp_path), "--log-file", __file__, "--output", str(tmp_path / "b.tar.gz"))  # root may read all
    assert status_of("support-bundle", *words) == 0
    assert f"not in it: config.yaml: {tmp_path}: Is a directory\n" in capsys.readouterr().out


def test_it_is_bounded_whatever_answers_and_however_long_the_log_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_bundle, "FILE_BYTES", 1000)
    (tmp_path / "token").write_text("0123456789abcdef0123")
    long = response("200 OK", "x" * 5000)
    with answering(*[long] * len(support_bundle._PAGES)) as (port, _):
        output = tmp_path / "b.tar.gz"
        assert status_of("support-bundle", "--url", f"http://127.0.0.1:{port}", "--output", str(output)) == 0
    files = unpacked(output)
    assert {len(files[name].encode()) for name in support_bundle._PAGES} == {1000}
    assert max(len(text.encode()) for text in files.values()) <= 1000
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert support_bundle._bounded(support_bundle._log(log, ""), from_end=True).endswith("line 999\n")


@pytest.fixture
def journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a program of this name on PATH, which runs a script."""

    def install(script: str) -> None:
        program = tmp_path / "bin" / "journalctl"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    return install


def test_the_log_is_that_of_the_systemd_journal(
    good: str, tmp_path: Path, journalctl: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    journalctl('echo "$@"')
    output = tmp_path / "b.tar.gz"
    assert status_of("support-bundle", "--config", good, "--unit", "gw", "--output", str(output)) == 0
    assert unpacked(output)["log.txt"].startswith("--unit gw --lines 5000")
    journalctl('echo "No journal files were opened" >&2')
    output.unlink()
    assert status_of("support-bundle", "--config", good, "--output", str(output)) == 0
    out = capsys.readouterr().out
    assert "not in it: log.txt: the systemd journal of the unit streamer: No journal files were opened" in out


SECRET = "canary"
LINES_WITH_SECRETS = [
    f"Cookie: session={SECRET}; other={SECRET}",
    f'"Set-Cookie": "a={SECRET}; HttpOnly"',
    f"Proxy-Authorization: Digest username={SECRET} response={SECRET}",
    f"GET https://store.example/path?x=1&sig={SECRET}%2B&se=2027 failed",
    f"wss://broker.example/mqtt?access={SECRET} refused",
    f"using token {SECRET}7Qp",
    f"token {SECRET}-without-a-digit",
    f'password="{SECRET} {SECRET}" and more',
    f"password: '{SECRET} {SECRET}' and more",
    f'{{"password": "{SECRET} \\"{SECRET}\\"", "event": "x"}}',
    f'"{{\\"api_key\\": \\"{SECRET} {SECRET}\\"}}"',
]


@pytest.mark.parametrize("line", LINES_WITH_SECRETS)
def test_what_looks_like_a_secret_in_a_log_is_withheld(line: str) -> None:
    shown = without_given(line)
    assert SECRET not in shown
    assert "(withheld)" in shown


@pytest.mark.parametrize(
    "line",
    [
        "token expired 3 s ago",
        "the password is wrong",
        "password authentication failed",
        "password_file: /etc/ustreamer/password",
        "route=vehicle-cloud messages=7 path=/var/lib/streamer",
        "GET /api/v1/flows 200",
    ],
)
def test_what_is_no_secret_in_a_log_stays(line: str) -> None:
    assert without_given(line) == line


def test_what_the_environment_gave_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and defaults, of any length in the configuration; the name of a share, and the path of a WebSocket."""
    monkeypatch.setenv("SITE", "s3cr3t")
    monkeypatch.setenv("VEHICLE", "wvwzzz1jz3w386752")
    path = tmp_path / "streamer.yaml"
    path.write_text("""\
authority: gateway.${VEHICLE}
endpoints:
  cloud:
    transport: mqtt5
    authorities: ["*"]
    options:
      broker: wss://broker.example:8883/canary-path
      client_id: ${SITE}
      share: canary-group
      username: u
      password_file: ${FILE:-/run/canary-default}
  vehicle: {transport: memory, authorities: ["${VEHICLE}"], options: {bus: "${BUS:-canary-bus}"}}
routes: [{from: vehicle, to: cloud}]
metrics: null
journal: null
""")
    (tmp_path / "log").write_text("canary-bus is up, and wvwzzz1jz3w386752\n")
    output = tmp_path / "b.tar.gz"
    words = ("--config", str(path), "--log-file", str(tmp_path / "log"), "--output", str(output))
    assert status_of("support-bundle", *words) == 0
    files = unpacked(output)
    assert [name for name, text in files.items() if "canary" in text or "s3cr3t" in text] == []
    assert "wvwzzz1jz3w386752" in files["config.yaml"]
    assert files["log.txt"] == "(withheld) is up, and wvwzzz1jz3w386752\n"
    assert "broker: wss://broker.example:8883/(withheld)" in files["config.yaml"]


def test_what_the_environment_gave_is_not_in_what_the_daemon_uses_either() -> None:
    text = json.dumps({"a": ["short", {"b": "shorter"}], "short": 1})
    assert json.loads(support_bundle._without_inserted(text, {"short"})) == {
        "a": ["(withheld)", {"b": "shorter"}],
        "short": 1,
    }
