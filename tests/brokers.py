"""MQTT brokers for tests: real programs on a fixed free port of 127.0.0.1, to start, stop, kill and restart.

Use them as context managers, so that no process outlives its test. They block for the few milliseconds that a start
takes; that is what a test wants.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from tests.ports import HOST, free_port
from tests.programs import require

STOP_TIMEOUT_S = 10.0


class BrokerProcess(ABC):
    """A broker as a child process. ``port`` stays the same over restarts; ``directory`` holds its files."""

    start_timeout_s = 15.0

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        self._temporary = tempfile.TemporaryDirectory(prefix="broker-")
        self.directory = Path(self._temporary.name)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id, for signals. Raises AssertionError if it does not run."""
        if self._process is None:
            raise AssertionError("the broker does not run")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_file(self) -> Path:
        return self.directory / "broker.log"

    @abstractmethod
    def command(self) -> list[str]:
        """Write the configuration and return the command line."""

    def start(self) -> Self:
        """Start and return once it accepts connections. Raises RuntimeError with the end of its log otherwise."""
        if self.is_running:
            return self
        with self.log_file.open("ab") as log:
            # stdin: a pipe that closes with us, which iotcore takes as the sign to end
            self._process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return self
        self.kill()
        raise RuntimeError(f"{type(self).__name__} did not start:\n{self.log_file.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """End it in an orderly way (SIGTERM; SIGKILL if it takes too long). Idempotent."""
        self._end(force=False)

    def kill(self) -> None:
        """End it at once (SIGKILL): what it had only in memory is gone. Idempotent."""
        self._end(force=True)

    def restart(self) -> Self:
        """`stop` and `start`, on the same port and with the same files."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """`kill` and remove the files."""
        self.kill()
        self._temporary.cleanup()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _end(self, force: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.kill() if force else process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_TIMEOUT_S)
        if process.stdin is not None:
            process.stdin.close()


@dataclass(frozen=True)
class TlsFiles:
    """PEM files. With ``require_certificate`` clients must show a certificate of that CA."""

    ca_file: Path
    cert_file: Path
    key_file: Path
    require_certificate: bool = True


@dataclass(frozen=True)
class MosquittoOptions:
    """What tests turn. ``0`` means unlimited for both limits; ``extra`` are further lines of mosquitto.conf.

    With ``persistence`` it keeps sessions and messages in its directory and saves them at an orderly stop; a kill
    loses what came since. ``users`` maps names to passwords and forbids everybody else.
    """

    persistence: Path | bool = False
    max_queued_messages: int = 0
    max_inflight: int = 1000
    tls: TlsFiles | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()


class Mosquitto(BrokerProcess):
    """Eclipse Mosquitto. Keyword arguments are the fields of `MosquittoOptions`."""

    def __init__(self, port: int | None = None, **options: Any) -> None:
        self._program = require("mosquitto")
        super().__init__(port)
        self.options = MosquittoOptions(**options)

    @property
    def url(self) -> str:
        return f"{'mqtts' if self.options.tls else 'mqtt'}://{HOST}:{self.port}"

    def command(self) -> list[str]:
        options = self.options
        lines = [
            f"listener {self.port} {HOST}",
            f"allow_anonymous {'false' if options.users else 'true'}",
            f"max_queued_messages {options.max_queued_messages}",
            f"max_inflight_messages {options.max_inflight}",
            f"persistence {'true' if options.persistence else 'false'}",
            "log_dest stderr",
            *options.extra,
        ]
        if os.geteuid() == 0:
            lines.insert(0, "user root")  # or it gives up its rights, and with them the test's directory
        if options.persistence:
            location = self.directory if options.persistence is True else options.persistence
            lines.append(f"persistence_location {location}/")
        if options.tls is not None:
            lines += [
                f"cafile {options.tls.ca_file}",
                f"certfile {options.tls.cert_file}",
                f"keyfile {options.tls.key_file}",
                f"require_certificate {str(options.tls.require_certificate).lower()}",
            ]
        if options.users:
            passwords = self.directory / "passwords"
            passwords.write_text("".join(f"{name}:{word}\n" for name, word in options.users.items()))
            subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
            lines.append(f"password_file {passwords}")
        config = self.directory / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n")
        return [self._program, "-c", str(config)]


class Rumqttd(BrokerProcess):
    """rumqttd, from the wheel ``iotcore``, with a listener for MQTT 5 only. It keeps everything in memory."""

    def __init__(self, port: int | None = None, max_payload_bytes: int = 8 * 1024 * 1024) -> None:
        super().__init__(port)
        self.max_payload_bytes = max_payload_bytes

    def command(self) -> list[str]:
        config = self.directory / "rumqttd.toml"
        config.write_text(
            f"""
            id = 0
            [router]
            id = 0
            max_connections = 1000
            max_outgoing_packet_count = 200
            max_segment_size = 104857600
            max_segment_count = 10
            [v5.1]
            name = "v5-1"
            listen = "{HOST}:{self.port}"
            next_connection_delay_ms = 1
            [v5.1.connections]
            connection_timeout_ms = 60000
            max_payload_size = {self.max_payload_bytes}
            max_inflight_count = 10000
            dynamic_filters = true
            """
        )
        program = "from iotcore._serve import main; main()"
        return [sys.executable, "-c", program, f'{{"config_path": "{config}"}}']


def any_broker() -> BrokerProcess:
    """For tests to which every broker is alike: mosquitto, or rumqttd where it is missing."""
    return Rumqttd() if shutil.which("mosquitto") is None else Mosquitto()


@contextmanager
def broker(kind: str) -> Iterator[BrokerProcess]:
    """A running broker by name: ``mosquitto`` or ``rumqttd``. For parametrized tests."""
    with Mosquitto() if kind == "mosquitto" else Rumqttd() as running:
        yield running


BROKERS = [pytest.param("mosquitto", marks=pytest.mark.mosquitto), pytest.param("rumqttd")]
"""For ``@pytest.mark.parametrize("kind", BROKERS)``."""
