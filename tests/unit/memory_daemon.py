"""The daemon as a process of its own, on memory endpoints, with systemd's end of its notifications."""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.ports import free_port
from tests.preloaded import ForkedStreamer
from tests.process import ROOT

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
control: {{http_token_file: {token_file}}}
"""
TOKEN = "not-for-everybody"
SECOND_ROUTE = "routes:\n  - {from: cloud, to: vehicle, name: down}\n"


class Process:
    """``python -m streamer run`` with its file, its log and systemd's end of the notify socket."""

    def __init__(self, tmp_path: Path) -> None:
        self.port = free_port()
        self.file = tmp_path / "streamer.yaml"
        token_file = tmp_path / "token"
        token_file.write_text(TOKEN)
        self.file.write_text(CONFIG.format(port=self.port, token_file=token_file))
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
        self.process: ForkedStreamer

    async def start(self) -> None:
        self.log.write_bytes(b"")
        argv = ("run", "--config", str(self.file))
        self.process = await asyncio.to_thread(ForkedStreamer, argv, ROOT, self.log, self._environment)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; a daemon that died or a deadline that passed says what it had logged."""
        until_s = time.monotonic() + DEADLINE_S
        while not await asyncio.to_thread(condition):
            assert time.monotonic() < until_s, self.log.read_text()
            assert self.process.returncode is None, self.log.read_text()
            await asyncio.sleep(0.02)

    async def ready(self) -> None:
        await self.until(lambda: self.told("READY=1") >= 1)

    async def end(self) -> int:
        """The exit status."""
        return await asyncio.to_thread(self.process.wait, DEADLINE_S)

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
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return str(answer.read().decode())
        except OSError as exc:
            return str(exc)

    def body(self, path: str) -> str:
        """What the page has, whatever its status."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return str(answer.read().decode())
        except HTTPError as exc:
            with exc:
                return exc.read().decode()
        except OSError as exc:
            return str(exc)

    def reload(self) -> int:
        """Have the file read again; the status of the answer."""
        return self.post("reload")

    def post(self, page: str) -> int:
        """Ask for a change with the token; the status of the answer."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        request = Request(f"http://127.0.0.1:{self.port}/api/v1/{page}", b"{}", headers)
        with urlopen(request, timeout=DEADLINE_S) as answer:
            return int(answer.status)

    def refused_post(self) -> int:
        """Ask for a change without the token; the status of the answer."""
        request = Request(f"http://127.0.0.1:{self.port}/api/v1/reload", b"{}", {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=DEADLINE_S) as answer:
                return int(answer.status)
        except HTTPError as exc:
            with exc:
                return exc.code

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
