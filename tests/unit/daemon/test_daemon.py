"""The daemon as a process of its own, on memory endpoints: signals, systemd, reloads, logs, the admin port."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from streamer.clock import SystemClock
from streamer.config.load import ConfigError, load
from streamer.daemon import Daemon
from streamer.features.api.readiness import unready
from streamer.features.every import FILE
from streamer.features.record import Feature
from streamer.journal import codec
from streamer.journal.journal import Journal
from streamer.transports.base import LinkState, ListenerOptions, Received
from streamer.transports.memory import MemoryOptions, MemoryReceived, MemoryTransport
from streamer.uprotocol.message import UMessage, notification
from streamer.uprotocol.uri import UUri
from tests import preloaded
from tests.unit.features.api.daemon import running as in_process
from tests.unit.memory_daemon import SECOND_ROUTE, Process, running
from tests.waiting import until


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Process]:
    async with running(Process(tmp_path)) as process:
        yield process


REPORTS = {
    *("dead-letter/vehicle", "dead-letter/cloud", "rpc-error/vehicle", "rpc-error/cloud", "rpc-error/core"),
    *("vehicle/core", "core/vehicle", "cloud/core", "core/cloud"),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_daemon_notifies_systemd_and_ends_with_0_when_asked(daemon: Process, number: signal.Signals) -> None:
    await daemon.ready()
    assert daemon.told("STATUS=all endpoints connected") >= 1
    await daemon.until(lambda: daemon.told("WATCHDOG=1") >= 3)
    assert daemon.told("STOPPING=1") == 0
    daemon.signal(number)
    assert await daemon.end() == 0  # and has not waited for drain_s: nothing was queued
    assert (daemon.told("STOPPING=1"), daemon.told("EXTEND_TIMEOUT_USEC=3640000000")) == (1, 1)  # drain_s and CLOSING_S
    assert [line["messages_left"] for line in daemon.events("drained")] == [0]
    assert len(daemon.events("stopped")) == 1


async def test_daemon_that_is_told_to_stop_while_it_starts_leaves_its_links_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(tmp_path)
    process.systemd.close()
    daemon = Daemon(load(process.file, kind=FILE), process.file)
    states: list[LinkState] = []
    for transport in daemon.transports.values():
        monkeypatch.setattr(transport, "set_state", lambda state, reason="": states.append(state))
    daemon.stop()
    assert "draining" in unready(daemon.router)
    assert await daemon.run() == 0
    assert LinkState.UP not in states


async def test_another_bound_for_dead_letters_needs_no_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    monkeypatch.setattr(Journal, "use", lambda self, letters: used.append(letters.max_letters))
    async with in_process(tmp_path) as served:
        served.raw["dead_letter"] = {"store": {"messages": 7}}
        served.write()
        assert await served.daemon.reload("test", "here") == []
    assert used == [7]


def notifications(number: int) -> list[UMessage]:
    now_ms = SystemClock().wall_ms()
    return [notification(now_ms, UUri("veh1", 1, 1, 0x8000), UUri("far", 2, 1, 0), b"x") for _ in range(number)]


@pytest.mark.parametrize(("is_writable", "said"), [(True, "messages=3 at_source=0"), (False, "messages=0 at_source=3")])
async def test_the_last_words_tell_what_is_in_the_journal_from_what_its_source_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_writable: bool, said: str
) -> None:
    monkeypatch.setattr("streamer.daemon.daemon._CLOSE_JOURNAL_S", 0.2)
    (tmp_path / "folder").mkdir() if is_writable else (tmp_path / "folder").touch()
    async with in_process(tmp_path, journal={"path": str(tmp_path / "folder" / "journal.db")}) as served:
        served.transport("cloud").set_state(LinkState.DOWN)
        received = [MemoryReceived(message) for message in notifications(3)]
        served.transport("vehicle").inject(*received)
        served.daemon.stop()
        assert await served.task == 3
    assert f"left_in_journal {said} drain_s=0" in caplog.text
    assert [each.acknowledged for each in received] == [is_writable] * 3


async def test_one_of_a_pair_that_is_overtaken_while_it_drains_ends_at_once(tmp_path: Path) -> None:
    """It must not go on with the broker's session, nor make dead letters of what the other one delivers."""
    async with in_process(tmp_path, shutdown={"drain_s": 3600}) as served:
        served.transport("cloud").is_withholding = True
        served.arrive("vehicle", *notifications(1))
        served.daemon.stop()
        await until(lambda: served.daemon._draining is not None, "the drain")
        served.daemon._end(restarts=True, drains=False)
        assert await asyncio.wait_for(served.task, 30) == 0
        assert not served.daemon.must_restart  # who was asked to stop is not started anew


@pytest.mark.parametrize("room", [10_000, 1], ids=["in lanes", "also before a full queue"])
async def test_one_of_a_pair_that_steps_back_leaves_in_its_journal_what_only_it_may_have_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Also what has arrived within the last few milliseconds, and what arrives until the network is left."""
    async with in_process(tmp_path, queue_policy={"queue": {"messages": room}}) as served:
        monkeypatch.setattr(MemoryTransport, "source_retransmits", False)
        vehicle, messages = served.transport("vehicle"), notifications(4)
        stop = vehicle.stop

        async def stop_with_the_last_ones() -> None:
            vehicle.inject(*map(Received, messages[3:]))
            await stop()

        monkeypatch.setattr(vehicle, "stop", stop_with_the_last_ones)
        served.transport("cloud").is_withholding = True
        vehicle.inject(*map(Received, messages[:3]))
        served.daemon._end(restarts=True, drains=False)
        assert await served.task == 0
    with closing(sqlite3.connect(served.journal)) as file:
        written = [codec.unpack(body).id for (body,) in file.execute("SELECT body FROM rows")]
    assert sorted(written) == sorted(each.id for each in messages)


HOSTILE = {
    "a merge of itself": "x: &a {<<: *a}\n",
    "deep": "[" * 100_000,
    "an escape of no character": 'authority: "\\UFFFFFFFF"\n',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_hangup_with_a_hostile_file_changes_nothing(daemon: Process, text: str) -> None:
    await daemon.ready()
    good = daemon.file.read_text()
    daemon.file.write_text(text)
    daemon.signal(signal.SIGHUP)
    await daemon.until(lambda: daemon.samples("ustreamer_reloads_total") == {("ok",): 0, ("refused",): 1})
    assert str(daemon.events("reload_refused")[0]["problem"]).startswith(f"{daemon.file}:1:")
    daemon.file.write_text(good.replace("routes:\n", SECOND_ROUTE))
    daemon.signal(signal.SIGHUP)
    await daemon.until(lambda: len(daemon.events("reloaded")) == 1)
    daemon.signal(signal.SIGTERM)
    assert await daemon.end() == 0


async def test_hangup_with_a_pipe_in_place_of_the_file_changes_nothing(daemon: Process) -> None:
    await daemon.ready()
    daemon.file.unlink()
    os.mkfifo(daemon.file)
    daemon.signal(signal.SIGHUP)
    await daemon.until(lambda: len(daemon.events("reload_refused")) == 1)
    (line,) = daemon.events("reload_refused")
    assert line["problem"] == f"{daemon.file}: cannot be read: not a regular file"
    daemon.signal(signal.SIGTERM)
    assert await daemon.end() == 0


@pytest.mark.parametrize("where", ["load_in_use", "beyond_reload", "Reload.run", "Assembly.prepare"])
async def test_a_reload_that_fails_as_nobody_has_foreseen_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    async with in_process(tmp_path) as served:
        with monkeypatch.context() as context:

            def fail(*arguments: object, **named: object) -> None:
                raise LookupError("a bug")

            context.setattr(f"streamer.daemon.reload.{where}", fail)
            problems = await served.daemon.reload("test", "here")
        assert problems == ["the reload failed: LookupError; the log has its traceback"]
        assert "reload_failed" in caplog.text
        assert b'ustreamer_reloads_total{result="refused"} 1.0' in served.daemon.exposition.text()
        assert await served.daemon.reload("test", "here") == []


async def test_a_feature_that_cannot_do_what_a_file_wants_is_a_reason_at_a_reload_and_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process(tmp_path) as served:
        used = served.daemon.config
        monkeypatch.setattr(Feature, "prepare", lambda feature, config: [f"drain_s: {config.shutdown.drain_s:g}"])
        served.raw["shutdown"] = {"drain_s": 7}
        served.write()
        assert set(await served.daemon.reload("test", "here")) == {"drain_s: 7"}
        assert served.daemon.config is used
        with pytest.raises(ConfigError, match="drain_s: 7"):
            served.build()


async def test_a_file_system_that_hangs_costs_a_reload_its_time_and_holds_up_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.daemon.reload._FILES_S", 0.1)
    async with in_process(tmp_path) as served:
        released = threading.Event()
        monkeypatch.setattr("streamer.daemon.reload.load_in_use", lambda *arguments, **named: released.wait())
        for _ in range(2):  # the second one waits for the first one's thread, and begins none
            assert await served.daemon.reload("test", "here") == [
                f"{served.file}: no answer within 0.1 s: does its file system hang?"
            ]
        assert [thread.name for thread in threading.enumerate()].count("files") == 1
    released.set()


@pytest.mark.needs("judge")
async def test_a_pipe_in_place_of_the_audit_log_holds_up_nothing(daemon: Process, tmp_path: Path) -> None:
    """Whoever is refused at the HTTP port causes a line, for which the file is looked at."""
    path = tmp_path / "audit.log"
    await daemon.ready()
    daemon.file.write_text(daemon.file.read_text().replace("log: {", f"log: {{audit: {path}, "))
    assert await asyncio.to_thread(daemon.reload) == 200
    await daemon.until(lambda: "reloaded" in path.read_text())
    path.unlink()
    os.mkfifo(path)
    assert await asyncio.to_thread(daemon.refused_post) == 401
    await daemon.until(lambda: len(daemon.events("audit_not_written")) == 1)
    assert daemon.events("audit_not_written")[0]["error"] == "not a regular file"
    assert len(daemon.events("denied")) == 1
    path.unlink()
    assert await asyncio.to_thread(daemon.refused_post) == 401
    await daemon.until(lambda: path.exists() and "denied" in path.read_text())
    daemon.signal(signal.SIGTERM)
    assert await daemon.end() == 0


@pytest.mark.needs("judge")
async def test_an_audit_log_that_is_no_file_is_refused(daemon: Process, tmp_path: Path) -> None:
    await daemon.ready()
    os.mkfifo(tmp_path / "pipe")
    good = daemon.file.read_text()
    for path, problem in ((tmp_path / "pipe", "not a regular file"), (Path("/dev/null"), "not a regular file")):
        daemon.file.write_text(good.replace("log: {", f"log: {{audit: {path}, "))
        answer = await preloaded.command("reload", "--config", daemon.file)
        assert answer.returncode == 78
        assert f"log.audit: {path}: {problem}" in answer.stderr


async def test_a_plugin_that_fails_at_a_reload_is_a_reason_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with in_process(tmp_path) as served:
        used = served.daemon.config

        def fail(self: MemoryTransport) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(MemoryTransport, "prepare", fail)
        served.raw["endpoints"]["cloud"]["options"]["bus"] = "other"
        served.write()
        assert await served.daemon.reload("test", "here") == ["endpoints.cloud: its transport failed: RuntimeError"]
        assert served.daemon.config is used


async def test_daemon_that_is_told_to_stop_while_it_reloads_ends_with_0(daemon: Process) -> None:
    await daemon.ready()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
        daemon.signal(number)
    assert await daemon.end() == 0
    assert len(daemon.events("drain_began")) == len(daemon.events("stopped")) == 1


async def test_log_is_json_when_it_does_not_go_to_a_terminal(daemon: Process) -> None:
    await daemon.ready()
    daemon.signal(signal.SIGTERM)
    await daemon.end()
    lines = daemon.lines()
    assert all({"ts", "level", "part", "event"} <= line.keys() for line in lines)
    (starting,) = daemon.events("starting")
    assert starting["authority"] == "gateway.veh1"
    assert {(line["endpoint"], line["state"]) for line in daemon.events("endpoint_state")} >= {
        ("vehicle", "up"),
        ("cloud", "up"),
    }
    assert len(daemon.events("memory_only")) == 1


async def test_admin_port_answers_while_it_runs(daemon: Process) -> None:
    await daemon.ready()
    assert await asyncio.to_thread(daemon.get, "/healthz") == "ok\n"
    assert json.loads(await asyncio.to_thread(daemon.get, "/readyz"))["reasons"] == []
    assert await asyncio.to_thread(daemon.samples, "ustreamer_endpoint_up") == {
        ("vehicle", "memory"): 1,
        ("cloud", "memory"): 1,
        ("core", "core"): 1,
    }


async def test_hangup_with_a_good_file_takes_the_new_route(daemon: Process) -> None:
    await daemon.ready()
    assert await asyncio.to_thread(daemon.routes) == {"vehicle-cloud"} | REPORTS
    daemon.file.write_text(daemon.file.read_text().replace("routes:\n", SECOND_ROUTE))
    daemon.signal(signal.SIGHUP)
    await daemon.until(lambda: daemon.samples("ustreamer_reloads_total") == {("ok",): 1, ("refused",): 0})
    assert await asyncio.to_thread(daemon.routes) == {"vehicle-cloud", "down"} | REPORTS
    await daemon.until(lambda: daemon.told("READY=1") == 2)
    assert daemon.heard.index("RELOADING=1") < len(daemon.heard) - daemon.heard[::-1].index("READY=1")
    assert [line["routes"] for line in daemon.events("reloaded")] == [2]


BAD_FILES = [
    ("to: cloud", "to: clod", "did you mean 'cloud'?"),
    ("routes:", "rotes:", "routes"),
    ("authority: gateway.veh1", "authority: gateway.veh2", "restart to use it"),
    ("drain_s: 3600", "drain_s: {", "streamer.yaml:"),
    ("metrics: {", "metrics: null\n# {", "metrics: changed; restart to use it"),
    ("shutdown:", "journal: {path: journal}\nshutdown:", "journal: changed; restart to use it"),
    ("shutdown:", "usubscription: null\nshutdown:", "usubscription: changed; restart to use it"),
    ("shutdown:", "state: {path: state.db}\nshutdown:", "move the file that it names beside the journal"),
]
"""What is replaced in the good file, by what, and what is said of it."""


async def test_hangup_with_a_bad_file_keeps_the_old_one_and_says_why(daemon: Process) -> None:
    await daemon.ready()
    good = daemon.file.read_text()
    for number, (old, new, told) in enumerate(BAD_FILES, 1):
        before = len(daemon.events("reload_refused"))
        daemon.file.write_text(good.replace(old, new).replace("routes:\n", SECOND_ROUTE))
        daemon.signal(signal.SIGHUP)
        counts = {("ok",): 0, ("refused",): number}
        await daemon.until(lambda counts=counts: daemon.samples("ustreamer_reloads_total") == counts)  # type: ignore[misc]
        assert await asyncio.to_thread(daemon.routes) == {"vehicle-cloud"} | REPORTS, new
        assert any(told in str(line["problem"]) for line in daemon.events("reload_refused")[before:]), new
    assert daemon.told("RELOADING=1") == 0
    daemon.signal(signal.SIGTERM)
    assert await daemon.end() == 0


async def test_hangup_after_a_bad_file_takes_the_repaired_one(daemon: Process) -> None:
    await daemon.ready()
    good = daemon.file.read_text()
    daemon.file.unlink()
    daemon.signal(signal.SIGHUP)
    await daemon.until(lambda: daemon.samples("ustreamer_reloads_total")[("refused",)] == 1)
    daemon.file.write_text(good.replace("routes:\n", SECOND_ROUTE))
    daemon.signal(signal.SIGHUP)
    await daemon.until(lambda: "down" in daemon.routes())


async def test_a_reload_with_more_patterns_than_listeners_are_allowed_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vehicle's endpoint needs one listener, the cloud's two, and each pattern one more."""
    monkeypatch.setattr(MemoryOptions, "listeners", ListenerOptions(max_listeners=3))
    async with in_process(tmp_path) as served:
        before = served.daemon.config.routes[0].publish
        patterns = [f"//veh1/A8000/{version}/FFFF" for version in (2, 3, 4)]
        raw = yaml.safe_load(served.file.read_text())
        raw["routes"][0]["publish"] = patterns
        served.file.write_text(yaml.safe_dump(raw | {"log": {"format": "human"}}))
        problems = await served.daemon.reload("test", "here")
        assert problems == ["listeners: RESOURCE_EXHAUSTED: 3 listeners: the limit of this transport"]
        assert served.daemon.config.routes[0].publish == before
        raw["routes"][0]["publish"] = patterns[:1]
        served.file.write_text(yaml.safe_dump(raw))
        assert await served.daemon.reload("test", "here") == []


async def test_hangup_changes_the_format_of_the_log_at_once(daemon: Process) -> None:
    await daemon.ready()
    daemon.file.write_text(daemon.file.read_text().replace("repeat_s: 0", "format: human"))
    daemon.signal(signal.SIGHUP)
    await daemon.until(lambda: " INFO    streamer.audit reloaded who=SIGHUP where=process file=" in daemon.log.read_text())


@pytest.mark.parametrize("levels", [["error"], ["error", "info"]], ids="-".join)
async def test_hangup_changes_the_level_of_the_log_at_once_but_acts_are_always_logged(
    daemon: Process, levels: list[str]
) -> None:
    await daemon.ready()
    loud = daemon.file.read_text()
    for number, level in enumerate(levels, 1):
        daemon.file.write_text(loud.replace("repeat_s: 0", f"repeat_s: 0, level: {level}"))
        daemon.signal(signal.SIGHUP)
        await daemon.until(lambda number=number: daemon.samples("ustreamer_reloads_total")[("ok",)] == number)  # type: ignore[misc]
    daemon.signal(signal.SIGTERM)
    assert await daemon.end() == 0
    assert len(daemon.events("reloaded")) == len(levels)
    assert bool(daemon.events("stopped")) is (levels[-1] == "info")


async def test_audit_log_has_a_file_of_its_own_if_it_is_given_one(tmp_path: Path) -> None:
    process, log = Process(tmp_path), tmp_path / "audit.log"
    good = process.file.read_text().replace("repeat_s: 0", f"repeat_s: 0, audit: {log}")
    process.file.write_text(good)
    async with running(process):
        await process.ready()
        process.signal(signal.SIGHUP)
        await process.until(lambda: process.samples("ustreamer_reloads_total")[("ok",)] == 1)
        (line,) = log.read_text().splitlines()
        assert json.loads(line)["event"] == "reloaded"
        assert len(process.events("reloaded")) == 1
        process.file.write_text(good.replace(str(log), str(tmp_path)))
        process.signal(signal.SIGHUP)
        await process.until(lambda: process.samples("ustreamer_reloads_total")[("refused",)] == 1)
        assert [line["problem"] for line in process.events("reload_refused")] == [f"log.audit: {tmp_path}: Is a directory"]
        process.file.write_text(good.replace("audit.log", "other.log"))
        process.signal(signal.SIGHUP)
        await process.until(lambda: process.samples("ustreamer_reloads_total")[("ok",)] == 2)
        (line,) = (tmp_path / "other.log").read_text().splitlines()
        assert json.loads(line)["event"] == "reloaded"
        assert len(log.read_text().splitlines()) == 1


async def test_audit_log_has_its_folder_made_at_the_start_and_at_a_reload(tmp_path: Path) -> None:
    process, names = Process(tmp_path), ("first", "second")
    first, second = (
        process.file.read_text().replace("repeat_s: 0", f"repeat_s: 0, audit: {tmp_path / name}/audit.log") for name in names
    )
    process.file.write_text(first)
    async with running(process):
        await process.ready()
        assert (tmp_path / "first" / "audit.log").exists()
        process.file.write_text(second)
        process.signal(signal.SIGHUP)
        await process.until(lambda: process.samples("ustreamer_reloads_total")[("ok",)] == 1)
        assert json.loads((tmp_path / "second" / "audit.log").read_text())["event"] == "reloaded"


@pytest.mark.parametrize(
    ("name", "reason"),
    [(".", "Is a directory"), ("a/b/audit.log", "No such file or directory"), ("streamer.yaml/x", "Not a directory")],
)
async def test_audit_log_that_cannot_be_written_is_a_clear_error_at_the_start(
    tmp_path: Path, name: str, reason: str
) -> None:
    process = Process(tmp_path)
    audit = (tmp_path / name).absolute()
    process.file.write_text(process.file.read_text().replace("repeat_s: 0", f"repeat_s: 0, audit: {audit}"))
    async with running(process):
        assert await process.end() == 78
        assert process.log.read_text() == f"{process.file}: log.audit: {audit}: {reason}\n"


async def test_admin_port_that_is_taken_is_a_clear_error(tmp_path: Path) -> None:
    process = Process(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", process.port))
        taken.listen()
        await process.start()
        assert await process.end() == 1
    (line,) = process.events("not_started")
    assert line["problem"] == f"{process.file}: metrics.listen: 127.0.0.1:{process.port}: address already in use"
    assert "Traceback" not in process.log.read_text()
    assert process.told("READY=1") == 0
    process.systemd.close()


@pytest.mark.parametrize("host", ["nowhere.invalid", "192.0.2.1"])
async def test_an_admin_address_that_is_not_here_is_named_with_its_key(tmp_path: Path, host: str) -> None:
    process = Process(tmp_path)
    process.file.write_text(process.file.read_text().replace("127.0.0.1", host))
    async with running(process):
        assert await process.end() == 1
    (line,) = process.events("not_started")
    assert str(line["problem"]).startswith(f"{process.file}: metrics.listen: {host}:{process.port}: ")
    assert "Errno" not in str(line["problem"])


async def test_bad_file_at_the_start_is_78_before_anything_is_opened(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.file.write_text("authority: gateway\n")
    await process.start()
    assert await process.end() == 78
    assert process.log.read_text().startswith(f"{process.file}:")
    assert process.told("READY=1") == 0
    process.systemd.close()


async def test_every_file_that_cannot_be_read_is_named_with_its_endpoint_at_the_start(tmp_path: Path) -> None:
    process = Process(tmp_path)
    secret = f"{{broker: 'mqtt://127.0.0.1:1', username: u, password_file: {tmp_path / 'none'}}}"
    key = f"{{receipts: {{key_file: {tmp_path / 'no-key'}, streamers: [other]}}}}"
    endpoints = (
        f"endpoints:\n  fleet: {{transport: mqtt5, authorities: [fleet], options: {secret}}}\n"
        f"  body: {{transport: zenoh, authorities: [body], options: {key}}}\n"
    )
    process.file.write_text(process.file.read_text().replace("endpoints:\n", endpoints))
    await process.start()
    assert await process.end() == 78
    assert [line["problem"] for line in process.events("not_started")] == [
        f"{process.file}: endpoints.fleet.options.password_file: {tmp_path / 'none'}: No such file or directory",
        f"{process.file}: endpoints.body.options.receipts.key_file: {tmp_path / 'no-key'}: No such file or directory",
    ]
    assert process.told("READY=1") == 0
    process.systemd.close()


async def test_sighup_before_the_daemon_can_obey_it_is_obeyed_later(tmp_path: Path) -> None:
    process = Process(tmp_path)
    content = process.file.read_text()
    process.file.unlink()
    os.mkfifo(process.file)
    async with running(process):
        writing = await asyncio.to_thread(process.file.open, "w")  # somebody reads it now: the daemon
        changed = tmp_path / "changed.yaml"
        changed.write_text(content.replace("routes:\n", SECOND_ROUTE))
        changed.replace(process.file)
        process.signal(signal.SIGHUP)
        writing.write(content)
        writing.close()
        await process.until(lambda: len(process.events("reloaded")) == 1)


async def test_fewer_listeners_than_the_routes_need_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryOptions, "listeners", ListenerOptions(max_listeners=1))
    process = Process(tmp_path)
    process.systemd.close()
    daemon = Daemon(load(process.file, kind=FILE), process.file)
    with pytest.raises(ConfigError) as caught:
        await daemon.run()
    assert [str(each) for each in caught.value.problems] == [
        f"{process.file}: listeners: RESOURCE_EXHAUSTED: 1 listeners: the limit of this transport"
    ]
