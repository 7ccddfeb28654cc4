"""Doing what a page of docs/how-to says, literally: its commands, its configuration, on a gateway of the test's own.

The gateway has the first configuration of the README. Only places are replaced (`Gateway.places`): paths, ports, hosts. A
page may use ``sudo``, ``systemctl`` and ``journalctl``; here they act on the test's daemon. A block that no test does fails
the test.
"""

import asyncio
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from tests.brokers import Mosquitto
from tests.independent.message import Plain
from tests.pages import DOCS, README, yaml_blocks
from tests.ports import HOST, free_port
from tests.process import ROOT, StreamerProcess
from tests.programs import require

PAGES = DOCS / "how-to"
LINES = 60

_BLOCK = re.compile(r"^```(\w+)\n([\s\S]*?)^```$|((?:^    +\S.*\n)+)", re.MULTILINE)
_SHIMS = {
    "sudo": 'while [ "$1" = -u ] || [ "$1" = ustreamer ]; do shift; done; exec "$@"',
    "systemctl": """[ "$1" = show ] && exec cat "$HOW_TO/pid"
echo "$1" >"$HOW_TO/asked"; read -r answer <"$HOW_TO/answered"; exit "$answer\"""",
    "journalctl": 'exec cat "$HOW_TO/log"',
    "streamer": f'exec {sys.executable} -m streamer "$@"',
    "python": f'exec {sys.executable} "$@"',
}


@dataclass(frozen=True)
class Block:
    """``kind``: commands, or the language of a fenced block."""

    kind: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    return [
        Block(found[1] or "commands", found[2] or re.sub("^    ", "", found[3], flags=re.MULTILINE))
        for found in _BLOCK.finditer(page.read_text())
    ]


def first_configuration() -> str:
    (block,) = [block for page, block in yaml_blocks() if page == README.name]
    return block


class Gateway(StreamerProcess):
    """A machine with a streamer on it, whose operator follows a page.

    ``places`` maps what the page says to what it is here. ``text`` and ``do`` take the blocks of the page in order.
    """

    def __init__(self, folder: Path, page: str | None, places: dict[str, str]) -> None:
        """``page``: the name of its file without the suffix; None for a machine beside the one that the page is about."""
        folder.mkdir(exist_ok=True)
        super().__init__(folder, {})
        self.path.unlink()
        self._left = [] if page is None else blocks(PAGES / f"{page}.md")
        self.folder = folder
        self.places = {
            "/etc/ustreamer": f"{folder}/etc/ustreamer",
            "/var/lib/streamer": f"{folder}/var/lib/streamer",
            "/var/backups": f"{folder}/var/backups",
            "127.0.0.1:9464": f"127.0.0.1:{self.admin}",
            "tcp/127.0.0.1:7447": f"tcp/127.0.0.1:{free_port()}",
        } | places
        self.path = self.place("/etc/ustreamer") / "streamer.yaml"
        for place in ("/etc/ustreamer", "/var/lib/streamer", "/var/backups"):
            self.place(place).mkdir(parents=True)
        self._bin = folder / "bin"
        self._bin.mkdir()
        for name, does in _SHIMS.items():
            (self._bin / name).write_text(f"#!/bin/sh\n{does}\n")
            (self._bin / name).chmod(0o755)
        for pipe in ("asked", "answered"):
            os.mkfifo(folder / pipe)
        (folder / "log").symlink_to(self.log_path)
        self._manager = threading.Thread(target=self._manage, daemon=True)
        self._manager.start()
        listens = {"metrics": {"listen": f"127.0.0.1:{self.admin}"}, "log": {"repeat_s": 0, "format": "json"}}
        self.write(yaml.safe_load(self.here(first_configuration())) | listens)

    # the page

    def here(self, text: str) -> str:
        """A text of the page with the places of this machine."""
        for there, here in self.places.items():
            text = text.replace(there, here)
        return text

    def place(self, there: str) -> Path:
        return Path(self.here(there))

    @property
    def vehicle_at(self) -> str:
        """Where the vehicle connects."""
        return self.places["tcp/127.0.0.1:7447"]

    def _next(self, kind: str) -> str:
        assert self._left, "the page has no more blocks"
        block = self._left.pop(0)
        assert block.kind == kind, block
        return block.text

    def text(self, kind: str) -> str:
        """The next block of the page, which is of this kind."""
        return self.here(self._next(kind))

    def configure(self, page: "Gateway | None" = None) -> dict[str, Any]:
        """Put the sections of the page's next block into the file, and return them. ``page``: whoever follows the page."""
        shown: dict[str, Any] = yaml.safe_load(self.here((page or self)._next("yaml")))
        self.write(self.config | shown)
        return shown

    def skip(self, count: int) -> None:
        """Leave out blocks, which another test does."""
        del self._left[:count]

    async def service(self, verb: str) -> None:
        """What an operator has to do beside the page: ``start``, ``stop`` or ``restart`` the service."""
        status, said = await self.shell(f"systemctl {verb} streamer")
        assert status == 0, said

    async def do(
        self, *values: tuple[str, str], lines: int | None = None, status: int = 0, page: "Gateway | None" = None
    ) -> str:
        """Run the commands of the page's next block, or the first ``lines`` of it, and return what they print.

        ``page``: the gateway that follows the page, if it is another one.
        ``values`` replace placeholders, such as an id. ``# → text`` after a command says what it prints; ``…`` is anything.
        Every command has to end with ``status``.
        """
        follows = page or self
        block = follows._next("commands").splitlines()
        if lines is not None and block[lines:]:
            follows._left.insert(0, Block("commands", "\n".join(block[lines:])))
        said = []
        for line in map(self.here, block[:lines]):
            for placeholder, value in values:
                line = line.replace(placeholder, value)
            command, _, promised = line.partition("# → ")
            ended = await self.shell(command)
            assert ended[0] == status, (command, *ended)
            rest = ended[1]
            for part in filter(None, (each.strip() for each in promised.split("…"))):
                assert part in rest, (command, part, ended[1])
                rest = rest.partition(part)[2]
            said.append(ended[1])
        return "".join(said)

    async def shell(self, command: str) -> tuple[int, str]:
        """A command line on this machine: exit status, and all that it prints."""
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            command,
            cwd=self.folder,
            env=os.environ
            | {
                "PATH": f"{self._bin}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "HOW_TO": str(self.folder),
                "USTREAMER_CONFIG": str(self.path),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), 300)
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode is not None
        return process.returncode, out.decode()

    # the service manager

    def _manage(self) -> None:
        """Do what ``systemctl`` asks for."""
        while True:
            asked = (self.folder / "asked").read_text().strip()
            if asked == "end":
                return
            status = 0
            if asked in ("stop", "restart") and self.process is not None and self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
                status = self.process.wait()
            if asked in ("start", "restart"):
                self.start()
                while self.get("/healthz")[0] != 200 and self.process is not None and self.process.poll() is None:
                    pass
            (self.folder / "answered").write_text(f"{status}\n")

    def start(self) -> None:
        super().start()
        assert self.process is not None
        (self.folder / "pid").write_text(f"{self.process.pid}\n")

    async def __aenter__(self) -> Self:
        """The daemon is started by ``start``, or by the page."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        (self.folder / "asked").write_text("end\n")
        await asyncio.to_thread(self._manager.join)
        await super().__aexit__()
        if exc[:1] == (None,):
            assert self._left == [], "nobody has done this"


TO_CLOUD = ["+/cloud"]
"""What a program in the cloud subscribes to."""


def up(number: int, **more: Any) -> Plain:
    """A Publish of the vehicle."""
    return Plain(1, ("veh1", 0xA8000, 2, 0x8A50), payload=b"%d" % number, **more)


def down(number: int, vehicle: str = "veh1", **more: Any) -> Plain:
    """A Notification from the cloud to the vehicle."""
    return Plain(4, ("cloud", 0xC0, 1, 0x8001), (vehicle, 0xA8000, 2, 0), b"%d" % number, **more)


def numbers(messages: Iterable[Plain]) -> list[int]:
    """The numbers of messages in order, each at its first arrival, and without the streamer's own dead letters."""
    return list(copies(messages))


def copies(messages: Iterable[Plain]) -> Counter[int]:
    """How often each number arrived, in the order of first arrivals."""
    return Counter(int(each.payload) for each in messages if each.payload.isdigit())


class Broker(Mosquitto):
    """A mosquitto with the lines of a page in its configuration, beside a listener and a place for its files."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def command(self) -> list[str]:
        own = [f"listener {self.port} {HOST}", f"persistence_location {self.directory}/", "log_dest stderr"]
        if os.geteuid() == 0:
            own.append("user root")  # or it gives up its rights, and with them the test's directory
        if not any(line.startswith("allow_anonymous") for line in self.lines):
            own.append("allow_anonymous true")
        file = self.directory / "mosquitto.conf"
        file.write_text("\n".join([*own, *self.lines]) + "\n")
        return [require("mosquitto"), "-c", str(file)]
