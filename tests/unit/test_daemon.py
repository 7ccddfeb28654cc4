"""The daemon as a process of its own, on memory endpoints: signals, systemd, reloads, logs, the admin port."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

DEADLINE_S = 20.0

CONFIG = """\
authority: gateway.veh1
endpoints:
  vehicle: {{transport: memory, authorities: [veh1], options: {{bus: vehicle}}}}
  cloud: {{transport: memory, authorities: ["*"], options: {{bus: cloud}}}}
routes:
  - {{from: vehicle, to: cloud}}
metrics: {{listen: "127.0.0.1:{port}"}}
shutdown: {{drain_s: 3600}}
log: {{repeat_s: 0}}
"""
SECOND_ROUTE = "routes:\n  - {from: cloud, to: vehicle, name: down}\n"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Process:
    """``python -m streamer run`` with its file, its log and systemd's end of the notify socket."""

    def __init__(self, tmp_path: Path) -> None:
        self.port = free_port()
        self.file = tmp_path / "streamer.yaml"
        self.file.write_text(CONFIG.format(port=self.port))
        self.log = tmp_path / "log"
        self.heard: list[str] = []
        self.systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.systemd.bind(str(tmp_path / "notify"))
        self._environment = os.environ | {
            "SSL_CERT_FILE": os.devnull,
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "200000",
        }
        self._environment.pop("WATCHDOG_PID", None)
        self.process: asyncio.subprocess.Process

    async def start(self) -> None:
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "streamer", "run", "--config", str(self.file)),
                stderr=log,
                env=self._environment,
            )

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; a daemon that died or a deadline that passed says what it had logged."""
        until_s = time.monotonic() + DEADLINE_S
        while not await asyncio.to_thread(condition):
            self.told("")  # systemd reads on
            assert time.monotonic() < until_s, self.log.read_text()
            assert self.process.returncode is None, self.log.read_text()
            await asyncio.sleep(0.02)

    async def ready(self) -> None:
        await self.until(lambda: self.told("READY=1") >= 1)

    async def end(self) -> int:
        """The exit status."""
        return await asyncio.wait_for(self.process.wait(), DEADLINE_S)

    def told(self, assignment: str) -> int:
        """How often systemd was told that."""
        while True:
            try:
                self.heard += self.systemd.recv(4096).decode().split("\n")
            except BlockingIOError:
                return self.heard.count(assignment)

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def events(self, name: str) -> list[dict[str, object]]:
        return [line for line in self.lines() if line.get("event") == name]

    def get(self, path: str) -> str:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except URLError as exc:
            return str(exc)

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """The values of a metric by the values of its labels, in the labels' order by name."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.get("/metrics"))
            for sample in family.samples
            if sample.name == name
        }

    def routes(self) -> set[str]:
        return {route for _, _, route in self.samples("ustreamer_accepted_messages_total")} - {"none"}


@asynccontextmanager
async def running(process: Process) -> AsyncIterator[Process]:
    await process.start()
    try:
        yield process
    finally:
        if process.process.returncode is None:
            process.process.kill()
            await process.end()
        process.systemd.close()


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Process]:
    async with running(Process(tmp_path)) as process:
        yield process


def limit_listeners(process: Process, bus: str, most: int) -> None:
    """The vehicle's endpoint needs one listener, the cloud's two, and each pattern one more."""
    text = process.file.read_text()
    process.file.write_text(text.replace(f"bus: {bus}", f"bus: {bus}, listeners: {{max_listeners: {most}}}"))


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
    assert daemon.told("STOPPING=1") == 1
    assert [line["messages_left"] for line in daemon.events("drained")] == [0]
    assert len(daemon.events("stopped")) == 1


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
    assert json.loads(await asyncio.to_thread(daemon.get, "/readyz")) == {"ready": True, "reasons": []}
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
    ("bus: cloud", "bus: other", "restart to use them"),
    ("drain_s: 3600", "drain_s: {", "streamer.yaml:"),
    ("metrics: {", "metrics: null\n# {", "metrics: changed; restart to use it"),
    ("shutdown:", "remember: {ids: 5}\nshutdown:", "remember: changed; restart to use it"),
    ("shutdown:", "journal: {path: journal}\nshutdown:", "journal: changed; restart to use it"),
    ("shutdown:", "trace: {path: trace}\nshutdown:", "trace: changed; restart to use it"),
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


async def test_hangup_with_more_patterns_than_listeners_are_allowed_keeps_the_old_file(tmp_path: Path) -> None:
    process = Process(tmp_path)
    limit_listeners(process, "vehicle", 1)
    good = process.file.read_text()
    more = good.replace("to: cloud}", 'to: cloud, publish: ["//veh1/A8000/2/FFFF"]}').replace("repeat_s: 0", "format: human")
    async with running(process):
        await process.ready()
        process.file.write_text(more.replace("routes:\n", SECOND_ROUTE))
        process.signal(signal.SIGHUP)
        await process.until(lambda: process.samples("ustreamer_reloads_total") == {("ok",): 0, ("refused",): 1})
        assert await asyncio.to_thread(process.routes) == {"vehicle-cloud"} | REPORTS
        (refused,) = process.events("reload_refused")  # still JSON: nothing of that file is used
        assert refused["problem"] == "listeners: RESOURCE_EXHAUSTED: 1 listeners: the limit of this transport"
        await process.until(lambda: process.told("READY=1") == 2)  # systemd waits for it after RELOADING=1
        process.file.write_text(good.replace("routes:\n", SECOND_ROUTE))
        process.signal(signal.SIGHUP)
        await process.until(lambda: process.samples("ustreamer_reloads_total") == {("ok",): 1, ("refused",): 1})
        assert await asyncio.to_thread(process.routes) == {"vehicle-cloud", "down"} | REPORTS
        process.signal(signal.SIGTERM)
        assert await process.end() == 0


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
        process.file.write_text(good.replace("audit.log", "other.log"))
        process.signal(signal.SIGHUP)
        await process.until(lambda: process.samples("ustreamer_reloads_total")[("refused",)] == 1)
        assert [line["problem"] for line in process.events("reload_refused")] == ["log.audit: changed; restart to use it"]


async def test_audit_log_that_cannot_be_written_is_a_clear_error_at_the_start(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.file.write_text(process.file.read_text().replace("repeat_s: 0", f"repeat_s: 0, audit: {tmp_path}"))
    async with running(process):
        assert await process.end() == 78
        assert "log.audit: " in process.log.read_text()


async def test_admin_port_that_is_taken_is_a_clear_error(tmp_path: Path) -> None:
    process = Process(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", process.port))
        taken.listen()
        await process.start()
        assert await process.end() == 1
    last = process.log.read_text().splitlines()[-1]
    assert last.startswith(f"{process.file}: ")
    assert str(process.port) in last
    assert "address already in use" in last
    assert "Traceback" not in process.log.read_text()
    assert process.told("READY=1") == 0
    process.systemd.close()


async def test_bad_file_at_the_start_is_78_before_anything_is_opened(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.file.write_text("authority: gateway\n")
    await process.start()
    assert await process.end() == 78
    assert process.log.read_text().startswith(f"{process.file}:")
    assert process.told("READY=1") == 0
    process.systemd.close()


async def test_fewer_listeners_than_the_routes_need_is_78_and_a_clear_error(tmp_path: Path) -> None:
    process = Process(tmp_path)
    limit_listeners(process, "cloud", 1)
    async with running(process):
        assert await process.end() == 78
        assert process.told("READY=1") == 0
    last = process.log.read_text().splitlines()[-1]
    limit = "RESOURCE_EXHAUSTED: 1 listeners: the limit of this transport"
    assert last == f"{process.file}: options.listeners: {limit}"
    assert "Traceback" not in process.log.read_text()
