"""``streamer init``: what it asks, what it refuses, and that what it writes is a good file."""

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from streamer.config.load import load, warnings
from streamer.features.every import FILE
from streamer.main import main
from streamer.tools.init_file import LISTEN, ROLES
from tests.unit.tools.commands import status_of

ROOT = Path(__file__).parents[3]
VEHICLE = f"veh1={LISTEN}tls/0.0.0.0:7447"
GATEWAY = ("init", "--role", "ustreamer", "--device", VEHICLE, "--cloud", "backend=mqtts://broker.example")
BY_ROLE = {
    "ustreamer": ("--device", VEHICLE, "--device", "ivi=mqtts://10.0.0.2", "--cloud", "backend=mqtts://broker.example"),
    "cloud-gateway": ("--device", "veh1=mqtts://b1.example", "--device", "[::1]=mqtts://b2", "--cloud", "b=mqtts://c"),
    "device-proxy-router": ("--device", "dev-a=tls/a.example:7447,tls/a2.example:7447", "--device", "dev-b=mqtts://b:1"),
    "ubus": (
        "--device",
        f"hpc={LISTEN}tls/10.0.0.1:7451",
        "--device",
        f"cloud={LISTEN}tls/10.0.0.1:7452",
        "--metrics",
        "[::1]:0",
    ),
}


def written(path: Path, *words: str) -> str:
    assert status_of(*words, "--output", str(path)) == 0
    return path.read_text()


def test_there_is_an_answer_for_every_role_that_has_a_file() -> None:
    assert set(ROLES) == {path.stem for path in (ROOT / "config/roles").glob("*.yaml")} == set(BY_ROLE)


@pytest.mark.needs("check")
@pytest.mark.parametrize("role", ROLES)
def test_check_passes_and_has_no_hint(role: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "streamer.yaml"
    text = written(path, "init", "--role", role, "--authority", "me", *BY_ROLE[role])
    assert main(["check", "--config", str(path)]) == 0
    config = load(path, {}, kind=FILE)
    # A device with two addresses, as they were given: they may be routers that are linked.
    found = [each for each in warnings(config) if not each.startswith("endpoints.dev-a.options.connect: ")]
    assert found == []
    assert "".join(capsys.readouterr()).count(": hint: ") == len(warnings(config))
    assert config.authority == "me"
    assert {name for each in config.endpoints.values() for name in each.authorities} == {
        word.partition("=")[0] for word in BY_ROLE[role] if "=" in word
    }
    assert f"config/roles/{role}.yaml" in text


@pytest.mark.parametrize("role", [None, *ROLES])
def test_yes_takes_addresses_of_this_machine_and_says_so(
    role: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "a.yaml", "init", "--yes", *(["--role", role] if role else []))
    said = capsys.readouterr().err
    assert f"taken: --device {'dev' if role in ('ubus', 'device-proxy-router') else 'veh'}1=" in said
    text = (tmp_path / "a.yaml").read_text()
    assert f"config/roles/{role or 'ustreamer'}.yaml" in text
    addresses = [line.partition("=")[2] for line in said.splitlines() if line.startswith("taken: ")]
    assert len(addresses) == len(set(addresses)) == 2
    assert all("127.0.0.1" in each and each.removeprefix(LISTEN) in text for each in addresses)


def test_a_gateway_has_no_route_between_vehicles(tmp_path: Path) -> None:
    written(tmp_path / "a.yaml", "init", "--role", "cloud-gateway", *BY_ROLE["cloud-gateway"])
    routes = {(route.from_, route.to) for route in load(tmp_path / "a.yaml", {}, kind=FILE).routes}
    assert len(routes) == 4
    assert all("cloud" in pair for pair in routes)


@pytest.mark.parametrize(
    ("role", "topics"),
    [
        ("cloud-gateway", {"veh1": "in-vehicle", "[::1]": "in-vehicle", "b": "off-vehicle"}),
        ("device-proxy-router", {"dev-b": "off-vehicle"}),
    ],
)
def test_the_role_says_how_topics_are_made(tmp_path: Path, role: str, topics: dict[str, str]) -> None:
    written(tmp_path / "a.yaml", "init", "--role", role, *BY_ROLE[role])
    endpoints = load(tmp_path / "a.yaml", {}, kind=FILE).endpoints.values()
    assert {each.authorities[0]: each.options.topics for each in endpoints if each.transport == "mqtt5"} == topics


def test_certificates_and_the_journal_are_files(tmp_path: Path) -> None:
    words = ("--ca-file", "/etc/a: b/ca", "--cert-file", "/c", "--key-file", "/k")
    written(tmp_path / "a.yaml", *GATEWAY, *words, "--journal", "/j.db")
    config = load(tmp_path / "a.yaml", {}, kind=FILE)
    cloud = config.endpoints["cloud"].options
    assert (cloud.tls.ca_file, cloud.tls.key_file) == (Path("/etc/a: b/ca"), Path("/k"))
    assert config.journal is not None
    assert config.journal.path == Path("/j.db")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "required: --device"),
        ((*GATEWAY[1:], "--cert-file", "/k", "--yes"), "required: --key-file"),
        (("--role", "router"), "--role: expected one of ustreamer,"),
        (("--role", "ubus", "--device", "a=tcp/h:1"), "--device, at least 2 times"),
        (("--role", "ubus", "--device", "a=mqtt://h"), "expected endpoints of Zenoh"),
        (("--role", "ubus", "--device", "a=tcp/h:1", "--device", "a=tcp/h:1"), "given already"),
        (("--role", "ubus", "--cloud", "a=mqtt://h", "--device", "a=tcp/h:1", "--device", "b=tcp/h:1"), "--cloud: not with"),
        (("--role", "ustreamer", "--device", "a"), "--device: expected AUTHORITY=ADDRESS"),
        (("--role", "ustreamer", "--device", "A=tcp/h:1"), "lower-case letters"),
        (("--role", "ustreamer", "--device", "a=http://h"), "expected"),
        (("--role", "ustreamer", "--device", "a=mqtt://h,mqtt://g"), "expected one broker"),
        (("--role", "ustreamer", "--device", "a=mqtt://h"), "required: --cloud"),
        (("--role", "ustreamer", "--device", "a=mqtt://h", "--cloud", "b=tcp/h:1"), "--cloud: expected"),
        (("--role", "ustreamer", "--role", "ubus"), "--role: expected once"),
        (("--role", "ustreamer", "--authority", "x\ny: 1"), "--authority: authority: expected one authority"),
        ((*GATEWAY[1:], "--key-file", "/k"), "--key-file: not with"),
        ((*GATEWAY[1:], "--cert-file", "/k"), "required: --key-file"),
        ((*GATEWAY[1:], "--metrics", "9464"), "--metrics: metrics.listen: expected host:port"),
        ((*GATEWAY[1:], "--password", "secret"), "unrecognized arguments: --password"),
    ],
)
def test_wrong_flags_are_wrong_usage(
    words: tuple[str, ...], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("init", *words, "--output", str(tmp_path / "a.yaml")) == 2
    assert expected in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_a_password_in_an_address_is_refused_and_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("init", "--role", "ustreamer", "--device", "veh1=mqtt://me:hunter2@h")
    assert status_of(*words, "--output", str(tmp_path / "a.yaml")) == 2
    error = capsys.readouterr().err
    assert "password_file" in error
    assert "hunter2" not in error


def test_a_file_is_replaced_only_by_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "streamer.yaml"
    assert "cloud" in written(path, *GATEWAY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.write_text("mine")
    path.chmod(0o600)
    assert status_of(*GATEWAY, "--output", str(path)) == 1
    assert "--force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    assert "cloud" in written(link, *GATEWAY, "--force")
    assert link.is_symlink()
    assert "cloud" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_what_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*GATEWAY, "--output", str(tmp_path / "no/a.yaml")) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_it_can_be_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*GATEWAY, "--output", "-") == 0
    path = tmp_path / "a.yaml"
    path.write_text(capsys.readouterr().out)
    assert load(path, {}, kind=FILE).endpoints.keys() == {"veh1", "cloud"}


def dialogue(tmp_path: Path, *answers: str) -> tuple[int, str, str]:
    """Types answers at a terminal; the status, the questions and the file."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "streamer", "init", "--output", str(tmp_path / "a.yaml")]
    process = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    os.close(theirs)
    os.write(ours, "".join(f"{each}\n" for each in answers).encode() + b"\x04")
    output, _ = process.communicate(timeout=60)
    os.close(ours)
    path = tmp_path / "a.yaml"
    return process.returncode, output, path.read_text() if path.exists() else ""


def test_bad_answers_are_asked_again_with_what_was_expected(tmp_path: Path) -> None:
    role, authority = ("router", "9", "1"), ("Not One", "gw.veh1")
    networks = ("veh1", "veh1=tcp/10.0.0.1:7447", "", "cloud", "cloud=mqtts://b")
    files = ("", "/c.pem", "", "/k.pem", "/tmp/j.db", "")
    status, output, text = dialogue(tmp_path, *role, *authority, *networks, *files)
    assert status == 0, output
    for said in (
        "an answer is needed",
        "expected one of ustreamer",
        "one authority, no wildcard",
        "expected AUTHORITY=ADDRESS",
    ):
        assert said in output
    assert output.count("Role of the streamer [ustreamer]: ") == 3
    assert "veh1=listen:tcp/0.0.0.0:7447; several Zenoh endpoints with commas [veh1=listen:tcp/127.0.0.1:7447]: " in output
    assert "[cloud=mqtt://127.0.0.1:1883]: " in output
    assert output.count("File with the key of that certificate: ") == 2
    assert "password" not in output
    config = load(tmp_path / "a.yaml", {}, kind=FILE)
    assert (config.authority, list(config.endpoints)) == ("gw.veh1", ["veh1", "cloud"])
    assert "# " in text


def test_who_stops_answering_gets_no_file(tmp_path: Path) -> None:
    status, output, text = dialogue(tmp_path, "ubus", "bus")
    assert status == 1
    assert output.endswith("nothing was written\n")
    assert text == ""
    assert list(tmp_path.iterdir()) == []
