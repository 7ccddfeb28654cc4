"""The Debian package: installed, run as its unit says, upgraded, removed, purged. Root, and in the order of this file."""

import configparser
import grp
import os
import pwd
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.features.otel.config import OTEL_MODULES
from streamer.features.traces.config import TRACE_MODULES
from streamer.tools.init_file import LISTEN
from tests.ports import free_port
from tests.programs import require

pytestmark = pytest.mark.packages

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / os.environ.get("DEB", "build/deb")
NAME = "uprotocol-ustreamer"
PROGRAM, LIB = Path("/usr/bin/streamer"), Path("/usr/lib/ustreamer")
CONFIG, STATE = Path("/etc/ustreamer/streamer.yaml"), Path("/var/lib/streamer")
UNIT = Path("/lib/systemd/system/streamer.service")


def run(*words: str | Path, user: str | None = None) -> str:
    """Runs a program that has to succeed; what it says."""
    command = [str(word) for word in words]
    who = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        cwd="/",
        **who,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}"
    return str(done.stdout)


def status() -> str:
    """What dpkg says of the package: installed, config-files, or nothing."""
    done = subprocess.run(["dpkg-query", "--show", "--showformat=${db:Status-Status}", NAME], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def mode(path: Path) -> tuple[int, str, str]:
    there = path.stat()
    return stat.S_IMODE(there.st_mode), pwd.getpwuid(there.st_uid).pw_name, grp.getgrgid(there.st_gid).gr_name


@pytest.fixture(scope="module")
def deb() -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can install packages")
    for program in ("dpkg", "lintian", "systemd-analyze", "man"):
        require(program)
    (found,) = FOLDER.glob("*.deb")
    return found


@pytest.fixture(scope="module")
def installed(deb: Path) -> Iterator[str]:
    """The package is installed, for the tests after this; at the end nothing of it is left. What dpkg has said."""
    for path in (PROGRAM, LIB, CONFIG.parent, STATE, UNIT):
        assert not path.exists(), f"{path} is there already: this machine is somebody's"
    try:
        yield run("dpkg", "--install", deb)
    finally:
        subprocess.run(["dpkg", "--purge", NAME], check=False)
        shutil.rmtree(STATE, ignore_errors=True)
        subprocess.run(["userdel", "ustreamer"], check=False)


def test_lintian_has_nothing_to_say(deb: Path) -> None:
    assert run("lintian", "--allow-root", "--fail-on", "error,warning", deb) == ""


def test_a_fresh_package_starts_nothing_and_has_a_good_example(installed: str) -> None:
    assert status() == "installed"
    assert "systemctl enable --now streamer" in installed
    assert not list(Path("/etc/systemd/system").glob("*/streamer.service"))
    assert mode(CONFIG.parent) == (0o2750, "root", "ustreamer")
    assert mode(CONFIG) == (0o640, "root", "ustreamer")
    assert pwd.getpwnam("ustreamer").pw_shell == "/usr/sbin/nologin"
    assert "(compiled)" in run(PROGRAM, "--version")
    assert "good." in run(PROGRAM, "check", "--config", CONFIG, user="ustreamer")
    with pytest.raises(AssertionError, match="Permission denied"):
        run("cat", CONFIG, user="nobody")


def test_every_library_of_the_package_can_be_loaded(installed: str) -> None:
    (site,) = LIB.glob("lib/python3.*/site-packages")
    modules = sorted(path.relative_to(site) for path in site.rglob("*.so"))
    assert len(modules) > 50
    names = [".".join((*path.parts[:-1], path.name.partition(".")[0])) for path in modules]
    script = f"""if True:
        import importlib, sys
        for name in sys.argv[1:]:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as exc:
                assert exc.name in {TRACE_MODULES}, exc
    """
    run(LIB / "bin/python", "-B", "-c", script, *(name for name in names if not name.endswith("_testcapi")))
    run(LIB / "bin/python", "-B", "-c", f"import {', '.join(OTEL_MODULES)}")


def test_the_unit_is_that_of_the_project(installed: str) -> None:
    ours = (ROOT / "deploy/systemd/streamer.service").read_text().replace("/opt/ustreamer/bin/", "/usr/bin/")
    there = UNIT.read_text()
    assert there[there.index("[Unit]") :] == ours[ours.index("[Unit]") :]
    assert "/opt/" not in there
    assert run("systemd-analyze", "verify", UNIT) == ""


def test_manual_and_completion_are_where_shells_look(deb: Path, tmp_path: Path) -> None:
    run("dpkg-deb", "--extract", deb, tmp_path)  # a machine may have been told to install no documents
    share = tmp_path / "usr/share"
    page = share / "man/man1/streamer.1.gz"
    assert "dead-letters redrive" in run("man", "--warnings", "--local-file", page)
    assert "route uProtocol messages" in run("lexgrog", page)
    run("bash", "-euc", f"source {share}/bash-completion/completions/streamer && complete -p streamer")
    for path in ("zsh/vendor-completions/_streamer", "fish/vendor_completions.d/streamer.fish"):
        assert "redrive" in (share / path).read_text()
    assert (share / "doc/uprotocol-ustreamer/config/streamer.yaml").exists()


class Service:
    """The daemon as the unit starts it, but for the sandbox."""

    def __init__(self, socket_path: Path) -> None:
        unit = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
        unit.optionxform = str  # type: ignore[method-assign,assignment]
        unit.read(UNIT)
        service = unit["Service"]
        self._messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._messages.bind(str(socket_path))
        self._messages.settimeout(60)
        shutil.chown(socket_path, service["User"])
        STATE.mkdir(mode=int(service["StateDirectoryMode"], 8), exist_ok=True)
        shutil.chown(STATE, service["User"], service["Group"])
        self.process = subprocess.Popen(
            service["ExecStart"].split(),
            cwd="/",
            user=service["User"],
            group=service["Group"],
            extra_groups=[],
            umask=int(service["UMask"], 8),
            env={"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": str(socket_path)} | dict([service["Environment"].split("=", 1)]),
        )

    def until(self, text: str) -> None:
        """Waits for what the daemon tells systemd."""
        while text not in self._messages.recv(4096).decode():
            assert self.process.poll() is None

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._messages.close()


@pytest.fixture
def notify_socket() -> Iterator[Path]:
    path = Path(f"/run/ustreamer-test-{os.getpid()}")  # where the service's user gets
    yield path
    path.unlink(missing_ok=True)


def test_the_service_runs_as_its_user_and_keeps_its_journal(installed: str, notify_socket: Path) -> None:
    zenoh, broker = f"veh1={LISTEN}tcp/127.0.0.1:{free_port()}", f"backend=mqtt://127.0.0.1:{free_port()}"
    words = ("--role", "ustreamer", "--device", zenoh, "--cloud", broker, "--metrics", f"127.0.0.1:{free_port()}", "--yes")
    run(PROGRAM, "init", *words, "--force", "--output", CONFIG)
    assert mode(CONFIG) == (0o640, "root", "ustreamer")
    service = Service(notify_socket)
    try:
        service.until("READY=1")
        assert service.stop() == 0
    finally:
        service.close()
    assert mode(STATE / "journal.db") == (0o600, "ustreamer", "ustreamer")


def test_an_upgrade_keeps_configuration_and_journal(installed: str, deb: Path, tmp_path: Path) -> None:
    config, journal = CONFIG.read_bytes(), (STATE / "journal.db").read_bytes()
    run("dpkg-deb", "--raw-extract", deb, tmp_path / "new")
    control = tmp_path / "new/DEBIAN/control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 1:"))
    run("dpkg-deb", "--build", "-Znone", tmp_path / "new", tmp_path / "new.deb")
    run("dpkg", "--install", tmp_path / "new.deb")
    assert run("dpkg-query", "--show", "--showformat=${Version}", NAME).startswith("1:")
    assert (CONFIG.read_bytes(), (STATE / "journal.db").read_bytes()) == (config, journal)
    assert mode(CONFIG) == (0o640, "root", "ustreamer")
    assert "(compiled)" in run(PROGRAM, "--version")
    scripts = {name: Path(f"/var/lib/dpkg/info/{NAME}.{name}").read_text() for name in ("postinst", "prerm")}
    assert "_dh_action=restart" in scripts["postinst"]  # unless it is disabled and does not run
    assert "deb-systemd-invoke stop 'streamer.service'" in scripts["prerm"]


def test_a_removal_keeps_configuration_and_journal_and_nothing_else(installed: str) -> None:
    run("dpkg", "--remove", NAME)
    assert status() == "config-files"
    assert not any(path.exists() for path in (PROGRAM, LIB, UNIT))
    assert CONFIG.exists()
    assert (STATE / "journal.db").exists()


def test_a_purge_keeps_only_what_nobody_else_has(installed: str) -> None:
    said = run("dpkg", "--purge", NAME)
    assert f"stay in {STATE}" in said
    assert status() == ""
    assert not CONFIG.parent.exists()
    assert (STATE / "journal.db").exists()


def test_a_package_that_never_ran_leaves_nothing(installed: str, deb: Path) -> None:
    shutil.rmtree(STATE)
    run("dpkg", "--install", deb)
    STATE.mkdir()
    assert "stay in" not in run("dpkg", "--purge", NAME)
    assert not any(path.exists() for path in (PROGRAM, LIB, UNIT, CONFIG.parent, STATE))
