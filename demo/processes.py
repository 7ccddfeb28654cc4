"""The processes of the demonstration: the embedded broker and the daemons, with a temporary directory for all of them."""

import asyncio
import json
import os
import random
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from iotcore import Broker

from demo.metrics import Snapshot, fetch
from demo.scenario import CLOUD, GATEWAY, SLEEPER, VEHICLE

HOST = "127.0.0.1"
START_S = 60.0
STOP_S = 15.0
_POLL_S = 0.02
_LOG_TAIL = 2000
_PORTS = iter(random.sample(range(20_000, 32_000), 1000))  # each is tried once, so that nobody gets the port of another
_FROM_TERMINAL = {signal.SIGINT, signal.SIGHUP}


class DemoError(Exception):
    """The demonstration cannot start or continue; the text gives the reason."""


def free_port() -> int:
    """Return an unused port that was not returned before, below the range that the kernel uses for outgoing connections."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise DemoError(f"no free TCP port between 20000 and 32000 on {HOST}")


async def until(condition: Callable[[], bool], within_s: float) -> bool:
    """Wait until ``condition()`` is true. False: it is not within ``within_s``."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline_s:
            return False
        await asyncio.sleep(_POLL_S)
    return True


class DemoDaemon:
    """One streamer: its process, its place on Zenoh, its log. ``pair``: its section of that name."""

    def __init__(self, name: str, directory: Path, mqtt_port: int, pair: dict[str, str] | None) -> None:
        self.name = name
        self.zenoh = f"tcp/{HOST}:{free_port()}"
        self.log = directory / f"{name}.log"
        self.is_killed = False
        self._is_paired = pair is not None
        self._admin = f"{HOST}:{free_port()}"
        self._path = directory / f"{name}.yaml"
        self._process: asyncio.subprocess.Process | None = None
        self._path.write_text(
            _STREAMER.format(
                gateway=GATEWAY,
                vehicle=VEHICLE,
                sleeper=SLEEPER,
                cloud=CLOUD,
                zenoh=self.zenoh,
                garage=f"tcp/{HOST}:{free_port()}",
                broker=f"mqtt://{HOST}:{mqtt_port}",
                admin=self._admin,
                journal=json.dumps(str(directory / f"{name}.db")),
                pair=json.dumps(pair),
            )
        )

    async def start(self) -> None:
        """Start the process; it may have run before."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "streamer", "run", "--config", str(self._path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C does not reach the daemon; `stop` stops it
            )
        self.is_killed = False

    async def until_answers(self, http: aiohttp.ClientSession) -> None:
        """Wait for its first metrics. Raises `DemoError`."""
        deadline_s = asyncio.get_running_loop().time() + START_S
        while await self.snapshot(http) is None:
            if asyncio.get_running_loop().time() > deadline_s:
                address, tail = f"http://{self._admin}", self._log_tail()
                raise DemoError(f"the daemon does not answer on {address} after {START_S:.0f} s:\n{tail}")
            await asyncio.sleep(_POLL_S)

    async def snapshot(self, http: aiohttp.ClientSession) -> Snapshot | None:
        """Return the present metrics; None: it does not answer. Raises `DemoError` if it has ended by itself."""
        if self.is_killed:
            return None
        if self._process is not None and (status := self._process.returncode) is not None:
            raise DemoError(f"the daemon ended by itself (exit status {status}):\n{self._log_tail()}")
        return await fetch(http, f"http://{self._admin}", self._is_paired)

    async def kill(self) -> None:
        """End the process at once (SIGKILL)."""
        if self._process is None:
            raise AssertionError("the daemon was started before it is killed")
        self.is_killed = True
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """End the process in an orderly way; if it takes too long, at once."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except BaseException as exc:
            if process.returncode is None:
                process.kill()
                await process.wait()
            if not isinstance(exc, TimeoutError):
                raise

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-_LOG_TAIL:].rstrip() if self.log.exists() else ""


class DemoProcesses:
    """Broker and daemons, which run inside ``async with``. Its end always stops the processes and removes their files.

    ``latest`` is the last answer of each daemon, by its name; None: it does not answer.
    """

    def __init__(self, is_pair: bool) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="ustreamer-demo-"))
        self.mqtt_port = free_port()
        pairs: dict[str, dict[str, str] | None] = {"streamer": None}
        if is_pair:
            key = self._directory / "pair.key"
            key.touch(0o600)
            key.write_text(secrets.token_hex(32))
            link = f"{HOST}:{free_port()}"
            pairs = {
                name: {where: link, "key_file": str(key)} for name, where in (("first", "listen"), ("second", "connect"))
            }
        self.daemons = [DemoDaemon(name, self._directory, self.mqtt_port, pair) for name, pair in pairs.items()]
        self.latest: dict[str, Snapshot | None] = {daemon.name: None for daemon in self.daemons}
        self._broker: Broker | None = None
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._start_broker)
            self._http = aiohttp.ClientSession()
            for daemon in self.daemons:
                await daemon.start()
            for daemon in self.daemons:
                await daemon.until_answers(self._http)
        except BaseException as exc:
            await self.__aexit__(type(exc), exc, exc.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with AsyncExitStack() as endings:  # in reverse order, each one even if an earlier one fails
            endings.callback(shutil.rmtree, self._directory, ignore_errors=True)
            if self._broker is not None:
                endings.push_async_callback(asyncio.to_thread, self._broker.stop)
            for daemon in self.daemons:
                endings.push_async_callback(daemon.stop)
            if self._http is not None:
                endings.push_async_callback(self._http.close)

    def keep_logs(self) -> list[str]:
        """Copy the daemons' logs to files that stay, and return their paths."""
        kept = []
        for daemon in self.daemons:
            if daemon.log.exists():
                descriptor, path = tempfile.mkstemp(prefix="ustreamer-demo-", suffix=".log")
                with os.fdopen(descriptor, "wb") as copy:
                    copy.write(daemon.log.read_bytes())
                kept.append(path)
        return kept

    async def read(self) -> None:
        """Read the present metrics of each daemon into ``latest``. Raises `DemoError` if one has ended by itself."""
        if self._http is None:
            raise AssertionError("the daemons were started before anybody reads them")
        for daemon in self.daemons:
            self.latest[daemon.name] = await daemon.snapshot(self._http)

    def _start_broker(self) -> None:
        """Start the broker, on a thread of its own, with the terminal's signals blocked, so that it survives Ctrl-C."""
        config = self._directory / "broker.toml"
        config.write_text(_BROKER.format(host=HOST, port=self.mqtt_port))
        signal.pthread_sigmask(signal.SIG_BLOCK, _FROM_TERMINAL)  # the child inherits it
        try:
            self._broker = Broker(config_path=str(config))
            self._broker.start()
        except (OSError, RuntimeError, ValueError) as exc:
            raise DemoError(f"the embedded MQTT broker (iotcore) does not start on {HOST}:{self.mqtt_port}: {exc}") from exc
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FROM_TERMINAL)


_STREAMER = """\
authority: {gateway}
endpoints:
  vehicle:
    transport: zenoh
    authorities: [{vehicle}]
    options: {{listen: ["{zenoh}"], uncertain_s: 2}}
  garage:                     # a second vehicle that sleeps: nobody ever connects here
    transport: zenoh
    authorities: [{sleeper}]
    options: {{listen: ["{garage}"], uncertain_s: 2}}
  cloud:
    transport: mqtt5
    authorities: [{cloud}, "*"]
    options: {{broker: "{broker}", topics: off-vehicle, client_id: gateway-veh1}}
routes:
  - {{from: vehicle, to: cloud, publish: ["//{vehicle}/FFFFFFFF/FF/FFFF"], publish_to: [{cloud}]}}
  - {{from: cloud, to: vehicle}}
  - {{from: cloud, to: garage}}
journal: {{path: {journal}}}
dead_letter: {{endpoints: [origin, cloud]}}
metrics: {{listen: "{admin}"}}
log: {{format: human}}
shutdown: {{drain_s: 5}}
pair: {pair}
"""

_BROKER = """\
id = 0
[router]
id = 0
max_connections = 100
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v5.1]
name = "v5-1"
listen = "{host}:{port}"
next_connection_delay_ms = 1
[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = 1048576
max_inflight_count = 1000
dynamic_filters = true
"""
