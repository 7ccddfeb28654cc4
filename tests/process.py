"""The daemon as its own process, as a user runs it, with its metrics at hand."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.ports import free_port
from tests.preloaded import ForkedStreamer
from tests.waiting import until

ROOT = Path(__file__).parents[1]
_SCRAPES = 3
_PACKETS = ("ustreamer_received_messages_total", "ustreamer_malformed_packets_total", "ustreamer_unwanted_packets_total")


class StreamerProcess:
    """``streamer run`` on a configuration given as a dictionary. ``log`` is its standard error so far."""

    def __init__(
        self,
        directory: Path,
        config: dict[str, Any],
        environ: dict[str, str] | None = None,
        program: Sequence[str] | None = None,
    ) -> None:
        """``program``: what to start instead of a fork (`preloaded`), for instance another version."""
        self.admin = free_port()
        self.path = directory / f"streamer-{self.admin}.yaml"
        self.log_path = directory / f"streamer-{self.admin}.log"
        self.write({"metrics": {"listen": f"127.0.0.1:{self.admin}"}, "log": {"level": "info", "repeat_s": 0}} | config)
        self.program = program
        # Reading the system's certificate authorities takes an eighth of a start, and no test trusts them.
        self._environ = os.environ | {"SSL_CERT_FILE": os.devnull} | (environ or {})
        self.process: subprocess.Popen[bytes] | ForkedStreamer | None = None

    def write(self, config: dict[str, Any]) -> None:
        self.config = config
        self.path.write_text(yaml.safe_dump(config))

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def start(self) -> None:
        if self.program is None:
            argv = ("run", "--config", str(self.path))
            self.process = ForkedStreamer(argv, ROOT, self.log_path, self._environ)
            return
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.program, "run", "--config", str(self.path)],
                cwd=ROOT if self.program[0] == sys.executable else self.path.parent,
                stdout=log,
                stderr=log,
                env=self._environ,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self, within_s: float = 40) -> int:
        """Wait for its end; the exit status is returned."""
        process = self.process
        assert process is not None
        await until(lambda: process.poll() is not None, within_s=within_s, what="the end of the daemon")
        assert process.returncode is not None
        return process.returncode

    async def __aenter__(self) -> Self:
        self.start()
        try:
            await self.until_up()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                await self.ended(30)
            finally:
                self.process.kill()
                self.process.wait()

    def get(self, page: str, within_s: float = 10) -> tuple[int, str]:
        """An admin page: status and body; status 0 if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{page}", timeout=within_s) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode()
        except OSError:
            return 0, ""

    async def until_up(self, within_s: float = 30) -> None:
        """Every endpoint is connected and has somebody on its other side."""

        def is_up() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log
            status, body = self.get("/readyz")
            if status != 200 or not json.loads(body)["ready"]:
                return False
            up = self.samples("ustreamer_endpoint_up")
            return bool(up) and all(up.values())

        await self._until(is_up, within_s, "come up")

    async def until_down(self, endpoint: str, within_s: float = 30) -> None:
        """The link of an endpoint is lost."""
        await self._until(
            lambda: list(self.samples("ustreamer_endpoint_up", endpoint=endpoint).values()) == [0],
            within_s,
            f"lose the link of {endpoint}",
        )

    async def until_total(self, expected: float, name: str, **labels: str) -> None:
        """A metric, summed over all samples with these labels, has this value."""
        await self._until(lambda: self.total(name, **labels) == expected, 60, f"bring {name} {labels} to {expected}")

    async def _until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        deadline = asyncio.get_running_loop().time() + within_s
        while not await asyncio.to_thread(condition):
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"the daemon did not {what} within {within_s} s:\n{self.log[-3000:]}")
            await asyncio.sleep(0.05)

    def samples(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        """Samples of one metric that carry these labels: label values → value."""
        for _ in range(_SCRAPES):  # on a busy machine one may fail, which is not zero
            status, text = self.get("/metrics")
            if status == 200:
                break
        else:
            return {}
        found: dict[tuple[str, ...], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    found[tuple(sample.labels.values())] = sample.value
        return found

    def total(self, name: str, **labels: str) -> float:
        """The sum of one metric over all samples with these labels."""
        return sum(self.samples(name, **labels).values())

    def check_books(self) -> None:
        """In one scrape: accepted = outcomes + queued, for every route.

        And for every endpoint: packets that it received = messages that it handed over + malformed + unwanted ones.
        """
        _, text = self.get("/metrics")
        books: dict[tuple[str, ...], list[float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = tuple(sample.labels.get(label, "") for label in ("route", "ingress", "egress"))
                if sample.name == "ustreamer_accepted_messages_total":
                    books.setdefault(key, [0, 0])[0] += sample.value
                elif sample.name in ("ustreamer_outcomes_total", "ustreamer_queue_messages"):
                    books.setdefault(key, [0, 0])[1] += sample.value
                elif sample.name == "ustreamer_received_packets_total":
                    books.setdefault(("endpoint", sample.labels["endpoint"]), [0, 0])[0] += sample.value
                elif sample.name in _PACKETS:
                    books.setdefault(("endpoint", sample.labels["endpoint"]), [0, 0])[1] += sample.value
        assert books
        for route, (accepted, accounted) in books.items():
            assert accepted == accounted, (route, accepted, accounted)
