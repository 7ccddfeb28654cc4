"""The processes of the demonstration: the embedded broker and the daemon, with a temporary directory for both."""

import asyncio
import json
import os
import random
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

from streamer.demo.metrics import Snapshot, fetch
from streamer.demo.scenario import CLOUD, GATEWAY, SLEEPER, VEHICLE

HOST = "127.0.0.1"
START_S = 20.0
STOP_S = 15.0
_POLL_S = 0.02
_LOG_TAIL = 2000
_FROM_TERMINAL = {signal.SIGINT, signal.SIGHUP}


class DemoError(Exception):
    """The demonstration cannot start or continue; the text gives the reason."""


def free_port() -> int:
    """Return an unused port, below the range that the kernel uses for outgoing connections."""
    for _ in range(1000):
        port = random.randrange(20_000, 32_000)
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


class DemoProcesses:
    """Broker and daemon, which run inside ``async with``. Its end always stops the processes and removes their files."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="ustreamer-demo-"))
        self.log = self._directory / "streamer.log"
        self.mqtt_port = free_port()
        self.zenoh = f"tcp/{HOST}:{free_port()}"
        self._garage = f"tcp/{HOST}:{free_port()}"
        self._admin = f"{HOST}:{free_port()}"
        self._broker: Broker | None = None
        self._daemon: asyncio.subprocess.Process | None = None
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._start_broker)
            await self._start_daemon()
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
            endings.push_async_callback(self._stop_daemon)
            if self._http is not None:
                endings.push_async_callback(self._http.close)

    def keep_log(self) -> Path | None:
        """Copy the daemon's log to a file that stays, and return its path; None: there is no log."""
        if not self.log.exists():
            return None
        descriptor, kept = tempfile.mkstemp(prefix="ustreamer-demo-", suffix=".log")
        with os.fdopen(descriptor, "wb") as copy:
            copy.write(self.log.read_bytes())
        return Path(kept)

    async def snapshot(self) -> Snapshot | None:
        """Return the daemon's present metrics; None: it does not answer."""
        if self._http is None:
            raise AssertionError("the daemon was started before anybody reads it")
        return await fetch(self._http, f"http://{self._admin}/metrics")

    async def watch(self) -> None:
        """Wait for ever. Raises `DemoError` when the daemon ends by itself."""
        assert self._daemon is not None
        status = await self._daemon.wait()
        raise DemoError(f"the daemon ended by itself (exit status {status}):\n{self._log_tail()}")

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

    async def _start_daemon(self) -> None:
        path = self._directory / "streamer.yaml"
        path.write_text(self._config())
        with self.log.open("wb") as log:
            self._daemon = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "streamer", "run", "--config", str(path)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C does not reach the daemon; `_stop_daemon` stops it
            )
        self._http = aiohttp.ClientSession()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + START_S
        while await self.snapshot() is None:
            if self._daemon.returncode is not None:
                raise DemoError(f"the daemon does not start (exit status {self._daemon.returncode}):\n{self._log_tail()}")
            if loop.time() > deadline_s:
                raise DemoError(
                    f"the daemon does not answer on http://{self._admin} after {START_S:.0f} s:\n{self._log_tail()}"
                )
            await asyncio.sleep(_POLL_S)

    async def _stop_daemon(self) -> None:
        daemon = self._daemon
        if daemon is None or daemon.returncode is not None:
            return
        daemon.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await daemon.wait()
        except BaseException as exc:
            if daemon.returncode is None:
                daemon.kill()
                await daemon.wait()
            if not isinstance(exc, TimeoutError):
                raise

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-_LOG_TAIL:].rstrip() if self.log.exists() else ""

    def _config(self) -> str:
        return _STREAMER.format(
            gateway=GATEWAY,
            vehicle=VEHICLE,
            sleeper=SLEEPER,
            cloud=CLOUD,
            zenoh=self.zenoh,
            garage=self._garage,
            broker=f"mqtt://{HOST}:{self.mqtt_port}",
            admin=self._admin,
            journal=json.dumps(str(self._directory / "journal.db")),
        )


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
