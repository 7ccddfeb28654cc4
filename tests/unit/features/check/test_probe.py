"""``streamer check --probe``: a line for each probe, bounded in time, and no secret in any of them."""

import asyncio
import os
import socket
import sqlite3
import stat
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from streamer.features.check import machine, probe
from streamer.features.every import FILE
from streamer.files import in_thread
from streamer.journal.file import DatabaseFile
from streamer.journal.lock import FileLock
from streamer.journal.schema import JOURNAL
from streamer.journal.sqlite import FileError, check_structure
from streamer.main import main
from streamer.tools.running import DaemonAddress, NotAskedError
from streamer.transports.base import UTransport
from streamer.transports.memory import MemoryTransport
from streamer.transports.probe import Answer, Probe, Verdict, blocking, ok, problem
from tests.certificates import write_certificates
from tests.unit.features.check.probing import answers, checked, lines, of_stores, raw

SECRET = "s3cret-s3cret-s3cret"
T = TypeVar("T")


def of_files(**sections: Any) -> dict[str, Answer]:
    return answers(machine.files(FILE.model_validate(raw(**sections))))


# the command


def test_a_good_machine_is_0_and_a_bad_one_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, journal={"path": str(tmp_path / "journal.db"), "max_bytes": "1MiB"}) == 0
    assert lines(capsys)["journal.path"] == ("ok", f"{tmp_path} can be written")
    assert checked(tmp_path, journal={"path": str(tmp_path / "no" / "such" / "journal.db")}) == 1
    assert lines(capsys)["journal.path"] == ("problem", f"{tmp_path / 'no' / 'such'} does not exist")


def test_a_wrong_file_is_78_and_nothing_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, journal={"path": 7}) == 78
    assert capsys.readouterr().out == ""


def test_without_the_option_nothing_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text(yaml.safe_dump(raw(journal={"path": str(tmp_path / "no" / "such" / "journal.db")})))
    assert main(["check", "--config", str(file)]) == 0
    assert lines(capsys) == {}


def test_a_port_that_is_taken_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        taken.settimeout(0)
        assert checked(tmp_path, metrics={"listen": f"127.0.0.1:{port}"}) == 1
        assert lines(capsys)["metrics.listen"] == ("problem", f"127.0.0.1:{port}: address already in use")
        assert checked(tmp_path, metrics={"listen": f"0.0.0.0:{port}"}) == 1
    assert checked(tmp_path, metrics={"listen": f"127.0.0.1:{port}"}) == 0


def test_an_address_of_another_machine_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, metrics={"listen": "192.0.2.1:9464"}) == 1
    assert lines(capsys)["metrics.listen"][1] == "192.0.2.1:9464: this machine does not have the address"


# files


def token_file(tmp_path: Path, content: str = SECRET, mode: int = 0o600) -> Path:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [
        (0o600, Verdict.OK),
        (0o640, Verdict.OK),
        (0o444, Verdict.CANNOT_TELL),  # a container mounts them so
        (0o660, Verdict.PROBLEM),
        (0o602, Verdict.PROBLEM),
    ],
)
def test_who_may_read_and_change_a_secret(tmp_path: Path, mode: int, verdict: Verdict) -> None:
    path = token_file(tmp_path, mode=mode)
    options = {"broker": "mqtt://127.0.0.1:1", "password_file": str(path)}
    endpoints = {"cloud": {"transport": "mqtt5", "authorities": ["b"], "options": options}}
    answer = of_files(endpoints=endpoints)["endpoints.cloud.options.password_file"]
    assert answer.verdict is verdict
    assert f"mode {stat.S_IMODE(path.stat().st_mode):04o}" in answer.text


@pytest.mark.parametrize("content", ["", None, "folder"])
def test_a_file_without_content_is_a_problem(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    options = {"jwks_file": str(path), "issuer": "i", "audience": "a"}
    answer = of_files(permissions={"tap": {"verifier": "jwt", "options": options}})["permissions.tap.options.jwks_file"]
    assert answer.verdict is Verdict.PROBLEM


def test_a_token_that_no_request_could_use_is_a_problem_and_not_shown(tmp_path: Path) -> None:
    path = token_file(tmp_path, "s3cret")
    options = raw(control={"http_token_file": str(path)})
    answers = asyncio.run(probe.run_all([*machine.files(FILE.model_validate(options))]))
    assert [answer.verdict for answer in answers] == [Verdict.OK, Verdict.PROBLEM]
    assert all("s3cret" not in answer.text for answer in answers)


@pytest.mark.parametrize(("key_file", "verdict"), [("server.key", Verdict.OK), ("client.key", Verdict.PROBLEM)])
def test_the_certificate_of_the_port_has_to_belong_to_its_key(tmp_path: Path, key_file: str, verdict: Verdict) -> None:
    write_certificates(tmp_path)
    tls = {"cert_file": str(tmp_path / "server.pem"), "key_file": str(tmp_path / key_file)}
    found = of_files(metrics={"listen": "127.0.0.1:0", "tls": tls})
    assert found["metrics.tls"].verdict is verdict
    assert found.keys() == {"metrics.tls.cert_file", "metrics.tls.key_file", "metrics.tls", "metrics.tls.cert_file (expiry)"}


# what is written


def test_folders_that_the_streamer_makes_need_not_exist(tmp_path: Path) -> None:
    found = of_stores(
        journal={"path": str(tmp_path / "new" / "journal.db"), "max_bytes": "1MiB"},
        trace={"path": str(tmp_path / "a" / "b" / "c"), "max_bytes": "2MiB"},
        log={"audit": str(tmp_path / "log" / "audit.log")},
    )
    verdicts = {key: answer.verdict for key, answer in found.items()}
    assert verdicts == {
        "journal.path": Verdict.OK,
        "trace.path": Verdict.OK,
        "log.audit": Verdict.OK,
        "journal.max_bytes, trace.max_bytes": Verdict.OK,
    }


def test_a_file_in_place_of_a_folder_and_the_opposite_are_problems(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    found = of_stores(journal={"path": str(tmp_path), "max_bytes": 1}, trace={"path": str(file)})
    assert found["journal.path"] == Answer(Verdict.PROBLEM, f"{tmp_path} is not a file")
    assert found["trace.path"] == Answer(Verdict.PROBLEM, f"{file} is not a folder")
    assert of_stores(trace={"path": str(file / "below")})["trace.path"].verdict is Verdict.PROBLEM


def test_a_file_of_ours_is_fine_and_an_empty_one_too(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    path.touch()
    assert of_stores(journal={"path": str(path)})["journal.path"] == ok(f"{path} can be written")
    make(path)
    before = path.read_bytes()
    assert of_stores(journal={"path": str(path)})["journal.path"] == ok(f"{path} can be written")
    assert (os.listdir(tmp_path), path.read_bytes()) == (["it.db"], before)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("PRAGMA user_version = 3", "{path}: format 3 was written by "),
        ("PRAGMA application_id = 7; CREATE TABLE other (x)", "{path}: a database of another program; "),
        ("DROP TABLE {table}", "{path}: damaged (schema 1 of program "),
    ],
)
def test_a_database_that_the_streamer_would_not_use_is_a_problem(tmp_path: Path, change: str, said: str) -> None:
    path = tmp_path / "it.db"
    make(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(change.format(table=next(iter(JOURNAL.tables))))
    before = path.read_bytes()
    answer = of_stores(journal={"path": str(path)})["journal.path"]
    assert answer.verdict is Verdict.PROBLEM
    assert answer.text.startswith(said.format(path=path))
    assert (os.listdir(tmp_path), path.read_bytes()) == (["it.db"], before)


@pytest.mark.parametrize("log", [b"", b"x" * 50])
@pytest.mark.parametrize("content", [b"not a database, which is longer than the header of one" * 5, b""])
def test_what_is_no_database_is_a_problem(tmp_path: Path, content: bytes, log: bytes) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    if log:
        (tmp_path / "journal.db-wal").write_bytes(log)
    answer = of_stores(journal={"path": str(path)})["journal.path"]
    if content or log:
        assert answer.verdict is Verdict.PROBLEM
        assert answer.text.startswith(f"{path}: damaged (")
    else:
        assert answer.verdict is Verdict.OK
    assert path.read_bytes() == content


def test_a_file_that_a_streamer_uses_is_a_problem_unless_it_is_the_one_of_this_configuration(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    path.touch()
    lock = FileLock(path, FileError)
    lock.take()
    try:
        for used, verdict in [
            (frozenset[str](), Verdict.PROBLEM),
            (frozenset({str(path)}), Verdict.OK),
            (None, Verdict.CANNOT_TELL),
        ]:
            answer = of_stores(used, journal={"path": str(path)})["journal.path"]
            assert answer.verdict is verdict
            assert str(path) in answer.text
    finally:
        lock.release()
    assert of_stores(journal={"path": str(path)})["journal.path"].verdict is Verdict.OK


def make(path: Path) -> None:
    file = DatabaseFile(path, JOURNAL, check_structure)
    file.open()
    file.close()
    path.with_name(f"{path.name}.lock").unlink()


def test_an_audit_log_that_is_there_needs_no_rights_to_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As below /var/log, which belongs to root. SQLite needs these rights."""
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) == file)
    found = of_stores(log={"audit": str(file)}, journal={"path": str(file)[:-1]})
    assert found["log.audit"] == ok(f"{file} can be written")
    assert found["journal.path"] == Answer(Verdict.PROBLEM, f"{tmp_path} cannot be written")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) == tmp_path)
    assert of_stores(journal={"path": str(file)})["journal.path"].verdict is Verdict.PROBLEM


# time and bugs


def stuck() -> Probe:
    async def run() -> Answer:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    return Probe("stuck", run)


async def fine() -> Answer:
    return ok("fine")


async def test_what_never_ends_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    late, good = await probe.run_all([stuck(), Probe("good", fine)], total_s=0.05)
    assert late == Answer(Verdict.CANNOT_TELL, "not done within 0.05 s")
    assert good == ok("fine")
    assert await probe._bounded(stuck(), 0.01) == Answer(Verdict.PROBLEM, "no answer within 0.01 s")
    assert await probe.run_all([]) == []


async def test_a_port_that_never_answers_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(probe, "ask", lambda *arguments, **named: released.wait(60))
    monkeypatch.setattr(probe, "ASK_S", 0.01)
    assert await probe._running(tmp_path, FILE.model_validate(raw())) is None
    released.set()


async def test_a_bug_in_a_probe_says_no_more_than_its_kind() -> None:
    async def run() -> Answer:
        raise RuntimeError(SECRET)

    (answer,) = await probe.run_all([Probe("x", run)])
    assert answer == Answer(Verdict.CANNOT_TELL, "the probe failed (RuntimeError)")


async def test_what_comes_when_nobody_waits_is_discarded() -> None:
    loop = asyncio.get_running_loop()
    released, discarded = asyncio.Event(), asyncio.Event()
    results: list[int] = []

    def work() -> int:
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result()
        return 7

    def discard(result: int) -> None:
        results.append(result)
        discarded.set()

    task = asyncio.create_task(in_thread(work, discard))
    await asyncio.sleep(0)
    task.cancel()
    released.set()
    async with asyncio.timeout(20):
        await discarded.wait()
    assert results == [7]


# transports of other packages


def test_a_transport_brings_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def probes(options: Any, held: Collection[str]) -> Iterable[Probe]:
        return (Probe("bus", fine),)

    monkeypatch.setattr(MemoryTransport.tools, "probes", probes, raising=False)
    assert checked(tmp_path) == 0
    assert lines(capsys) == {"endpoints.vehicle.options.bus": ("ok", "fine")}


def test_one_that_fails_to_say_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def probes(options: Any, held: Collection[str]) -> Iterable[Probe]:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(MemoryTransport.tools, "probes", probes, raising=False)
    assert checked(tmp_path) == 0
    assert lines(capsys) == {"endpoints.vehicle.options": ("cannot tell", "the probe failed (RuntimeError)")}


def test_without_any_there_is_nothing_to_try() -> None:
    assert list(UTransport.tools.probes(None, ())) == []


@pytest.mark.parametrize(
    ("authority", "verdicts"),
    [("gw", ("ok", "ok", "ok")), ("other", ("problem", "problem", "problem")), (None, ("problem", "problem", "problem"))],
    ids=["it runs", "another one runs", "nothing that answers"],
)
def test_what_the_running_streamer_of_this_configuration_uses_is_no_problem(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    authority: str | None,
    verdicts: tuple[str, ...],
) -> None:
    journal = {"path": str(tmp_path / "journal.db"), "max_bytes": "1MiB"}
    (tmp_path / "journal.db").touch()

    def ask(daemon: DaemonAddress, page: str, read: Callable[[Any], T], **_: Any) -> T:
        if authority is None:
            raise NotAskedError("nobody")
        endpoints = {"vehicle": {"options": {"listen": ["tcp/127.0.0.1:7447"]}}}
        return read({"config": {"authority": authority, "endpoints": endpoints, "journal": journal}})

    def probes(options: Any, held: Collection[str]) -> Iterable[Probe]:
        is_held = "tcp/127.0.0.1:7447" in held
        return (blocking("listen", lambda: ok("ours") if is_held else problem("taken")),)

    monkeypatch.setattr(probe, "ask", ask)
    monkeypatch.setattr(MemoryTransport.tools, "probes", probes, raising=False)
    lock = FileLock(tmp_path / "journal.db", FileError)
    lock.take()
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            checked(tmp_path, metrics={"listen": f"127.0.0.1:{taken.getsockname()[1]}"}, journal=journal)
    finally:
        lock.release()
    told = lines(capsys)
    assert tuple(told[key][0] for key in ("metrics.listen", "journal.path", "endpoints.vehicle.options.listen")) == verdicts


def test_without_a_port_nobody_can_tell_which_streamer_uses_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journal.db").touch()
    lock = FileLock(tmp_path / "journal.db", FileError)
    lock.take()
    try:
        checked(tmp_path, journal={"path": str(tmp_path / "journal.db"), "max_bytes": "1MiB"})
    finally:
        lock.release()
    assert lines(capsys)["journal.path"][0] == "cannot tell"
